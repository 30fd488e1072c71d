"""Attributes of graph nodes: what a node knows besides its operands. Frozen, and printable field by field."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from ingot.base.dtypes import DataType
from ingot.base.numbers import Number
from ingot.base.sizes import Shape, Size
from ingot.base.types import TensorType, literal


@dataclass(frozen=True, slots=True)
class Attributes:
    """No attributes; the base of all others."""

    @property
    def text(self) -> str:
        """`name=value` for each field, in order of definition."""
        return ", ".join([f"{name}={literal(getattr(self, name))}" for name in _names_of(type(self))])

    @property
    def items(self) -> tuple[tuple[str, object], ...]:
        """Name and value of each field, in order of definition."""
        return tuple([(name, getattr(self, name)) for name in _names_of(type(self))])


@cache
def _names_of(kind: type[Attributes]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


NONE = Attributes()


@dataclass(frozen=True, slots=True)
class InputAttributes(Attributes):
    """A graph input: its place in the call and its declared type."""

    index: int
    dtype: DataType
    shape: Shape | None
    """None for a scalar input."""


@dataclass(frozen=True, slots=True)
class ConstantAttributes(Attributes):
    value: Number
    dtype: DataType


@dataclass(frozen=True, slots=True)
class SizeAttributes(Attributes):
    size: Size


@dataclass(frozen=True, slots=True)
class CastAttributes(Attributes):
    dtype: DataType


@dataclass(frozen=True, slots=True)
class AxesAttributes(Attributes):
    """Axes in ascending order, none negative, none twice."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AxisAttributes(Attributes):
    axis: int


@dataclass(frozen=True, slots=True)
class PermuteAttributes(Attributes):
    """Axis i of the result is axis order[i] of the operand."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShapeAttributes(Attributes):
    shape: Shape


@dataclass(frozen=True, slots=True)
class BroadcastAttributes(Attributes):
    """Axis i of the operand becomes axis axes[i] of the result; a size 1 there is repeated."""

    shape: Shape
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceAttributes(Attributes):
    """Per axis: first element, one past the last, and distance between elements; 0 <= start <= stop <= size."""

    starts: tuple[Size, ...]
    stops: tuple[Size, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PadAttributes(Attributes):
    """Per axis: how many elements are added before and after; none negative."""

    before: tuple[Size, ...]
    after: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class IotaAttributes(Attributes):
    length: Size
    dtype: DataType


@dataclass(frozen=True, slots=True)
class RandomAttributes(Attributes):
    """Draws are numbered in program order: two draws are never one node, and none may be skipped."""

    shape: Shape
    dtype: DataType
    ordinal: int


@dataclass(frozen=True, slots=True)
class LibraryAttributes(Attributes):
    """A call into torch.ops: where, with which recorded arguments (`$i` marks operand i), and what it returns.

    `ordinal` is set for calls whose every execution counts (they draw random numbers), and None for pure ones.
    """

    target: str
    arguments: tuple[object, ...]
    keywords: tuple[tuple[str, object], ...]
    results: tuple[TensorType, ...]
    ordinal: int | None


@dataclass(frozen=True, slots=True)
class ItemAttributes(Attributes):
    index: int
