"""Operators that look elements up by index."""

from __future__ import annotations

from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.errors import DTypeError, ShapeError
from ingot.ops import inference
from ingot.ops.attributes import AxisAttributes
from ingot.ops.parameters import Axis, Tensor, one_axis
from ingot.ops.record import Kind, operator
from ingot.ops.samples import Domain, Sample
from ingot.ops.samples import Operand as SampleOperand


def _indices(shape: tuple[int, ...], limit: int) -> SampleOperand:
    domain = Domain(lowest_integer=0, highest_integer=limit - 1, specials=False)
    return SampleOperand(shape, domain, DataType.Int)


def _per_axis(index_shape: Any):
    """Sample calls for each axis that has elements to look up."""
    return lambda shape: [
        Sample((SampleOperand(shape), _indices(index_shape(shape, axis), shape[axis]), axis))
        for axis in range(len(shape))
        if shape[axis] > 0
    ]


@operator(
    Kind.GATHER,
    infer=inference.index_select,
    attributes=AxisAttributes,
    reference=lambda torch, x, index, axis: torch.index_select(x, axis, index),
    eager=lambda torch, x, index, axis: torch.index_select(x, axis, index),
    samples=_per_axis(lambda shape, axis: (5,)),
)
def index_select(b: Any, x: Tensor, index: Tensor, axis: Axis) -> Any:
    """Slices of x along an axis, in the order of a vector of indices."""
    if not x.shape:
        raise ShapeError("index_select needs at least one dimension")
    return b.node("index_select", x, index, attributes=AxisAttributes(one_axis(axis, len(x.shape))))


@operator(
    Kind.GATHER,
    infer=inference.gather,
    attributes=AxisAttributes,
    reference=lambda torch, x, index, axis: torch.gather(x, axis, index),
    eager=lambda torch, x, index, axis: torch.gather(x, axis, index),
    samples=_per_axis(lambda shape, axis: shape),
)
def gather(b: Any, x: Tensor, index: Tensor, axis: Axis) -> Any:
    """Elements of x: along one axis where the index says, along the others at the index's own position."""
    counted = one_axis(axis, len(x.shape))
    for other, (limit, size) in enumerate(zip(x.shape, index.shape, strict=False)):
        if other != counted and isinstance(size, int) and isinstance(limit, int) and size > limit:
            raise ShapeError(f"the index {index.type} reaches beyond {x.type} along axis {other}")
    return b.node("gather", x, index, attributes=AxisAttributes(counted)) if x.shape else x


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, index, axis: torch.take_along_dim(x, index, axis),
    samples=_per_axis(lambda shape, axis: (*shape[:axis], 1, *shape[axis + 1 :])),
)
def take_along_axis(b: Any, x: Tensor, index: Tensor, axis: Axis) -> Any:
    """Like gather, with x and the index broadcast against each other along the other axes."""
    rank = len(x.shape)
    counted = one_axis(axis, rank)
    if len(index.shape) != rank:
        raise ShapeError(f"take_along_axis needs x and index of one rank, not {x.type} and {index.type}")
    around = [shape[:counted] + shape[counted + 1 :] for shape in (x.shape, index.shape)]
    common = b.broadcast_shapes(*around)
    wide, positions = (
        b.expand(value, (*common[:counted], value.shape[counted], *common[counted:])) for value in (x, index)
    )
    return b.gather(wide, positions, counted)


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, index, weight: torch.nn.functional.embedding(index, weight),
    samples=lambda shape: [Sample((_indices(shape, 7), SampleOperand((7, 3))))],
)
def embedding(b: Any, index: Tensor, weight: Tensor) -> Any:
    """Rows of a weight matrix, one per index."""
    if len(weight.shape) != 2:
        raise ShapeError(f"embedding needs a matrix of weights, not {weight.type}")
    if index.dtype not in (DataType.Int, DataType.Int32):
        raise DTypeError(f"embedding needs int32 or int64 indices, not {index.dtype.text}")
    rows = b.index_select(weight, b.reshape(index, [sizes.product(index.shape)]), 0)
    return b.reshape(rows, [*index.shape, weight.shape[1]])
