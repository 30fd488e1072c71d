"""Activation functions."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import HALVES
from ingot.base.numbers import convert_number
from ingot.frontend.aten.table import as_operator, lowers, require_float, widened
from ingot.ir.builder import Builder
from ingot.ir.handles import Handle

for operator, name in {
    "celu": "celu",
    "elu": "elu",
    "gelu": "gelu",
    "glu": "glu",
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


@lowers("hardshrink.default")
def _hardshrink(b: Builder, x: Any, lambd: Any) -> Any:
    """PyTorch compares in the tensor's own type, to which it rounds the limit."""
    limit: Any = lambd
    if x.dtype in HALVES and not isinstance(lambd, Handle):
        limit = convert_number(lambd, x.dtype)
    return b.hardshrink(x, limit)


@lowers("log_sigmoid_forward.default")
def _log_sigmoid_forward(b: Builder, x: Any) -> Any:
    """The logarithm, and the exponential that its derivative needs."""
    require_float("log_sigmoid", x)
    return b.logsigmoid(x), widened(b, lambda x: b.exp(-b.abs(x)), x)
