"""Derivatives: what autograd calls in the backward pass, given a gradient and what the forward pass has kept."""

from __future__ import annotations

from typing import Any

from ingot.base import sizes
from ingot.frontend.aten.losses import REDUCTIONS
from ingot.frontend.aten.table import as_operator, lowers, require_float, require_one_type, unsupported
from ingot.ir.builder import Builder
from ingot.ops.parameters import data_type

for name in (
    "gelu_backward",
    "hardsigmoid_backward",
    "hardswish_backward",
    "hardtanh_backward",
    "leaky_relu_backward",
    "log_sigmoid_backward",
    "sigmoid_backward",
    "silu_backward",
    "softplus_backward",
    "tanh_backward",
    "threshold_backward",
):
    as_operator(name, f"{name}.default")


@lowers("elu_backward.default")
def _elu_backward(
    b: Builder, gradient: Any, alpha: float, scale: float, input_scale: float, is_result: bool, x: Any
) -> Any:
    return b.elu_backward(gradient, x, alpha, scale, input_scale, is_result)


@lowers("mse_loss_backward.default")
def _mse_loss_backward(b: Builder, gradient: Any, x: Any, target: Any, reduction: int) -> Any:
    if x.shape != target.shape or x.dtype is not x.dtype.widened or not 0 <= reduction < len(REDUCTIONS):
        unsupported("the derivative of this mse_loss is not lowered")
    require_float("a derivative", gradient, x, target)
    require_one_type("a derivative", gradient, x, target)
    is_mean = REDUCTIONS[reduction] == "mean"
    factor = 2 / b.cast(b.element_count(x, None), x.dtype) if is_mean else 2.0
    return factor * (x - target) * gradient


@lowers("native_dropout_backward.default")
def _native_dropout_backward(b: Builder, gradient: Any, mask: Any, scale: float) -> Any:
    return b.mul(gradient, b.mul(b.cast(mask, gradient.dtype), scale))


# --- rows -------------------------------------------------------------------------------------------------------------


@lowers("_softmax_backward_data.default")
def _softmax_backward(b: Builder, gradient: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    _require_unconverted(gradient, input_dtype)
    return b.softmax_backward(gradient, output, dim)


@lowers("_log_softmax_backward_data.default")
def _log_softmax_backward(b: Builder, gradient: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    _require_unconverted(gradient, input_dtype)
    return b.log_softmax_backward(gradient, output, dim)


def _require_unconverted(gradient: Any, input_dtype: Any) -> None:
    if data_type(input_dtype) is not gradient.dtype:
        unsupported("the conversion to float32 on the way is not lowered")


@lowers("native_layer_norm_backward.default")
def _layer_norm_backward(
    b: Builder, gradient: Any, x: Any, shape: Any, mean: Any, inverse: Any, weight: Any, bias: Any, wanted: Any
) -> Any:
    """Gradients of x, weight and bias."""
    if weight is None or bias is None or not all(wanted) or any(size == 0 for size in x.shape):
        unsupported("the derivative of layer_norm without weights is not lowered")
    values = (gradient, x, mean, inverse, weight)
    require_float("the derivative of layer_norm", *values)
    wide = x.dtype.widened
    gradient_, x_, mean, inverse, scale = (b.cast(value, wide) for value in values)
    rank, count = len(x.shape), len(shape)
    rows, columns = list(range(rank - count)), list(range(rank - count, rank))
    size = b.size_scalar(sizes.product(x.shape[rank - count :]))
    centered = (x_ - mean) * inverse
    scaled = gradient_ * scale
    averages = b.sum(scaled, columns, True) / size, b.sum(scaled * centered, columns, True) / size
    of_x = inverse * (scaled - averages[0] - centered * averages[1])
    of_weight, of_bias = gradient_ * centered, gradient_
    if rows:
        of_weight, of_bias = b.sum(of_weight, rows), b.sum(of_bias, rows)
    return b.cast(of_x, x.dtype), b.cast(of_weight, weight.dtype), b.cast(of_bias, bias.dtype)
