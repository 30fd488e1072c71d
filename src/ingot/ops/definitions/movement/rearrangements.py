"""Composites that only move elements: axes in another order or place, parts, repetition, joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.errors import ArgumentValueError, AxisError, ShapeError
from ingot.ops.parameters import Axes, Axis, Integer, Integers, Plain, Sizes, Tensor, Tensors, one_axis
from ingot.ops.record import Kind, operator
from ingot.ops.samples import Operand, Sample, Samples


def movement(eager: Any, *calls: Any, least_rank: int = 0):
    """Decorator: `calls` are arguments after the tensor, or functions that give them for the tensor's shape."""

    def samples(shape: tuple[int, ...]) -> list[Sample]:
        if len(shape) < least_rank:
            return []
        given: list[Any] = [call(shape) if callable(call) else call for call in calls]
        return [Sample((Operand(shape), *one)) for one in given]

    return _moving(eager, samples)


def _moving(eager: Any, samples: Samples):
    return operator(Kind.COMPOSITE, eager=eager, samples=samples)


# --- axes -------------------------------------------------------------------------------------------------------------


@movement("torch.unsqueeze", (0,), (-1,), lambda shape: (len(shape),))
def unsqueeze(b: Any, x: Tensor, axis: Axis) -> Any:
    """x with a new axis of size 1 at this place."""
    place = one_axis(axis, len(x.shape) + 1)
    flags = [False] * len(x.shape)
    return b.broadcast(x, [*flags[:place], True, *flags[place:]])


@movement("torch.transpose", (0, -1), (-1, 0))
def transpose(b: Any, x: Tensor, first: Integer, second: Integer) -> Any:
    """x with two axes exchanged."""
    rank = len(x.shape)
    left, right = one_axis(first, rank), one_axis(second, rank)
    order = list(range(rank))
    if rank:
        order[left], order[right] = right, left
    return b.permute(x, order)


@movement("torch.movedim", ([0], [-1]), ([-1, 0], [0, 1]), least_rank=2)
def movedim(b: Any, x: Tensor, source: Axes, destination: Axes) -> Any:
    """x with some axes moved to other places, the others in their order around them."""
    rank = len(x.shape)
    moved, places = ([one_axis(axis, rank) for axis in _several(axes)] for axes in (source, destination))
    if len(set(moved)) != len(moved) or len(set(places)) != len(moved) or len(places) != len(moved):
        raise AxisError(f"movedim needs one place for each axis, not {source} to {destination}")
    others = iter(axis for axis in range(rank) if axis not in moved)
    order = [moved[places.index(place)] if place in places else next(others) for place in range(rank)]
    return b.permute(x, order)


def _several(axes: Any) -> Sequence[int]:
    return [axes] if isinstance(axes, int) else axes


@movement("torch.flatten", (), (1, -1), (-1,), least_rank=2)
def flatten(b: Any, x: Tensor, first: Integer = 0, last: Integer = -1) -> Any:
    """x with the axes from first to last taken together."""
    rank = len(x.shape)
    start, end = one_axis(first, rank), one_axis(last, rank)
    if start > end:
        raise AxisError(f"flatten needs its first axis before its last, not {first} and {last}")
    joined = sizes.product(x.shape[start : end + 1])
    return b.reshape(x, (*x.shape[:start], joined, *x.shape[end + 1 :]))


# --- parts ------------------------------------------------------------------------------------------------------------


def part(b: Any, x: Any, axis: int, start: Any, stop: Any, step: int = 1) -> Any:
    """Elements from start to stop along one axis, all of them along the others."""
    rank = len(x.shape)
    starts, stops, steps = [0] * rank, list(x.shape), [1] * rank
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return b.slice(x, starts, stops, steps)


@movement(lambda torch, x, index, axis: torch.select(x, axis, index), (0, 0), (-1, -1), least_rank=1)
def select(b: Any, x: Tensor, index: Plain, axis: Axis) -> Any:
    """What one index names along an axis, without that axis; negative ones count from the end."""
    place = one_axis(axis, len(x.shape))
    number = index.constant_value()
    if index.shape or not index.dtype.is_integer or not x.shape:
        raise ShapeError(f"select takes one whole number along an axis of a tensor, not {index.type} for {x.type}")
    if number is None or not isinstance(x.shape[place], int):
        return _select_later(b, x, index, place)
    size = x.shape[place]
    if not -size <= number < size:
        raise ShapeError(f"select: the index {number} is beyond the end of an axis of {size}")
    first = number % size
    return b.squeeze(part(b, x, place, first, first + 1), [place])


def _select_later(b: Any, x: Any, index: Any, axis: int) -> Any:
    """Select with an index, or of a size, that is known when the graph runs; looking it up checks its range."""
    counted = b.where(b.lt(index, 0), b.add(index, b.size(x, axis)), index)
    return b.squeeze(b.index_select(x, b.full([1], counted, DataType.Int), axis), [axis])


@_moving(
    "torch.unbind",
    lambda shape: [Sample((Operand(shape), axis)) for axis in (0, -1) if shape and shape[axis]],
)
def unbind(b: Any, x: Tensor, axis: Axis = 0) -> Any:
    """What each index names along an axis, as a tuple."""
    place, size = _known_axis(b, "unbind", x, axis)
    if not size:
        raise ShapeError(f"unbind has no results for an axis without elements of {x.type}")
    return tuple(b.select(x, index, place) for index in range(size))


@movement("torch.narrow", (0, 0, 1), (-1, -1, 1), least_rank=1)
def narrow(b: Any, x: Tensor, axis: Axis, start: Integer, length: Integer) -> Any:
    """So many elements along an axis; a negative start counts from the end."""
    place, size = _known_axis(b, "narrow", x, axis)
    first = start + size if start < 0 else start
    if first < 0 or length < 0 or first + length > size:
        raise ShapeError(f"narrow: {length} elements from {start} on reach beyond the end of an axis of {size}")
    return part(b, x, place, first, first + length)


@movement("torch.split", (1, 0), (2, -1), (100, 0), least_rank=1)
def split(b: Any, x: Tensor, length: Integer, axis: Axis = 0) -> Any:
    """Parts of a length along an axis, as a tuple; the last may be shorter."""
    place, size = _known_axis(b, "split", x, axis)
    if length < 1:
        raise ArgumentValueError(f"split needs a length of at least 1, not {length}")
    return tuple(part(b, x, place, first, min(first + length, size)) for first in range(0, max(size, 1), length))


@movement(
    lambda torch, x, lengths, axis: torch.split(x, lengths, axis),
    lambda shape: ((1, shape[0] - 1) if shape[0] else (0,), 0),
    least_rank=1,
)
def split_with_sizes(b: Any, x: Tensor, lengths: Integers, axis: Axis = 0) -> Any:
    """Parts of these lengths along an axis, as a tuple."""
    place, size = _known_axis(b, "split_with_sizes", x, axis)
    if any(not isinstance(length, int) or length < 0 for length in lengths) or sum(lengths) != size:
        raise ShapeError(f"split_with_sizes needs lengths that add up to {size}, not {list(lengths)}")
    firsts = [sum(lengths[:position]) for position in range(len(lengths))]
    return tuple(part(b, x, place, first, first + length) for first, length in zip(firsts, lengths, strict=True))


@movement("torch.chunk", (1, 0), (2, -1), (7, 0), least_rank=1)
def chunk(b: Any, x: Tensor, chunks: Integer, axis: Axis = 0) -> Any:
    """At most so many parts of one length along an axis, as a tuple."""
    _, size = _known_axis(b, "chunk", x, axis)
    if chunks < 1:
        raise ArgumentValueError(f"chunk needs at least one part, not {chunks}")
    if not size:
        return tuple(b.set(x) for _ in range(chunks))
    return b.split(x, -(-size // chunks), axis)


def _known_axis(b: Any, operator: str, x: Any, axis: int) -> tuple[int, int]:
    """An axis counted from the front, and its size, which must not be open."""
    place = one_axis(axis, len(x.shape))
    if not x.shape or not isinstance(x.shape[place], int):
        raise ShapeError(f"{operator} needs an axis of a known size, not axis {axis} of {x.type}")
    return place, x.shape[place]


@movement("torch.tril", (), (1,), (-1,), least_rank=2)
def tril(b: Any, x: Tensor, diagonal: Integer = 0) -> Any:
    """Lower triangle of the last two axes, zero above the given diagonal: what triu with the next one takes away."""
    if len(x.shape) < 2:
        raise ShapeError(f"tril needs at least two dimensions, not {x.type}")
    ones = b.full(x.shape[-2:], True)
    return b.where(b.triu(ones, diagonal + 1), b.constant(0, x.dtype), x)


# --- joining and repeating --------------------------------------------------------------------------------------------


@_moving(
    lambda torch, tensors, axis: torch.stack(tensors, axis),
    lambda shape: [Sample(([Operand(shape), Operand(shape), Operand(shape)], axis)) for axis in (0, -1)],
)
def stack(b: Any, tensors: Tensors, axis: Axis = 0) -> Any:
    """Tensors of one shape joined along a new axis."""
    if not tensors or any(tensor.shape != tensors[0].shape for tensor in tensors):
        raise ShapeError("stack needs tensors of one shape")
    return b.cat([b.unsqueeze(tensor, axis) for tensor in tensors], one_axis(axis, len(tensors[0].shape) + 1))


@movement(
    lambda torch, x, shifts, axes: torch.roll(x, shifts, axes),
    ([1], [0]),
    ([-2, 3], [0, -1]),
    least_rank=2,
)
def roll(b: Any, x: Tensor, shifts: Integers, axes: Integers = ()) -> Any:
    """x with its elements moved along axes, those at the end coming in again at the front; without axes, along all of
    them in row-major order."""
    if not axes and len(shifts) == 1:
        flat = b.reshape(x, (sizes.product(x.shape),))
        return b.reshape(b.roll(flat, shifts, [0]), x.shape)
    if len(shifts) != len(axes) or not x.shape:
        raise ArgumentValueError(f"roll needs one shift for each axis, not {list(shifts)} for {list(axes)}")
    for shift, axis in zip(shifts, axes, strict=True):
        place, size = _known_axis(b, "roll", x, axis)
        if not isinstance(shift, int):
            raise ArgumentValueError(f"roll needs shifts that are known, not {shift}")
        if size and shift % size:
            first = size - shift % size
            x = b.cat([part(b, x, place, first, size), part(b, x, place, 0, first)], place)
    return x


@movement(
    lambda torch, x, repeats: x.repeat(repeats),
    lambda shape: ([2, *[1] * len(shape)],),
    lambda shape: ([3] * max(len(shape), 1),),
)
def repeat(b: Any, x: Tensor, repeats: Sizes) -> Any:
    """x so many times along each axis; new axes come first."""
    new = len(repeats) - len(x.shape)
    if new < 0:
        raise ArgumentValueError(f"repeat needs a number for each axis of {x.type}, not {list(repeats)}")
    shape = (*((1,) * new), *x.shape)
    spread = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    if any(isinstance(size, int) and size < 0 for size in spread):
        raise ArgumentValueError(f"repeat needs numbers of at least 0, not {list(repeats)}")
    places = [2 * axis + 1 for axis in range(new, len(shape))]
    repeated = b.broadcast_in_dim(x, spread, places)
    return b.reshape(repeated, [count * size for count, size in zip(repeats, shape, strict=True)])


@movement(lambda torch, x, repeats: torch.tile(x, repeats), ([2],), ([2, 1, 3],))
def tile(b: Any, x: Tensor, repeats: Sizes) -> Any:
    """x so many times along its last axes, and once along the others."""
    return b.repeat(x, [*([1] * (len(x.shape) - len(repeats))), *repeats])


@_moving(
    "torch.pixel_shuffle",
    lambda shape: [Sample((Operand((*shape, 8, 2, 3)), 2))],
)
def pixel_shuffle(b: Any, x: Tensor, factor: Integer) -> Any:
    """Channels spread over squares of pixels."""
    rank = len(x.shape)
    if rank < 3 or not isinstance(x.shape[-3], int) or factor < 1 or x.shape[-3] % (factor * factor):
        raise ShapeError(f"pixel_shuffle needs channels for every pixel of a square of {factor}, not {x.type}")
    outer, (channels, height, width) = x.shape[:-3], x.shape[-3:]
    kept = channels // (factor * factor)
    spread = b.reshape(x, (*outer, kept, factor, factor, height, width))
    order = [*range(rank - 3), *(rank - 3 + place for place in (0, 3, 1, 4, 2))]
    return b.reshape(b.permute(spread, order), (*outer, kept, height * factor, width * factor))
