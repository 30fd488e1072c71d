"""Activation functions."""

from __future__ import annotations

from typing import Any

from ingot.frontend.aten.table import (
    as_operator,
    lowers,
    require_float,
    require_one_type,
    unsupported,
    widened,
)
from ingot.ir.builder import Builder
from ingot.ops.parameters import one_axis

for name in ("relu", "silu", "hardswish", "mish", "leaky_relu", "hardtanh", "softplus", "threshold"):
    as_operator(name, f"{name}.default")


@lowers("gelu.default")
def _gelu(b: Builder, x: Any, *, approximate: str) -> Any:
    return b.gelu(x, approximate)


@lowers("relu6.default")
def _relu6(b: Builder, x: Any) -> Any:
    return b.hardtanh(x, 0.0, 6.0)


@lowers("elu.default")
def _elu(b: Builder, x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    require_float("elu", x)
    return widened(b, lambda x: b.where(b.gt(x, 0), x * scale, b.expm1(x * input_scale) * (float(alpha) * scale)), x)


@lowers("celu.default")
def _celu(b: Builder, x: Any, alpha: float) -> Any:
    if alpha == 0:
        unsupported("celu needs an alpha other than 0")
    return _elu(b, x, alpha, 1.0, 1.0 / alpha)


@lowers("selu.default")
def _selu(b: Builder, x: Any) -> Any:
    return _elu(b, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


@lowers("hardsigmoid.default")
def _hardsigmoid(b: Builder, x: Any) -> Any:
    require_float("hardsigmoid", x)
    return widened(b, lambda x: b.clamp(x + 3, 0, 6) / 6, x)


@lowers("log_sigmoid.default")
def _log_sigmoid(b: Builder, x: Any) -> Any:
    return _log_sigmoid_forward(b, x)[0]


@lowers("log_sigmoid_forward.default")
def _log_sigmoid_forward(b: Builder, x: Any) -> Any:
    """The logarithm, and the exponential that its derivative needs."""
    require_float("log_sigmoid", x)

    def both(x: Any) -> Any:
        exponential = b.exp(-b.abs(x))
        return b.minimum(x, 0) - b.log1p(exponential), exponential

    return widened(b, both, x)


@lowers("glu.default")
def _glu(b: Builder, x: Any, dim: int) -> Any:
    require_float("glu", x)
    rank = len(x.shape)
    axis = one_axis(dim, rank)
    if not rank or not isinstance(x.shape[axis], int) or x.shape[axis] % 2:
        unsupported("glu needs an axis that is known to have two halves")
    half = x.shape[axis] // 2
    starts, stops = [0] * rank, list(x.shape)
    starts[axis], stops[axis] = half, half
    first, second = b.slice(x, [0] * rank, stops), b.slice(x, starts, list(x.shape))
    return widened(b, lambda value, gate: value * b.sigmoid(gate), first, second)


@lowers("_prelu_kernel.default")
def _prelu(b: Builder, x: Any, weight: Any) -> Any:
    require_float("prelu", x)
    require_one_type("prelu", x, weight)
    return widened(b, lambda x, weight: b.where(b.gt(x, 0), x, x * weight), x, weight)


@lowers("hardshrink.default")
def _hardshrink(b: Builder, x: Any, limit: float) -> Any:
    require_float("hardshrink", x)
    return widened(b, lambda x: b.where(_within(b, x, limit), 0.0, x), x)


@lowers("softshrink.default")
def _softshrink(b: Builder, x: Any, limit: float) -> Any:
    require_float("softshrink", x)
    if limit < 0:
        unsupported("softshrink needs a limit of at least 0")
    return widened(
        b, lambda x: b.where(_within(b, x, limit), x * 0.0, b.where(b.gt(x, limit), x - limit, x + limit)), x
    )


def _within(b: Builder, x: Any, limit: float) -> Any:
    return b.bitwise_and(b.ge(x, -limit), b.le(x, limit))
