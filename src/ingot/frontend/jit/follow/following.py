"""One followed call: a function mode that matches torch calls with the trace and answers them with shells.

In: torch calls, as the user's Python makes them. Out: for those that can wait, tensors that will hold the result; all
others run as PyTorch runs them, after what they need. `flushing.py` runs what is pending as compiled segments.

Native code answers every call that it has been shown before (runtime/native/following); the methods here see the rest,
and show native code what they did.

What always holds: no value is read before it is written. Calls that this mode does not see run into the trap.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.arguments.supported_tensors import refused_tensor
from ingot.frontend.jit.follow.flushing import Flushing
from ingot.frontend.jit.follow.protection.trap import Trap
from ingot.frontend.jit.follow.rules.live_functions import live
from ingot.frontend.jit.follow.rules.roles import EXPOSING, Role, may_write, role_of
from ingot.frontend.jit.follow.rules.selecting import is_large_selection
from ingot.frontend.jit.follow.steps import metadata_rules
from ingot.frontend.jit.follow.steps.native_steps import (
    answer_as_step,
    answer_at_once,
    give_role,
    native_step,
)
from ingot.frontend.jit.follow.steps.observing import observe
from ingot.frontend.jit.follow.steps.pending import Pending
from ingot.frontend.jit.follow.steps.step_tree import Metadata, Outcome, Skeletons, StepNode, Unknown, Wait
from ingot.runtime.native.following.answering import MOST_BYTES
from ingot.runtime.native.following.boundaries import MOST_VALUES
from ingot.runtime.native.following.layouts import NativeMode
from ingot.runtime.native.following.native_following import NativeFollowing
from ingot.runtime.selection import select

if TYPE_CHECKING:
    from ingot.frontend.jit.follow.follower import Follower

ACTIVE: list[Following] = []
"""Calls that are being followed in this process."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)


_PLAIN_CALL = object()
"""Instead of a result: the call is to run as PyTorch runs it."""


@dataclass(frozen=True, slots=True)
class _Lesson:
    """Instead of a result: a call is to run as PyTorch runs it, and to be observed."""

    child: StepNode
    metadata: Any
    operands: list[Any]

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result, outcome = observe(function, args, kwargs, self.operands)
        self.child.outcomes[self.metadata] = self.child.known = outcome
        return result


class _Selection:
    """Instead of a result: the elements where a mask is true are to be taken by generated code."""

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return select(*args)


_SELECTION = _Selection()


class _NotFollowed(Exception):
    """A tensor that no step may take: the call runs by itself."""


class Following(Flushing):
    """A call of a followed function; when it is over, the next call may have it."""

    def __init__(self, follower: Follower, trap: Trap, native: NativeFollowing):
        super().__init__(follower, trap, native)
        self._skeletons = Skeletons(self._number_of)
        self._lent: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        """The tensors whose memory this call has shared with numpy, and the address of that memory. When the arrays are
        gone the memory belongs to the tensors alone again."""
        self._is_exposed = False
        """Whether this call has given away an address in memory, through which anybody may write at any time."""
        native.attach(self, self._call, self._look)

    def begin(self) -> None:
        with self._lock:
            self._lent.clear()
            self._is_exposed = False
            super().begin()

    def _look(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A call that native code does not answer."""
        role = role_of(func) if all(kind in _PLAIN for kind in types) else Role.WHOLE
        give_role(self._native, func)
        if role is Role.METADATA:
            return func(*args, **kwargs) if kwargs else func(*args)
        if role is Role.OPERATION:
            with self._lock:
                pending, place = self._now_pending(), self._call.node
                before = pending.node, len(pending.values), len(pending.numbers)
                try:
                    answer = self._operate(func, args, kwargs or {})
                except KeyboardInterrupt:
                    if self._pending is pending and not self._call.has_turned:
                        pending.return_to(*before)
                        self._call.node = place
                    raise
            # Without the lock: the function may read a tensor that another thread's call has pending, and wait for it.
            if answer is _PLAIN_CALL:
                return func(*args, **(kwargs or {}))
            is_way = type(answer) is _Lesson or answer is _SELECTION
            return answer.call(func, args, kwargs or {}) if is_way else answer
        if role is Role.PYTHON:
            try:
                torch._C._push_on_torch_function_stack(self)
                return live(func)(*args, **(kwargs or {}))
            finally:
                take_off(self)
        self.flush(func)
        if func is torch.Tensor.numpy:
            self._note_lent(args[0])
        elif func in EXPOSING:
            self._wait_no_more()
        return func(*args, **(kwargs or {}))

    # --- one call -----------------------------------------------------------------------------------------------------

    def _operate(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that can wait; otherwise how it is to run, once this has been left."""
        settings = self._native.settings()
        if settings != self._settings and not self._is_exposed:
            self.flush("another state of torch")
            was_busy = self.is_busy
            self.begin()
            self.is_busy = was_busy
        if self._state is None:
            return _PLAIN_CALL
        pending = self._catch_up()
        known, numbers = len(pending.values), []
        try:
            skeleton = self._skeletons.of(function, args, kwargs, numbers)
            child = pending.node.child(skeleton)
            if child is None:
                raise _NotFollowed
        except Unknown:
            pending.forget_after(known)
            self.flush(function)
            return _PLAIN_CALL
        except _NotFollowed:
            pending.forget_after(known)
            wait = Wait.ALONE if may_write(function, kwargs) else Wait.NOW
            return self._run_now(function, args, kwargs, wait)
        if not child.operands:  # makes tensors from numbers alone: it depends on no pending operation
            return _PLAIN_CALL
        metadata: Any = tuple([pending.metadata[number] for number in child.operands])
        outcome = child.outcomes.get(metadata)
        if outcome is None:
            outcome = metadata_rules.foretell(function, args, kwargs, child.known, metadata)
            if outcome is None:
                return self._begin_lesson(child, metadata, known)
            child.outcomes[metadata] = child.known = outcome
        if outcome.wait is Wait.SAME:
            self._show(child, answer_as_step(child, outcome), function, known, None)
            pending.forget_after(known)
            return args[0]
        result = self._take_step(child, outcome, function, args, kwargs, known)
        if result is None and outcome.wait is Wait.NOW and is_large_selection(function, args, kwargs):
            pending.forget_after(known)
            self._run_now(function, args, kwargs, outcome.wait)
            return _SELECTION  # native code must not learn this step: it would leave the selection to PyTorch
        if result is None:
            answer = answer_at_once(child, outcome, len(pending.values) - known)
            self._show(child, answer, function, known, None)
            pending.forget_after(known)
            return self._run_now(function, args, kwargs, outcome.wait)
        pending.numbers += numbers
        self._make_room()
        return result

    def _catch_up(self) -> Pending:
        """What is pending, as far as native code has brought it."""
        pending, place = self._now_pending(), self._call.node
        pending.catch_up(self._tree.node_at(place) if place else pending.node)
        return pending

    def _take_step(
        self,
        child: StepNode,
        outcome: Outcome,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        known: int,
    ) -> Any:
        """Answer a call that can wait, and show native code how; None if it cannot wait."""
        pending, outside = self._pending, len(self._pending.values) - known
        if outcome.wait is Wait.LATER:
            made: list[Any] = [self._new_shell(metadata) for metadata in outcome.results]
            result: Any = made[0] if outcome.container is None else _contained(outcome.container, made)
        elif outcome.wait is Wait.VIEW and child.operands[0] in pending.node.unwritten:
            with self.trap.excluded():
                result = function(*args, **kwargs)
            made = [result] if isinstance(result, torch.Tensor) else list(result)
            if child.results and len(child.results) != len(made):  # segments count on as many as there were
                return None
        elif outcome.wait is Wait.IN_PLACE and self._may_write_later(child.operands[0]):
            result, made = args[0], []
            self.trap.set(result)
        else:
            return None
        container = None if isinstance(result, torch.Tensor) else type(result)
        child.arrive(outside, len(made), outcome.wait, container is not None)
        for tensor in made:
            pending.add(tensor)
        pending.node = child
        self._show(child, answer_as_step(child, outcome), function, known, container)
        return result

    def _show(self, child: StepNode, answer: Any, function: Any, known: int, container: Any) -> None:
        """Let native code do what has just been done, from now on: take a step, or run the call."""
        place, pending = self._call.node, self._pending
        # Calls on memory that numpy shares stay with Python, which continues at the node where the last such call led.
        is_lent = bool(self._lent) and any(one is not None and self._is_lent(one) for one in pending.values[known:])
        what = (child, tuple([pending.metadata[number] for number in child.operands])) if is_lent else None
        target = self._tree.unmatched(place, what) if is_lent else 0
        if not target:
            step = native_step(function, child, answer, known, pending.values, container) if place else None
            target = 0 if step is None else self._tree.add_step(place, step, child)
            if is_lent and target:
                self._tree.note_unmatched(place, what, target)
        if pending.node is child:
            self._call.node = target

    def _begin_lesson(self, child: StepNode, metadata: Any, known: int) -> _Lesson:
        """Nothing is pending; the call that led to a node is to be observed."""
        self.is_busy = True
        operands: list[Any] = [self._pending.values[number] for number in child.operands]
        self._pending.forget_after(known)
        self.flush()
        return _Lesson(child, metadata, operands)

    def _run_now(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wait: Wait) -> Any:
        """A call is to run as PyTorch runs it, after what it needs."""
        if wait is Wait.ALONE or wait is Wait.IN_PLACE or self._takes_unwritten((*args, *kwargs.values())):
            self.flush(function)
        return _PLAIN_CALL

    def _takes_unwritten(self, values: Sequence[Any]) -> bool:
        for value in values:
            if isinstance(value, list | tuple):
                if self._takes_unwritten(value):
                    return True
            elif isinstance(value, torch.Tensor) and self.trap.is_set(value):
                return True
        return False

    def _new_shell(self, metadata: Metadata) -> torch.Tensor:
        """A tensor with this metadata that nothing may read before it is written."""
        dtype, shape, strides, device = metadata
        shell = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        self.trap.set(shell)
        self._call.bytes += shell.nbytes
        return shell

    # --- operands -----------------------------------------------------------------------------------------------------

    def _number_of(self, tensor: torch.Tensor) -> int:
        """The number of a tensor. A new one from outside must be one that gives the same values when it is read
        later."""
        number = self._pending.index.get(id(tensor))
        if number is not None and self._pending.values[number] is tensor:  # not one that has taken a dead one's place
            return number
        if refused_tensor(tensor) is not None or self.trap.is_set(tensor):
            raise _NotFollowed
        if tensor.requires_grad and torch.is_grad_enabled():
            raise _NotFollowed
        if tensor.is_inference() and not torch.is_inference_mode_enabled():
            raise _NotFollowed  # PyTorch refuses to write it, which no outcome of calls with other tensors tells
        is_elsewhere = type(tensor) is torch.Tensor and not tensor.untyped_storage().resizable()
        if is_elsewhere and not (self._is_lent(tensor) and _is_alone(tensor)):
            raise _NotFollowed  # numpy or another package may write its memory, unseen
        return self._pending.add(tensor)

    def _wait_no_more(self) -> None:
        """Nothing is pending; from now on all operations of this call run at once."""
        with self._lock:
            self._is_exposed, self._state = True, None
            self._restart()

    def _note_lent(self, tensor: torch.Tensor) -> None:
        """The memory of a tensor, if it is torch's or ours, is about to be shown to numpy."""
        if type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.untyped_storage().resizable():
            self._lent[id(tensor)] = weakref.ref(tensor), tensor.untyped_storage().data_ptr()

    def _is_lent(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has the memory that this call has shown to numpy, and that nothing else had seen before."""
        lent = self._lent.get(id(tensor))
        return lent is not None and lent[0]() is tensor and tensor.untyped_storage().data_ptr() == lent[1]

    def _may_write_later(self, number: int) -> bool:
        """Whether a write into a tensor can wait: every reader of its memory runs into the trap."""
        node = self._pending.node
        if number in node.unwritten:
            return number < len(node.bases) and node.bases[number] in (number, -1)
        if number < len(node.bases) and node.bases[number] >= 0:
            return False
        tensor: Any = self._pending.values[number]
        return _is_alone(tensor) and tensor.untyped_storage().resizable()

    def _make_room(self) -> None:
        """Flush if pending tensors take too much memory, or there are too many of them."""
        if self._call.bytes > MOST_BYTES or len(self._pending.values) > MOST_VALUES:
            self.flush("the memory of what is pending")


def _is_alone(tensor: Any) -> bool:
    """Whether nothing but a tensor leads to its memory: no other tensor, no array of numpy's, no capsule."""
    storage = tensor.untyped_storage()
    is_alone = torch._C._storage_Use_Count(storage._cdata) == 2 and sys.getrefcount(storage) <= _references_to_new()
    return is_alone and tensor._use_count() == 1


@cache
def _references_to_new() -> int:
    """How many references there are to a storage that only the caller holds."""
    tensor = torch.empty(1)
    storage = tensor.untyped_storage()
    return sys.getrefcount(storage)


def take_off(mode: NativeMode) -> None:
    """Take a mode from its stack, once. The function may have left modes of its own above it, and an interrupt inside
    of torch's functions may have lost it."""
    count = torch._C._len_torch_function_stack()
    if count and torch._C._get_function_stack_at(count - 1) is mode:
        torch._C._pop_torch_function_stack()
        return
    modes = [torch._C._get_function_stack_at(place) for place in range(count)]
    if mode in modes:
        above = modes[modes.index(mode) + 1 :]
        for _ in range(len(above) + 1):
            torch._C._pop_torch_function_stack()
        for other in above:
            torch._C._push_on_torch_function_stack(other)


def _contained(container: Any, made: list[Any]) -> Any:
    return list(made) if container is list else tuple(made) if container is tuple else container(tuple(made))
