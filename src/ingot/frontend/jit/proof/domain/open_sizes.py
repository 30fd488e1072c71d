"""What a walk knows of sizes as functions of the sizes of arguments, so that a recording may hold for other sizes too.

In: the reads of sizes that the walk meets, and what is done with the numbers. Out: `SizeFacts`: which sizes Python
read, in order, under what conditions on them it takes the same way, and which numbers made of them it hands to PyTorch.
A number that was read is `Open`: it has its value in this call, and an expression over the sizes that were read. What
always holds: asking an `Open` number for its value pins it, which adds the condition that the expression has this
value. So code of the walk that does not know about expressions is right, and a size it looks at is fixed.

The sizes of tensors that were made during the call are not derived here: the recording knows the same reads, in the
same order, and which of its tensors each was of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingot.base import sizes
from ingot.base.sizes import Size
from ingot.frontend.jit.proof.domain.abstract_values import AbstractValue, Fresh, Known, Open, OpenTuple, Tuple

if TYPE_CHECKING:
    import torch

    from ingot.frontend.jit.proof.walk.walker import Walker

HIGHEST = 2**62
_MOST_TERMS = 8
_MOST_FACTORS = 4
READERS = frozenset(["size", "numel", "nelement"])
"""Methods of tensors whose answer is made of sizes alone."""


@dataclass(frozen=True, slots=True)
class SizeRead:
    """Python asked a tensor of the call for its sizes: how, and what they were."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """The range that an expression over the sizes that were read has to lie in."""

    size: Size
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """How one call used sizes. Two calls whose facts are equal, apart from the sizes, took the same path."""

    reads: tuple[SizeRead, ...]
    guards: tuple[SizeGuard, ...]
    handed: tuple[Size, ...]
    """Numbers that were handed to PyTorch and are no constants."""

    @property
    def way(self) -> tuple[Any, ...]:
        """What calls that took the same way have in common."""
        return tuple(one.name for one in self.reads), self.guards, self.handed

    @property
    def values(self) -> dict[str, int]:
        """What the symbols stood for in this call."""
        return {
            symbol_of(number, axis): size
            for number, read in enumerate(self.reads)
            for axis, size in enumerate(read.shape)
        }


def symbol_of(read: int, axis: int) -> str:
    """The name of one size of one read."""
    return f"read{read}_{axis}"


@dataclass(slots=True)
class OpenSizes:
    """What a walk has noted of sizes so far."""

    reads: list[SizeRead] = field(default_factory=list)
    guards: dict[SizeGuard, None] = field(default_factory=dict)
    handed: dict[Size, None] = field(default_factory=dict)
    forbidden: str | None = None
    """Why nothing is known for other sizes, if that is so."""
    ahead: int = 0
    """How many generators around the present place are walked ahead of time."""

    def facts(self) -> SizeFacts | None:
        if self.forbidden is not None:
            return None
        return SizeFacts(tuple(self.reads), tuple(self.guards), tuple(self.handed))

    def forbid(self, reason: str) -> None:
        """Note that Python saw something of a tensor that depends on its sizes in a way that is not followed."""
        self.forbidden = self.forbidden or reason

    # --- reading

    def read(self, name: str, meta: torch.Tensor) -> list[AbstractValue]:
        """The sizes of a tensor of the call, which Python asks for."""
        if self.ahead:
            self.forbid("sizes are read inside a generator")
        number, shape = len(self.reads), tuple(meta.shape)
        self.reads.append(SizeRead(name, shape))
        return [Open(size, sizes.symbol(symbol_of(number, axis)), self) for axis, size in enumerate(shape)]

    # --- conditions

    def require(self, size: Size, lowest: int, highest: int) -> None:
        """Note that the way depends on an expression lying in a range."""
        if not isinstance(size, int):
            self.guards[SizeGuard(size, lowest, highest)] = None

    def pin(self, value: Open) -> None:
        self.require(value.size, value.concrete, value.concrete)

    def is_less(self, left: AbstractValue, right: AbstractValue) -> bool:
        """Whether one number is less than another one, in every call of the same way."""
        outcome = number_of(left) < number_of(right)
        difference = _minus(size_of(right), size_of(left))
        self.require(difference, *((1, HIGHEST) if outcome else (-HIGHEST, 0)))
        return outcome

    def is_equal(self, left: AbstractValue, right: AbstractValue) -> bool:
        """Whether two numbers are equal, in every call of the same way; for those that are not, which is less."""
        apart = number_of(left) - number_of(right)
        ranges = (0, 0) if not apart else (1, HIGHEST) if apart > 0 else (-HIGHEST, -1)
        self.require(_minus(size_of(left), size_of(right)), *ranges)
        return not apart

    def hand(self, value: AbstractValue, is_number: bool = False) -> int:
        """The value of a number that PyTorch is given unchanged. Sizes that are given are not negative."""
        if isinstance(value, Open):
            if value.concrete < 0:
                return value.value
            self.mention(value)
            if not is_number:
                self.require(value.size, 0, HIGHEST)
        return number_of(value)

    def mention(self, value: AbstractValue) -> None:
        """Note that a number may be found in a recording: PyTorch was given it, or computes it of what it was given."""
        if isinstance(value, Open) and _has_calls(value.size):
            self.pin(value)
        elif isinstance(value, Open):
            self.handed[value.size] = None

    # --- arithmetic

    def made(self, concrete: int, size: Size) -> AbstractValue:
        """A number that was computed from others."""
        if isinstance(size, int):
            return Known(concrete)
        made = Open(concrete, size, self)
        is_long = len(size.terms) > _MOST_TERMS or any(len(monomial) > _MOST_FACTORS for monomial, _ in size.terms)
        return Known(made.value) if is_long else made

    def add(self, left: AbstractValue, right: AbstractValue) -> AbstractValue:
        return self.made(number_of(left) + number_of(right), size_of(left) + size_of(right))

    def subtract(self, left: AbstractValue, right: AbstractValue) -> AbstractValue:
        return self.made(number_of(left) - number_of(right), _minus(size_of(left), size_of(right)))

    def multiply(self, left: AbstractValue, right: AbstractValue) -> AbstractValue:
        return self.made(number_of(left) * number_of(right), size_of(left) * size_of(right))

    def divide(self, left: AbstractValue, right: int) -> AbstractValue:
        return self.made(number_of(left) // right, sizes.divide(size_of(left), right))

    def remainder(self, left: AbstractValue, right: int) -> AbstractValue:
        quotient = sizes.divide(size_of(left), right)
        return self.made(number_of(left) % right, _minus(size_of(left), quotient * right))


def _minus(left: Size, right: Size) -> Size:
    return left + right * -1


def _has_calls(size: Size) -> bool:
    """Whether an expression divides: it is none that a trace may hold."""
    if isinstance(size, int):
        return False
    return any(isinstance(atom, sizes.SizeCall) for monomial, _ in size.terms for atom in monomial)


def is_number(value: AbstractValue) -> bool:
    """Whether a value is an integer that is known, open or not."""
    return isinstance(value, Open) or (type(value) is Known and type(value.value) is int)


def number_of(value: AbstractValue) -> int:
    """The value of such an integer in this call, without pinning it."""
    return value.concrete if isinstance(value, Open) else value.value  # type: ignore[attr-defined]


def size_of(value: AbstractValue) -> Size:
    return value.size if isinstance(value, Open) else value.value  # type: ignore[attr-defined]


def are_open(*values: AbstractValue) -> bool:
    """Whether all are integers and some of them are open."""
    return any(isinstance(value, Open) for value in values) and all(map(is_number, values))


def pin(walker: Walker, *values: AbstractValue) -> None:
    """Pins all open numbers in values from which the walk computes a value that it does not know."""
    waiting, seen = list(values), set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        match value:
            case Open():
                walker.sizes.pin(value)
            case OpenTuple() | Tuple():
                waiting += value.items
            case Fresh():
                held = walker.state.items.get(value.identity, ())
                waiting += held.values() if isinstance(held, dict) else held if isinstance(held, tuple) else ()
