"""Type promotion: in which type operands meet, and which type the result has.

Two dialects share one rule. PyTorch's gives a half result for half operands; nvFuser's leaves it float32 until it is
cast. Either way the arithmetic itself is done in float32: graphs never compute in a half type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ingot.base.dtypes import DataType, category, complex_type, promote
from ingot.base.types import ScalarType, TensorType


class Dialect(Enum):
    TORCH = auto()
    NVFUSER = auto()


class Promotion(Enum):
    """What an operator does with the type its operands meet in."""

    ARITHMETIC = auto()
    """Compute and answer in it."""
    FLOAT = auto()
    """The same, but integers and bools become floating point first."""
    COMPARISON = auto()
    """Compute in it, answer bool."""
    EXPANDED = auto()
    """Compute and answer in it; tensors without dimensions count as much as others, because PyTorch expands first."""
    ACCUMULATE = auto()
    """Compute and answer in it, but integers and bools become int64 first."""
    MOVEMENT = auto()
    """Only move values: no widening, half types stay half in every dialect."""


@dataclass(frozen=True, slots=True)
class Promoted:
    common: DataType
    """Where the operands meet."""
    compute: DataType
    """What they are converted to before the operator runs."""
    result: DataType
    """What a result of type `compute` is converted to afterwards."""
    rounds: bool
    """Whether operands are rounded to `common` before they are widened: PyTorch compares a bfloat16 tensor with the
    bfloat16 nearest to 0.1, and adds that one to it. What it reads in float32 is in `Op.keeps_precision`."""


def common_type(types: Sequence[TensorType | ScalarType], default_float: DataType) -> DataType:
    """PyTorch's result type: tensors with dimensions outrank those without, which outrank numbers.

    A lower rank matters only when its category (bool, integer, float) is higher.
    """
    dtypes = {type_.dtype for type_ in types}
    if len(dtypes) == 1:
        return dtypes.pop()
    result: DataType | None = None
    for rank in (_has_dimensions, _has_none, _is_scalar):
        meeting: DataType | None = None
        for type_ in filter(rank, types):
            meeting = type_.dtype if meeting is None else promote(meeting, type_.dtype)
        if meeting is None:
            continue
        if result is None:
            result = meeting
        elif category(meeting) > category(result):
            result = _raised(result, meeting, rank is _is_scalar, default_float)
    assert result is not None, "an operator has at least one operand"
    return result


def _raised(result: DataType, higher: DataType, is_number: bool, default_float: DataType) -> DataType:
    """What a type of tensors becomes by operands of lower rank and a higher category."""
    if higher.is_complex and result.is_float:
        return complex_type(result)  # as precise as the floats are
    # A Python float met by integers takes the default floating-point type, not double; parts of complex numbers, too.
    if is_number and higher in (DataType.Double, DataType.ComplexDouble):
        return complex_type(default_float) if higher.is_complex else default_float
    return promote(result, higher)


def decide(
    types: Sequence[TensorType | ScalarType],
    promotion: Promotion,
    dialect: Dialect,
    default_float: DataType,
    requested: DataType | None = None,
) -> Promoted:
    """Apply an operator's rule to its operand types; `requested` is an explicit dtype argument, which wins."""
    if promotion is Promotion.EXPANDED:
        types = [TensorType(type_.dtype, (1,)) if isinstance(type_, TensorType) else type_ for type_ in types]
    common = requested or common_type(types, default_float)
    if promotion is Promotion.MOVEMENT:
        return Promoted(common, common, common, rounds=True)
    if requested is None and not (common.is_float or common.is_complex):
        if promotion is Promotion.FLOAT:
            common = default_float
        elif promotion is Promotion.ACCUMULATE:
            common = DataType.Int
    compute = common.widened
    result = compute if dialect is Dialect.NVFUSER and requested is None else common
    return Promoted(common, compute, result, dialect is Dialect.TORCH or promotion is Promotion.COMPARISON)


def _has_dimensions(type_: TensorType | ScalarType) -> bool:
    return isinstance(type_, TensorType) and type_.rank > 0


def _has_none(type_: TensorType | ScalarType) -> bool:
    return isinstance(type_, TensorType) and type_.rank == 0


def _is_scalar(type_: TensorType | ScalarType) -> bool:
    return isinstance(type_, ScalarType)
