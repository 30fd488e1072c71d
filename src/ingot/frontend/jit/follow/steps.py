"""The trace of a follower: a tree of steps, each one torch call that can wait.

    step     := function, skeleton
    skeleton := how the arguments are nested, with tensors numbered by their first appearance since the last flush,
                numbers that only feed arithmetic left open, and everything else by type and value

A path from the root is what is pending. A call that was not seen at this point of the tree begins a new branch. What a
step gives depends on the sizes of what it is given: its outcomes are kept by the operands' metadata.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch

from ingot.frontend.jit.follow.functions import LARGEST_SMALL, largest_free_number

MOST_BRANCHES = 32
"""Continuations of one point of the tree; calls that differ in yet another way are run at once."""

Metadata = tuple[torch.dtype, torch.Size, tuple[int, ...], torch.device]
"""dtype, sizes, strides, device"""


def metadata_of(tensor: torch.Tensor) -> Metadata:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.device


class Wait(Enum):
    """When a call's work is done."""

    LATER = auto()
    """Its results are shells."""
    IN_PLACE = auto()
    """Later, too; it writes its first argument, which is the result."""
    VIEW = auto()
    """At once, as it looks at no memory; the results lie in pending memory."""
    NOW = auto()
    """At once, after what its own operands wait for."""
    ALONE = auto()
    """At once, after everything pending: it may write what pending steps read."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call does with operands of certain metadata."""

    wait: Wait
    results: tuple[Metadata, ...] = ()
    """Of the new tensors it gives."""
    container: Any = None
    """The type that holds several results; None for one tensor."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A tensor among a step's arguments: the number of its first appearance."""

    number: int


class OpenNumber:
    """A number among a step's arguments that is given at every call."""

    def __init__(self, kind: type):
        self.kind = kind


_OPEN = {int: OpenNumber(int), float: OpenNumber(float)}
_REFERENCES = [Reference(number) for number in range(1024)]


def reference(number: int) -> Reference:
    return _REFERENCES[number] if number < len(_REFERENCES) else Reference(number)


@dataclass(frozen=True, slots=True)
class Constant:
    """A plain value, equal to others of the same type and text alone: 1, 1.0 and True are three values."""

    kind: type
    text: str
    value: Any = field(compare=False, hash=False)


@dataclass(frozen=True, slots=True)
class Group:
    """A list, tuple, dictionary or slice among a step's arguments."""

    kind: type
    keys: tuple[str, ...]
    parts: tuple[Any, ...]


class Unknown(Exception):
    """An argument that a skeleton cannot hold."""


_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class Skeletons:
    """Takes the arguments of calls apart. Tensors and numbers are left in the lists given."""

    def __init__(self, number_of: Any):
        """`number_of(tensor)` gives a tensor's number, a new one if it appears for the first time."""
        self._number_of = number_of

    def of(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], numbers: list[Any]) -> Hashable:
        """What a call is, apart from its tensors and open numbers; raises Unknown."""
        largest = largest_free_number(function)
        parts = [self._part(value, largest, numbers) for value in args]
        if not kwargs:
            return function, *parts
        largest = min(largest, LARGEST_SMALL)  # alpha=
        named = [(name, self._part(value, largest, numbers)) for name, value in kwargs.items()]
        return function, *parts, Group(dict, tuple(name for name, _ in named), tuple(part for _, part in named))

    def _part(self, value: Any, largest: int, numbers: list[Any]) -> Any:
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return reference(self._number_of(value))
        if kind is float or kind is int:
            if -largest <= value <= largest and largest:
                numbers.append(value)
                return _OPEN[kind]
            return Constant(kind, repr(value), value)
        if value is None or kind is bool or kind is str or value is Ellipsis:
            return Constant(kind, str(value), value)
        if kind is tuple or kind is list or kind is torch.Size:
            return Group(kind, (), tuple([self._part(part, largest, numbers) for part in value]))
        if kind is slice:
            parts = (value.start, value.stop, value.step)
            return Group(slice, (), tuple([self._part(part, 0, numbers) for part in parts]))
        if isinstance(value, _VALUES):
            return Constant(kind, str(value), value)
        raise Unknown(f"an argument is a {kind.__name__}")


def references_in(part: Any) -> Iterator[int]:
    """The numbers of the tensors in a part of a skeleton, in order."""
    if isinstance(part, Reference):
        yield part.number
    elif isinstance(part, Group):
        for inner in part.parts:
            yield from references_in(inner)


def renumbered(part: Any, numbers: dict[int, int]) -> Any:
    """A part of a skeleton with its tensors numbered by their first appearance in it."""
    if isinstance(part, Reference):
        return reference(numbers.setdefault(part.number, len(numbers)))
    if isinstance(part, Group):
        return Group(part.kind, part.keys, tuple(renumbered(inner, numbers) for inner in part.parts))
    return part


KNOWN: OrderedDict[Hashable, Outcome] = OrderedDict()
"""What calls do, by their skeletons and their operands' metadata, wherever in a trace they are made."""
_MOST_KNOWN = 50_000


@dataclass(eq=False, slots=True)
class Node:
    """A point of the tree: what is pending when it is reached."""

    parent: Node | None
    skeleton: Hashable
    """Of the step that leads here."""
    operands: tuple[int, ...] = ()
    """The tensors it takes, by number."""
    results: tuple[int, ...] = ()
    """The tensors it gives, by number; none for one that writes in place."""
    is_container: bool = False
    """Whether it gives them in a list or tuple."""
    children: dict[Hashable, Node] = field(default_factory=dict)
    outcomes: dict[Any, Outcome] = field(default_factory=dict)
    """Of that step, by the metadata of its operands."""
    segments: dict[bytes, Any] = field(default_factory=dict)
    """What runs everything pending, by which tensors are still needed."""
    bases: tuple[int, ...] = ()
    """For each tensor so far: its own number if a step computes it, that of the tensor it is a view of, or -1 if it is
    from outside."""
    unwritten: frozenset[int] = frozenset()
    """The tensors whose memory does not hold what it should."""
    known: Outcome | None = None
    """The last outcome."""
    _call: Hashable = None
    _words: Any = None

    def child(self, skeleton: Hashable) -> Node | None:
        """The node that a step leads to; None where there are too many."""
        found = self.children.get(skeleton)
        if found is None:
            if len(self.children) >= MOST_BRANCHES:
                return None
            assert isinstance(skeleton, tuple)
            operands = tuple(number for part in skeleton[1:] for number in references_in(part))
            found = self.children[skeleton] = Node(self, skeleton, operands)
        return found

    def arrive(self, outside: int, given: int, wait: Wait, is_container: bool) -> None:
        """Note what the step leaves behind: so many new tensors from outside, and after them so many that it gave."""
        assert self.parent is not None
        bases, unwritten = self.parent.bases, self.parent.unwritten
        bases += (-1,) * outside
        first = len(bases)
        self.results = tuple(range(first, first + given))
        self.is_container = is_container
        self.bases = bases + (self.results if wait is not Wait.VIEW else (self.operands[0],) * given)
        self.unwritten = unwritten.union(self.results if wait is not Wait.IN_PLACE else self.operands[:1])

    def is_within_another(self, number: int, needed: Sequence[bool]) -> bool:
        """Whether a tensor lies in memory that is written because of another one."""
        base = self.bases[number]
        while base != number:
            if base < 0 or self.bases[base] < 0 or needed[base]:
                return True
            number, base = base, self.bases[base]
        return False

    def destinations(self, needed: Sequence[bool]) -> tuple[int, ...]:
        """The results to be written: those still needed that do not lie in memory which is written anyway."""
        return tuple(
            number
            for number, base in enumerate(self.bases)
            if base >= 0 and needed[number] and not self.is_within_another(number, needed)
        )

    def base_words(self) -> int:
        """The address of the bases, as native code reads them."""
        if self._words is None:
            self._words = (ctypes.c_int64 * max(len(self.bases), 1))(*self.bases)
        return ctypes.addressof(self._words)

    @property
    def writes_outside(self) -> bool:
        """Whether a tensor from outside is to be written."""
        return any(self.bases[number] < 0 for number in self.unwritten)

    def outcome(self, metadata: Hashable) -> Outcome | None:
        """What the step does with such operands, if a call like it has been seen anywhere."""
        found = self.outcomes.get(metadata)
        if found is None:
            found = KNOWN.get((self._as_call(), metadata))
            if found is not None:
                self.outcomes[metadata] = self.known = found
        return found

    def note(self, metadata: Hashable, outcome: Outcome) -> None:
        """Remember what the step does with such operands."""
        self.outcomes[metadata] = self.known = outcome
        KNOWN[self._as_call(), metadata] = outcome
        while len(KNOWN) > _MOST_KNOWN:
            KNOWN.popitem(last=False)

    def _as_call(self) -> Hashable:
        """The skeleton of the step, wherever it is made."""
        if self._call is None:
            numbers: dict[int, int] = {}
            skeleton: Any = self.skeleton
            self._call = (skeleton[0], *(renumbered(part, numbers) for part in skeleton[1:]))
        return self._call

    def path(self) -> Sequence[Node]:
        """The steps from the root to here."""
        found: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]
