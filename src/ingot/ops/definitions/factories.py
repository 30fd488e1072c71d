"""Operators that make tensors from nothing: constants and counters."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import COMPUTED, FLOATS, HALVES, INTEGERS, DataType, in_order
from ingot.base.errors import DTypeError, ShapeError
from ingot.ops import inference
from ingot.ops.attributes import IotaAttributes, ShapeAttributes
from ingot.ops.parameters import Plain, Sizes, SizeValue, Type, data_type
from ingot.ops.record import Kind, operator, structure
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
    eager=lambda torch, length, start, step, dtype: (
        torch.arange(length) * (1 if step is None else step) + (0 if start is None else start)
    ).to(dtype),
    samples=lambda shape: [
        Sample((size, start, step, dtype))
        for size in shape[:1]
        for start, step in ((0, 1), (3, 2), (5, -1), (None, None))
        for dtype in (DataType.Int, DataType.Int32, DataType.Float)
    ],
)
def iota(
    b: Any, length: SizeValue, start: Plain | None = None, step: Plain | None = None, dtype: Type = DataType.Int
) -> Any:
    """start, start + step, start + 2 * step ... with length elements; from 0 on and by 1 unless something else is
    given."""
    if isinstance(length, int) and length < 0:
        raise ShapeError(f"iota needs a length of at least 0, not {length}")
    target = data_type(dtype) or DataType.Int
    if target not in INTEGERS | FLOATING:
        raise DTypeError(f"iota cannot count in {target.text}")
    wide = target.widened
    counter = b.node("counter", attributes=IotaAttributes(length, wide))
    if step is not None and step.constant_value() != 1:
        counter = b.mul(counter, b.cast(step, wide))
    if start is not None and start.constant_value() != 0:
        counter = b.add(counter, b.cast(start, wide))
    return b.cast(counter, target)
