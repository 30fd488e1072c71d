"""Softmax and normalisations, with the statistics that PyTorch's own return beside the result.

On GPUs it returns them in the type that it computes in, and calls batch_norm and rms_norm by other names.
"""

from __future__ import annotations

import math
from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import HALVES, DataType
from ingot.frontend.aten.table import (
    GPU_ROWS,
    as_operator,
    lowers,
    narrowed,
    require_float,
    require_one_type,
    unsupported,
)
from ingot.ir.builder import Builder
from ingot.ops.definitions.normalizations import per_channel, require_shape

as_operator("softmax", "softmax.int", "special_softmax.default")
as_operator("log_softmax", "log_softmax.int", "special_log_softmax.default")


@lowers("_softmax.default")
def _softmax(b: Builder, x: Any, dim: int, half_to_float: bool) -> Any:
    return _over_axis(b, "softmax", x, dim, half_to_float)


@lowers("_log_softmax.default")
def _log_softmax(b: Builder, x: Any, dim: int, half_to_float: bool) -> Any:
    return _over_axis(b, "log_softmax", x, dim, half_to_float)


def _over_axis(b: Builder, operator: str, x: Any, dim: int, half_to_float: bool) -> Any:
    require_float(operator, x)
    if half_to_float:
        if x.dtype not in HALVES:
            unsupported(f"{operator} of {x.dtype.text} is not widened on the way")
        x = b.cast(x, DataType.Float)
    return b.call(operator, (x, dim))


@lowers("_safe_softmax.default")
def _safe_softmax(b: Builder, x: Any, dim: int, dtype: Any) -> Any:
    """Rows with nothing but minus infinity give 0."""
    result = b.softmax(x, dim, dtype)
    return b.where(b.all(b.eq(x, -math.inf), dim, True), b.constant(0.0, result.dtype), result)


# --- normalisations ---------------------------------------------------------------------------------------------------


@lowers("native_layer_norm.default")
def _native_layer_norm(b: Builder, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The result, and mean and reciprocal deviation of each row: in the type of the weights, where they are wider."""
    result, *statistics = _layer_norm(b, x, shape, weight, bias, eps)
    return result, *narrowed(b, tuple(statistics), _statistics_type(x, weight, bias))


@lowers("native_layer_norm.default", rows=GPU_ROWS)
def _layer_norm(b: Builder, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The same with mean and reciprocal deviation as they are computed."""
    _statistics_type(x, weight, bias)
    axes = _last_axes(b, x, shape, weight, bias)
    wide, weight, bias = _widened(b, x, weight, bias)
    normalized, mean, inverse = _normalized(b, wide, axes, eps)
    return b.cast(_scaled(normalized, weight, bias), x.dtype), mean, inverse


@lowers("_fused_rms_norm.default")
def _fused_rms_norm(b: Builder, x: Any, shape: Any, weight: Any, eps: float | None) -> Any:
    """The result, and the reciprocal root of each row's mean square, as it is computed."""
    _statistics_type(x, weight, None)
    axes = _last_axes(b, x, shape, weight)
    wide, weight = _widened(b, x, weight)
    if eps is None:
        eps = 2.0**-52 if wide.dtype is DataType.Double else 2.0**-23
    inverse = b.rsqrt(b.mean(wide * wide, axes, True) + eps)
    return b.cast(_scaled(wide * inverse, weight, None), x.dtype), inverse


def _last_axes(b: Builder, x: Any, shape: Any, *parameters: Any) -> list[int]:
    """The axes that a normalized shape covers; it must be the shape of the parameters, too."""
    count = len(shape)
    if not 0 < count <= len(x.shape):
        unsupported("a normalisation needs a shape of its own")
    for size, expected in zip(x.shape[-count:], shape, strict=True):
        b.require_equal_sizes(size, expected, "normalized_shape does not fit")
    for parameter in parameters:
        require_shape(b, parameter, shape)
    return list(range(len(x.shape) - count, len(x.shape)))


@lowers("native_group_norm.default")
def _native_group_norm(
    b: Builder, x: Any, weight: Any, bias: Any, batch: Any, channels: Any, area: Any, groups: int, eps: float
) -> Any:
    """The result, and mean and reciprocal deviation of each group of channels."""
    statistics = _statistics_type(x, weight, bias)
    if len(x.shape) < 2 or not isinstance(channels, int) or groups < 1 or channels % groups:
        unsupported("group_norm needs a number of channels that its groups divide")
    wide, weight, bias = _widened(b, x, weight, bias)
    for parameter in (weight, bias):
        require_shape(b, parameter, (channels,))
    grouped = b.reshape(wide, (x.shape[0], groups, sizes.product((channels // groups, *x.shape[2:]))))
    normalized, mean, inverse = _normalized(b, grouped, [2], eps)
    weight, bias = per_channel(b, x, weight), per_channel(b, x, bias)
    result = b.cast(_scaled(b.reshape(normalized, x.shape), weight, bias), x.dtype)
    return result, *(b.squeeze(narrowed(b, value, statistics), [2]) for value in (mean, inverse))


@lowers("native_batch_norm.default")
def _native_batch_norm(
    b: Builder, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    if training:
        unsupported("batch_norm in training mode is not lowered")
    return _batch_norm(b, x, weight, bias, mean, var, momentum, eps)


@lowers("_native_batch_norm_legit_no_training.default")
def _batch_norm(b: Builder, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    """Each channel times a factor plus an offset, as PyTorch computes it; no statistics are kept."""
    require_float("batch_norm", x)
    given = [value for value in (weight, bias, mean, var) if value is not None]
    if mean is None or var is None or len(x.shape) < 2 or x.dtype is not x.dtype.widened:
        unsupported("batch_norm without statistics or of half types is not lowered")
    require_one_type("batch_norm", x, *given)
    for value in given:
        require_shape(b, value, x.shape[1:2])
    factor = 1 / b.sqrt(var + eps)
    factor = factor if weight is None else factor * weight
    offset = -mean * factor if bias is None else bias - mean * factor
    result = x * per_channel(b, x, factor) + per_channel(b, x, offset)
    nothing = b.full((0,), 0, x.dtype)
    return result, nothing, nothing


@lowers("native_batch_norm.default", rows=GPU_ROWS)
def _native_batch_norm_on_gpu(
    b: Builder, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """The result, and mean and reciprocal deviation of each channel, as they are computed."""
    if training:
        unsupported("batch_norm in training mode is not lowered")
    _statistics_type(x, weight, bias)
    if mean is None or var is None or len(x.shape) < 2:
        unsupported("batch_norm without statistics is not lowered")
    require_float("batch_norm", mean, var)
    wide, weight, bias, mean, var = _widened(b, x, weight, bias, mean, var)
    for value in (weight, bias, mean, var):
        require_shape(b, value, x.shape[1:2])
    inverse = b.rsqrt(var + eps)
    normalized = (wide - per_channel(b, x, mean)) * per_channel(b, x, inverse)
    return b.cast(_scaled(normalized, per_channel(b, x, weight), per_channel(b, x, bias)), x.dtype), mean, inverse


@lowers("cudnn_batch_norm.default")
def _cudnn_batch_norm(
    b: Builder, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """The result, and nothing three times: statistics, and bytes that training would need."""
    result, _, _ = _native_batch_norm_on_gpu(b, x, weight, bias, mean, var, training, momentum, eps)
    nothing = b.full((0,), 0, weight.dtype)
    return result, nothing, nothing, b.full((0,), 0, DataType.UInt8)


def _statistics_type(x: Any, weight: Any, bias: Any) -> Any:
    """The type of the weights, where there are any: that of x, or float32 for half types."""
    require_float("a normalisation", x)
    if any(size == 0 for size in x.shape):
        unsupported("normalisations of empty tensors are not lowered")
    require_one_type("a normalisation", *(value for value in (weight, bias) if value is not None))
    found = next((value.dtype for value in (weight, bias) if value is not None), x.dtype)
    if found not in (x.dtype, x.dtype.widened):
        unsupported("weights of another type are not lowered")
    return found


def _widened(b: Builder, x: Any, *values: Any) -> Any:
    wide = x.dtype.widened
    return [value if value is None else b.cast(value, wide) for value in (x, *values)]


def _normalized(b: Builder, x: Any, axes: Any, eps: float) -> Any:
    """x with mean 0 and variance 1 along axes, the mean and the reciprocal deviation, all axes kept."""
    variance, mean = b.var_mean(x, axes, 0, True)
    inverse = b.rsqrt(variance + eps)
    return (x - mean) * inverse, mean, inverse


def _scaled(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias
