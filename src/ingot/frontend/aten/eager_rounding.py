"""Calls on half types that eager PyTorch rounds elsewhere than at their end, for CPUs and `numerics="eager"`.

Most operators of PyTorch's compute in float32 and round once, and so do their other rows. Those here round on the way:
each row takes the same steps. Where elements at the end of a tensor, or of tensors that are not contiguous, go through
code that rounds otherwise than code for vectors does, no kernel can round as both: such calls are left to PyTorch.
Calls on other types are lowered as ever.

What always holds: a row gives eager's bits, apart from the last bit of exp, log and the like, or refuses the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ingot.base.dtypes import HALVES, DataType
from ingot.frontend.aten.fused_products import fuses
from ingot.frontend.aten.losses import REDUCTIONS
from ingot.frontend.aten.table import (
    EAGER_ROWS,
    ROWS,
    Row,
    converted,
    lowers,
    require_one_type,
    result_type,
    unsupported,
    widened,
)
from ingot.ir.builder import Builder
from ingot.ir.handles import Handle


def in_halves(*names: str) -> Callable[[Row], Row]:
    """Decorator: the function is the meaning of these overloads where operands meet in a half type."""

    def register(row: Row) -> Row:
        for name in names:
            lowers(name, rows=EAGER_ROWS)(_chosen(row, name))
        return row

    return register


def _chosen(row: Row, name: str) -> Row:
    def choose(b: Builder, *arguments: Any, **keywords: Any) -> Any:
        tensors = [argument for argument in arguments if isinstance(argument, Handle)]
        is_half = bool(tensors) and result_type(b, *tensors) in HALVES
        return (row if is_half else ROWS[name])(b, *arguments, **keywords)

    return choose


# --- two ways of rounding in one tensor -------------------------------------------------------------------------------


@in_halves(
    "rsqrt.default",
    "softshrink.default",
    "fmod.Tensor",
    "fmod.Scalar",
    "remainder.Tensor",
    "remainder.Scalar",
    "remainder.Scalar_Tensor",
    "hardswish_backward.default",
    "hardtanh_backward.default",
)
def _two_ways(b: Builder, *arguments: Any, **keywords: Any) -> Any:
    """Reciprocal roots are rounded once or twice, zeros of softshrink have a sign or none, remainders of huge quotients
    are NaN or not, and so are some derivatives at NaN."""
    unsupported("PyTorch has two ways to compute this in half types")


_SUMS = (
    *("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar"),
    *("rsub.Tensor", "rsub.Scalar"),
)


def _sum_with_factor(name: str) -> Row:
    """A product with a factor other than 1 and -1 is rounded to the half type before it is added, or it is not."""

    def row(b: Builder, x: Any, y: Any, alpha: Any) -> Any:
        if isinstance(alpha, Handle) or abs(alpha) != 1:
            unsupported("PyTorch has two ways to add a multiple of half types")
        return ROWS[name](b, x, y, alpha)

    return row


for name in _SUMS:
    in_halves(name)(_sum_with_factor(name))


# --- steps that are rounded -------------------------------------------------------------------------------------------


@in_halves("pow.Tensor_Scalar")
def _pow(b: Builder, x: Handle, exponent: Any) -> Any:
    """bfloat16 is multiplied with itself step by step; float16 takes the function of float32."""
    if isinstance(exponent, Handle) or exponent == -0.5:
        unsupported("PyTorch has two ways to compute this power of half types")
    if x.dtype is DataType.BFloat16 and exponent == 3:
        return x * x * x
    if x.dtype is DataType.BFloat16 and exponent == -2:
        return b.reciprocal(x * x)
    return ROWS["pow.Tensor_Scalar"](b, x, exponent)


def _times_logarithm(logarithm: str) -> Row:
    """x * log(y), which is 0 where x is, unless y is NaN; the logarithm is rounded first."""

    def row(b: Builder, x: Any, y: Any) -> Any:
        dtype = result_type(b, *(value for value in (x, y) if isinstance(value, Handle)))
        x, y = converted(b, x, dtype), converted(b, y, dtype)
        product = b.where(b.eq(x, 0), b.constant(0.0, dtype), x * b.call(logarithm, (y,)))
        return b.where(b.isnan(y), b.constant(math.nan, dtype), product)

    return row


in_halves(
    *("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self"),
    *("special_xlogy.default", "special_xlogy.other_scalar", "special_xlogy.self_scalar"),
)(_times_logarithm("log"))
in_halves("special_xlog1py.default", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")(
    _times_logarithm("log1p")
)


@in_halves("special_entr.default")
def _entr(b: Builder, x: Handle) -> Any:
    """-x * log(x) where x is positive, with the logarithm rounded first; 0 at 0 and minus infinity below."""
    positive = -x * b.log(x)
    other = b.where(b.eq(x, 0), b.constant(0.0, x.dtype), b.constant(-math.inf, x.dtype))
    return b.where(b.isnan(x), x, b.where(b.gt(x, 0), positive, other))


@in_halves("logit.default", "special_logit.default")
def _logit(b: Builder, x: Handle, eps: float | None) -> Any:
    """log(x / (1 - x)), rounded at each of its three steps."""
    if eps is not None:
        unsupported("logit of half types within limits is not lowered")
    return b.log(x / (1 - x))


@in_halves("sigmoid_backward.default")
def _sigmoid_backward(b: Builder, gradient: Handle, output: Handle) -> Any:
    """gradient * (1 - output) * output; float16 is rounded at each step, bfloat16 at the end."""
    if gradient.dtype is not DataType.Half or output.dtype is not DataType.Half:
        return ROWS["sigmoid_backward.default"](b, gradient, output)
    return gradient * (1 - output) * output


# --- products that are added ------------------------------------------------------------------------------------------


@in_halves("addcmul.default")
def _addcmul(b: Builder, x: Handle, first: Handle, second: Handle, *, value: Any) -> Any:
    """x + value * first * second in float32, whose last product may be added without being rounded."""
    added = _sums_in_eager("addcmul")
    scaled = lambda first: converted(b, value, first.dtype) * first
    return widened(b, lambda x, first, second: added(b, scaled(first), second, x), x, first, second)


@in_halves("lerp.Scalar", "lerp.Tensor")
def _lerp(b: Builder, x: Handle, y: Handle, weight: Any) -> Any:
    """x + weight * (y - x), or where the weight is at least a half, y - (y - x) * (1 - weight); as in addcmul."""
    require_one_type("lerp", x, y, weight if isinstance(weight, Handle) else None)
    added = _sums_in_eager("lerp")
    wide = x.dtype.widened
    start, end, weight = (converted(b, value, wide) for value in (x, y, weight))
    difference = end - start
    near_start = added(b, weight, difference, start)
    near_end = added(b, -difference, 1 - weight, end)
    return b.cast(b.where(b.lt(b.abs(weight), 0.5), near_start, near_end), x.dtype)


def _sums_in_eager(name: str) -> Callable[[Builder, Any, Any, Any], Any]:
    """What writes x * y + z as PyTorch's kernel of this name computes it in this process."""
    is_fused = fuses(name)
    if is_fused is None:
        unsupported("PyTorch has two ways to add products of half types")
    return (lambda b, x, y, z: b.fused_sum(x, y, z)) if is_fused else (lambda b, x, y, z: x * y + z)


# --- losses -----------------------------------------------------------------------------------------------------------


@in_halves("mse_loss.default")
def _mse_loss(b: Builder, x: Handle, target: Handle, reduction: int) -> Any:
    """The difference is rounded before it is squared, and the square before squares are added up."""
    difference = x - target
    return _reduced(b, difference * difference, reduction)


@in_halves("smooth_l1_loss.default")
def _smooth_l1_loss(b: Builder, x: Handle, target: Handle, reduction: int, beta: float) -> Any:
    """float16 is rounded at each step, bfloat16 before losses are added up."""
    if not isinstance(beta, float | int) or result_type(b, x, target) is not DataType.Half:
        return _reduced(b, ROWS["smooth_l1_loss.default"](b, x, target, 0, beta), reduction)
    if beta != 1:
        unsupported("smooth_l1_loss of float16 with another beta than 1 is not lowered")
    distance = b.abs(x - target)
    return _reduced(b, b.where(b.lt(distance, 1), 0.5 * distance * distance, distance - 0.5), reduction)


@in_halves("l1_loss.default")
def _l1_loss(b: Builder, x: Handle, target: Handle, reduction: int) -> Any:
    return _reduced(b, b.abs(x - target), reduction)


def _reduced(b: Builder, losses: Any, reduction: int) -> Any:
    if not 0 <= reduction < len(REDUCTIONS):
        unsupported(f"there is no reduction {reduction}")
    word = REDUCTIONS[reduction]
    return losses if word == "none" else b.mean(losses) if word == "mean" else b.sum(losses)


# --- rows and reductions ----------------------------------------------------------------------------------------------


def _along_last_axis(row: Row) -> Row:
    """The row for the last axis; along others PyTorch rounds on the way, and conversions are its own business."""

    def lower(b: Builder, x: Handle, dim: int, conversion: Any) -> Any:
        rank = len(x.shape)
        if conversion or not rank or dim % rank != rank - 1 or any(size == 0 for size in x.shape):
            unsupported("softmax of half types along this axis is not lowered")
        return row(b, x, dim)

    return lower


@in_halves("softmax.int", "special_softmax.default", "_softmax.default")
@_along_last_axis
def _softmax(b: Builder, x: Handle, dim: int) -> Any:
    return b.softmax(x, dim)


@in_halves("_safe_softmax.default")
@_along_last_axis
def _safe_softmax(b: Builder, x: Handle, dim: int) -> Any:
    return ROWS["_safe_softmax.default"](b, x, dim, None)


@in_halves("log_softmax.int", "special_log_softmax.default", "_log_softmax.default")
@_along_last_axis
def _log_softmax(b: Builder, x: Handle, dim: int) -> Any:
    """The sum of exponentials and its logarithm are rounded."""
    wide = b.cast(x, x.dtype.widened)
    shifted = wide - b.amax(wide, dim, True)
    total = b.cast(b.sum(b.exp(shifted), dim, True), x.dtype)
    return b.cast(shifted - b.cast(b.log(total), x.dtype.widened), x.dtype)


@in_halves(
    *("prod.default", "prod.dim_int", "native_layer_norm_backward.default"),
    *("_softmax_backward_data.default", "_log_softmax_backward_data.default"),
)
def _rounded_while_adding(b: Builder, *arguments: Any, **keywords: Any) -> Any:
    """What is accumulated is rounded to the half type on the way, in an order of PyTorch's own."""
    unsupported("PyTorch rounds half types on the way here")
