"""Element-by-element composites: logic, arithmetic, clamping, interpolation, filling."""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import BOOLEAN, COMPUTED, FLOATS, HALVES, INTEGERS, DataType
from ingot.base.errors import ArgumentError, ArgumentValueError
from ingot.base.numbers import convert_number, fits
from ingot.ops.definitions.pointwise import SHIFTS
from ingot.ops.parameters import Operand, Plain, Real
from ingot.ops.promotion import Promotion
from ingot.ops.record import Kind, operator, refuse
from ingot.ops.samples import ANYWHERE, EXACT, Domain, Sample, Tolerance, operands, with_keywords
from ingot.ops.samples import Operand as SampleOperand

NUMERIC = FLOATS | INTEGERS
ALL = NUMERIC | BOOLEAN
NON_ZERO = Domain(low=0.5, high=6.0, lowest_integer=1, highest_integer=100, specials=False)
MODERATE = Domain(low=-6.0, high=6.0, lowest_integer=-100, highest_integer=100)
FEW_ULPS = Tolerance(ulps=16, scale=1.0, half_ulps=2)
FLOATING = FLOATS | HALVES
LARGEST = {
    DataType.Half: 65504.0,
    DataType.BFloat16: 2.0**127 * (2 - 2.0**-7),
    DataType.Float: 2.0**127 * (2 - 2.0**-23),
    DataType.Double: 2.0**1023 * (2 - 2.0**-52),
}
"""The largest finite number of each type."""


def composite(
    promotion: Promotion | None,
    dtypes: Any,
    eager: Any,
    samples: Any = None,
    tolerance: Tolerance = EXACT,
    keeps_precision: tuple[str, ...] = (),
    stable: bool = True,
    operand_dtypes: Any = COMPUTED,
    takes_one_type: bool = False,
):
    """Decorator for an element-by-element composite; unless samples are given, it is called with one tensor."""
    return operator(
        Kind.COMPOSITE,
        promotion=promotion,
        dtypes=dtypes,
        eager=eager,
        samples=samples or operands(ANYWHERE),
        tolerance=tolerance,
        keeps_precision=keeps_precision,
        stable=stable,
        operand_dtypes=operand_dtypes,
        takes_one_type=takes_one_type,
    )


@composite(None, COMPUTED, lambda torch, x: x.clone())
def set_(b: Any, x: Plain) -> Any:
    """x itself; kept for fusions written for nvFuser."""
    return x


@composite(None, COMPUTED, lambda torch, x: x.clone())
def segment_set(b: Any, x: Plain) -> Any:
    """x itself. nvFuser ends a kernel here; ingot decides that by itself."""
    return x


refuse("scan", "the scans are cumsum, cumprod, cummax and cummin")


# --- logic ------------------------------------------------------------------------------------------------------------


@composite(Promotion.COMPARISON, ALL, "torch.logical_not")
def logical_not(b: Any, x: Operand) -> Any:
    """Whether x is zero."""
    return b.bitwise_not(x) if x.dtype is DataType.Bool else b.eq(x, 0)


@composite(None, COMPUTED, "torch.logical_and", operands(ANYWHERE, ANYWHERE))
def logical_and(b: Any, x: Plain, y: Plain) -> Any:
    """Whether neither is zero."""
    return b.bitwise_and(_truth(b, x), _truth(b, y))


@composite(None, COMPUTED, "torch.logical_or", operands(ANYWHERE, ANYWHERE))
def logical_or(b: Any, x: Plain, y: Plain) -> Any:
    """Whether either is not zero."""
    return b.bitwise_or(_truth(b, x), _truth(b, y))


@composite(None, COMPUTED, "torch.logical_xor", operands(ANYWHERE, ANYWHERE))
def logical_xor(b: Any, x: Plain, y: Plain) -> Any:
    """Whether exactly one of both is zero."""
    return b.ne(b.logical_not(x), b.logical_not(y))


@composite(Promotion.COMPARISON, ALL, "torch.isneginf")
def isneginf(b: Any, x: Operand) -> Any:
    """Whether x is negative infinity."""
    return b.eq(x, -math.inf) if x.dtype.is_float else b.ne(x, x)


@composite(Promotion.COMPARISON, ALL, "torch.isposinf")
def isposinf(b: Any, x: Operand) -> Any:
    """Whether x is positive infinity."""
    return b.eq(x, math.inf) if x.dtype.is_float else b.ne(x, x)


@composite(None, COMPUTED, "torch.isreal")
def isreal(b: Any, x: Plain) -> Any:
    """Whether the imaginary part of x is zero, as it is for all real numbers."""
    return b.full(x.shape, True, DataType.Bool)


def _eager_logical_shift(torch: Any, x: Any, y: Any) -> Any:
    """Without the sign bit, which is put where it belongs."""
    x, y = (torch.as_tensor(value) for value in (x, y))
    dtype = torch.result_type(x, y)
    x, y = x.to(dtype), y.to(dtype)
    if not dtype.is_signed:
        return x >> y
    highest = torch.iinfo(dtype).max
    shifted = ((x & highest) >> y) | torch.where(x < 0, (highest // 2 + 1) >> (y - 1).clamp(min=0), 0).to(dtype)
    return torch.where(y == 0, x, shifted)


@composite(Promotion.ARITHMETIC, INTEGERS, _eager_logical_shift, operands(ANYWHERE, SHIFTS))
def logical_right_shift(b: Any, x: Operand, y: Operand) -> Any:
    """x shifted right by y bits, zeros coming in at the left whatever the sign."""
    shifted = b.bitwise_right_shift(x, y)
    if not x.dtype.is_signed:
        return shifted
    lowest = b.constant(-(1 << x.dtype.bits - 1), x.dtype)
    signs = b.bitwise_left_shift(b.bitwise_right_shift(lowest, y), b.constant(1, x.dtype))
    return b.bitwise_and(shifted, b.bitwise_not(signs))


# --- filling ----------------------------------------------------------------------------------------------------------


@composite(
    None,
    COMPUTED,
    "torch.masked_fill",
    lambda shape: [
        Sample((SampleOperand(shape), SampleOperand(shape, dtype=DataType.Bool), value)) for value in (1, True, 0)
    ],
)
def masked_fill(b: Any, x: Plain, mask: Plain, value: Plain) -> Any:
    """One value where the mask holds, x elsewhere; the value is one that the type of x holds."""
    if mask.dtype is not DataType.Bool or value.shape:
        raise ArgumentError(f"masked_fill takes a mask of bools and one value, not {mask.type} and {value.type}")
    shape = b.broadcast_shapes(x.shape, mask.shape)
    return b.where(mask, as_element(b, value, x.dtype), b.expand(x, shape))


def as_element(b: Any, value: Any, dtype: DataType) -> Any:
    """A fill value as an element of a type; what PyTorch may refuse to convert is refused."""
    number = value.constant_value()
    if number is None:
        is_held = dtype.is_complex or (not value.dtype.is_complex and (dtype.is_float or not value.dtype.is_float))
    else:
        is_held = (
            dtype.is_complex or dtype.is_float or (math.isfinite(number) and convert_number(number, dtype) == number)
        )
    if not is_held:
        raise ArgumentValueError(f"{value.type if number is None else number} is no {dtype.text}")
    return b.cast(value, dtype) if number is None else b.constant(number, dtype)


@composite(
    None,
    COMPUTED,
    lambda torch, x, nan, posinf, neginf: torch.nan_to_num(x, nan, posinf, neginf),
    with_keywords({}, {"nan": 1.5}, {"posinf": 7.0, "neginf": -2}),
)
def nan_to_num(
    b: Any, x: Plain, nan: Real | None = None, posinf: Real | None = None, neginf: Real | None = None
) -> Any:
    """x with other numbers for NaN and infinities: 0 and the largest of the type, unless they are given."""
    if not x.dtype.is_float:
        return x
    largest = LARGEST[x.dtype]
    for special, replacement in (
        (b.isnan(x), 0.0 if nan is None else nan),
        (b.isposinf(x), largest if posinf is None else posinf),
        (b.isneginf(x), -largest if neginf is None else neginf),
    ):
        x = b.where(special, b.constant(replacement, x.dtype), x)
    return x


# --- arithmetic -------------------------------------------------------------------------------------------------------


@composite(Promotion.FLOAT, FLOATS, "torch.true_divide", operands(ANYWHERE, NON_ZERO), keeps_precision=("y",))
def truediv(b: Any, x: Operand, y: Operand) -> Any:
    """x / y, in floating point even for integers."""
    return b.div(x, y)


@composite(Promotion.ARITHMETIC, NUMERIC, "torch.fmod", operands(ANYWHERE, NON_ZERO))
def mod(b: Any, x: Operand, y: Operand) -> Any:
    """Remainder of the division, with the sign of x, as in C; nvFuser's name for `fmod` on integers."""
    return b.fmod(x, y)


@composite(Promotion.ARITHMETIC, FLOATS, "torch.frac")
def frac(b: Any, x: Operand) -> Any:
    """x without its integer part."""
    return x - b.trunc(x)


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    "torch.lerp",
    lambda shape: [
        *operands(MODERATE, MODERATE, Domain(0.0, 1.0, specials=False))(shape),
        *(Sample((*(SampleOperand(shape, MODERATE) for _ in range(2)), weight)) for weight in (0.1, 0.7, 1.3)),
    ],
    FEW_ULPS,
    keeps_precision=("weight",),
)
def lerp(b: Any, x: Operand, y: Operand, weight: Operand) -> Any:
    """From x at weight 0 to y at weight 1, on the straight line between them."""
    difference = y - x
    near_start = x + weight * difference
    near_end = y - difference * (1 - weight)
    return b.where(b.lt(b.abs(weight), 0.5), near_start, near_end)


@composite(
    Promotion.ARITHMETIC,
    NUMERIC,
    lambda torch, x, first, second, value: torch.addcmul(x, first, second, value=value),
    lambda shape: [
        Sample(tuple(SampleOperand(shape, MODERATE) for _ in range(3)), {"value": value}) for value in (1, 2, 0.1)
    ],
    FEW_ULPS,
)
def addcmul(b: Any, x: Operand, first: Operand, second: Operand, value: Plain = 1) -> Any:
    """x + value * first * second; the value takes the type of the others."""
    return x + in_type_of(b, x, value) * first * second


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    lambda torch, x, first, second, value: torch.addcdiv(x, first, second, value=value),
    lambda shape: [
        Sample((SampleOperand(shape, MODERATE), SampleOperand(shape, MODERATE), SampleOperand(shape, NON_ZERO)), given)
        for given in ({}, {"value": 2}, {"value": 0.1})
    ],
    FEW_ULPS,
)
def addcdiv(b: Any, x: Operand, first: Operand, second: Operand, value: Plain = 1) -> Any:
    """x + value * first / second; the value takes the type of the others."""
    return x + first * in_type_of(b, x, value) / second


@composite(
    Promotion.ARITHMETIC,
    ALL,
    lambda torch, x, min, max: torch.clamp(x, min, max),
    lambda shape: [
        *with_keywords({"min": -1, "max": 2}, {"min": 0}, {"max": 1}, {"min": 2, "max": -1})(shape),
        *with_keywords({"min": 0.1}, {"min": -0.5, "max": 2}, {"min": -math.inf})(shape),
        Sample((SampleOperand(shape),), {"min": SampleOperand(shape), "max": SampleOperand(shape)}),
        Sample((SampleOperand(shape), None, SampleOperand(shape))),
        Sample((SampleOperand(shape), SampleOperand(shape), None)),
    ],
    stable=False,  # because maximum and minimum are not
)
def clamp(b: Any, x: Operand, min: Operand | None = None, max: Operand | None = None) -> Any:
    """x limited to the range from min to max; NaN stays NaN, and max wins where min exceeds it."""
    if min is not None:
        x = b.maximum(x, min)
    return x if max is None else b.minimum(x, max)


@composite(
    Promotion.ARITHMETIC,
    NUMERIC,
    "torch.nn.functional.threshold",
    lambda shape: [Sample((SampleOperand(shape), threshold, value)) for threshold, value in ((1, 20), (0.1, 0.3))],
)
def threshold(b: Any, x: Operand, threshold: Plain, value: Plain) -> Any:
    """x where it exceeds the threshold, value elsewhere; both numbers take the type of x."""
    return b.where(b.le(x, in_type_of(b, x, threshold)), in_type_of(b, x, value), x)


def _truth(b: Any, x: Any) -> Any:
    return x if x.dtype is DataType.Bool else b.ne(x, 0)


def in_type_of(b: Any, x: Any, value: Any) -> Any:
    """A number that does not take part in type promotion, as an element of x holds it."""
    number = value.constant_value()
    if number is None:
        return b.cast(value, x.dtype)
    if x.dtype.is_integer and not fits(number, x.dtype):
        raise ArgumentValueError(f"{number} does not fit {x.dtype.text}")
    return b.constant(number, x.dtype)
