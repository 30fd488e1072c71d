"""The follower of one function: its traces, its segments, and whether following it pays.

In: calls. Out: what the function gives. Where following was measured to cost more than eager, the function itself runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ingot.base.forks import new_lock
from ingot.frontend.jit.follow import interrupts, visibility
from ingot.frontend.jit.follow.flushing import Flushing
from ingot.frontend.jit.follow.following import ACTIVE, Following, take_off
from ingot.frontend.jit.follow.following_summary import Flushes, Summary, summary_of, text_of
from ingot.frontend.jit.follow.protection.trap import Trap, trap
from ingot.frontend.jit.follow.segments import Segment, write_segment
from ingot.frontend.jit.follow.steps.native_steps import NativeTree
from ingot.frontend.jit.follow.steps.step_tree import StepNode
from ingot.frontend.jit.follow.verdict import Verdict, Way
from ingot.frontend.jit.python_code.replaced_methods import replaced_method
from ingot.frontend.jit.settings.options import Options
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.native.following.following_structs import NativeRole
from ingot.runtime.native.following.native_following import NativeFollowing, native_following
from ingot.runtime.torch_state import State

MOST_NATIVE_STEPS = 20_000
"""Steps that native code may know of one function; with more, it begins anew."""


class Follower:
    """Follows calls of one function."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        compiler: JitCompiler,
        name: str,
        hand_on: Callable[[int], None],
    ):
        """`hand_on(calls)` is called when that many next calls should go to the function itself."""
        visibility.prepare()
        self._function = function
        self._hand_on = hand_on
        self._verdicts: dict[int, Verdict] = {}
        """By the number of elements in a call's tensors, rounded up to a power of four."""
        self._is_compared = not options.config["enable_profiling"]  # timing kernels makes calls slower
        self.verdict = Verdict(hand_on, self._is_compared, name)
        """The verdict that was used last."""
        self._options = options
        self._compiler = compiler
        self._name = name
        self._roots: dict[State | None, StepNode] = {}
        self._starts: dict[tuple[State | None, int], tuple[StepNode, int, NativeTree]] = {}
        """Where calls begin, by torch's state and settings."""
        self._tree = NativeTree()
        self._idle: list[Following] = []
        """Objects of calls that are over, to be used again."""
        self._lock = new_lock()
        self.calls = 0
        self.flushes = Flushes()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = _armed()
        if found is None or replaced_method() is not None:
            return self._function(*args, **kwargs)
        elements = found[1].elements(args)
        if kwargs:
            elements += found[1].elements(tuple(kwargs.values()))
        size = elements.bit_length() // 2
        verdict = self._verdicts.get(size)
        if verdict is None:
            verdict = self._verdicts[size] = Verdict(self._hand_on, self._is_compared, self._name)
        self.verdict = verdict
        way = verdict.way()
        if way is Way.PLAIN:
            return self._function(*args, **kwargs)
        if way is Way.FOLLOWED:
            return self._call(args, kwargs)[0]
        return verdict.run(lambda: self._function(*args, **kwargs), lambda: self._call(args, kwargs))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        """Follow a call; its result, and whether something was learned or compiled."""
        following = self._following()
        self.calls += 1
        height, is_grad_enabled = torch._C._len_torch_function_stack(), torch.is_grad_enabled()
        try:
            return self._follow(following, args, kwargs), following.is_busy
        except KeyboardInterrupt as error:
            interrupts.clean_up(error, height, following.trap.key)
            torch._C._set_grad_enabled(is_grad_enabled)  # it may have come while what is pending was about to run
            raise

    def _follow(self, following: Following, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        following.begin()
        visibility.begin(following)
        try:
            try:
                try:
                    torch._C._push_on_torch_function_stack(following)
                    result = self._function(*args, **kwargs)
                finally:
                    take_off(following)
            finally:
                following.end()
        finally:
            visibility.end(following)
        self._idle.append(following)  # not after an exception, whose traceback may hold what was pending
        return result

    def _following(self) -> Following:
        """A mode for a call."""
        try:
            return self._idle.pop()
        except IndexError:
            found = _armed()
            assert found is not None, "calls that cannot be followed run as they are"
            return Following(self, *found)

    # --- traces -------------------------------------------------------------------------------------------------------

    def start(self, following: Flushing, state: State | None, settings: int) -> tuple[StepNode, int, NativeTree]:
        """The beginning of all traces in a state of torch, where native code begins, 0 if it takes no steps, and the
        steps that it knows. The call that begins there must not be at another node."""
        if len(self._tree) > MOST_NATIVE_STEPS:
            self._forget_native_steps()
        elif self._tree.lost and not following.is_flushing:
            with self._lock:
                lost = len(self._tree.lost)  # calls that begin after this do not begin there
                if all(one is following or one.follower is not self for one in list(ACTIVE)):
                    self._tree.forget(lost)
        found = self._starts.get((state, settings))
        if found is None:
            root = self._roots.setdefault(state, StepNode(None, None))
            found = root, 0 if state is None else self._tree.add_root(root), self._tree
            self._starts[state, settings] = found
        return found

    def _forget_native_steps(self) -> None:
        """Drop all traces; running calls keep the steps that they began with."""
        self._tree = NativeTree()
        self._starts.clear()

    def segment(self, node: StepNode, needed: bytes) -> Segment | None:
        """What runs everything pending at a node, given which tensors are needed; None if there is nothing to run."""
        found = node.segments.get(needed, _MISSING)
        if found is _MISSING:
            with self._lock:
                are_needed = [word != 0 for word in needed[::8]]
                destinations = node.destinations(are_needed)
                found = None
                if destinations or node.writes_outside:
                    found = write_segment(node, destinations, self._options, self._compiler, self._name)
                node.segments[needed] = found
        return found

    @property
    def is_possible(self) -> bool:
        """Whether calls are followed; where the trap cannot be set, they run as they are."""
        return _armed() is not None

    def summary(self) -> Summary:
        """A summary of what was followed so far."""
        return summary_of(list(self._roots.values()), self.flushes)

    def text(self) -> str:
        """The traces, for people."""
        return text_of(list(self._roots.values()))

    def forget(self) -> None:
        """Forget everything, as if the function had never been called."""
        with self._lock:
            self._roots.clear()
            self._forget_native_steps()
            self._idle.clear()
            self._verdicts.clear()
            self.verdict = Verdict(self._hand_on, self._is_compared, self._name)
            self.flushes = Flushes()
            self.calls = 0


_MISSING: Any = object()
_EXPORTS = ("_to_dlpack", "_to_dlpack_versioned")
"""Functions of torch's that hand memory out and tell nobody: neither modes nor the dispatcher."""
_ARMED: list[tuple[Trap, NativeFollowing] | None] = []
_ARMING = new_lock()
"""Two threads that follow their first calls at once must not put native code before torch's functions twice."""


def _armed() -> tuple[Trap, NativeFollowing] | None:
    """The trap, with every reader of a pending tensor sent to the call it is pending in, and the native routines."""
    if not _ARMED:
        with _ARMING:
            if not _ARMED:
                _ARMED.append(_arm())
    return _ARMED[0]


def _arm() -> tuple[Trap, NativeFollowing] | None:
    found = trap()
    native = None if found is None else native_following(int(found.key), found.bit, Following)
    if found is None or native is None:
        return None
    found.arm(lambda operator, args, kwargs: _read(found, operator, args, kwargs))
    for name in _EXPORTS:
        export = getattr(torch._C, name, None)
        if export is not None:
            native.give_role(export, NativeRole.NOW)
    return found, native


def _read(found: Trap, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation has met a tensor that is not written yet: write it, then run the operation."""
    marked = [tensor for tensor in _tensors_in((*args, *kwargs.values())) if found.is_set(tensor)]
    visibility.flush_all(operator)
    for tensor in marked:
        found.clear(tensor)
    return operator(*args, **kwargs)


def _tensors_in(values: Sequence[Any]) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors_in(value)
