"""Calls that only move elements: on the logical shape, whatever the strides are in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.base import sizes
from ingot.frontend.aten.table import converted, filling, lowers, unsupported, with_size
from ingot.ir.builder import Builder
from ingot.ops.parameters import one_axis

END = 2**63 - 1
"""What PyTorch writes for the end of a slice that has none."""


@lowers("alias.default", "detach.default", "lift_fresh.default", "lift_fresh_copy.default", "positive.default")
@lowers("clone.default", "contiguous.default", "alias_copy.default", "detach_copy.default", "conj.default")
def _itself(b: Builder, x: Any) -> Any:
    return b.set(x)


@lowers("_to_copy.default")
def _to_copy(b: Builder, x: Any, dtype: Any) -> Any:
    return b.cast(x, dtype)


@lowers("to.dtype")
def _to_dtype(b: Builder, x: Any, dtype: Any, non_blocking: bool, copy: bool, memory_format: Any) -> Any:
    if memory_format is not None:
        unsupported("an order in memory is not lowered")
    return b.cast(x, dtype)


@lowers("copy.default")
def _copy(b: Builder, x: Any, source: Any, non_blocking: bool) -> Any:
    return b.expand(b.cast(source, x.dtype), x.shape)


# --- shapes -----------------------------------------------------------------------------------------------------------


@lowers("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default", "_reshape_copy.default")
def _view(b: Builder, x: Any, size: Any) -> Any:
    return b.reshape(x, size)


@lowers("_reshape_alias.default")
def _reshape_alias(b: Builder, x: Any, size: Any, stride: Any) -> Any:
    return b.reshape(x, size)


@lowers("view_as.default", "reshape_as.default")
def _view_as(b: Builder, x: Any, other: Any) -> Any:
    return b.reshape(x, other.shape)


@lowers("flatten.using_ints")
def _flatten(b: Builder, x: Any, start: int, end: int) -> Any:
    rank = len(x.shape)
    first, last = one_axis(start, rank), one_axis(end, rank)
    if first > last:
        unsupported("flatten needs its first axis before its last")
    joined = sizes.product(x.shape[first : last + 1])
    return b.reshape(x, (*x.shape[:first], joined, *x.shape[last + 1 :]))


@lowers("permute.default", "permute_copy.default")
def _permute(b: Builder, x: Any, dims: Any) -> Any:
    return b.permute(x, dims)


@lowers("transpose.int", "transpose_copy.int", "swapaxes.default", "swapdims.default")
def _transpose(b: Builder, x: Any, first: int, second: int) -> Any:
    rank = len(x.shape)
    left, right = one_axis(first, rank), one_axis(second, rank)
    order = list(range(rank))
    if rank:
        order[left], order[right] = right, left
    return b.permute(x, order)


@lowers("mT.default", "adjoint.default")
def _swap_last(b: Builder, x: Any) -> Any:
    return _transpose(b, x, -2, -1)


@lowers("t.default", "t_copy.default")
def _t(b: Builder, x: Any) -> Any:
    if len(x.shape) > 2:
        unsupported("t takes at most two dimensions")
    return b.permute(x, list(reversed(range(len(x.shape)))))


@lowers("movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist")
def _movedim(b: Builder, x: Any, source: Any, destination: Any) -> Any:
    rank = len(x.shape)
    moved, places = ([one_axis(axis, rank) for axis in _several(axes)] for axes in (source, destination))
    if len(set(moved)) != len(moved) or len(set(places)) != len(moved) or len(places) != len(moved):
        unsupported("movedim needs one place for each axis")
    others = iter(axis for axis in range(rank) if axis not in moved)
    order = [moved[places.index(place)] if place in places else next(others) for place in range(rank)]
    return b.permute(x, order)


def _several(axes: Any) -> Sequence[int]:
    return [axes] if isinstance(axes, int) else axes


@lowers("expand.default", "expand_copy.default")
def _expand(b: Builder, x: Any, size: Any, implicit: bool) -> Any:
    return b.expand(x, size)


@lowers("expand_as.default")
def _expand_as(b: Builder, x: Any, other: Any) -> Any:
    return b.expand(x, other.shape)


@lowers("broadcast_to.default")
def _broadcast_to(b: Builder, x: Any, size: Any) -> Any:
    return b.expand(x, size)


@lowers("unsqueeze.default", "unsqueeze_copy.default")
def _unsqueeze(b: Builder, x: Any, dim: int) -> Any:
    place = one_axis(dim, len(x.shape) + 1)
    flags = [False] * len(x.shape)
    return b.broadcast(x, [*flags[:place], True, *flags[place:]])


@lowers("squeeze.default", "squeeze_copy.default")
def _squeeze(b: Builder, x: Any) -> Any:
    return b.squeeze(x)


@lowers("squeeze.dim", "squeeze.dims", "squeeze_copy.dim", "squeeze_copy.dims")
def _squeeze_axes(b: Builder, x: Any, dim: Any) -> Any:
    chosen = [one_axis(axis, len(x.shape)) for axis in _several(dim)]
    if not chosen or not x.shape:
        return x
    if any(not isinstance(x.shape[axis], int) for axis in chosen):
        unsupported("whether a symbolic size is 1 is not known")
    return b.squeeze(x, chosen)


# --- parts ------------------------------------------------------------------------------------------------------------


def part(b: Builder, x: Any, axis: int, start: Any, stop: Any, step: int = 1) -> Any:
    """Elements from start to stop along one axis, all of them along the others."""
    rank = len(x.shape)
    starts, stops, steps = [0] * rank, list(x.shape), [1] * rank
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return b.slice(x, starts, stops, steps)


@lowers("slice.Tensor", "slice_copy.Tensor")
def _slice(b: Builder, x: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    if not x.shape:
        unsupported("a tensor without dimensions is not sliced")
    axis = one_axis(dim, len(x.shape))
    stop = x.shape[axis] if end is None or (isinstance(end, int) and end >= END) else end
    return part(b, x, axis, 0 if start is None else start, stop, step)


@lowers("narrow.default", "narrow_copy.default")
def _narrow(b: Builder, x: Any, dim: int, start: Any, length: Any) -> Any:
    axis = one_axis(dim, len(x.shape))
    size = x.shape[axis] if x.shape else None
    if not all(isinstance(number, int) for number in (size, start, length)):
        unsupported("narrow of a symbolic size is not lowered")
    first = start + size if start < 0 else start
    if first < 0 or length < 0 or first + length > size:
        unsupported("narrow reaches beyond the end")
    return part(b, x, axis, first, first + length)


@lowers("select.int", "select_copy.int")
def _select(b: Builder, x: Any, dim: int, index: Any) -> Any:
    if not x.shape or not isinstance(index, int):
        unsupported("select needs a dimension and a number")
    axis = one_axis(dim, len(x.shape))
    size = x.shape[axis]
    if isinstance(size, int) and not -size <= index < size:
        unsupported("select reaches beyond the end")
    if not isinstance(size, int):
        unsupported("whether an index is within a symbolic size is not known")
    first = index % size
    return b.squeeze(part(b, x, axis, first, first + 1), [axis])


@lowers("unbind.int", "unbind_copy.int")
def _unbind(b: Builder, x: Any, dim: int) -> Any:
    if not x.shape:
        unsupported("a tensor without dimensions is not taken apart")
    axis = one_axis(dim, len(x.shape))
    size = x.shape[axis]
    if not isinstance(size, int):
        unsupported("a symbolic size is not taken apart")
    return tuple(_select(b, x, axis, index) for index in range(size))


@lowers("split.Tensor", "split_copy.Tensor", "unsafe_split.Tensor")
def _split(b: Builder, x: Any, length: Any, dim: int) -> Any:
    axis = one_axis(dim, len(x.shape))
    size = x.shape[axis] if x.shape else None
    if not isinstance(size, int) or not isinstance(length, int) or length < 1:
        unsupported("split needs known sizes")
    return tuple(part(b, x, axis, first, min(first + length, size)) for first in range(0, max(size, 1), length))


@lowers("split_with_sizes.default", "split_with_sizes_copy.default", "unsafe_split_with_sizes.default", "split.sizes")
def _split_with_sizes(b: Builder, x: Any, lengths: Any, dim: int) -> Any:
    axis = one_axis(dim, len(x.shape))
    size = x.shape[axis] if x.shape else None
    if not isinstance(size, int) or any(not isinstance(length, int) or length < 0 for length in lengths):
        unsupported("split needs known sizes")
    if sum(lengths) != size:
        unsupported("split needs sizes that add up")
    firsts = [sum(lengths[:position]) for position in range(len(lengths))]
    return tuple(part(b, x, axis, first, first + length) for first, length in zip(firsts, lengths, strict=True))


@lowers("chunk.default")
def _chunk(b: Builder, x: Any, chunks: int, dim: int) -> Any:
    size = x.shape[one_axis(dim, len(x.shape))] if x.shape else None
    if not isinstance(size, int) or chunks < 1 or size == 0:
        unsupported("chunk needs known sizes")
    return _split(b, x, -(-size // chunks), dim)


@lowers("slice_backward.default")
def _slice_backward(b: Builder, gradient: Any, shape: Any, dim: int, start: int, end: int, step: int) -> Any:
    axis = one_axis(dim, len(shape))
    if step != 1 or not isinstance(shape[axis], int):
        unsupported("only a part in one piece of a known size is put back")
    first, last, _ = slice(start, end).indices(shape[axis])
    return _put_back(b, gradient, axis, first, shape[axis] - max(first, last))


@lowers("select_backward.default")
def _select_backward(b: Builder, gradient: Any, shape: Any, dim: int, index: int) -> Any:
    axis = one_axis(dim, len(shape))
    if not isinstance(shape[axis], int) or not -shape[axis] <= index < shape[axis]:
        unsupported("only a part of a known size is put back")
    first = index % shape[axis]
    return _put_back(b, _unsqueeze(b, gradient, axis), axis, first, shape[axis] - first - 1)


def _put_back(b: Builder, x: Any, axis: int, before: int, after: int) -> Any:
    """x with zeros around it along one axis."""
    return b.pad(x, [*([0, 0] * (len(x.shape) - 1 - axis)), before, after])


# --- joining ----------------------------------------------------------------------------------------------------------


@lowers("cat.default", "concat.default", "concatenate.default")
def _cat(b: Builder, tensors: Any, dim: int) -> Any:
    """Vectors without elements are left out, whatever the rank of the others: a rule of PyTorch's history."""
    if any(tensor.shape == (0,) for tensor in tensors) and len({len(tensor.shape) for tensor in tensors}) > 1:
        unsupported("cat of tensors of several ranks is not lowered")
    return b.cat(tensors, dim)


@lowers("stack.default")
def _stack(b: Builder, tensors: Any, dim: int) -> Any:
    if not tensors or any(tensor.shape != tensors[0].shape for tensor in tensors):
        unsupported("stack needs tensors of one shape")
    return b.cat([_unsqueeze(b, tensor, dim) for tensor in tensors], one_axis(dim, len(tensors[0].shape) + 1))


@lowers("constant_pad_nd.default")
def _constant_pad_nd(b: Builder, x: Any, widths: Any, value: Any) -> Any:
    return b.pad(x, widths, filling(b, value, x.dtype).constant_value())


@lowers("slice_scatter.default")
def _slice_scatter(b: Builder, x: Any, source: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    """x with a part replaced that lies in one piece."""
    axis = one_axis(dim, len(x.shape))
    size = x.shape[axis] if x.shape else None
    if step != 1 or not isinstance(size, int):
        unsupported("only a part in one piece of a known size is replaced")
    first, last, _ = slice(start, end).indices(size)
    last = max(first, last)
    return _replaced(b, x, b.expand(b.cast(source, x.dtype), with_size(x.shape, axis, last - first)), axis, first)


@lowers("select_scatter.default")
def _select_scatter(b: Builder, x: Any, source: Any, dim: int, index: int) -> Any:
    """x with what one index names replaced."""
    axis = one_axis(dim, len(x.shape))
    size = x.shape[axis] if x.shape else None
    if not isinstance(size, int) or not -size <= index < size:
        unsupported("select reaches beyond the end")
    whole = b.expand(b.cast(source, x.dtype), with_size(x.shape, axis))
    return _replaced(b, x, _unsqueeze(b, whole, axis), axis, index % size)


def _replaced(b: Builder, x: Any, middle: Any, axis: int, first: int) -> Any:
    """What comes before, something else, and what comes after it."""
    last = first + middle.shape[axis]
    pieces = [part(b, x, axis, 0, first), middle, part(b, x, axis, last, x.shape[axis])]
    return b.cat([piece for piece in pieces if piece.shape[axis] != 0] or [x], axis)


@lowers("pixel_shuffle.default")
def _pixel_shuffle(b: Builder, x: Any, factor: int) -> Any:
    """Channels spread over squares of pixels."""
    rank = len(x.shape)
    if rank < 3 or not isinstance(x.shape[-3], int) or factor < 1 or x.shape[-3] % (factor * factor):
        unsupported("pixel_shuffle needs channels for every pixel of a square")
    outer, (channels, height, width) = x.shape[:-3], x.shape[-3:]
    kept = channels // (factor * factor)
    split = b.reshape(x, (*outer, kept, factor, factor, height, width))
    order = [*range(rank - 3), *(rank - 3 + place for place in (0, 3, 1, 4, 2))]
    return b.reshape(b.permute(split, order), (*outer, kept, height * factor, width * factor))


@lowers("roll.default")
def _roll(b: Builder, x: Any, shifts: Any, dims: Any) -> Any:
    if not dims and len(shifts) == 1:
        flat = b.reshape(x, (sizes.product(x.shape),))
        return b.reshape(_roll(b, flat, shifts, [0]), x.shape)
    if len(shifts) != len(dims) or not x.shape:
        unsupported("roll needs one shift for each axis")
    for shift, dim in zip(shifts, dims, strict=True):
        axis = one_axis(dim, len(x.shape))
        size = x.shape[axis]
        if not isinstance(size, int) or not isinstance(shift, int):
            unsupported("roll needs known sizes")
        if size and shift % size:
            first = size - shift % size
            x = b.cat([part(b, x, axis, first, size), part(b, x, axis, 0, first)], axis)
    return x


@lowers("repeat.default")
def _repeat(b: Builder, x: Any, repeats: Any) -> Any:
    new = len(repeats) - len(x.shape)
    if new < 0:
        unsupported("repeat needs a number for each axis")
    shape = (*((1,) * new), *x.shape)
    spread = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    if any(isinstance(size, int) and size < 0 for size in spread):
        unsupported("nothing is repeated a negative number of times")
    places = [2 * axis + 1 for axis in range(new, len(shape))]
    repeated = b.broadcast_in_dim(x, spread, places)
    return b.reshape(repeated, [count * size for count, size in zip(repeats, shape, strict=True)])


@lowers("tile.default")
def _tile(b: Builder, x: Any, dims: Any) -> Any:
    return _repeat(b, x, [*([1] * (len(x.shape) - len(dims))), *dims])


# --- triangles --------------------------------------------------------------------------------------------------------


@lowers("triu.default")
def _triu(b: Builder, x: Any, diagonal: int) -> Any:
    return b.triu(x, diagonal)


@lowers("tril.default")
def _tril(b: Builder, x: Any, diagonal: int) -> Any:
    """What triu with the next diagonal takes away."""
    if len(x.shape) < 2:
        unsupported("tril needs at least two dimensions")
    ones = b.full(x.shape[-2:], True)
    return b.where(b.triu(ones, diagonal + 1), converted(b, 0, x.dtype), x)
