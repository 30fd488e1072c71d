"""The follower of one function: its traces, its segments, and whether following it pays.

In: calls. Out: what the function gives. Where following was measured to cost more than eager, the function itself runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ingot.base.forks import new_lock
from ingot.frontend.jit.follow import interrupts, visibility
from ingot.frontend.jit.follow.following import ACTIVE, Following, State
from ingot.frontend.jit.follow.segments import Segment, write_segment
from ingot.frontend.jit.follow.steps import Node
from ingot.frontend.jit.follow.trap import Trap, trap
from ingot.frontend.jit.settings.options import Options
from ingot.runtime.compiler import JitCompiler


class Follower:
    """Follows calls of one function."""

    def __init__(self, function: Callable[..., Any], options: Options, compiler: JitCompiler, name: str):
        self._function = function
        self._options = options
        self._compiler = compiler
        self._name = name
        self._roots: dict[State | None, Node] = {}
        self._lock = new_lock()
        self.calls = 0
        self._needs_gradients = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = _armed()
        if found is None:
            return self._function(*args, **kwargs)
        self.calls += 1
        height = torch._C._len_torch_function_stack()
        try:
            return self._follow(found, args, kwargs)
        except KeyboardInterrupt:
            interrupts.clean_up(height, found.key)
            raise

    def _follow(self, found: Trap, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        following = Following(self, found)
        visibility.begin(following)
        try:
            try:
                with following:
                    result = self._function(*args, **kwargs)
            finally:
                del args, kwargs
                following.flush()
            return result
        finally:
            visibility.end(following)

    def root(self, state: State | None) -> Node:
        """The beginning of all traces in a state of torch."""
        found = self._roots.get(state)
        if found is None:
            found = self._roots[state] = Node(None, None)
        return found

    def segment(self, node: Node, destinations: tuple[int, ...]) -> Segment:
        """What runs everything pending at a node and fills these shells."""
        with self._lock:
            found = node.segments.get(destinations)
            if found is None:
                found = write_segment(node, destinations, self._options, self._compiler, self._name)
                node.segments[destinations] = found
            return found

    def meets_gradients(self) -> None:
        self._needs_gradients = True

    def forget(self) -> None:
        """Be as if never called."""
        with self._lock:
            self._roots.clear()
            self.calls = 0


_ARMED: list[Trap] = []


def _armed() -> Trap | None:
    """The trap, with every reader of a pending tensor sent to the call it is pending in."""
    if _ARMED:
        return _ARMED[0]
    found = trap()
    if found is not None:
        found.arm(lambda operator, args, kwargs: _read(found, operator, args, kwargs))
        _ARMED.append(found)
    return found


def _read(found: Trap, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation meets a tensor that is not written yet: it is, now."""
    tensors = list(_tensors_in((*args, *kwargs.values())))
    marked = [tensor for tensor in tensors if found.is_set(tensor)]
    for following in list(ACTIVE):
        following.flush()
    for tensor in marked:
        found.clear(tensor)
    return operator(*args, **kwargs)


def _tensors_in(values: Sequence[Any]) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors_in(value)
