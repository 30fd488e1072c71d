"""Activation functions."""

from __future__ import annotations

from typing import Any

from ingot.frontend.aten.table import as_operator, lowers, require_float, widened
from ingot.ir.builder import Builder

for operator, name in {
    "celu": "celu",
    "elu": "elu",
    "gelu": "gelu",
    "glu": "glu",
    "hardshrink": "hardshrink",
    "hardsigmoid": "hardsigmoid",
    "hardswish": "hardswish",
    "hardtanh": "hardtanh",
    "leaky_relu": "leaky_relu",
    "logsigmoid": "log_sigmoid",
    "mish": "mish",
    "prelu": "_prelu_kernel",
    "relu": "relu",
    "relu6": "relu6",
    "selu": "selu",
    "silu": "silu",
    "softplus": "softplus",
    "softshrink": "softshrink",
    "threshold": "threshold",
}.items():
    as_operator(operator, f"{name}.default")


@lowers("log_sigmoid_forward.default")
def _log_sigmoid_forward(b: Builder, x: Any) -> Any:
    """The logarithm, and the exponential that its derivative needs."""
    require_float("log_sigmoid", x)
    return b.logsigmoid(x), widened(b, lambda x: b.exp(-b.abs(x)), x)
