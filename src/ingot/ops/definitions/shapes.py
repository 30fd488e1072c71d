"""Operators that move elements without computing: views, joins, padding, and questions about shapes."""

from __future__ import annotations

from typing import Any

from ingot.base import sizes
from ingot.base.errors import ArgumentError, AxisError, ShapeError
from ingot.base.sizes import Shape, Size
from ingot.ops import inference
from ingot.ops.attributes import (
    AxesAttributes,
    AxisAttributes,
    BroadcastAttributes,
    PadAttributes,
    PermuteAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from ingot.ops.parameters import (
    Axes,
    Axis,
    Flags,
    Integer,
    Integers,
    Operand,
    Real,
    Sizes,
    Tensor,
    Tensors,
    one_axis,
    several_axes,
)
from ingot.ops.promotion import Promotion
from ingot.ops.record import Kind, operator
from ingot.ops.samples import Operand as SampleOperand
from ingot.ops.samples import Sample


def view(infer: Any, attributes: Any, reference: Any, eager: Any, samples: Any, **more: Any):
    return operator(
        Kind.VIEW, infer=infer, attributes=attributes, reference=reference, eager=eager, samples=samples, **more
    )


@view(
    inference.broadcast,
    BroadcastAttributes,
    lambda torch, x, shape, axes: _place_axes(x, shape, axes).expand(shape),
    lambda torch, x, shape, axes: _place_axes(x, shape, axes).expand(shape),
    lambda shape: [
        Sample((SampleOperand(shape), list(shape), list(range(len(shape))))),
        Sample((SampleOperand(shape), [2, *shape, 3], list(range(1, len(shape) + 1)))),
        Sample((SampleOperand((*shape, 1)), [*shape, 4], list(range(len(shape) + 1)))),
    ],
)
def broadcast_in_dim(b: Any, x: Tensor, shape: Sizes, axes: Axes) -> Any:
    """x repeated to a shape: axis i of x becomes axis axes[i] of the result."""
    chosen = several_axes(axes, max(len(shape), 1))
    if len(chosen) != len(x.shape):
        raise ShapeError(f"broadcast_in_dim needs one axis per dimension of {x.type}, got {list(axes)}")
    if list(chosen) != sorted(chosen):
        raise AxisError(f"broadcast_in_dim keeps the order of dimensions, but axes {list(axes)} do not ascend")
    if chosen == tuple(range(len(shape))) and tuple(shape) == x.shape:
        return x
    return b.node("broadcast_in_dim", x, attributes=BroadcastAttributes(tuple(shape), chosen))


@view(
    inference.permute,
    PermuteAttributes,
    lambda torch, x, order: x.permute(order),
    lambda torch, x, order: x.permute(order),
    lambda shape: [
        Sample((SampleOperand(shape), list(reversed(range(len(shape)))))),
        Sample((SampleOperand(shape), [*range(1, len(shape)), 0] if shape else [])),
    ],
)
def permute(b: Any, x: Tensor, order: Axes) -> Any:
    """x with its axes in another order."""
    rank = len(x.shape)
    chosen = several_axes(order, rank)
    if len(chosen) != rank:
        raise AxisError(f"permute needs each of the {rank} axes of {x.type} once, got {list(order)}")
    return b.node("permute", x, attributes=PermuteAttributes(chosen)) if chosen != tuple(range(rank)) else x


@view(
    inference.reshape,
    ShapeAttributes,
    lambda torch, x, shape: x.reshape(shape),
    lambda torch, x, shape: x.reshape(shape),
    lambda shape: [
        Sample((SampleOperand(shape), [_count(shape)])),
        Sample((SampleOperand(shape), [1, *shape, 1])),
        *([Sample((SampleOperand(shape), [shape[0], -1]))] if shape and 0 not in shape else []),
    ],
)
def reshape(b: Any, x: Tensor, shape: Sizes) -> Any:
    """x with its elements, in row-major order, in another shape; one size may be -1."""
    target = _fill_in(x, tuple(shape))
    return b.node("reshape", x, attributes=ShapeAttributes(target)) if target != x.shape else x


@view(
    inference.squeeze,
    AxesAttributes,
    lambda torch, x, axes: x.squeeze(axes),
    lambda torch, x, axes: x.squeeze() if axes is None else x.squeeze(axes),
    lambda shape: [
        Sample((SampleOperand((1, *shape, 1)), [0])),
        Sample((SampleOperand((1, *shape, 1)), [0, -1])),
        Sample((SampleOperand((1, *shape, 1)),)),
        Sample((SampleOperand((1, *shape)), 0)),
        *([Sample((SampleOperand((1, *shape)), 1))] if shape else []),
    ],
)
def squeeze(b: Any, x: Tensor, axes: Axes | None = None) -> Any:
    """x without axes of size 1: the given ones, or all of them."""
    if axes is None:
        if not all(isinstance(size, int) for size in x.shape):
            raise ShapeError(f"which axes of {x.type} have size 1 is not known yet; name those to be removed")
        chosen = tuple(axis for axis, size in enumerate(x.shape) if size == 1)
    else:
        chosen = tuple(sorted(several_axes(axes, len(x.shape))))
    # Like PyTorch, a fixed size other than 1 stays.
    chosen = tuple(axis for axis in chosen if not isinstance(x.shape[axis], int) or x.shape[axis] == 1)
    return b.node("squeeze", x, attributes=AxesAttributes(chosen)) if chosen else x


@view(
    inference.slice_,
    SliceAttributes,
    lambda torch, x, starts, stops, steps: x[_slices(starts, stops, steps)],
    lambda torch, x, starts, stops, steps: x[_slices(starts, stops, steps or [1] * x.dim())],
    lambda shape: [
        Sample((SampleOperand(shape), [0] * len(shape), list(shape))),
        Sample((SampleOperand(shape), [min(1, size) for size in shape], list(shape), [2] * len(shape))),
        Sample((SampleOperand(shape), [0] * len(shape), [max(size - 1, 0) for size in shape])),
        Sample((SampleOperand(shape), [-2] * len(shape), [-1] * len(shape))),
        Sample((SampleOperand(shape), [1] * len(shape), [100] * len(shape), [3] * len(shape))),
    ],
)
def slice_(b: Any, x: Tensor, starts: Sizes, stops: Sizes, steps: Integers | None = None) -> Any:
    """Elements of x from starts to stops, per axis, every steps-th; stops beyond the end are cut to it."""
    rank = len(x.shape)
    steps = (1,) * rank if steps is None else tuple(steps)
    if not len(starts) == len(stops) == len(steps) == rank:
        raise ShapeError(f"slice needs starts, stops and steps for each of the {rank} axes of {x.type}")
    if any(not isinstance(step, int) or step < 1 for step in steps):
        raise ArgumentError(f"slice needs steps of at least 1, got {list(steps)}")
    starts = tuple(_inside(start, size) for start, size in zip(starts, x.shape, strict=True))
    stops = tuple(
        _not_before(start, _inside(stop, size)) for start, stop, size in zip(starts, stops, x.shape, strict=True)
    )
    if starts == (0,) * rank and stops == x.shape and steps == (1,) * rank:
        return x
    return b.node("slice", x, attributes=SliceAttributes(starts, stops, steps))


@view(
    inference.pad,
    PadAttributes,
    lambda torch, x, value, before, after: _pad(torch, x, value, before, after),
    lambda torch, x, widths, value: torch.nn.functional.pad(x, widths, value=value),
    lambda shape: [
        Sample((SampleOperand(shape), widths, value))
        for widths in ([1, 2], [0, 1, 2, 0], [-1, 2])
        if len(widths) <= 2 * len(shape) and all(size > 1 for size in shape)
        for value in (0, 1, 0.1, True)
    ],
)
def pad(b: Any, x: Tensor, widths: Sizes, value: Real = 0) -> Any:
    """x with elements added (or, for negative widths, removed) around it; widths start with the last axis."""
    rank = len(x.shape)
    if len(widths) % 2 or len(widths) > 2 * rank:
        raise ShapeError(f"pad needs up to {rank} pairs of widths for {x.type}, got {len(widths)} widths")
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for position in range(len(widths) // 2):
        before[rank - 1 - position], after[rank - 1 - position] = widths[2 * position], widths[2 * position + 1]
    starts = [-width if _is_negative(width) else 0 for width in before]
    stops = [size + width if _is_negative(width) else size for size, width in zip(x.shape, after, strict=True)]
    if any(isinstance(stop - start, int) and stop - start < 0 for start, stop in zip(starts, stops, strict=True)):
        raise ShapeError(f"pad cannot remove more elements than {x.type} has, as widths {list(widths)} would")
    x = b.slice(x, starts, stops)
    low = tuple(0 if _is_negative(width) else width for width in before)
    high = tuple(0 if _is_negative(width) else width for width in after)
    if not any(width != 0 for width in low + high):
        return x
    filling = b.scalar_like(value, x.dtype)
    return b.node("pad", x, filling, attributes=PadAttributes(low, high))


@view(
    inference.concatenate,
    AxisAttributes,
    lambda torch, *tensors, axis: torch.cat(tensors, axis),
    lambda torch, tensors, axis: torch.cat(tensors, axis),
    lambda shape: [
        Sample(([SampleOperand(shape), SampleOperand(shape)], axis)) for axis in range(-len(shape), len(shape))
    ],
    promotion=Promotion.MOVEMENT,
)
def cat(b: Any, tensors: Tensors, axis: Axis = 0) -> Any:
    """Tensors joined along an axis."""
    if not tensors:
        raise ArgumentError("cat needs at least one tensor")
    rank = len(tensors[0].shape)
    if rank == 0:
        raise ShapeError("cat cannot join tensors without dimensions; reshape them to [1] first")
    counted = one_axis(axis, rank)
    return tensors[0] if len(tensors) == 1 else b.node("cat", *tensors, attributes=AxisAttributes(counted))


# --- composites -------------------------------------------------------------------------------------------------------


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


# --- shared -----------------------------------------------------------------------------------------------------------


def _place_axes(x: Any, shape: Any, axes: Any) -> Any:
    """x with size-1 axes inserted so that its own axes come to lie at the given positions."""
    chosen = {axis % max(len(shape), 1) for axis in axes}
    return x[tuple(slice(None) if axis in chosen else None for axis in range(len(shape)))]


def _fill_in(x: Any, shape: Shape) -> Shape:
    """Replace the one -1 of a reshape by what the number of elements leaves for it."""
    unknown = [axis for axis, size in enumerate(shape) if size == -1]
    if not unknown:
        if any(isinstance(size, int) and size < 0 for size in shape):
            raise ShapeError(f"sizes must not be negative: {list(map(str, shape))}")
        return shape
    if len(unknown) > 1:
        raise ShapeError("only one size of a reshape may be -1")
    (axis,) = unknown
    known = sizes.product(shape[:axis] + shape[axis + 1 :])
    total = sizes.product(x.shape)
    if known == 0:
        raise ShapeError("a size of -1 cannot be worked out when another one is 0")
    if isinstance(total, int) and isinstance(known, int) and total % known:
        raise ShapeError(f"{x.type} has {total} elements, which is not a multiple of {known}")
    return (*shape[:axis], sizes.divide(total, known), *shape[axis + 1 :])


def _slices(starts: Any, stops: Any, steps: Any) -> tuple[slice, ...]:
    return tuple(slice(start, stop, step) for start, stop, step in zip(starts, stops, steps, strict=True))


def _inside(position: Size, size: Size) -> Size:
    """A slice's bound counted from the front and limited to the axis."""
    if position == 0:
        return 0  # a symbolic size is not negative either
    if isinstance(position, int) and position < 0:
        return sizes.maximum(size + position, 0)
    return sizes.minimum(position, size)


def _not_before(start: Size, stop: Size) -> Size:
    """The end of a slice, at least its beginning; both lie inside the axis."""
    return stop if start == 0 else sizes.maximum(start, stop)


def _is_negative(width: Size) -> bool:
    return isinstance(width, int) and width < 0


def _pad(torch: Any, x: Any, value: Any, before: Any, after: Any) -> Any:
    """Written with a fill and a copy: torch's own pad takes a Python number, which cannot hold every value."""
    shape = [low + size + high for low, size, high in zip(before, x.shape, after, strict=True)]
    result = torch.empty(shape, dtype=x.dtype, device=x.device).copy_(value)
    result[_slices(before, [low + size for low, size in zip(before, x.shape, strict=True)], [1] * x.dim())] = x
    return result


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
