"""One followed call: a function mode that matches torch calls with the trace and answers them with shells.

In: torch calls, as the user's Python makes them. Out: for those that can wait, tensors that will hold the result; all
others run as PyTorch runs them, after what they need. `flush` runs what is pending as compiled segments.

Native code answers every call that it has been shown before (runtime/native/following); the methods here see the rest,
and show native code what they did.

What always holds: no value is read before it is written. Calls that this mode does not see run into the trap.
"""

from __future__ import annotations

import _thread
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch

from ingot.base.forks import new_lock
from ingot.frontend.jit.arguments.supported_tensors import refused_tensor
from ingot.frontend.jit.follow.protection.outside import Outside, is_anything_around
from ingot.frontend.jit.follow.protection.trap import Trap
from ingot.frontend.jit.follow.rules.live_functions import live
from ingot.frontend.jit.follow.rules.roles import Role, is_quiet, may_write, role_of
from ingot.frontend.jit.follow.rules.selecting import is_large_selection
from ingot.frontend.jit.follow.segments import Segment
from ingot.frontend.jit.follow.steps import metadata_rules
from ingot.frontend.jit.follow.steps.native_steps import (
    NativeTree,
    answer_as_step,
    answer_at_once,
    give_role,
    native_step,
)
from ingot.frontend.jit.follow.steps.observing import observe
from ingot.frontend.jit.follow.steps.pending import Pending
from ingot.frontend.jit.follow.steps.step_tree import Metadata, Outcome, Skeletons, StepNode, Unknown, Wait
from ingot.runtime.native.following import following_structs
from ingot.runtime.native.following.answering import MOST_BYTES
from ingot.runtime.native.following.boundaries import MOST_VALUES
from ingot.runtime.native.following.layouts import NativeMode
from ingot.runtime.native.following.native_following import CallFunctions, CallState, NativeFlush, NativeFollowing
from ingot.runtime.selection import select
from ingot.runtime.torch_state import (
    DEFAULT_DTYPE,
    FORWARD_GRADIENTS,
    GRAD_MODE,
    INFERENCE_MODE,
    STATE,
    State,
    state_of_torch,
    value_in,
)

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


class Following(NativeMode):
    """A call of a followed function; when it is over, the next call may have it."""

    def __init__(self, follower: Follower, trap: Trap, native: NativeFollowing):
        super().__init__()
        self.follower = follower
        self.trap = trap
        self._native = native
        self._skeletons = Skeletons(self._number_of)
        self._lock = new_lock()
        """Held while pending steps are changed in Python or run, never while the function's own calls run: no thread
        that holds one waits for another."""
        self._state: State | None = None
        self._settings = -1
        self._begun: list[Segment] = []
        """The segment that has begun to run in this flush: it runs to its end even if the flush is interrupted."""
        functions = CallFunctions(partial(_is_quiet, native), self._flush_in_python, self._finish)
        self._call = CallState(native.roles, self, self._lock, self._begun, functions)
        self.thread = 0
        """Which thread the call is followed on."""
        self.is_orphan = False
        """Whether this process was forked by another thread than the call's: the call's thread does not exist here."""
        self._running: tuple[StepNode, Pending] | None = None
        """What a flush is running."""
        self._flushed: NativeTree | None = None
        """The steps among which native code is flushing, where Python has begun with others meanwhile."""
        self._left: tuple[StepNode, Pending] | None = None
        """What another thread was running when this process was forked."""
        self.is_busy = False
        """Whether something was learned or compiled, which later calls like this one need not repeat."""
        self._lent: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        """The tensors whose memory this call has shared with numpy, and the address of that memory. When the arrays are
        gone the memory belongs to the tensors alone again."""
        native.attach(self, self._call, self._look)

    def begin(self) -> None:
        """A call begins. Other threads may still be about to look at what the last one had pending."""
        with self._lock:
            self.is_busy = False
            self._lent.clear()
            self._flushed = None
            self._settings = self._native.settings_seen()
            self._state = torch_state(self._settings)
            self._restart()

    def _restart(self) -> None:
        """Nothing is pending."""
        self._call.node = 0  # native code does not touch the lists before the new ones are set
        if self._call.is_flushing and self._flushed is None:
            self._flushed = self._tree
        self._root, place, self._tree = self.follower.start(self, self._state, self._settings)
        self._pending = pending = Pending(self._root)
        self._call.begin(place, pending.values, pending.numbers, self._settings)

    def end(self) -> None:
        """The call is over: what is pending runs, and nothing can be pending afterwards."""
        if self._call.flush(None):
            self._stop()
        else:
            self._flush(None, self._stop)
        self.is_busy |= self._call.was_busy()

    def _stop(self) -> None:
        self._call.node = 0
        self._pending = Pending(self._pending.node)

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
        return func(*args, **(kwargs or {}))

    @property
    def is_flushing(self) -> bool:
        """Whether native code is running what was pending, and may look at the steps."""
        return self._call.is_flushing

    # --- one call -----------------------------------------------------------------------------------------------------

    def _operate(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that can wait; otherwise how it is to run, once this has been left."""
        settings = self._native.settings()
        if settings != self._settings:
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

    def _now_pending(self) -> Pending:
        """What is pending: native code may have run what was, and have begun anew."""
        if self._call.has_turned:
            self._pending = Pending(self._root, *self._call.lists())
        return self._pending

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
        is_elsewhere = type(tensor) is torch.Tensor and not tensor.untyped_storage().resizable()
        if is_elsewhere and not (self._is_lent(tensor) and _is_alone(tensor)):
            raise _NotFollowed  # numpy or another package may write its memory, unseen
        return self._pending.add(tensor)

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

    # --- running what is pending --------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Flush if pending tensors take too much memory, or there are too many of them."""
        if self._call.bytes > MOST_BYTES or len(self._pending.values) > MOST_VALUES:
            self.flush("the memory of what is pending")

    def flush(self, cause: Any = None) -> None:
        """Run everything pending. Afterwards all tensors hold what they should.

        `cause` is the function or the reason that needs the flush; None if it is not in the user's code.
        """
        if self.thread != threading.get_ident() or not self._call.flush(cause):
            self._flush(cause, self._restart)

    def _flush_in_python(self, cause: Any) -> None:
        self._flush(cause, self._restart)

    def _flush(self, cause: Any, go_on: Callable[[], None]) -> None:
        with self._lock:
            if self._left is not None:
                self._run_left()
            is_owners = self.thread == threading.get_ident()
            if not is_owners:
                self._call.hold()  # the call goes on meanwhile; from here on it has to wait for the lock
            pending, place, tree = self._now_pending(), self._call.node, self._tree
            node = tree.node_at(place) if place else pending.node
            if not pending.values:
                if not is_owners:
                    self._call.release(self._settings)
                return
            self._begun.clear()
            try:
                self._running = node, pending
                go_on()
                if cause is not None and node.unwritten:
                    self.follower.flushes.note(node, cause)
                done = self._run_pending(node, pending)
            except KeyboardInterrupt:
                go_on()
                if not self._begun:  # what has begun is done
                    self._run_pending(node, pending)
                raise
            finally:
                self._running = None
            if place and done is not None:
                self._show_flush(tree, place, node, cause, *done)

    def _finish(self, place: int, values: list[Any], numbers: list[Any], cause: Any) -> None:
        """Run what native code has found pending at a node. Called again if it was interrupted."""
        if self._begun:  # what has begun is done
            return
        node = (self._flushed or self._tree).node_at(place)
        pending = Pending(node, values, numbers)
        try:
            self._running = node, pending
            if cause is not None and node.unwritten:
                self.follower.flushes.note(node, cause)
            self._run_pending(node, pending)
        finally:
            self._running = None

    def _show_flush(
        self, tree: NativeTree, place: int, node: StepNode, cause: Any, needed: bytes, segment: Segment | None
    ) -> None:
        """Let native code flush at a node, from now on, as this was done."""
        if isinstance(cause, str):
            return
        counted = None if cause is None else self.follower.flushes.of(node, cause)
        times = 0 if counted is None else counted.count_address
        if segment is None:
            what: Any = None, (), (), 0, set()
        else:
            recorded = segment.recorded
            what = recorded, segment.inputs, segment.destinations, segment.writes.address, recorded.ended
        tree.add_flush(place, NativeFlush(cause, needed, *what, times, (segment, counted)))

    def note_fork(self) -> None:
        """The process was forked by this thread, which is running no segment; other threads do not exist here."""
        self.is_orphan = self.thread != threading.get_ident()
        self._left, self._running = self._running, None
        self._call.leave_flushes(self._left is not None)

    def _run_left(self) -> None:
        """In a forked child, do what another thread of the parent had not finished. What writes tensors from before the
        call cannot be done twice; where it had begun, the memory is as the fork found it, as with any operation."""
        left, self._left = self._left, None
        self._call.leave_flushes(False)
        if left is not None and not (self._begun and left[0].writes_outside):
            self._run_pending(*left)

    def _run_pending(self, node: StepNode, pending: Pending) -> tuple[bytes, Segment | None] | None:
        """Do what was pending at a node. Gives which tensors were needed and what ran, where native code can do the same
        another time."""
        values = pending.values
        pending.index.clear()
        needed = self._native.settle(values, node.base_words())
        if not node.unwritten:
            return None
        segment = self.follower.segment(node, needed)
        if segment is None:
            self._native.release(values)
            return needed, None
        given: Any = [values[number] for number in segment.inputs]
        given += pending.numbers
        given += [values[number] for number in segment.destinations]
        recorded, before = segment.recorded, segment.recorded.python_calls
        is_seen = _thread._count() > 0  # other threads could read tensors that are not marked
        try:
            if is_seen:
                self._outside().call(self._run_seen, segment, given)
            else:
                self._native.release(values)
                if self._native.settings_seen() == self._settings and not torch.is_grad_enabled():
                    segment.run(self._native, tuple(given), self._begun)  # nothing is around, and nothing has changed
                else:
                    self._outside().call(segment.run, self._native, tuple(given), self._begun)
        finally:
            self._native.release(values)
        was_busy = recorded.python_calls != before
        self.is_busy |= was_busy
        return None if is_seen or was_busy else (needed, segment)

    def _outside(self) -> Outside:
        assert self._state is not None, "without a state nothing is pending"
        return Outside(value_in(self._state, INFERENCE_MODE), value_in(self._state, DEFAULT_DTYPE))

    def _run_seen(self, segment: Segment, given: list[Any]) -> None:
        """Run a segment while other threads may read what it writes: they wait, for the marks stay. The segment gets
        other tensors over the same memory. It waits for no other call: operations that are pending on its operands
        elsewhere were called later."""
        with self.trap.excluded():
            segment.run(self._native, self._native.aliases(given), self._begun)


def _is_quiet(native: NativeFollowing, frame: types.FrameType) -> bool:
    """Whether the code that asks if a mode watches is told of none; native code knows it from now on."""
    found = is_quiet(frame.f_code, frame.f_globals.get("__name__") or "")
    native.give_role(frame.f_code, following_structs.NativeRole.QUIET if found else following_structs.NativeRole.LOUD)
    return found


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


_STATES: dict[int, State | None] = {}
"""States by torch's settings in one word, which native code reads quickly."""


def torch_state(settings: int) -> State | None:
    """What decides the results of operations besides their operands. None where operations must run at once: under
    autocast, dispatch modes, transforms such as vmap, forward gradients and torch.jit's tracing. `settings` are of this
    moment."""
    if settings < 0 or torch._C._is_any_autocast_enabled():  # the settings tell autocast of devices in use alone
        return None
    found = _STATES.get(settings, _NOT_SEEN)
    if found is _NOT_SEEN:
        found = _STATES[settings] = _state_now()
    return found


_NOT_SEEN: Any = object()


def _state_now() -> State | None:
    """The state without grad mode: a tensor that needs gradients is never an operand of a step, and nothing else
    depends on grad mode."""
    if is_anything_around() or FORWARD_GRADIENTS.is_active():
        return None
    return tuple([None if row is GRAD_MODE else value for row, value in zip(STATE, state_of_torch(), strict=True)])
