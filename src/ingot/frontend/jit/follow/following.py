"""One followed call: a function mode that matches torch calls with the trace and answers them with shells.

In: torch calls, as the user's Python makes them. Out: for those that can wait, tensors that will hold the result; all
others run as PyTorch runs them, after what they need. `flush` runs what is pending as compiled segments.

What always holds: no value is read before it is written. Calls that this mode does not see run into the trap.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from ingot.frontend.jit.arguments.tensors import refused_tensor
from ingot.frontend.jit.follow import metadata_rules
from ingot.frontend.jit.follow.functions import Role, may_write, role_of
from ingot.frontend.jit.follow.live_functions import live
from ingot.frontend.jit.follow.observing import observe
from ingot.frontend.jit.follow.outside import Outside, is_anything_around
from ingot.frontend.jit.follow.pending import Pending
from ingot.frontend.jit.follow.shells import new_shell
from ingot.frontend.jit.follow.steps import Node, Outcome, Skeletons, Unknown, Wait
from ingot.frontend.jit.follow.trap import Trap

if TYPE_CHECKING:
    from ingot.frontend.jit.follow.follower import Follower

MOST_STEPS = 4096
"""A longer path is a loop; it runs in pieces."""
MOST_BYTES = 1 << 29
"""Memory of shells after which those that nothing needs are let go, and then what is pending runs."""

ACTIVE: list[Following] = []
"""Calls that are being followed in this process."""


_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _NotFollowed(Exception):
    """A tensor that no step may take: the call runs by itself."""


class Following(TorchFunctionMode):
    """A call of a followed function."""

    def __init__(self, follower: Follower, trap: Trap):
        super().__init__()
        self._follower = follower
        self._trap = trap
        self._state = torch_state()
        self._pending = Pending(follower.root(self._state))
        self._skeletons = Skeletons(self._number_of)
        self._lock = threading.RLock()
        self.has_learned = False
        """Whether something happened that later calls like this one need not repeat."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        role = role_of(func) if all(kind in _PLAIN for kind in types) else Role.WHOLE
        if role is Role.METADATA:
            return func(*args, **kwargs) if kwargs else func(*args)
        if role is Role.OPERATION:
            with self._lock:
                pending = self._pending
                before = pending.node, len(pending.values), len(pending.numbers)
                try:
                    return self._operate(func, args, kwargs or {})
                except KeyboardInterrupt:
                    if self._pending is pending:
                        pending.return_to(*before)
                    raise
        if role is Role.PYTHON:
            with self:
                return live(func)(*args, **(kwargs or {}))
        self.flush()
        return func(*args, **(kwargs or {}))

    # --- one call -----------------------------------------------------------------------------------------------------

    def _operate(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        state = torch_state()
        if state != self._state:
            self.flush()
            self._state = state
            self._pending = Pending(self._follower.root(state))
        if state is None:
            return function(*args, **kwargs)
        pending, numbers = self._pending, []
        known = len(pending.values)
        try:
            skeleton = self._skeletons.of(function, args, kwargs, numbers)
            child = pending.node.child(skeleton)
            if child is None:
                raise _NotFollowed
        except Unknown:
            pending.forget_after(known)
            self.flush()
            return function(*args, **kwargs)
        except _NotFollowed:
            pending.forget_after(known)
            if may_write(function, kwargs):
                self.flush()
            return self._run_now(function, args, kwargs)
        if not child.operands:  # makes tensors of nothing but numbers: there is nothing to wait for
            return function(*args, **kwargs)
        metadata = tuple([pending.metadata[number] for number in child.operands])
        outcome = child.outcomes.get(metadata) or metadata_rules.foretell(function, args, kwargs, child.known, metadata)
        if outcome is None:
            return self._learn(child, metadata, function, args, kwargs, known)
        child.outcomes[metadata] = child.known = outcome
        result = self._take_step(child, outcome, function, args, kwargs, numbers)
        return self._run_now(function, args, kwargs, outcome.wait, known) if result is None else result

    def _take_step(
        self,
        child: Node,
        outcome: Outcome,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        numbers: list[Any],
    ) -> Any:
        """Answer a call that can wait; None if it cannot."""
        pending = self._pending
        if outcome.wait is Wait.LATER:
            result: Any = [new_shell(metadata, self._trap) for metadata in outcome.results]
            made, base = result, None
            pending.shell_bytes += sum(shell.nbytes for shell in made)
            result = made[0] if outcome.container is None else _contained(outcome.container, made)
        elif outcome.wait is Wait.VIEW and child.operands[0] in pending.unwritten:
            with self._trap.excluded():
                result = function(*args, **kwargs)
            made = [result] if isinstance(result, torch.Tensor) else list(result)
            base = child.operands[0]
            if child.results and len(child.results) != len(made):  # segments count on as many as there were
                return None
        elif outcome.wait is Wait.IN_PLACE and self._may_write_later(child.operands[0]):
            result, made, base = args[0], [], None
            pending.unwritten.add(child.operands[0])
            self._trap.set(result)
        else:
            return None
        numbered = tuple([pending.add(tensor, base, is_unwritten=True) for tensor in made])
        child.results, child.is_container = numbered, not isinstance(result, torch.Tensor)
        pending.node = child
        pending.numbers += numbers
        del made
        if pending.shell_bytes > MOST_BYTES or len(pending.values) > MOST_STEPS:
            self._make_room()
        return result

    def _learn(
        self, child: Node, metadata: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: int
    ) -> Any:
        """Run a call as PyTorch runs it, and find out what such calls do."""
        self.has_learned = True
        operands = [self._pending.values[number] for number in child.operands]
        self._pending.forget_after(known)
        self.flush()
        result, outcome = observe(function, args, kwargs, operands)  # type: ignore[arg-type]
        child.outcomes[metadata] = child.known = outcome
        return result

    def _run_now(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        wait: Wait = Wait.NOW,
        known: int | None = None,
    ) -> Any:
        """Run a call as PyTorch runs it, after what it needs."""
        pending = self._pending
        if known is not None:
            pending.forget_after(known)
        if wait is Wait.ALONE or wait is Wait.IN_PLACE or self._takes_unwritten(args, kwargs):
            self.flush()
        return function(*args, **kwargs)

    def _takes_unwritten(self, values: Sequence[Any], named: dict[str, Any]) -> bool:
        unwritten = self._pending.unwritten
        if not unwritten:
            return False
        index = self._pending.index
        for value in (*values, *named.values()):
            if isinstance(value, list | tuple):
                if self._takes_unwritten(value, {}):
                    return True
            elif index.get(id(value)) in unwritten:
                return True
        return False

    # --- operands -----------------------------------------------------------------------------------------------------

    def _number_of(self, tensor: torch.Tensor) -> int:
        """The number of a tensor; a new one from outside must be such that reading it later gives the same."""
        pending = self._pending
        number = pending.index.get(id(tensor))
        if number is not None:
            if pending.has_gradients and pending.bases[number] < 0 and tensor.requires_grad and torch.is_grad_enabled():
                raise _NotFollowed
            return number
        if refused_tensor(tensor) is not None or self._trap.is_set(tensor):
            raise _NotFollowed
        if tensor.requires_grad:
            if torch.is_grad_enabled():
                self._follower.meets_gradients()
                raise _NotFollowed
            pending.has_gradients = True
        if type(tensor) is torch.Tensor and not tensor.untyped_storage().resizable():
            raise _NotFollowed  # numpy or somebody else may write its memory, unseen
        return pending.add(tensor, -1, is_unwritten=False)

    def _may_write_later(self, number: int) -> bool:
        """Whether a tensor can be written later than it is said: nothing sees its memory that the trap does not."""
        pending = self._pending
        tensor: Any = pending.values[number]
        if pending.bases[number] == number:
            return True
        if pending.bases[number] >= 0 or number in pending.unwritten:
            return number in pending.unwritten and pending.bases[number] < 0
        storage = tensor.untyped_storage()
        is_alone = torch._C._storage_Use_Count(storage._cdata) == 2  # the tensor and `storage`
        return is_alone and storage.resizable() and tensor._use_count() == 1

    # --- running what is pending --------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Let go of shells that nothing needs; if that is not enough, run what is pending."""
        pending = self._pending
        pending.drop_unneeded()
        held = [pending.values[number] for number in pending.unwritten if pending.values[number] is not None]
        pending.shell_bytes = sum(tensor.nbytes for tensor in held if tensor is not None)
        if pending.shell_bytes > MOST_BYTES or len(pending.values) > MOST_STEPS:
            del held
            self.flush()

    def flush(self) -> None:
        """Run everything pending. Afterwards all tensors hold what they should."""
        with self._lock:
            pending = self._pending
            self._pending = Pending(self._follower.root(self._state))
            try:
                self._run_pending(pending)
            except KeyboardInterrupt:
                if not (pending.begun and pending.writes_operands):  # which cannot be done twice
                    self._run_pending(pending)
                raise

    def _run_pending(self, pending: Pending) -> None:
        if not pending.unwritten:
            return
        pending.drop_unneeded()
        destinations = pending.destinations()
        for number in pending.unwritten:
            tensor = pending.values[number]
            if tensor is not None:
                self._trap.clear(tensor)
        if not destinations and not pending.writes_operands:
            return
        segment = self._follower.segment(pending.node, destinations)
        values = pending.values
        pending.index.clear()
        assert self._state is not None
        with Outside(self._state[0], self._state[1]):
            pending.begun = True
            segment.run(
                *[values[number] for number in segment.inputs],
                *pending.numbers,
                *[values[number] for number in destinations],
            )

    def owns_any_of(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether one of these tensors is pending here."""
        index = self._pending.index
        return any(index.get(id(tensor)) in self._pending.unwritten for tensor in tensors)


def _contained(container: Any, made: list[Any]) -> Any:
    return made if container is list else tuple(made) if container is tuple else container(tuple(made))


State = tuple[bool, torch.dtype, bool]


def torch_state() -> State | None:
    """What decides the results of operations besides their operands: inference mode, the default dtype, whether
    algorithms are deterministic. None where operations must run at once: under autocast, dispatch modes, transforms
    such as vmap, forward gradients and torch.jit's tracing."""
    if is_anything_around() or forward_ad._current_level >= 0:
        return None
    is_deterministic = torch._C._get_deterministic_algorithms()
    return torch.is_inference_mode_enabled(), torch.get_default_dtype(), is_deterministic
