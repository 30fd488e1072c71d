"""Calls that compute element by element: arithmetic, comparisons, logic, selection."""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import DataType
from ingot.base.numbers import convert_number
from ingot.frontend.aten.table import (
    GPU_ROWS,
    as_operator,
    converted,
    lowers,
    require_float,
    require_one_type,
    result_type,
    unsupported,
    widened,
)
from ingot.ir.builder import Builder
from ingot.ir.handles import Handle
from ingot.ops.promotion import Promotion

for operator, names in {
    "abs": "abs absolute",
    "acos": "acos arccos",
    "acosh": "acosh arccosh",
    "asin": "asin arcsin",
    "asinh": "asinh arcsinh",
    "atan": "atan arctan",
    "atan2": "atan2 arctan2",
    "atanh": "atanh arctanh",
    "bitwise_not": "bitwise_not",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "erf": "erf special_erf",
    "erfc": "erfc special_erfc",
    "erfinv": "erfinv special_erfinv",
    "exp": "exp",
    "exp2": "exp2 special_exp2",
    "expm1": "expm1 special_expm1",
    "floor": "floor",
    "frac": "frac",
    "gcd": "gcd",
    "isfinite": "isfinite",
    "isinf": "isinf",
    "isnan": "isnan",
    "isneginf": "isneginf",
    "isposinf": "isposinf",
    "isreal": "isreal",
    "lgamma": "lgamma special_gammaln",
    "log": "log",
    "log10": "log10",
    "log1p": "log1p special_log1p",
    "log2": "log2",
    "logical_and": "logical_and",
    "logical_not": "logical_not",
    "logical_or": "logical_or",
    "maximum": "maximum",
    "minimum": "minimum",
    "neg": "neg negative",
    "nextafter": "nextafter",
    "reciprocal": "reciprocal",
    "round": "round",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid special_expit",
    "sign": "sign sgn",
    "signbit": "signbit",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
    "trunc": "trunc fix",
}.items():
    as_operator(operator, *(f"{name}.default" for name in names.split()))

for operator, names in {
    "bitwise_and": "bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor __and__.Tensor __and__.Scalar",
    "bitwise_or": "bitwise_or.Tensor bitwise_or.Scalar bitwise_or.Scalar_Tensor __or__.Tensor __or__.Scalar",
    "bitwise_xor": "bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor __xor__.Tensor __xor__.Scalar",
    "bitwise_left_shift": "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_left_shift.Scalar_Tensor "
    "__lshift__.Tensor __lshift__.Scalar",
    "bitwise_right_shift": "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar "
    "bitwise_right_shift.Scalar_Tensor __rshift__.Tensor __rshift__.Scalar",
    "mul": "mul.Tensor mul.Scalar multiply.Tensor multiply.Scalar",
    "truediv": "div.Tensor div.Scalar divide.Tensor divide.Scalar true_divide.Tensor true_divide.Scalar",
    "fmod": "fmod.Tensor fmod.Scalar",
    "remainder": "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor",
    "pow": "pow.Tensor_Tensor pow.Scalar",
    "eq": "eq.Tensor eq.Scalar",
    "ne": "ne.Tensor ne.Scalar not_equal.Tensor not_equal.Scalar",
    "lt": "lt.Tensor lt.Scalar less.Tensor less.Scalar",
    "le": "le.Tensor le.Scalar less_equal.Tensor less_equal.Scalar",
    "gt": "gt.Tensor gt.Scalar greater.Tensor greater.Scalar",
    "ge": "ge.Tensor ge.Scalar greater_equal.Tensor greater_equal.Scalar",
    "maximum": "max.other",
    "minimum": "min.other",
    "clamp": "clamp.Tensor clip.Tensor",
}.items():
    as_operator(operator, *names.split())


# --- arithmetic -------------------------------------------------------------------------------------------------------


@lowers("add.Tensor", "add.Scalar")
def _add(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
    return _with_factor(b, "add", x, y, alpha)


@lowers("sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar")
def _sub(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
    return _with_factor(b, "sub", x, y, alpha)


@lowers("rsub.Tensor", "rsub.Scalar")
def _rsub(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
    return _with_factor(b, "sub", y, x, alpha)


def _with_factor(b: Builder, operator: str, x: Any, y: Any, factor: Any) -> Any:
    """x plus or minus a multiple of y, rounded once for half types; the factor takes no part in type promotion."""
    if factor == 1 and not isinstance(factor, bool):
        return b.call(operator, (x, y))
    dtype = result_type(b, x, y)
    if dtype is DataType.Bool or isinstance(factor, bool) or (dtype.is_integer and isinstance(factor, float)):
        unsupported(f"{operator} of {dtype.text} with alpha={factor!r} is not lowered")
    if operator == "sub" and DataType.Bool in (getattr(x, "dtype", None), getattr(y, "dtype", None)):
        unsupported("bools are not subtracted")
    return widened(b, lambda left, right: b.call(operator, (left, b.mul(right, factor))), x, y)


@lowers("div.Tensor_mode", "div.Scalar_mode", "divide.Tensor_mode", "divide.Scalar_mode")
def _div_with_mode(b: Builder, x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return b.truediv(x, y)
    if rounding_mode == "floor":
        return _floor_divide(b, x, y)
    if rounding_mode != "trunc":
        unsupported(f"there is no rounding mode {rounding_mode!r}")
    _require_divisor(b, x, y)
    return widened(b, lambda left, right: b.trunc(b.div(left, right)), x, y)


@lowers("floor_divide.default", "floor_divide.Scalar")
def _floor_divide(b: Builder, x: Any, y: Any) -> Any:
    dtype = _require_divisor(b, x, y)
    if dtype.is_float:
        unsupported("the floor of a floating-point quotient is not lowered")
    return widened(b, lambda left, right: _floor_of_quotient(b, left, right), x, y)


def _floor_of_quotient(b: Builder, x: Any, y: Any) -> Any:
    """The quotient cut off towards zero, and one less where it is negative and not exact."""
    quotient = b.div(x, y)
    if not x.dtype.is_signed:
        return quotient
    differ = b.bitwise_xor(b.lt(x, 0), b.lt(y, 0))
    return b.where(b.bitwise_and(differ, b.ne(b.mul(quotient, y), x)), b.sub(quotient, 1), quotient)


def _require_divisor(b: Builder, x: Any, y: Any) -> DataType:
    dtype = result_type(b, x, y)
    if dtype is DataType.Bool:
        unsupported("bools are not divided")
    if dtype.is_integer and not isinstance(y, Handle) and y == 0:
        unsupported("an integer is divided by zero")
    return dtype


@lowers("pow.Tensor_Scalar")
def _pow(b: Builder, x: Handle, exponent: Any) -> Any:
    """For powers of 0.5 and -0.5 PyTorch takes roots, but not of float16 on CPUs: those of -inf and -0.0 differ."""
    if x.dtype is DataType.Half and not isinstance(exponent, Handle) and abs(exponent) == 0.5:
        unsupported("roots of float16 as powers are not lowered")
    return b.pow(x, exponent)


@lowers("pow.Tensor_Scalar", rows=GPU_ROWS)
def _pow_on_gpu(b: Builder, x: Handle, exponent: Any) -> Any:
    return b.pow(x, exponent)


@lowers("float_power.Tensor_Tensor", "float_power.Tensor_Scalar", "float_power.Scalar")
def _float_power(b: Builder, x: Any, y: Any) -> Any:
    double = [b.cast(value, DataType.Double) if isinstance(value, Handle) else float(value) for value in (x, y)]
    return b.pow(*double)


@lowers("ldexp.Tensor")
def _ldexp(b: Builder, x: Any, exponent: Any) -> Any:
    return b.mul(x, b.pow(2.0, exponent))


@lowers("square.default")
def _square(b: Builder, x: Any) -> Any:
    return b.pow(x, 2)


@lowers("deg2rad.default")
def _deg2rad(b: Builder, x: Any) -> Any:
    return b.mul(x, math.pi / 180)


@lowers("rad2deg.default")
def _rad2deg(b: Builder, x: Any) -> Any:
    return b.mul(x, 180 / math.pi)


@lowers("addcmul.default")
def _addcmul(b: Builder, x: Any, first: Any, second: Any, *, value: Any) -> Any:
    return b.addcmul(x, first, second, value)


@lowers("addcdiv.default")
def _addcdiv(b: Builder, x: Any, first: Any, second: Any, *, value: Any) -> Any:
    require_float("addcdiv", x, first, second)
    return widened(b, lambda start, above, below: start + above * value / below, x, first, second)


@lowers("lerp.Scalar", "lerp.Tensor")
def _lerp(b: Builder, x: Any, y: Any, weight: Any) -> Any:
    require_one_type("lerp", x, y, weight if isinstance(weight, Handle) else None)
    return b.lerp(x, y, weight)


@lowers("clamp.default", "clip.default")
def _clamp(b: Builder, x: Any, lowest: Any, highest: Any) -> Any:
    if lowest is None and highest is None:
        unsupported("clamp needs a limit")
    return b.clamp(x, lowest, highest)


@lowers("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(b: Builder, x: Any, lowest: Any) -> Any:
    return b.clamp(x, lowest, None)


@lowers("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(b: Builder, x: Any, highest: Any) -> Any:
    return b.clamp(x, None, highest)


# --- logic and selection ----------------------------------------------------------------------------------------------


@lowers("logical_xor.default")
def _logical_xor(b: Builder, x: Any, y: Any) -> Any:
    return b.ne(b.logical_not(x), b.logical_not(y))


@lowers("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(b: Builder, condition: Any, x: Any, y: Any) -> Any:
    """Two Python floats have the default floating-point type here."""
    chosen = b.where(condition, x, y)
    bare = not isinstance(x, Handle) and not isinstance(y, Handle) and chosen.dtype.is_float
    return b.cast(chosen, b.default_float) if bare else chosen


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(b: Builder, x: Any, mask: Any, value: Any) -> Any:
    if mask.dtype is not DataType.Bool or (isinstance(value, Handle) and value.shape):
        unsupported("masked_fill takes a mask of bools and one value")
    filling = number_as_element(b, value, x.dtype)
    shape = b.broadcast_shapes(x.shape, mask.shape)
    return b.where(mask, filling, b.expand(x, shape))


def number_as_element(b: Builder, value: Any, dtype: DataType) -> Handle:
    """A fill value as a tensor's element; what PyTorch may refuse to convert is refused."""
    if isinstance(value, Handle):
        exact = dtype.is_float or not value.dtype.is_float
    else:
        exact = dtype.is_float or (math.isfinite(value) and convert_number(value, dtype) == value)
    if not exact:
        unsupported(f"{value!r} is no {dtype.text}")
    return converted(b, value, dtype)


@lowers("nan_to_num.default")
def _nan_to_num(b: Builder, x: Any, nan: Any, highest: Any, lowest: Any) -> Any:
    if not x.dtype.is_float:
        return x
    limit = _LARGEST[x.dtype]
    for special, replacement in (
        (b.isnan(x), 0.0 if nan is None else nan),
        (b.isposinf(x), limit if highest is None else highest),
        (b.isneginf(x), -limit if lowest is None else lowest),
    ):
        x = b.where(special, b.constant(replacement, x.dtype), x)
    return x


_LARGEST = {
    DataType.Half: 65504.0,
    DataType.BFloat16: 2.0**127 * (2 - 2.0**-7),
    DataType.Float: 2.0**127 * (2 - 2.0**-23),
    DataType.Double: 2.0**1023 * (2 - 2.0**-52),
}


@lowers("angle.default")
def _angle(b: Builder, x: Any) -> Any:
    """That of a number on the real axis."""
    dtype = result_type(b, x, promotion=Promotion.FLOAT)
    opposite = b.where(b.lt(x, 0), b.constant(math.pi, dtype), b.constant(0.0, dtype))
    return b.where(b.isnan(x), b.cast(x, dtype), opposite)


@lowers("heaviside.default")
def _heaviside(b: Builder, x: Any, values: Any) -> Any:
    require_one_type("heaviside", x, values)
    if x.dtype is DataType.Bool:
        return b.where(x, x, values)
    return b.where(b.eq(x, 0), values, b.cast(b.gt(x, 0), x.dtype))


@lowers("copysign.Tensor", "copysign.Scalar")
def _copysign(b: Builder, x: Any, y: Any) -> Any:
    dtype = result_type(b, x, y, promotion=Promotion.FLOAT)
    x, y = converted(b, x, dtype), converted(b, y, dtype)
    return b.where(b.bitwise_xor(b.signbit(x), b.signbit(y)), b.neg(x), x)


@lowers("fmax.default")
def _fmax(b: Builder, x: Any, y: Any) -> Any:
    return _number_over_nan(b, b.maximum, x, y)


@lowers("fmin.default")
def _fmin(b: Builder, x: Any, y: Any) -> Any:
    return _number_over_nan(b, b.minimum, x, y)


def _number_over_nan(b: Builder, extremum: Any, x: Any, y: Any) -> Any:
    dtype = result_type(b, x, y)
    x, y = converted(b, x, dtype), converted(b, y, dtype)
    if not dtype.is_float:
        return extremum(x, y)
    return b.where(b.isnan(x), y, b.where(b.isnan(y), x, extremum(x, y)))


# --- functions --------------------------------------------------------------------------------------------------------


@lowers("logaddexp.default")
def _logaddexp(b: Builder, x: Any, y: Any) -> Any:
    require_float("logaddexp", x, y)
    return widened(b, lambda left, right: _log_of_sum(b, left, right, lambda gap: b.log1p(b.exp(gap))), x, y)


@lowers("logaddexp2.default")
def _logaddexp2(b: Builder, x: Any, y: Any) -> Any:
    require_float("logaddexp2", x, y)
    return widened(
        b, lambda left, right: _log_of_sum(b, left, right, lambda gap: b.log1p(b.exp2(gap)) / math.log(2)), x, y
    )


def _log_of_sum(b: Builder, x: Any, y: Any, remainder: Any) -> Any:
    """The larger of both and what the smaller one adds; two equal infinities stay what they are."""
    same_infinity = b.bitwise_and(b.isinf(x), b.eq(x, y))
    return b.where(same_infinity, x, b.maximum(x, y) + remainder(-b.abs(x - y)))


@lowers("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self")
@lowers("special_xlogy.default", "special_xlogy.other_scalar", "special_xlogy.self_scalar")
def _xlogy(b: Builder, x: Any, y: Any) -> Any:
    return widened(b, lambda left, right: _times_log(b, left, right, b.log(right)), x, y, promotion=Promotion.FLOAT)


@lowers("special_xlog1py.default", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")
def _xlog1py(b: Builder, x: Any, y: Any) -> Any:
    return widened(b, lambda left, right: _times_log(b, left, right, b.log1p(right)), x, y, promotion=Promotion.FLOAT)


def _times_log(b: Builder, x: Any, y: Any, logarithm: Any) -> Any:
    return b.where(b.isnan(y), y, b.where(b.eq(x, 0), 0.0, x * logarithm))


@lowers("special_entr.default")
def _entr(b: Builder, x: Any) -> Any:
    def entropy(x: Any) -> Any:
        below = b.where(b.eq(x, 0), b.constant(0.0, x.dtype), b.constant(-math.inf, x.dtype))
        return b.where(b.isnan(x), x, b.where(b.gt(x, 0), -x * b.log(x), below))

    return widened(b, entropy, x, promotion=Promotion.FLOAT)


@lowers("sinc.default", "special_sinc.default")
def _sinc(b: Builder, x: Any) -> Any:
    dtype = result_type(b, x, promotion=Promotion.FLOAT)
    if dtype is not dtype.widened:
        unsupported(f"sinc of {dtype.text} is not lowered")
    angle = b.cast(x, dtype) * math.pi
    return b.where(b.eq(x, 0), b.constant(1.0, dtype), b.sin(angle) / angle)


@lowers("logit.default", "special_logit.default")
def _logit(b: Builder, x: Any, eps: float | None) -> Any:
    if eps is not None and eps > 0.5:
        unsupported("logit with limits that cross is not lowered")

    def log_odds(x: Any) -> Any:
        if eps is not None and eps >= 0:
            lowest = convert_number(eps, x.dtype)
            x = b.clamp(x, lowest, convert_number(1 - lowest, x.dtype))
        return b.log(x / (1 - x))

    return widened(b, log_odds, x, promotion=Promotion.FLOAT)


@lowers("hypot.default")
def _hypot(b: Builder, x: Any, y: Any) -> Any:
    """In double, where no square overflows."""
    dtype = result_type(b, x, y)
    if not dtype.is_float or dtype is DataType.Double:
        unsupported(f"hypot of {dtype.text} is not lowered")
    left, right = (b.cast(converted(b, value, dtype), DataType.Double) for value in (x, y))
    infinite = b.bitwise_or(b.isinf(left), b.isinf(right))
    return b.cast(b.where(infinite, math.inf, b.sqrt(left * left + right * right)), dtype)
