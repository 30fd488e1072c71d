"""Element-by-element composites: logic, clamping, interpolation and the activation functions."""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import BOOLEAN, COMPUTED, FLOATS, INTEGERS, DataType
from ingot.base.errors import ArgumentError
from ingot.base.numbers import fits
from ingot.ops.parameters import Operand, Plain, Real, Text
from ingot.ops.promotion import Promotion
from ingot.ops.record import Kind, operator
from ingot.ops.samples import ANYWHERE, EXACT, Domain, Sample, Tolerance, operands, with_keywords
from ingot.ops.samples import Operand as SampleOperand

NUMERIC = FLOATS | INTEGERS
ALL = NUMERIC | BOOLEAN
NON_ZERO = Domain(low=0.5, high=6.0, lowest_integer=1, highest_integer=100, specials=False)
MODERATE = Domain(low=-6.0, high=6.0, lowest_integer=-100, highest_integer=100)
FEW_ULPS = Tolerance(ulps=16, scale=1.0, half_ulps=2)


def composite(
    promotion: Promotion | None,
    dtypes: Any,
    eager: Any,
    samples: Any = None,
    tolerance: Tolerance = EXACT,
    keeps_precision: tuple[str, ...] = (),
    stable: bool = True,
):
    return operator(
        Kind.COMPOSITE,
        promotion=promotion,
        dtypes=dtypes,
        eager=eager,
        samples=samples or operands(ANYWHERE),
        tolerance=tolerance,
        keeps_precision=keeps_precision,
        stable=stable,
    )


@composite(None, COMPUTED, lambda torch, x: x.clone())
def set_(b: Any, x: Plain) -> Any:
    """x itself; kept for fusions written for nvFuser."""
    return x


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
    """True everywhere: ingot computes with real numbers only."""
    return b.full(x.shape, True, DataType.Bool)


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
    return x + _in_type_of(b, x, value) * first * second


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
    return b.where(b.le(x, _in_type_of(b, x, threshold)), _in_type_of(b, x, value), x)


# --- activations ------------------------------------------------------------------------------------------------------


@composite(Promotion.ARITHMETIC, NUMERIC, "torch.relu")
def relu(b: Any, x: Operand) -> Any:
    """x where positive, 0 elsewhere; NaN stays NaN."""
    return b.maximum(x, 0)


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.silu", tolerance=FEW_ULPS)
def silu(b: Any, x: Operand) -> Any:
    """x * sigmoid(x)."""
    return x * b.sigmoid(x)


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    lambda torch, x, approximate: torch.nn.functional.gelu(x, approximate=approximate),
    # PyTorch's gelu of infinity is infinity or NaN, depending on the machine's vector instructions.
    with_keywords({}, {"approximate": "tanh"}, domain=Domain(specials=False)),
    FEW_ULPS,
)
def gelu(b: Any, x: Operand, approximate: Text = "none") -> Any:
    """Gaussian error linear unit, exact by default; approximate="tanh" is the older formula with tanh."""
    if approximate == "none":
        return x * 0.5 * (1 + b.erf(x * math.sqrt(0.5)))
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + b.tanh(inner))
    raise ArgumentError(f'gelu: approximate must be "none" or "tanh", not {approximate!r}')


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    "torch.nn.functional.softplus",
    with_keywords({}, {"beta": 2.0, "threshold": 4.0}),
    FEW_ULPS,
)
def softplus(b: Any, x: Operand, beta: Real = 1.0, threshold: Real = 20.0) -> Any:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x exceeds the threshold."""
    scaled = x * beta
    return b.where(b.gt(scaled, threshold), x, b.log1p(b.exp(scaled)) / beta)


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    "torch.nn.functional.leaky_relu",
    with_keywords({}, {"negative_slope": 0.2}),
    FEW_ULPS,
)
def leaky_relu(b: Any, x: Operand, negative_slope: Real = 0.01) -> Any:
    """x where positive, negative_slope * x elsewhere."""
    return b.where(b.gt(x, 0), x, x * negative_slope)


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.elu", with_keywords({}, {"alpha": 0.5}), FEW_ULPS)
def elu(b: Any, x: Operand, alpha: Real = 1.0) -> Any:
    """x where positive, alpha * (exp(x) - 1) elsewhere."""
    return b.where(b.gt(x, 0), x, b.expm1(x) * alpha)


@composite(
    Promotion.ARITHMETIC,
    NUMERIC,
    "torch.nn.functional.hardtanh",
    with_keywords({}, {"min_value": -2.0, "max_value": 0.5}),
)
def hardtanh(b: Any, x: Operand, min_value: Real = -1.0, max_value: Real = 1.0) -> Any:
    """x limited to the range from min_value to max_value."""
    if x.dtype is DataType.UInt8 and (min_value < 0 or max_value < 0):
        raise ArgumentError(f"hardtanh of unsigned numbers needs limits of at least 0, not {min_value}, {max_value}")
    return b.clamp(x, _matching(x, min_value), _matching(x, max_value))


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.hardswish", tolerance=FEW_ULPS)
def hardswish(b: Any, x: Operand) -> Any:
    """x * clamp(x + 3, 0, 6) / 6."""
    return x * b.clamp(x + 3, 0, 6) / 6


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.mish", tolerance=FEW_ULPS)
def mish(b: Any, x: Operand) -> Any:
    """x * tanh(softplus(x))."""
    return x * b.tanh(b.log1p(b.exp(x)))


def _truth(b: Any, x: Any) -> Any:
    return x if x.dtype is DataType.Bool else b.ne(x, 0)


def _in_type_of(b: Any, x: Any, value: Any) -> Any:
    """A number that does not take part in type promotion, as an element of x holds it."""
    number = value.constant_value()
    if number is None:
        return b.cast(value, x.dtype)
    if x.dtype.is_integer and not fits(number, x.dtype):
        raise ArgumentError(f"{number} does not fit {x.dtype.text}")
    return b.constant(number, x.dtype)


def _matching(x: Any, bound: float) -> float | int:
    """A bound as a number of x's category: an integer tensor must not be promoted by a whole-numbered float."""
    return int(bound) if x.dtype.is_integer else bound
