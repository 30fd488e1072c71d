"""Operators that make tensors from nothing: constants, counters, random numbers."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import COMPUTED, FLOATS, HALVES, INTEGERS, DataType, in_order
from ingot.base.errors import DTypeError
from ingot.ops import inference
from ingot.ops.attributes import IotaAttributes, RandomAttributes, ShapeAttributes
from ingot.ops.parameters import Plain, Sizes, SizeValue, Tensor, Type, data_type
from ingot.ops.record import Kind, operator, structure
from ingot.ops.samples import Operand as SampleOperand
from ingot.ops.samples import Sample

FLOATING = FLOATS | HALVES


@operator(
    Kind.FACTORY,
    infer=inference.full,
    attributes=ShapeAttributes,
    reference=lambda torch, value, shape: value.expand(shape),
    eager=lambda torch, shape, value, dtype: torch.full(shape, value, dtype=dtype),
    samples=lambda shape: (
        [
            Sample((list(shape), value, dtype))
            for dtype in in_order(COMPUTED)
            for value in ((True,) if dtype is DataType.Bool else (0, 3) if dtype.is_integer else (1.5, -0.0))
        ]
        + [Sample((list(shape), value)) for value in (True, 3, 0.1)]
    ),
)
def full(b: Any, shape: Sizes, value: Plain, dtype: Type | None = None) -> Any:
    """A tensor with the same value everywhere."""
    target = data_type(dtype)
    if target is None:
        # As in PyTorch, a Python float makes the default floating-point type; a tensor of doubles must be asked for.
        target = b.default_float if value.dtype is DataType.Double else value.dtype
    return b.node("full", b.cast(value, target), attributes=ShapeAttributes(tuple(shape)))


structure(
    "counter",
    Kind.FACTORY,
    "0, 1, 2 ... length - 1.",
    infer=inference.iota,
    attributes=IotaAttributes,
    reference=lambda torch, length, dtype, device: torch.arange(length, dtype=dtype, device=device),
)


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, length, start, step, dtype: (torch.arange(length) * step + start).to(dtype),
    samples=lambda shape: [
        Sample((size, start, step, dtype))
        for size in shape[:1]
        for start, step in ((0, 1), (3, 2), (5, -1))
        for dtype in (DataType.Int, DataType.Int32, DataType.Float)
    ],
)
def iota(b: Any, length: SizeValue, start: Plain = 0, step: Plain = 1, dtype: Type = DataType.Int) -> Any:
    """start, start + step, start + 2 * step ... with length elements."""
    target = data_type(dtype) or DataType.Int
    if target not in INTEGERS | FLOATING:
        raise DTypeError(f"iota cannot count in {target.text}")
    wide = target.widened
    counter = b.node("counter", attributes=IotaAttributes(length, wide))
    if step.constant_value() != 1:
        counter = b.mul(counter, b.cast(step, wide))
    if start.constant_value() != 0:
        counter = b.add(counter, b.cast(start, wide))
    return b.cast(counter, target)


structure(
    "random_uniform",
    Kind.RANDOM,
    "Draws from [0, 1), from torch's generator.",
    infer=inference.random,
    attributes=RandomAttributes,
    reference=lambda torch, shape, dtype, ordinal, device: torch.rand(shape, dtype=dtype, device=device),
)

structure(
    "random_normal",
    Kind.RANDOM,
    "Draws from the standard normal distribution, from torch's generator.",
    infer=inference.random,
    attributes=RandomAttributes,
    reference=lambda torch, shape, dtype, ordinal, device: torch.randn(shape, dtype=dtype, device=device),
)


def _drawn(eager: Any, samples: Any):
    return operator(Kind.COMPOSITE, eager=eager, samples=samples)


@_drawn(
    lambda torch, low, high, shape, dtype: torch.rand(shape, dtype=dtype) * (high - low) + low,
    lambda shape: [Sample((-1.0, 2.0, list(shape), dtype)) for dtype in (DataType.Float, DataType.Double)],
)
def uniform(b: Any, low: Plain, high: Plain, shape: Sizes, dtype: Type = DataType.Float) -> Any:
    """Random numbers from low up to high, from torch's generator: a seed gives the numbers it always gives."""
    drawn = _draw(b, "random_uniform", shape, dtype)
    return b.cast(b.add(b.mul(drawn, b.sub(high, low)), low), drawn.dtype)


@_drawn(
    lambda torch, mean, std, shape, dtype: torch.randn(shape, dtype=dtype) * std + mean,
    lambda shape: [Sample((-1.0, 2.0, list(shape), dtype)) for dtype in (DataType.Float, DataType.Double)],
)
def normal(b: Any, mean: Plain, std: Plain, shape: Sizes, dtype: Type = DataType.Float) -> Any:
    """Random numbers of a normal distribution, from torch's generator."""
    drawn = _draw(b, "random_normal", shape, dtype)
    return b.cast(b.add(b.mul(drawn, std), mean), drawn.dtype)


@_drawn(
    lambda torch, x: torch.rand(x.shape, dtype=x.dtype, device=x.device),
    lambda shape: [Sample((SampleOperand(shape, dtype=dtype),)) for dtype in in_order(FLOATING)],
)
def rand_like(b: Any, x: Tensor) -> Any:
    """Random numbers from 0 up to 1, in the shape and type of x."""
    return _draw(b, "random_uniform", x.shape, x.dtype)


@_drawn(
    lambda torch, x: torch.randn(x.shape, dtype=x.dtype, device=x.device),
    lambda shape: [Sample((SampleOperand(shape, dtype=dtype),)) for dtype in in_order(FLOATING)],
)
def randn_like(b: Any, x: Tensor) -> Any:
    """Random numbers of the standard normal distribution, in the shape and type of x."""
    return _draw(b, "random_normal", x.shape, x.dtype)


def _draw(b: Any, name: str, shape: Any, dtype: Any) -> Any:
    target = data_type(dtype) or DataType.Float
    if target not in FLOATING:
        raise DTypeError(f"random numbers are floating point, not {target.text}")
    return b.node(name, attributes=RandomAttributes(tuple(shape), target, b.next_ordinal()))
