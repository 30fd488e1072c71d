"""What is computed: each case once as an eager function of tensors and once as a fusion.

A case names its inputs by kind, so that it can be made at any size. What always holds: both functions take the inputs
in the same order and give the same results, within the case's tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

FULL, POSITIVE, MASK, ROW = "full", "positive", "mask", "row"
"""Kinds of inputs: normal numbers, numbers around 1, truth values, all of the case's whole shape; and a single row."""
HEADS, ANGLES, IMAGES, CHANNELS = "heads", "angles", "images", "channels"
"""Rows taken apart into heads, and numbers for each row that all of its heads share; images of bytes that have about as
many elements as the whole shape, and numbers around 1 for each of their channels."""
HEAD, IMAGE = 128, (3, 512, 512)


@dataclass(frozen=True)
class Case:
    name: str
    inputs: tuple[str, ...]
    eager: Callable[..., Any]
    fused: Callable[..., Any] | None = None
    """Takes the fusion's operators, then handles of the inputs; None for cases that are only called as functions."""
    tolerance: float = 1e-5
    memory_bound: bool = True
    """Whether moving the bytes should take longer than computing with them."""
    is_flat: bool = False
    """Whether the inputs are vectors instead of matrices; it makes no difference to what is computed."""
    shape: tuple[int, int] | None = None
    """Rows and columns that the case is about, where it is about a shape."""

    def tensors(
        self, rows: int, columns: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> list[torch.Tensor]:
        """Inputs of a size, the same at every call."""
        generator = torch.Generator(device).manual_seed(20)
        shape = (rows * columns,) if self.is_flat else (rows, columns)
        return [_tensor(kind, shape, dtype, generator) for kind in self.inputs]


def _tensor(kind: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    shape = _shape(kind, shape)
    device = generator.device
    if kind == MASK:
        return torch.rand(shape, generator=generator, device=device) < 0.8
    if kind == IMAGES:
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8, device=device)
    if kind in (POSITIVE, CHANNELS):
        return (torch.rand(shape, generator=generator, device=device) + 0.5).to(dtype)
    return torch.randn(shape, generator=generator, device=device).to(dtype)


def _shape(kind: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an input of a kind, given the case's."""
    match kind:
        case "row":
            return shape[-1:]
        case "heads":
            return shape[0], max(1, shape[1] // HEAD), HEAD
        case "angles":
            return shape[0], 1, HEAD
        case "images":
            return max(1, math.prod(shape) // math.prod(IMAGE)), *IMAGE
        case "channels":
            return IMAGE[0], 1, 1
        case _:
            return shape


def written_once(name: str, inputs: tuple[str, ...], body: Callable[..., Any], **more: Any) -> Case:
    """A case whose function reads the same for torch and for a fusion: it is given torch or the fusion's operators."""
    return Case(name, inputs, lambda *tensors: body(torch, *tensors), body, **more)


# --- element by element -----------------------------------------------------------------------------------------------


def gate(ops: Any, x: Any, y: Any, bias: Any) -> Any:
    return ops.sigmoid(x * y + bias) * ops.tanh(x - y)


def adamw(ops: Any, parameter: Any, gradient: Any, average: Any, square: Any) -> Any:
    """The tenth step of AdamW with its usual settings: new parameter and both new averages."""
    rate, first, second, epsilon, decay, step = 1e-3, 0.9, 0.999, 1e-8, 1e-2, 10
    average = average * first + gradient * (1 - first)
    square = square * second + gradient * gradient * (1 - second)
    denominator = ops.sqrt(square) / math.sqrt(1 - second**step) + epsilon
    parameter = parameter * (1 - rate * decay) - average / denominator * (rate / (1 - first**step))
    return parameter, average, square


def black_scholes(ops: Any, price: Any, strike: Any, years: Any) -> Any:
    """Prices of a call and of a put at 2% interest and a volatility of 30%."""
    interest, volatility = 0.02, 0.3
    spread = ops.sqrt(years) * volatility
    upper = (ops.log(price / strike) + years * (interest + volatility * volatility / 2)) / spread
    lower = upper - spread
    likely_upper = ops.erf(upper * math.sqrt(0.5)) * 0.5 + 0.5
    likely_lower = ops.erf(lower * math.sqrt(0.5)) * 0.5 + 0.5
    discounted = strike * ops.exp(years * -interest)
    call = price * likely_upper - discounted * likely_lower
    put = discounted * (1.0 - likely_lower) - price * (1.0 - likely_upper)
    return call, put


PRODUCT = written_once("a*b*c", (FULL,) * 3, lambda ops, a, b, c: a * b * c, is_flat=True)
MULTIPLY_ADD = written_once("a*b+c", (FULL,) * 3, lambda ops, a, b, c: a * b + c, is_flat=True)
GATE = written_once("gate", (FULL,) * 3, gate, memory_bound=False, is_flat=True)
SWIGLU = Case(
    "swiglu",
    (FULL, FULL),
    lambda x, y: functional.silu(x) * y,
    lambda ops, x, y: ops.silu(x) * y,
    memory_bound=False,
    is_flat=True,
)

POINTWISE = (
    PRODUCT,
    MULTIPLY_ADD,
    GATE,
    Case(
        "bias+gelu",
        (FULL, ROW),
        lambda x, bias: functional.gelu(x + bias),
        lambda ops, x, bias: ops.gelu(x + bias),
        memory_bound=False,
    ),
    SWIGLU,
    written_once("AdamW", (FULL, FULL, FULL, POSITIVE), adamw, is_flat=True),
    written_once("Black-Scholes", (POSITIVE,) * 3, black_scholes, memory_bound=False, is_flat=True),
)

SMALL_FUNCTIONS = (
    MULTIPLY_ADD,
    GATE,
    written_once("x*y+x", (FULL, FULL), lambda ops, x, y: x * y + x),
    written_once("relu(x+y)", (FULL, FULL), lambda ops, x, y: ops.relu(x + y)),
    written_once("sum(abs(x-y))", (FULL, FULL), lambda ops, x, y: ops.sum(ops.abs(x - y)), tolerance=1e-4),
    written_once("exp(-x*x)", (FULL,), lambda ops, x: ops.exp(-x * x)),
    written_once("sigmoid(x)*y", (FULL, FULL), lambda ops, x, y: ops.sigmoid(x) * y),
)
"""Functions of two or more operations, measured on tensors so small that a call is all there is."""


# --- reductions -------------------------------------------------------------------------------------------------------


def _columns(ops: Any, x: Any) -> list[Any]:
    """The size of the last axis, as normalisations want it."""
    return [ops.size(x, -1)]


SOFTMAX = Case("softmax", (FULL,), lambda x: torch.softmax(x, -1), lambda ops, x: ops.softmax(x, -1))

REDUCTIONS = (
    SOFTMAX,
    Case("log_softmax", (FULL,), lambda x: torch.log_softmax(x, -1), lambda ops, x: ops.log_softmax(x, -1)),
    Case(
        "layer_norm",
        (FULL, ROW, ROW),
        lambda x, weight, bias: functional.layer_norm(x, x.shape[-1:], weight, bias),
        lambda ops, x, weight, bias: ops.layer_norm(x, _columns(ops, x), weight, bias),
        tolerance=1e-4,
    ),
    Case(
        "rms_norm",
        (FULL, ROW),
        lambda x, weight: functional.rms_norm(x, x.shape[-1:], weight),
        lambda ops, x, weight: ops.rms_norm(x, _columns(ops, x), weight),
        tolerance=1e-4,
    ),
    Case(
        "residual+layer_norm",
        (FULL, FULL, ROW, ROW),
        lambda x, y, weight, bias: functional.layer_norm(x + y, x.shape[-1:], weight, bias),
        lambda ops, x, y, weight, bias: ops.layer_norm(x + y, _columns(ops, x), weight, bias),
        tolerance=1e-4,
    ),
    Case(
        "masked softmax",
        (FULL, MASK),
        lambda x, mask: torch.softmax(torch.where(mask, x, -math.inf), -1),
        lambda ops, x, mask: ops.softmax(ops.where(mask, x, -math.inf), -1),
    ),
    Case("column sum", (FULL,), lambda x: x.sum(0), lambda ops, x: ops.sum(x, [0]), tolerance=1e-3),
    Case("variance of all", (FULL,), lambda x: torch.var(x), lambda ops, x: ops.var(x), tolerance=1e-4),
    Case("a + b.T", (FULL, FULL), lambda a, b: a + b.T, lambda ops, a, b: a + ops.permute(b, [1, 0])),
)
