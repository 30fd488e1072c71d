"""The trace of a follower: a tree of steps, each one torch call that can wait.

    step     := function, skeleton
    skeleton := how the arguments are nested, with tensors numbered by their first appearance since the last flush,
                numbers that only feed arithmetic left open, and everything else by type and value

A path from the root is what is pending. A call that was not seen at this point of the tree begins a new branch. What a
step gives depends on the sizes of what it is given: its outcomes are kept by the operands' metadata.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch

from ingot.frontend.jit.follow.rules.roles import LARGEST_SMALL, largest_free_number

MOST_BRANCHES = 32
"""How many continuations by calls of the same function one point of the tree has; calls that are none of them run at
once."""
MOST_CONTINUATIONS = 256
"""How many continuations it has in all. Every flush leads back to the root, so it has many."""
MISSES_PER_BRANCH = 64
"""After this many such calls one of them takes the place of the oldest continuation."""
MOST_NODES = 20_000
"""How many points a tree has; a tree that would have more is dropped."""
MOST_CALLS, MOST_OUTCOMES, MOST_SEGMENTS = 4096, 64, 16
"""How many kinds of calls have known outcomes, how many outcomes each has, and how many segments one point has."""

Metadata = tuple[torch.dtype, torch.Size, tuple[int, ...], torch.device]
"""dtype, sizes, strides, device"""


def metadata_of(tensor: torch.Tensor) -> Metadata:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.device


class Wait(Enum):
    """When a call's work is done."""

    LATER = auto()
    """Its results are shells."""
    IN_PLACE = auto()
    """Later, as LATER; it writes its first argument, which is the result."""
    SAME = auto()
    """There is nothing to do: the result is the first argument."""
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
    """Metadata of the new tensors that it gives."""
    container: Any = None
    """The type that holds several results; None for one tensor."""
    operands: tuple[Metadata, ...] = ()
    """The operands' metadata that it was seen with."""
    operators: tuple[str, ...] = ()
    """The operators that the call was made of, apart from views."""
    is_pointwise: bool = False
    """Whether it was a single one that computes or copies element by element."""


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
class ConstantArgument:
    """A plain value, equal to others of the same type and text alone: 1, 1.0 and True are three values."""

    kind: type
    text: str
    value: Any = field(compare=False, hash=False)


@dataclass(frozen=True, slots=True)
class ContainerArgument:
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
        return (
            function,
            *parts,
            ContainerArgument(dict, tuple(name for name, _ in named), tuple(part for _, part in named)),
        )

    def _part(self, value: Any, largest: int, numbers: list[Any]) -> Any:
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return reference(self._number_of(value))
        if kind is float or kind is int:
            if -largest <= value <= largest and largest:
                numbers.append(value)
                return _OPEN[kind]
            return ConstantArgument(kind, repr(value), value)
        if value is None or kind is bool or kind is str or value is Ellipsis:
            return ConstantArgument(kind, str(value), value)
        if kind is tuple or kind is list or kind is torch.Size:
            return ContainerArgument(kind, (), tuple([self._part(part, largest, numbers) for part in value]))
        if kind is slice:
            parts = (value.start, value.stop, value.step)
            return ContainerArgument(slice, (), tuple([self._part(part, 0, numbers) for part in parts]))
        if isinstance(value, _VALUES):
            return ConstantArgument(kind, str(value), value)
        raise Unknown(f"an argument is a {kind.__name__}")


def references_in(part: Any) -> Iterator[int]:
    """The numbers of the tensors in a part of a skeleton, in order."""
    if isinstance(part, Reference):
        yield part.number
    elif isinstance(part, ContainerArgument):
        for inner in part.parts:
            yield from references_in(inner)


def renumbered(part: Any, numbers: dict[int, int]) -> Any:
    """A part of a skeleton with its tensors numbered by their appearance in the step alone."""
    if isinstance(part, Reference):
        return reference(numbers[part.number])
    if isinstance(part, ContainerArgument):
        return ContainerArgument(part.kind, part.keys, tuple([renumbered(inner, numbers) for inner in part.parts]))
    return part


class Bounded(dict[Any, Any]):
    """A dictionary that lets go of its oldest entry when it is full."""

    def __init__(self, most: int):
        super().__init__()
        self._most = most

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= self._most and key not in self:
            self.pop(next(iter(self)), None)
        super().__setitem__(key, value)


class Tree:
    """What all nodes of a tree share: what calls do, wherever they are made, and how many nodes there are."""

    def __init__(self) -> None:
        self.outcomes: dict[Hashable, Bounded] = Bounded(MOST_CALLS)
        self.nodes = 0

    def outcomes_of(self, skeleton: tuple[Any, ...], operands: tuple[int, ...]) -> Bounded:
        """The outcomes of a call by its operands' metadata."""
        numbers: dict[int, int] = {}
        for number in operands:
            numbers.setdefault(number, len(numbers))
        key = skeleton[0], *[renumbered(part, numbers) for part in skeleton[1:]]
        found = self.outcomes.get(key)
        if found is None:
            found = self.outcomes[key] = Bounded(MOST_OUTCOMES)
        return found


@dataclass(eq=False, slots=True)
class StepNode:
    """A point of the tree: what is pending when it is reached."""

    parent: StepNode | None
    skeleton: Hashable
    """The skeleton of the step that leads here."""
    operands: tuple[int, ...] = ()
    """The tensors it takes, by number."""
    results: tuple[int, ...] = ()
    """The tensors it gives, by number; none for one that writes in place."""
    is_container: bool = False
    """Whether it gives them in a list or tuple."""
    children: dict[Hashable, StepNode] = field(default_factory=dict)
    outcomes: dict[Any, Outcome] = field(default_factory=lambda: Bounded(MOST_OUTCOMES))
    """Outcomes of the step that leads here, by the metadata of its operands."""
    segments: dict[Any, Any] = field(default_factory=lambda: Bounded(MOST_SEGMENTS))
    """What runs everything pending, by which tensors are still needed."""
    bases: tuple[int, ...] = ()
    """For each tensor so far: its own number if a step computes it, that of the tensor it is a view of, or -1 if it is
    from outside."""
    unwritten: frozenset[int] = frozenset()
    """The tensors whose memory is not written yet."""
    known: Outcome | None = None
    """The last outcome."""
    tree: Tree = field(default_factory=Tree)
    misses: int = 0
    """Calls that found no room for another child."""
    _words: Any = None

    def child(self, skeleton: Hashable) -> StepNode | None:
        """The node that a step leads to; None where there are too many."""
        found = self.children.get(skeleton)
        if found is None:
            assert isinstance(skeleton, tuple)
            operands = tuple(number for part in skeleton[1:] for number in references_in(part))
            if not operands:
                return StepNode(self, skeleton, tree=self.tree)  # nothing waits for it, so nothing leads on from it
            if len(self.children) >= MOST_BRANCHES and not self._has_room(skeleton[0]):
                return None
            outcomes = self.tree.outcomes_of(skeleton, operands)
            known = next(reversed(outcomes.values()), None)
            found = StepNode(self, skeleton, operands, outcomes=outcomes, known=known, tree=self.tree)
            self.children[skeleton] = found
            self._count()
        return found

    def _has_room(self, function: Any) -> bool:
        """Whether there can be another child by a call of a function. Now and then one is dropped for that, preferably
        one that leads nowhere. So calls that differ every time are not learned and compiled every time, and calls that
        stop changing are followed again."""
        alike = [key for key in self.children if isinstance(key, tuple) and key[0] == function]
        if len(alike) < MOST_BRANCHES and len(self.children) < MOST_CONTINUATIONS:
            return True
        self.misses += 1
        if self.misses % MISSES_PER_BRANCH:
            return False
        among = alike or list(self.children)
        idle = (key for key in among if not self.children[key].children and not self.children[key].segments)
        self.children.pop(next(idle, among[0]), None)
        return True

    def _count(self) -> None:
        """Begin anew where the whole tree has grown too large."""
        self.tree.nodes += 1
        if self.tree.nodes > MOST_NODES:
            root = self
            while root.parent is not None:
                root = root.parent
            root.children.clear()
            self.tree.nodes = 0

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

    def path(self) -> Sequence[StepNode]:
        """The steps from the root to here."""
        found: list[StepNode] = []
        node: StepNode | None = self
        while node is not None and node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]
