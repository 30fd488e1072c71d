"""Operators that look elements up by index."""

from __future__ import annotations

from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import FLOATS, HALVES, DataType, in_order
from ingot.base.errors import ArgumentValueError, DTypeError, ShapeError
from ingot.ops import inference
from ingot.ops.attributes import AxisAttributes
from ingot.ops.parameters import Axis, Flag, Integer, Plain, Real, Tensor, one_axis
from ingot.ops.record import Kind, operator
from ingot.ops.samples import Domain, Sample, Tolerance
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


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, index, src, axis: torch.scatter(x, axis, index, src),
    samples=lambda shape: (
        [
            Sample((SampleOperand(shape), SampleOperand(shape, Domain(0, 0, 0, 0, False), DataType.Int), src, axis))
            for axis in range(len(shape))
            if shape[axis] == 1 or 0 in shape
            for src in (SampleOperand(shape), 1)
        ]
        + [Sample((SampleOperand((5, 2)), SampleOperand((1, 2), Domain(0, 0, 3, 3, False), DataType.Int), 1, 0))]
    ),
)
def scatter(b: Any, x: Tensor, index: Tensor, src: Plain, axis: Axis) -> Any:
    """x with elements of src, or one number, along one axis where the index says, along the others at the index's own
    position. Which of several elements for one place remains is not said."""
    counted = one_axis(axis, len(x.shape))
    if index.dtype is not DataType.Int:
        raise DTypeError(f"the index of scatter must be int64, not {index.dtype.text}")
    if len(index.shape) != len(x.shape) or (src.shape and len(src.shape) != len(x.shape)):
        raise ShapeError(f"scatter needs x, index and src of one rank, not {x.type}, {index.type} and {src.type}")
    if not src.shape and src.constant_value() is not None:
        return b.library("aten.scatter.value", (x, counted, index, src.constant_value()), b.tensor_type(x))
    if src.dtype is not x.dtype:
        raise DTypeError(f"scatter needs src and x of one type, not {src.type} and {x.type}")
    if not src.shape and x.shape:
        src = b.expand(b.full([], src, x.dtype), index.shape)
    return b.library("aten.scatter.src", (x, counted, index, src), b.tensor_type(x))


def _eager_embedding(torch: Any, x: Any, weight: Any, padding: Any, limit: Any, order: Any, *_: Any) -> Any:
    order = 2.0 if order is None else order
    return torch.nn.functional.embedding(x, weight.clone(), None, limit, order)


@operator(
    Kind.COMPOSITE,
    eager=_eager_embedding,
    samples=lambda shape: [
        Sample((_indices(shape, 7), SampleOperand((7, 3), Domain(specials=False), dtype), *more))
        for dtype in in_order(FLOATS | HALVES)
        for more in ((), (1, None, 2.0, False, False), (None, 2.0), (-1, 0.5, 1.0), (None, 3.0, 3.5))
    ],
    tolerance=Tolerance(ulps=16, scale=1.0, half_ulps=2),
)
def embedding_fwd(
    b: Any,
    x: Tensor,
    weight: Tensor,
    padding_idx: Integer | None = None,
    max_norm: Real | None = None,
    norm_type: Real | None = None,
    scale_grad_by_freq: Flag | None = None,
    sparse: Flag | None = None,
) -> Any:
    """Rows of a weight matrix, one per index, none of a norm above max_norm. The weight itself is not renormalised;
    padding_idx, scale_grad_by_freq and sparse are about gradients, which a fusion has none of."""
    rows = weight.shape[0] if len(weight.shape) == 2 else None
    if padding_idx is not None and isinstance(rows, int) and not -rows <= padding_idx < rows:
        raise ArgumentValueError(f"padding_idx {padding_idx} is no row of {weight.type}")
    looked_up = b.embedding(x, weight)
    if max_norm is None:
        return looked_up
    order, wide = 2.0 if norm_type is None else norm_type, weight.dtype.widened
    if order <= 0:
        raise ArgumentValueError(f"norm_type is positive, not {norm_type}")
    values = b.cast(looked_up, wide)
    powers = b.sum(b.pow(b.abs(values), float(order)), [-1], True)
    norm = b.pow(powers, 1 / order)
    factor = b.where(b.gt(norm, max_norm), max_norm / (norm + 1e-7), b.constant(1.0, wide))
    return b.cast(values * factor, weight.dtype)
