"""Functions of one or two numbers, composed of primitives."""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import COMPUTED, FLOATS, DataType
from ingot.base.errors import ArgumentValueError, DTypeError
from ingot.base.numbers import convert_number
from ingot.ops.definitions.elementwise import ALL, FEW_ULPS, MODERATE, composite
from ingot.ops.definitions.pointwise import EXPONENTS, POSITIVE, both_tensors
from ingot.ops.parameters import Operand, Plain, Real
from ingot.ops.promotion import Promotion
from ingot.ops.samples import ANYWHERE, Domain, operands, with_keywords

PROBABILITIES = Domain(low=0.0, high=1.0)
WITHIN_RANGE = Domain(low=-6.0, high=6.0, lowest_integer=-100, highest_integer=100, specials=False)


def _of_tensors(name: str):
    """A function of PyTorch's of two tensors, which takes no numbers."""

    def eager(torch: Any, x: Any, y: Any) -> Any:
        return getattr(torch, name)(*both_tensors(torch, x, y))

    return eager


# --- of one number ----------------------------------------------------------------------------------------------------


@composite(None, COMPUTED, "torch.square", operands(MODERATE), FEW_ULPS)
def square(b: Any, x: Plain) -> Any:
    """x * x."""
    return b.pow(x, 2)


@composite(None, COMPUTED, "torch.deg2rad", tolerance=FEW_ULPS)
def deg2rad(b: Any, x: Plain) -> Any:
    """An angle in degrees, in radians."""
    return b.mul(x, math.pi / 180)


@composite(None, COMPUTED, "torch.rad2deg", tolerance=FEW_ULPS)
def rad2deg(b: Any, x: Plain) -> Any:
    """An angle in radians, in degrees."""
    return b.mul(x, 180 / math.pi)


@composite(Promotion.FLOAT, FLOATS, "torch.angle")
def angle(b: Any, x: Operand) -> Any:
    """Angle of a number on the real axis: pi below zero, 0 elsewhere."""
    opposite = b.where(b.lt(x, 0), b.constant(math.pi, x.dtype), b.constant(0.0, x.dtype))
    return b.where(b.isnan(x), x, opposite)


@composite(Promotion.FLOAT, FLOATS, "torch.sinc", tolerance=FEW_ULPS)
def sinc(b: Any, x: Operand) -> Any:
    """sin(pi * x) / (pi * x), and 1 at 0."""
    angle = x * math.pi
    return b.where(b.eq(x, 0), b.constant(1.0, x.dtype), b.sin(angle) / angle)


@composite(
    Promotion.FLOAT,
    FLOATS,
    "torch.logit",
    with_keywords({}, {"eps": 0.1}, {"eps": 0.5}, domain=PROBABILITIES),
    FEW_ULPS,
)
def logit(b: Any, x: Operand, eps: Real | None = None) -> Any:
    """Logarithm of the odds, log(x / (1 - x)); with eps, of x limited to the range from eps to 1 - eps."""
    if eps is not None and eps > 0.5:
        raise ArgumentValueError(f"logit needs limits that do not cross: eps is at most 0.5, not {eps}")
    if eps is not None and eps >= 0:
        lowest = convert_number(eps, x.dtype)
        x = b.clamp(x, lowest, convert_number(1 - lowest, x.dtype))
    return b.log(x / (1 - x))


@composite(Promotion.FLOAT, FLOATS, "torch.special.entr", tolerance=FEW_ULPS)
def entr(b: Any, x: Operand) -> Any:
    """-x * log(x), 0 at 0 and minus infinity below."""
    below = b.where(b.eq(x, 0), b.constant(0.0, x.dtype), b.constant(-math.inf, x.dtype))
    return b.where(b.isnan(x), x, b.where(b.gt(x, 0), -x * b.log(x), below))


@composite(
    Promotion.FLOAT,
    FLOATS,
    lambda torch, x: (torch.special.ndtri(_widest(torch, x) / 2) * -math.sqrt(0.5)).to(_float_type(torch, x)),
    operands(Domain(low=0.0, high=2.0)),
    FEW_ULPS,
)
def erfcinv(b: Any, x: Operand) -> Any:
    """Inverse of erfc."""
    wide = b.cast(x, DataType.Double)
    tail = b.minimum(wide, 2.0 - wide)  # erfc(-y) is 2 - erfc(y)
    logarithm = b.log(tail)
    far = b.sqrt(b.maximum(-(logarithm + b.log(b.maximum(-logarithm, 1.0) * math.pi) * 0.5), 0.0))
    guess = b.where(b.lt(tail, 0.1), far, b.erfinv(1.0 - tail))
    for _ in range(3):  # Halley's steps: each has three times as many right digits
        step = (b.erfc(guess) - tail) * b.exp(guess * guess) * (-math.sqrt(math.pi) / 2)
        guess = guess - step / (guess * step + 1.0)
    positive = b.where(b.eq(tail, 0.0), math.inf, guess)
    return b.cast(b.where(b.gt(wide, 1.0), -positive, positive), x.dtype)


def _float_type(torch: Any, x: Any) -> Any:
    return x.dtype if x.is_floating_point() else torch.float32


def _widest(torch: Any, x: Any) -> Any:
    return x.to(_float_type(torch, x)).double()


# --- of two numbers ---------------------------------------------------------------------------------------------------


@composite(None, COMPUTED, "torch.float_power", operands(POSITIVE, EXPONENTS), FEW_ULPS)
def float_power(b: Any, x: Plain, y: Plain) -> Any:
    """x to the power y, in double."""
    return b.pow(b.cast(x, DataType.Double), b.cast(y, DataType.Double))


@composite(None, COMPUTED, "torch.ldexp", operands(MODERATE, WITHIN_RANGE), FEW_ULPS)
def ldexp(b: Any, x: Plain, exponent: Plain) -> Any:
    """x times 2 to the power of the exponent."""
    return b.mul(x, b.pow(2.0, exponent))


@composite(Promotion.FLOAT, FLOATS, "torch.copysign", operands(ANYWHERE, ANYWHERE))
def copysign(b: Any, x: Operand, y: Operand) -> Any:
    """The magnitude of x with the sign of y."""
    return b.where(b.bitwise_xor(b.signbit(x), b.signbit(y)), b.neg(x), x)


@composite(None, COMPUTED, "torch.heaviside", operands(ANYWHERE, ANYWHERE))
def heaviside(b: Any, x: Plain, values: Plain) -> Any:
    """0 below zero, 1 above, and at zero what is given for it; both have one data type."""
    if x.dtype is not values.dtype:
        raise DTypeError(f"heaviside takes operands of one data type, not {x.type} and {values.type}")
    if x.dtype is DataType.Bool:
        return b.where(x, x, values)
    return b.where(b.eq(x, 0), values, b.cast(b.gt(x, 0), x.dtype))


@composite(Promotion.ARITHMETIC, ALL, _of_tensors("fmax"), operands(ANYWHERE, ANYWHERE), stable=False)
def fmax(b: Any, x: Operand, y: Operand) -> Any:
    """The larger of both; where one is NaN, the other."""
    return _number_over_nan(b, b.maximum, x, y)


@composite(Promotion.ARITHMETIC, ALL, _of_tensors("fmin"), operands(ANYWHERE, ANYWHERE), stable=False)
def fmin(b: Any, x: Operand, y: Operand) -> Any:
    """The smaller of both; where one is NaN, the other."""
    return _number_over_nan(b, b.minimum, x, y)


def _number_over_nan(b: Any, extremum: Any, x: Any, y: Any) -> Any:
    if not x.dtype.is_float:
        return extremum(x, y)
    return b.where(b.isnan(x), y, b.where(b.isnan(y), x, extremum(x, y)))


@composite(Promotion.ARITHMETIC, FLOATS, _of_tensors("hypot"), operands(ANYWHERE, ANYWHERE), FEW_ULPS)
def hypot(b: Any, x: Operand, y: Operand) -> Any:
    """Root of the sum of both squares, none of which overflows."""
    infinite = b.bitwise_or(b.isinf(x), b.isinf(y))
    if x.dtype is DataType.Double:
        return b.where(infinite, math.inf, _scaled_hypot(b, b.abs(x), b.abs(y)))
    left, right = b.cast(x, DataType.Double), b.cast(y, DataType.Double)
    return b.cast(b.where(infinite, math.inf, b.sqrt(left * left + right * right)), x.dtype)


def _scaled_hypot(b: Any, x: Any, y: Any) -> Any:
    """The larger of both times the root of 1 and the square of their quotient."""
    larger, smaller = b.maximum(x, y), b.minimum(x, y)
    quotient = b.where(b.eq(larger, 0), larger, smaller / larger)
    return larger * b.sqrt(quotient * quotient + 1)


@composite(Promotion.ARITHMETIC, FLOATS, _of_tensors("logaddexp"), operands(ANYWHERE, ANYWHERE), FEW_ULPS)
def logaddexp(b: Any, x: Operand, y: Operand) -> Any:
    """log(exp(x) + exp(y)), where neither overflows."""
    return _log_of_sum(b, x, y, lambda gap: b.log1p(b.exp(gap)))


@composite(Promotion.ARITHMETIC, FLOATS, _of_tensors("logaddexp2"), operands(ANYWHERE, ANYWHERE), FEW_ULPS)
def logaddexp2(b: Any, x: Operand, y: Operand) -> Any:
    """log2(exp2(x) + exp2(y)), where neither overflows."""
    return _log_of_sum(b, x, y, lambda gap: b.log1p(b.exp2(gap)) / math.log(2))


def _log_of_sum(b: Any, x: Any, y: Any, remainder: Any) -> Any:
    """The larger of both and what the smaller one adds; two equal infinities stay what they are."""
    same_infinity = b.bitwise_and(b.isinf(x), b.eq(x, y))
    return b.where(same_infinity, x, b.maximum(x, y) + remainder(-b.abs(x - y)))


@composite(Promotion.FLOAT, FLOATS, "torch.xlogy", operands(ANYWHERE, ANYWHERE), FEW_ULPS)
def xlogy(b: Any, x: Operand, y: Operand) -> Any:
    """x * log(y), and 0 where x is 0 and y is a number."""
    return _times_log(b, x, y, b.log(y))


@composite(Promotion.FLOAT, FLOATS, "torch.special.xlog1py", operands(ANYWHERE, ANYWHERE), FEW_ULPS)
def xlog1py(b: Any, x: Operand, y: Operand) -> Any:
    """x * log(1 + y), and 0 where x is 0 and y is a number."""
    return _times_log(b, x, y, b.log1p(y))


def _times_log(b: Any, x: Any, y: Any, logarithm: Any) -> Any:
    return b.where(b.isnan(y), y, b.where(b.eq(x, 0), 0.0, x * logarithm))
