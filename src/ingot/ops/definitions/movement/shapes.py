"""Composites over views, and questions about shapes."""

from __future__ import annotations

from typing import Any

from ingot.base.errors import AxisError, ShapeError
from ingot.base.sizes import Size
from ingot.ops.parameters import (
    Axes,
    Axis,
    Flags,
    Integer,
    Operand,
    Sizes,
    Tensor,
    one_axis,
)
from ingot.ops.record import Kind, operator
from ingot.ops.samples import Operand as SampleOperand
from ingot.ops.samples import Sample


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, is_broadcast: x[tuple(None if new else slice(None) for new in is_broadcast)],
    samples=lambda shape: [Sample((SampleOperand(shape), [True, *([False] * len(shape)), True]))],
)
def broadcast(b: Any, x: Tensor, is_broadcast: Flags) -> Any:
    """x with new axes of size 1 wherever the list says True."""
    old = [position for position, new in enumerate(is_broadcast) if not new]
    if len(old) != len(x.shape):
        raise ShapeError(f"broadcast needs {len(x.shape)} times False for {x.type}, got {len(old)}")
    shape: list[Size] = [1] * len(is_broadcast)
    for position, size in zip(old, x.shape, strict=True):
        shape[position] = size
    return b.broadcast_in_dim(x, shape, old)


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, shape: x.expand(shape),
    samples=lambda shape: [
        Sample((SampleOperand(shape), [2, *shape])),
        Sample((SampleOperand((1, *shape)), [3, *([-1] * len(shape))])),
    ],
)
def expand(b: Any, x: Tensor, shape: Sizes) -> Any:
    """x repeated to a shape aligned at the last axis; -1 keeps a size."""
    offset = len(shape) - len(x.shape)
    if offset < 0:
        raise ShapeError(f"{x.type} cannot be expanded to the lower rank {len(shape)}")
    target = list(shape)
    for axis, size in enumerate(x.shape, start=offset):
        target[axis] = size if target[axis] == -1 else target[axis]
    if -1 in target:
        raise ShapeError("expand cannot keep (-1) the size of an axis that is new")
    return b.broadcast_in_dim(x, target, list(range(offset, len(shape))))


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, stride_order: x.clone(),
    samples=lambda shape: [
        Sample((SampleOperand(shape), order))
        for order in ([*range(len(shape))], [*reversed(range(len(shape)))], [*range(1, len(shape)), 0][: len(shape)])
    ],
)
def stride_order(b: Any, x: Tensor, stride_order: Axes) -> Any:
    """x itself. As a result of the fusion its strides are in this order: 0 for the axis whose elements are next to each
    other."""
    return b.laid_out(x, stride_order)


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, axis: x.size(axis),
    samples=lambda shape: [Sample((SampleOperand(shape), axis)) for axis in range(len(shape))],
)
def size(b: Any, x: Tensor, axis: Axis) -> Any:
    """Size of one axis, as a scalar."""
    if not x.shape:
        raise AxisError("a tensor without dimensions has no sizes")
    return b.size_scalar(x.shape[one_axis(axis, len(x.shape))])


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x: tuple(x.shape),
    samples=lambda shape: [Sample((SampleOperand(shape),))] if shape else [],
)
def shape(b: Any, x: Tensor) -> Any:
    """Sizes of all axes, as a vector."""
    return b.vector(x.shape)


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, vector, index: vector[index],
    samples=lambda shape: [Sample((list(shape), axis)) for axis in range(len(shape))],
)
def at(b: Any, vector: Sizes, index: Integer) -> Any:
    """One element of a vector, as a scalar."""
    if not -len(vector) <= index < len(vector):
        raise AxisError(f"index {index} is out of range for a vector of {len(vector)}")
    return b.size_scalar(vector[index])


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, diagonal: torch.triu(x, diagonal),
    samples=lambda shape: (
        [Sample((SampleOperand(shape),), {"diagonal": diagonal}) for diagonal in (-1, 0, 2)] if len(shape) > 1 else []
    ),
)
def triu(b: Any, x: Tensor, diagonal: Operand = 0) -> Any:
    """Upper triangle of the last two axes, zero below the given diagonal."""
    if len(x.shape) < 2:
        raise ShapeError(f"triu needs at least two dimensions, not {x.type}")
    rows, columns = x.shape[-2:]
    row = b.broadcast_in_dim(b.iota(rows), (rows, columns), [0])
    column = b.broadcast_in_dim(b.iota(columns), (rows, columns), [1])
    return b.where(b.ge(column - row, diagonal), x, b.scalar_like(0, x.dtype))
