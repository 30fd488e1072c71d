"""What a followed call has pending: where that begins, what runs it, and where it ends.

In: steps, as native code and `following.py` take them. Out: tensors that hold what they should. Native code runs what
is pending by itself where it was shown a flush like it (runtime/native/following); the methods here do the rest, and
show native code what they did.

What always holds: what is pending runs once, and to its end, whatever thread, signal or fork comes meanwhile.
"""

from __future__ import annotations

import _thread
import threading
import types
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ingot.base.forks import new_lock
from ingot.frontend.jit.follow.protection.outside import Outside, is_anything_around
from ingot.frontend.jit.follow.protection.trap import Trap
from ingot.frontend.jit.follow.rules.roles import is_quiet
from ingot.frontend.jit.follow.segments import Segment
from ingot.frontend.jit.follow.steps.native_steps import NativeTree
from ingot.frontend.jit.follow.steps.pending import Pending
from ingot.frontend.jit.follow.steps.step_tree import StepNode
from ingot.runtime.native.following import following_structs
from ingot.runtime.native.following.layouts import NativeMode
from ingot.runtime.native.following.native_following import CallFunctions, CallState, NativeFlush, NativeFollowing
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


class Flushing(NativeMode):
    """A followed call, as far as it runs what is pending."""

    def __init__(self, follower: Follower, trap: Trap, native: NativeFollowing):
        super().__init__()
        self.follower = follower
        self.trap = trap
        self._native = native
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

    def begin(self) -> None:
        """A call begins. Other threads may still be about to look at what the last one had pending."""
        with self._lock:
            self.is_busy = False
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

    @property
    def is_flushing(self) -> bool:
        """Whether native code is running what was pending, and may look at the steps."""
        return self._call.is_flushing

    def _now_pending(self) -> Pending:
        """What is pending: native code may have run what was, and have begun anew."""
        if self._call.has_turned:
            self._pending = Pending(self._root, *self._call.lists())
        return self._pending

    # --- running what is pending --------------------------------------------------------------------------------------

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
        tree = self._flushed if self._flushed is not None and place in self._flushed else self._tree
        node = tree.node_at(place)
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
        what: tuple[Any, tuple[int, ...], tuple[int, ...], int, set[int]] = None, (), (), 0, set()
        if segment is not None:
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
        """Do what was pending at a node. Gives which tensors were needed and what ran, where native code can do the
        same another time."""
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
        return None if was_busy else (needed, segment)

    def _outside(self) -> Outside:
        assert self._state is not None, "without a state nothing is pending"
        return Outside(value_in(self._state, INFERENCE_MODE), value_in(self._state, DEFAULT_DTYPE))

    def _run_seen(self, segment: Segment, given: list[Any]) -> None:
        """Run a segment while other threads may read what it writes: they wait, for the marks stay. The segment gets
        other tensors over the same memory. It waits for no other call: operations that are pending on its operands
        elsewhere were called later."""
        with self.trap.excluded():
            segment.run(self._native, self._native.aliases(tuple(given)), self._begun)


def _is_quiet(native: NativeFollowing, frame: types.FrameType) -> bool:
    """Whether the code that asks if a mode watches is told of none; native code knows it from now on."""
    found = is_quiet(frame.f_code, frame.f_globals.get("__name__") or "")
    native.give_role(frame.f_code, following_structs.NativeRole.QUIET if found else following_structs.NativeRole.LOUD)
    return found


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
