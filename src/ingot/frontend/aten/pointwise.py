"""Calls that compute element by element: arithmetic, comparisons, logic, selection."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import HALVES, DataType
from ingot.base.numbers import convert_number
from ingot.frontend.aten.table import (
    GPU_ROWS,
    as_operator,
    converted,
    lowers,
    narrowed,
    require_one_type,
    result_type,
    unsupported,
    widened,
)
from ingot.ir.builder import Builder
from ingot.ir.handles import Handle

for operator, names in {
    "abs": "abs absolute",
    "addcdiv": "addcdiv",
    "addcmul": "addcmul",
    "angle": "angle",
    "acos": "acos arccos",
    "acosh": "acosh arccosh",
    "asin": "asin arcsin",
    "asinh": "asinh arcsinh",
    "atan": "atan arctan",
    "atan2": "atan2 arctan2",
    "atanh": "atanh arctanh",
    "bitwise_not": "bitwise_not",
    "ceil": "ceil",
    "complex": "complex",
    "cos": "cos",
    "cosh": "cosh",
    "deg2rad": "deg2rad",
    "entr": "special_entr",
    "erf": "erf special_erf",
    "erfc": "erfc special_erfc",
    "erfinv": "erfinv special_erfinv",
    "exp": "exp",
    "exp2": "exp2 special_exp2",
    "expm1": "expm1 special_expm1",
    "floor": "floor",
    "fmax": "fmax",
    "fmin": "fmin",
    "frac": "frac",
    "gcd": "gcd",
    "heaviside": "heaviside",
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
    "logaddexp": "logaddexp",
    "logaddexp2": "logaddexp2",
    "logical_and": "logical_and",
    "logical_not": "logical_not",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
    "maximum": "maximum",
    "minimum": "minimum",
    "nan_to_num": "nan_to_num",
    "neg": "neg negative",
    "nextafter": "nextafter",
    "rad2deg": "rad2deg",
    "reciprocal": "reciprocal",
    "round": "round",
    "polar": "polar",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid special_expit",
    "sgn": "sgn",
    "sign": "sign",
    "signbit": "signbit",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "square": "square",
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
    "float_power": "float_power.Tensor_Tensor float_power.Tensor_Scalar float_power.Scalar",
    "ldexp": "ldexp.Tensor",
    "copysign": "copysign.Tensor copysign.Scalar",
    "xlogy": "xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self special_xlogy.default special_xlogy.other_scalar "
    "special_xlogy.self_scalar",
    "xlog1py": "special_xlog1py.default special_xlog1py.other_scalar special_xlog1py.self_scalar",
    "masked_fill": "masked_fill.Scalar masked_fill.Tensor",
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


_ADD = ("add.Tensor", "add.Scalar")
_SUB = ("sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar")
_RSUB = ("rsub.Tensor", "rsub.Scalar")


@lowers(*_ADD)
def _add(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
    return _with_factor(b, "add", x, y, _rounded_factor(b, x, y, alpha))


@lowers(*_ADD, rows=GPU_ROWS)
def _add_on_gpu(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
    return _with_factor(b, "add", x, y, alpha)


@lowers(*_SUB)
def _sub(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
    return _with_factor(b, "sub", x, y, _rounded_factor(b, x, y, alpha))


@lowers(*_SUB, rows=GPU_ROWS)
def _sub_on_gpu(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
    return _with_factor(b, "sub", x, y, alpha)


@lowers(*_RSUB)
def _rsub(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
    return _with_factor(b, "sub", y, x, _rounded_factor(b, x, y, alpha))


@lowers(*_RSUB, rows=GPU_ROWS)
def _rsub_on_gpu(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
    return _with_factor(b, "sub", y, x, alpha)


def _rounded_factor(b: Builder, x: Any, y: Any, factor: Any) -> Any:
    """A factor as PyTorch's kernels for CPUs take it: as a number of the result's type. On GPUs it stays as it is."""
    dtype = result_type(b, x, y)
    if dtype not in HALVES or isinstance(factor, bool):
        return factor
    if isinstance(factor, Handle):
        return b.cast(b.cast(factor, dtype), dtype.widened)
    return convert_number(factor, dtype)


def _with_factor(b: Builder, operator: str, x: Any, y: Any, factor: Any) -> Any:
    """x plus or minus a multiple of y, rounded once for half types; the factor takes no part in type promotion."""
    if factor == 1 and not isinstance(factor, bool):
        return b.call(operator, (x, y))
    dtype = result_type(b, x, y)
    if dtype.is_complex or isinstance(factor, complex):
        unsupported(f"{operator} of {dtype.text} with alpha={factor!r} is not lowered")
    if dtype is DataType.Bool or isinstance(factor, bool) or (dtype.is_integer and isinstance(factor, float)):
        unsupported(f"{operator} of {dtype.text} with alpha={factor!r} is not lowered")
    if operator == "sub" and DataType.Bool in (getattr(x, "dtype", None), getattr(y, "dtype", None)):
        unsupported("bools are not subtracted")
    return widened(b, lambda left, right: b.call(operator, (left, b.mul(right, factor))), x, y)


_DIV_WITH_MODE = ("div.Tensor_mode", "div.Scalar_mode", "divide.Tensor_mode", "divide.Scalar_mode")


@lowers(*_DIV_WITH_MODE)
def _div_with_mode(b: Builder, x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    return _divided(b, x, y, rounding_mode, is_single=_has_one_element(y))


@lowers(*_DIV_WITH_MODE, rows=GPU_ROWS)
def _div_with_mode_on_gpu(b: Builder, x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    return _divided(b, x, y, rounding_mode, is_single=not isinstance(y, Handle))


def _has_one_element(value: Any) -> bool:
    """Whether an operand is a number or a tensor of one element; open sizes do not tell."""
    if not isinstance(value, Handle):
        return True
    known = [size for size in value.shape if isinstance(size, int)]
    if len(known) < len(value.shape) and all(size == 1 for size in known) and value.dtype in HALVES:
        unsupported("a divisor of open sizes, which may have one element, is not lowered")
    return len(known) == len(value.shape) and all(size == 1 for size in known)


def _divided(b: Builder, x: Any, y: Any, rounding_mode: str | None, is_single: bool) -> Any:
    """PyTorch rounds quotients of half types to their type before it cuts them off, which may move them to the next
    whole number; but not those by a single number, which it does not round either."""
    if rounding_mode is None:
        return b.truediv(x, y)
    if rounding_mode == "floor":
        return _floor_divide(b, x, y)
    if rounding_mode != "trunc":
        unsupported(f"there is no rounding mode {rounding_mode!r}")
    dtype = _require_divisor(b, x, y)
    if dtype not in HALVES:
        return widened(b, lambda left, right: b.trunc(b.div(left, right)), x, y)
    wide = dtype.widened
    left = b.cast(converted(b, x, dtype), wide)
    right = converted(b, y, wide) if is_single else b.cast(converted(b, y, dtype), wide)
    quotient = b.div(left, right)
    return narrowed(b, b.trunc(quotient if is_single else b.cast(b.cast(quotient, dtype), wide)), dtype)


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


@lowers("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(b: Builder, condition: Any, x: Any, y: Any) -> Any:
    """Two Python floats have the default floating-point type here."""
    chosen = b.where(condition, x, y)
    bare = not isinstance(x, Handle) and not isinstance(y, Handle) and chosen.dtype.is_float
    return b.cast(chosen, b.default_float) if bare else chosen


# --- functions --------------------------------------------------------------------------------------------------------


@lowers("sinc.default", "special_sinc.default")
def _sinc(b: Builder, x: Any) -> Any:
    """PyTorch rounds half types at steps of its own here."""
    if x.dtype in HALVES:
        unsupported(f"sinc of {x.dtype.text} is not lowered")
    return b.sinc(x)


@lowers("logit.default", "special_logit.default")
def _logit(b: Builder, x: Any, eps: float | None) -> Any:
    """PyTorch limits half types to a range of their own here, but not on GPUs."""
    if eps is not None and x.dtype in HALVES:
        unsupported(f"logit of {x.dtype.text} within limits is not lowered")
    return b.logit(x, eps)


as_operator("logit", "logit.default", "special_logit.default", rows=GPU_ROWS)


@lowers("hypot.default")
def _hypot(b: Builder, x: Any, y: Any) -> Any:
    """Of double there is no type in which squares do not overflow: PyTorch's is nearer to the exact root."""
    if DataType.Double in (x.dtype, y.dtype):
        unsupported("hypot of f64 is not lowered")
    return b.hypot(x, y)
