"""Derivatives: what autograd calls on the way back, given a gradient and what the way forth has kept."""

from __future__ import annotations

import math
from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.numbers import convert_number
from ingot.frontend.aten.losses import REDUCTIONS
from ingot.frontend.aten.table import lowers, require_float, require_one_type, unsupported, widened
from ingot.ir.builder import Builder
from ingot.ops.parameters import data_type


def _derivative(b: Builder, function: Any, *values: Any) -> Any:
    require_float("a derivative", *values)
    require_one_type("a derivative", *values)
    return widened(b, function, *values)


@lowers("threshold_backward.default")
def _threshold_backward(b: Builder, gradient: Any, x: Any, threshold: float) -> Any:
    return _derivative(b, lambda gradient, x: b.where(b.le(x, threshold), 0.0, gradient), gradient, x)


@lowers("sigmoid_backward.default")
def _sigmoid_backward(b: Builder, gradient: Any, output: Any) -> Any:
    return _derivative(b, lambda gradient, y: gradient * (1 - y) * y, gradient, output)


@lowers("tanh_backward.default")
def _tanh_backward(b: Builder, gradient: Any, output: Any) -> Any:
    return _derivative(b, lambda gradient, y: gradient * (1 - y * y), gradient, output)


@lowers("silu_backward.default")
def _silu_backward(b: Builder, gradient: Any, x: Any) -> Any:
    def derivative(gradient: Any, x: Any) -> Any:
        gate = b.sigmoid(x)
        return gradient * gate * (1 + x * (1 - gate))

    return _derivative(b, derivative, gradient, x)


@lowers("gelu_backward.default")
def _gelu_backward(b: Builder, gradient: Any, x: Any, *, approximate: str) -> Any:
    def exact(gradient: Any, x: Any) -> Any:
        below = 0.5 * (1 + b.erf(x * math.sqrt(0.5)))
        density = b.exp(x * x * -0.5) * (0.5 * math.sqrt(0.5) * 2 / math.sqrt(math.pi))
        return gradient * (below + x * density)

    def approximated(gradient: Any, x: Any) -> Any:
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        slope = b.tanh(scale * (x + cubic * x * x * x))
        left = 0.5 * (1 + slope)
        return gradient * (left + 0.5 * x * ((1 - slope * slope) * (scale * (1 + 3 * cubic * x * x))))

    if approximate not in ("none", "tanh"):
        unsupported(f"there is no gelu that is approximated by {approximate!r}")
    return _derivative(b, exact if approximate == "none" else approximated, gradient, x)


@lowers("leaky_relu_backward.default")
def _leaky_relu_backward(b: Builder, gradient: Any, x: Any, slope: float, of_result: bool) -> Any:
    return _derivative(b, lambda gradient, x: b.where(b.gt(x, 0), gradient, gradient * slope), gradient, x)


@lowers("hardtanh_backward.default")
def _hardtanh_backward(b: Builder, gradient: Any, x: Any, lowest: float, highest: float) -> Any:
    def derivative(gradient: Any, x: Any) -> Any:
        outside = b.bitwise_or(b.le(x, lowest), b.ge(x, highest))
        return b.where(outside, 0.0, gradient)

    return _derivative(b, derivative, gradient, x)


@lowers("hardsigmoid_backward.default")
def _hardsigmoid_backward(b: Builder, gradient: Any, x: Any) -> Any:
    def derivative(gradient: Any, x: Any) -> Any:
        inside = b.bitwise_and(b.gt(x, -3), b.lt(x, 3))
        # PyTorch takes the sixth of float32, for double as well.
        return b.where(inside, gradient * convert_number(1 / 6, DataType.Float), 0.0)

    return _derivative(b, derivative, gradient, x)


@lowers("softplus_backward.default")
def _softplus_backward(b: Builder, gradient: Any, x: Any, beta: float, threshold: float) -> Any:
    def derivative(gradient: Any, x: Any) -> Any:
        exponential = b.exp(x * beta)
        return b.where(b.gt(x * beta, threshold), gradient, gradient * exponential / (exponential + 1))

    return _derivative(b, derivative, gradient, x)


@lowers("log_sigmoid_backward.default")
def _log_sigmoid_backward(b: Builder, gradient: Any, x: Any, exponential: Any) -> Any:
    def derivative(gradient: Any, x: Any, exponential: Any) -> Any:
        negative = b.lt(x, 0)
        largest = b.where(negative, b.constant(1.0, x.dtype), b.constant(0.0, x.dtype))
        sign = b.where(negative, b.constant(1.0, x.dtype), b.constant(-1.0, x.dtype))
        return (largest - sign * (exponential / (1 + exponential))) * gradient

    return _derivative(b, derivative, gradient, x, exponential)


@lowers("elu_backward.default")
def _elu_backward(
    b: Builder, gradient: Any, alpha: float, scale: float, input_scale: float, of_result: bool, x: Any
) -> Any:
    factor = float(alpha) * scale

    def derivative(gradient: Any, x: Any) -> Any:
        if of_result:
            below = gradient * input_scale * (x + factor)
        else:
            below = gradient * input_scale * factor * b.exp(x * input_scale)
        return b.where(b.le(x, 0), below, gradient * scale)

    return _derivative(b, derivative, gradient, x)


@lowers("hardswish_backward.default")
def _hardswish_backward(b: Builder, gradient: Any, x: Any) -> Any:
    def derivative(gradient: Any, x: Any) -> Any:
        between = b.where(b.lt(x, 3), gradient * (x / 3 + 0.5), gradient)
        return b.where(b.le(x, -3), 0.0, between)

    return _derivative(b, derivative, gradient, x)


@lowers("mse_loss_backward.default")
def _mse_loss_backward(b: Builder, gradient: Any, x: Any, target: Any, reduction: int) -> Any:
    if x.shape != target.shape or x.dtype is not x.dtype.widened or not 0 <= reduction < len(REDUCTIONS):
        unsupported("the derivative of this mse_loss is not lowered")
    mean = REDUCTIONS[reduction] == "mean"

    def derivative(gradient: Any, x: Any, target: Any) -> Any:
        factor = 2 / b.cast(b.element_count(x, None), x.dtype) if mean else 2.0
        return factor * (x - target) * gradient

    return _derivative(b, derivative, gradient, x, target)


@lowers("native_dropout_backward.default")
def _native_dropout_backward(b: Builder, gradient: Any, mask: Any, scale: float) -> Any:
    return b.mul(gradient, b.mul(b.cast(mask, gradient.dtype), scale))


# --- rows -------------------------------------------------------------------------------------------------------------


@lowers("_softmax_backward_data.default")
def _softmax_backward(b: Builder, gradient: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    gradient, output, dtype = _wide_pair(b, gradient, output, input_dtype)
    product = gradient * output
    return b.cast(product - output * b.sum(product, dim, True), dtype)


@lowers("_log_softmax_backward_data.default")
def _log_softmax_backward(b: Builder, gradient: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    gradient, output, dtype = _wide_pair(b, gradient, output, input_dtype)
    return b.cast(gradient - b.exp(output) * b.sum(gradient, dim, True), dtype)


def _wide_pair(b: Builder, gradient: Any, output: Any, input_dtype: Any) -> Any:
    require_float("the derivative of softmax", gradient, output)
    require_one_type("the derivative of softmax", gradient, output)
    if data_type(input_dtype) is not gradient.dtype:
        unsupported("the conversion to float32 on the way is not lowered")
    wide = gradient.dtype.widened
    return b.cast(gradient, wide), b.cast(output, wide), gradient.dtype


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
