"""From a step that Python has taken to one that native code takes.

In: a call, its skeleton and its outcome. Out: a native step for calls whose tensors have the same metadata, or None
where native code cannot compare or answer such a call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch

from ingot.frontend.jit.follow.rules.live_functions import live
from ingot.frontend.jit.follow.rules.roles import (
    LARGEST_SMALL,
    Role,
    largest_free_number,
    name_of,
    never_waits,
    role_of,
    views_memory,
)
from ingot.frontend.jit.follow.steps.step_tree import (
    ConstantArgument,
    ContainerArgument,
    Metadata,
    OpenNumber,
    Outcome,
    Reference,
    StepNode,
    Wait,
)
from ingot.runtime.native.abi.prototypes import DTYPES, Prototype, prototype, row_major_strides
from ingot.runtime.native.following import following_structs
from ingot.runtime.native.following.native_following import (
    Entries,
    NativeFlush,
    NativeFollowing,
    NativeNode,
    NativeStep,
)


def key_of(function: Any) -> Any:
    """What native code knows a function by: itself, or the attribute that it reads."""
    return function.__self__ if getattr(function, "__name__", "") == "__get__" else function


def give_role(native: NativeFollowing, function: Any) -> None:
    """Tell native code what a function is to a follower."""
    role = role_of(function)
    if role is Role.METADATA:
        native.give_role(key_of(function), following_structs.NativeRole.METADATA)
    elif role is Role.PYTHON:
        native.give_role(function, following_structs.NativeRole.PYTHON, live(function))
    elif role is Role.OPERATION:
        name = name_of(function)
        kind = following_structs.NativeRole.VIEW if views_memory(name) else following_structs.NativeRole.OPERATION
        native.give_role(key_of(function), following_structs.NativeRole.NOW if never_waits(name) else kind)


class NativeTree:
    """The steps that native code knows of one function, and the nodes that they lead to."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[NativeNode, StepNode]] = {}
        """Nodes by their address in native code."""
        self.lost: list[NativeNode] = []
        """Nodes that no step leads to any more; calls may still be at one of them, or further on."""
        self._unmatched: dict[int, dict[Hashable, int]] = {}
        """Steps that native code knows and does not take by itself, by the node that they are taken from and what they
        are: where they lead."""

    def __len__(self) -> int:
        return len(self._nodes)

    def add_root(self, root: StepNode) -> int:
        """The address of a node that nothing leads to."""
        made = NativeNode()
        self._nodes[made.address] = made, root
        return made.address

    def __contains__(self, address: int) -> bool:
        """Whether there is a node at an address."""
        return address in self._nodes

    def node_at(self, address: int) -> StepNode:
        """The node that native code has reached."""
        return self._nodes[address][1]

    def add_step(self, address: int, step: NativeStep, child: StepNode) -> int:
        """Let native code take a step from a node; the address of the node that it leads to."""
        self._nodes[step.target.address] = step.target, child  # first: KeyboardInterrupt may come after any line
        lost = self._nodes[address][0].add(step)
        if lost:
            self.lost += lost
            self._unmatched.pop(address, None)
        return step.target.address

    def add_flush(self, address: int, flush: NativeFlush) -> None:
        """Let native code flush at a node as this was done, unless the node was forgotten meanwhile."""
        if address in self._nodes:
            native, node = self._nodes[address]
            native.add_flush(flush, node.base_words())

    def unmatched(self, address: int, what: Hashable) -> int:
        """Where a step leads that native code does not take by itself; 0 if it was not noted."""
        return self._unmatched.get(address, {}).get(what, 0)

    def note_unmatched(self, address: int, what: Hashable, target: int) -> None:
        """Note where such a step leads."""
        self._unmatched.setdefault(address, {})[what] = target

    def forget(self, count: int) -> None:
        """Forget the nodes that were lost first, so many of them, and what they lead to; no call may be there."""
        nodes = self.lost[:count]
        del self.lost[:count]
        while nodes:
            node = nodes.pop()
            self._nodes.pop(node.address, None)
            self._unmatched.pop(node.address, None)
            nodes += [step.target for step in node.steps]


class _NotNative(Exception):
    """Something that native code does not know."""


class _EntryWriter:
    """Writes the entries of one call."""

    def __init__(self, known: int, values: Sequence[torch.Tensor | None], largest: int):
        """`known` tensors had appeared before the call; open numbers are not larger than `largest`."""
        self._largest = largest
        self.entries = Entries()
        self._known = known
        self._values = values
        self._next = known
        self._open = 0

    def part(self, part: Any) -> None:
        entries = self.entries
        if isinstance(part, Reference):
            self._tensor(part.number)
        elif isinstance(part, OpenNumber):
            self._open += 1
            entries.open(part.kind, self._largest)
        elif isinstance(part, ConstantArgument):
            if not entries.constant(part.value):
                raise _NotNative
        elif isinstance(part, ContainerArgument):
            if part.kind is slice:
                entries.slice()
            else:
                entries.group(part.kind, len(part.parts))
            for inner in part.parts:
                self.part(inner)
        if max(self._open, self._next - self._known) >= following_structs.MOST_OUTSIDE:
            raise _NotNative

    def _tensor(self, number: int) -> None:
        if number < self._known:
            self.entries.value(number)
        elif number < self._next:
            self.entries.again(number - self._known)
        else:
            tensor = self._values[number]
            assert tensor is not None
            if not self.entries.outside(tensor):
                raise _NotNative
            self._next += 1


def native_step(
    function: Any,
    child: StepNode,
    answer: tuple[following_structs.StepKind, Any],
    known: int,
    values: Sequence[torch.Tensor | None],
    container: Any,
) -> NativeStep | None:
    """A native step for calls like the one that leads to a node; `container` holds its results."""
    skeleton: Any = child.skeleton
    parts, names = skeleton[1:], ()
    largest = largest_free_number(function)
    try:
        if parts and isinstance(parts[-1], ContainerArgument) and parts[-1].kind is dict:
            largest = min(largest, LARGEST_SMALL)
            names, parts = parts[-1].keys, (*parts[:-1], *parts[-1].parts)
        writer = _EntryWriter(known, values, largest)
        for part in parts:
            writer.part(part)
    except _NotNative:
        return None
    holder = {
        None: following_structs.Container.NONE,
        tuple: following_structs.Container.TUPLE,
        list: following_structs.Container.LIST,
    }.get(container)
    if holder is None:
        return None
    count = len(parts) - len(names)
    return NativeStep(key_of(function), count, names, writer.entries.entries, *answer, holder, writer.entries)


def answer_at_once(child: StepNode, outcome: Outcome, outside: int) -> tuple[following_structs.StepKind, Any]:
    """How native code answers a call that ran at once; it has brought so many tensors from outside."""
    assert child.parent is not None
    if outcome.wait is not Wait.IN_PLACE:
        return (following_structs.StepKind.ALONE if outcome.wait is Wait.ALONE else following_structs.StepKind.NOW), 0
    first, bases = child.operands[0], child.parent.bases
    if first in child.parent.unwritten or (first < len(bases) and bases[first] >= 0):
        return following_structs.StepKind.ALONE, 0
    child.arrive(outside, 0, outcome.wait, False)  # another time nothing else may see its memory, and it can wait
    return following_structs.StepKind.FIRST_WRITE, 0


def answer_as_step(child: StepNode, outcome: Outcome) -> tuple[following_structs.StepKind, Any]:
    """How native code answers a call that was a step, and with what."""
    if outcome.wait is Wait.VIEW:
        return following_structs.StepKind.VIEW, len(child.results)
    if outcome.wait is Wait.SAME:
        return following_structs.StepKind.SAME, 0
    if outcome.wait is Wait.IN_PLACE:
        assert child.parent is not None
        is_first = child.operands[0] not in child.parent.unwritten
        return following_structs.StepKind.FIRST_WRITE if is_first else following_structs.StepKind.IN_PLACE, 0
    prototypes = [_prototype(metadata) for metadata in outcome.results]
    if all(one is not None for one in prototypes):
        return following_structs.StepKind.LATER, prototypes
    return following_structs.StepKind.LATER_ELSEWHERE, [_maker(metadata) for metadata in outcome.results]


def _prototype(metadata: Metadata) -> Prototype | None:
    dtype, shape, strides, device = metadata
    is_pools = device.type == "cpu" and dtype in DTYPES and strides == row_major_strides(tuple(shape))
    return prototype(tuple(shape), dtype) if is_pools else None


def _maker(metadata: Metadata) -> Callable[[], torch.Tensor]:
    dtype, shape, strides, device = metadata
    return partial(torch.empty_strided, tuple(shape), strides, dtype=dtype, device=device)
