"""Index maps: the same elements in another shape, or some of them."""

from __future__ import annotations

from typing import Any

from ingot.base import sizes
from ingot.base.errors import ArgumentValueError, AxisError, ShapeError
from ingot.base.sizes import Shape, Size
from ingot.ops import inference
from ingot.ops.attributes import (
    AxesAttributes,
    BroadcastAttributes,
    PermuteAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from ingot.ops.parameters import (
    Axes,
    Flag,
    Sizes,
    Tensor,
    several_axes,
)
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
    lambda torch, x, axes, squeeze_expanded: x.squeeze() if axes is None else _squeezed(x, axes, squeeze_expanded),
    lambda shape: [
        Sample((SampleOperand((1, *shape, 1)), [0]), {"squeeze_expanded": True}),
        Sample((SampleOperand((1, *shape, 1)), [0])),
        Sample((SampleOperand((1, *shape, 1)), [0, -1])),
        Sample((SampleOperand((1, *shape, 1)),)),
        Sample((SampleOperand((1, *shape)), 0)),
        *([Sample((SampleOperand((1, *shape)), 1))] if shape else []),
    ],
)
def squeeze(b: Any, x: Tensor, axes: Axes | None = None, squeeze_expanded: Flag = False) -> Any:
    """x without axes of size 1: the given ones, or all of them; with squeeze_expanded also without axes that the given
    elements are repeated along."""
    if axes is None:
        if not all(isinstance(size, int) for size in x.shape):
            raise ShapeError(f"which axes of {x.type} have size 1 is not known yet; name those to be removed")
        chosen = tuple(axis for axis, size in enumerate(x.shape) if size == 1)
    else:
        chosen = tuple(sorted(several_axes(axes, len(x.shape))))
    if squeeze_expanded:
        x = _without_repetition(b, x, chosen)
    # Like PyTorch, a fixed size other than 1 stays.
    chosen = tuple(axis for axis in chosen if not isinstance(x.shape[axis], int) or x.shape[axis] == 1)
    return b.node("squeeze", x, attributes=AxesAttributes(chosen)) if chosen else x


@view(
    inference.slice_,
    SliceAttributes,
    lambda torch, x, starts, stops, steps: x[slices(starts, stops, steps)],
    lambda torch, x, starts, stops, steps, manual_normalization: x[slices(starts, stops, steps or [1] * x.dim())],
    lambda shape: [
        Sample((SampleOperand(shape), [0] * len(shape), list(shape)), {"manual_normalization": True}),
        Sample((SampleOperand(shape), [0] * len(shape), list(shape))),
        Sample((SampleOperand(shape), [min(1, size) for size in shape], list(shape), [2] * len(shape))),
        Sample((SampleOperand(shape), [0] * len(shape), [max(size - 1, 0) for size in shape])),
        Sample((SampleOperand(shape), [-2] * len(shape), [-1] * len(shape))),
        Sample((SampleOperand(shape), [1] * len(shape), [100] * len(shape), [3] * len(shape))),
    ],
)
def slice_(
    b: Any,
    x: Tensor,
    starts: Sizes,
    stops: Sizes,
    steps: Sizes | None = None,
    manual_normalization: Flag = False,
) -> Any:
    """Elements of x from starts to stops, per axis, every steps-th; stops beyond the end are cut to it. With
    manual_normalization they lie inside x already, which is checked."""
    rank = len(x.shape)
    steps = (1,) * rank if steps is None else tuple(steps)
    if not len(starts) == len(stops) == len(steps) == rank:
        raise ShapeError(f"slice needs starts, stops and steps for each of the {rank} axes of {x.type}")
    if any(not isinstance(step, int) or step < 1 for step in steps):
        raise ArgumentValueError(f"slice needs steps of at least 1, got {list(map(str, steps))}")
    if manual_normalization:
        _require_inside(x, starts, stops)
    starts = tuple(_inside(start, size) for start, size in zip(starts, x.shape, strict=True))
    stops = tuple(
        _not_before(start, _inside(stop, size)) for start, stop, size in zip(starts, stops, x.shape, strict=True)
    )
    if starts == (0,) * rank and stops == x.shape and steps == (1,) * rank:
        return x
    return b.node("slice", x, attributes=SliceAttributes(starts, stops, steps))


# --- shared -----------------------------------------------------------------------------------------------------------


def _without_repetition(b: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """x with the first element along each axis of more than one, all of which must be the same."""
    starts, stops = [0] * len(x.shape), list(x.shape)
    for axis in axes:
        if x.shape[axis] == 1:
            continue
        if not _is_repeated(x.node, axis):
            raise ShapeError(f"axis {axis} of {x.type} is not known to repeat its elements, and cannot be squeezed")
        stops[axis] = 1
    return b.slice(x, starts, stops)


def _is_repeated(node: Any, axis: int) -> bool:
    """Whether all elements along an axis are known to be the same: it was expanded, and then at most computed with."""
    if node.type.shape[axis] == 1:
        return True
    attributes = node.attributes
    if isinstance(attributes, BroadcastAttributes):
        if axis not in attributes.axes:
            return True
        operand, place = node.operands[0], attributes.axes.index(axis)
        return _is_repeated(operand, place)
    if node.op.kind is not Kind.POINTWISE:
        return False
    rank = len(node.type.shape)
    places = [(operand, axis - rank + len(getattr(operand.type, "shape", ()))) for operand in node.operands]
    return all(place < 0 or _is_repeated(operand, place) for operand, place in places)


def _squeezed(x: Any, axes: Any, squeeze_expanded: bool) -> Any:
    for axis in sorted(axis % max(x.dim(), 1) for axis in ([axes] if isinstance(axes, int) else axes)):
        x = x.narrow(axis, 0, 1) if squeeze_expanded and x.dim() else x
    return x.squeeze(axes)


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


def slices(starts: Any, stops: Any, steps: Any) -> tuple[slice, ...]:
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


def _require_inside(x: Any, starts: Shape, stops: Shape) -> None:
    """Refuse bounds that are known to lie outside of x, or in the wrong order."""
    for start, stop, size in zip(starts, stops, x.shape, strict=True):
        bounds = [(0, start), (start, stop), (stop, size)]
        if any(isinstance(low, int) and isinstance(high, int) and low > high for low, high in bounds):
            raise ShapeError(f"slice: {start} to {stop} is not inside an axis of {size}, and is not to be normalised")


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
