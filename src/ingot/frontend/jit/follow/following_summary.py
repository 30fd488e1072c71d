"""A summary of following a function, for users: steps, segments, which calls ran at once and which caused flushes.

In: the traces of a follower. Out: a `Summary`. Nothing here is needed to follow; it is gathered for `explain()`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.frontend.jit.follow.segments import Segment, Writer
from ingot.frontend.jit.follow.steps.step_tree import StepNode, Wait
from ingot.frontend.jit.python_code.source_lines import user_place

MOST_FLUSHES = 256
"""Different points of the trace whose flushes are told apart."""
_WAITING = (Wait.LATER, Wait.IN_PLACE, Wait.VIEW, Wait.SAME)
"""What calls do that run nothing at once."""


@dataclass(slots=True)
class Flush:
    """Something that made pending operations run before the call was over."""

    cause: str
    place: str
    """The user's line, as file:line."""
    _counted: Any = field(default_factory=lambda: (ctypes.c_int64 * 1)())

    @property
    def count(self) -> int:
        return self._counted[0]

    @count.setter
    def count(self, count: int) -> None:
        self._counted[0] = count

    @property
    def count_address(self) -> int:
        """Where native code counts."""
        return ctypes.addressof(self._counted)


@dataclass(slots=True)
class Flushes:
    """How many flushes there were, by the point of the trace and the cause."""

    found: dict[tuple[StepNode, Any], Flush] = field(default_factory=dict)

    def note(self, node: StepNode, cause: Any) -> None:
        """Count one; the user's line is looked for at the first of its kind."""
        known = self.found.get((node, cause))
        if known is None:
            if len(self.found) >= MOST_FLUSHES:
                return
            text = cause if isinstance(cause, str) else public_name(cause)
            known = self.found[node, cause] = Flush(text, user_place())
        known.count += 1

    def of(self, node: StepNode, cause: Any) -> Flush | None:
        """What counts flushes of one kind, if they are counted."""
        return self.found.get((node, cause))

    def by_line(self) -> list[Flush]:
        """One for each cause on each line."""
        together: dict[tuple[str, str], Flush] = {}
        for flush in list(self.found.values()):
            same = together.setdefault((flush.place, flush.cause), Flush(flush.cause, flush.place))
            same.count += flush.count
        return list(together.values())


@dataclass(frozen=True, slots=True)
class Summary:
    """The traces of a function, counted."""

    steps: int
    """Torch calls that are answered before they run, and run in segments."""
    segments: tuple[Segment, ...]
    eager: tuple[str, ...]
    """The functions of torch whose calls run at once, as far as something was pending or they are part of a trace."""


def summary_of(roots: Iterable[StepNode], flushes: Flushes) -> Summary:
    """The summary of these traces."""
    steps: set[StepNode] = set()
    # Functions that never wait have no place in a trace once native code knows them.
    eager = {public_name(cause): None for _, cause in list(flushes.found) if not isinstance(cause, str)}
    segments: list[Segment] = []
    for node in _nodes(roots):
        written = [segment for segment in list(node.segments.values()) if segment is not None]
        if written:
            segments += written
            steps.update(node.path())
        if node.known is not None and node.known.wait not in _WAITING:
            assert isinstance(node.skeleton, tuple)
            eager.setdefault(public_name(node.skeleton[0]))
    return Summary(len(steps), tuple(segments), tuple(eager))


def _nodes(roots: Iterable[StepNode]) -> Iterator[StepNode]:
    waiting = list(roots)[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += list(node.children.values())[::-1]


def text_of(roots: Iterable[StepNode]) -> str:
    """The traces as text: a line for each step, with what it waits for, and branches further in."""
    return "\n\n".join("\n".join(_lines(list(root.children.values()), 0)) for root in roots if root.children)


def _lines(nodes: list[StepNode], numbers: int) -> Iterator[str]:
    """These nodes and all that come after them; `numbers` says how many open ones there are before."""
    is_branch = len(nodes) > 1
    for index, first in enumerate(nodes):
        if is_branch:
            yield f"branch {index}:"
        node, count = first, numbers
        while True:
            writer = Writer(numbers=count)
            writer.step(node)
            count = writer.numbers
            wait = node.known.wait.name.lower().replace("_", " ") if node.known is not None else "unknown"
            line = f"{with_names(writer.lines[0], writer.names)}  # {wait}"
            yield f"    {line}" if is_branch else line
            children = list(node.children.values())
            if len(children) != 1:
                break
            node = children[0]
        yield from (f"    {line}" if is_branch else line for line in _lines(children, count))


def with_names(text: str, names: Mapping[str, Any]) -> str:
    """The text of steps with the names that users have for functions of torch."""
    return re.sub(r"\bf\d+\b", lambda found: public_name(names[found[0]]), text)


def public_name(function: Any) -> str:
    """What users call a function of torch: `torch.tanh`, `Tensor.item`."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(function)
    name = getattr(function, "__name__", None) or str(function)
    if name in ("__get__", "__set__", "__delete__"):
        name = getattr(getattr(function, "__self__", None), "__name__", name)
        return f"Tensor.{name}"
    owner = getattr(function, "__objclass__", None) or getattr(function, "__qualname__", "").rpartition(".")[0]
    if getattr(torch.Tensor, name, None) is function or "Tensor" in str(owner):
        return f"Tensor.{name}"
    if getattr(torch, name, None) is function:
        return f"torch.{name}"
    if getattr(torch.nn.functional, name, None) is function:
        return f"torch.nn.functional.{name}"
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if module else str(name)
