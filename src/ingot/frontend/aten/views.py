"""Calls that only move elements: on the logical shape, for tensors of any strides."""

from __future__ import annotations

from typing import Any

from ingot.frontend.aten.table import as_operator, filling, lowers, unsupported, with_size
from ingot.ir.builder import Builder
from ingot.ops.definitions.movement.rearrangements import part
from ingot.ops.parameters import one_axis

for operator, names in {
    "cast": "_to_copy.default",
    "chunk": "chunk.default",
    "expand": "broadcast_to.default",
    "flatten": "flatten.using_ints",
    "movedim": "movedim.int movedim.intlist moveaxis.int moveaxis.intlist",
    "narrow": "narrow.default narrow_copy.default",
    "permute": "permute.default permute_copy.default",
    "pixel_shuffle": "pixel_shuffle.default",
    "repeat": "repeat.default",
    "reshape": "view.default _unsafe_view.default reshape.default view_copy.default _reshape_copy.default",
    "roll": "roll.default",
    "set": "alias.default detach.default lift_fresh.default lift_fresh_copy.default positive.default clone.default "
    "contiguous.default alias_copy.default detach_copy.default",
    "split": "split.Tensor split_copy.Tensor unsafe_split.Tensor",
    "split_with_sizes": "split_with_sizes.default split_with_sizes_copy.default unsafe_split_with_sizes.default "
    "split.sizes",
    "squeeze": "squeeze.default squeeze_copy.default",
    "stack": "stack.default",
    "tile": "tile.default",
    "transpose": "transpose.int transpose_copy.int swapaxes.default swapdims.default",
    "tril": "tril.default",
    "triu": "triu.default",
    "unbind": "unbind.int unbind_copy.int",
    "unsqueeze": "unsqueeze.default unsqueeze_copy.default",
}.items():
    as_operator(operator, *names.split())

as_operator("conj", "_conj.default", "conj.default", "conj_physical.default", "_conj_physical.default")
as_operator("neg", "_neg_view.default")
as_operator("view_as_real", "view_as_real.default", "view_as_real_copy.default")

END = 2**63 - 1
"""What PyTorch writes for the end of a slice that has none."""


@lowers("to.dtype")
def _to_dtype(b: Builder, x: Any, dtype: Any, non_blocking: bool, copy: bool, memory_format: Any) -> Any:
    if memory_format is not None:
        unsupported("a conversion with a memory format is not lowered")
    return b.cast(x, dtype)


@lowers("select.int", "select_copy.int")
def _select(b: Builder, x: Any, axis: int, index: Any) -> Any:
    if not x.shape or not isinstance(x.shape[one_axis(axis, len(x.shape))], int):
        unsupported("select along an axis of an open size is a view, and not lowered")
    return b.select(x, index, axis)


@lowers("copy.default")
def _copy(b: Builder, x: Any, source: Any, non_blocking: bool) -> Any:
    return b.expand(b.cast(source, x.dtype), x.shape)


# --- shapes -----------------------------------------------------------------------------------------------------------


@lowers("_reshape_alias.default")
def _reshape_alias(b: Builder, x: Any, size: Any, stride: Any) -> Any:
    return b.reshape(x, size)


@lowers("view_as.default", "reshape_as.default")
def _view_as(b: Builder, x: Any, other: Any) -> Any:
    return b.reshape(x, other.shape)


@lowers("mT.default", "adjoint.default")
def _swap_last(b: Builder, x: Any) -> Any:
    return b.transpose(x, -2, -1)


@lowers("t.default", "t_copy.default")
def _t(b: Builder, x: Any) -> Any:
    if len(x.shape) > 2:
        unsupported("t takes at most two dimensions")
    return b.permute(x, list(reversed(range(len(x.shape)))))


@lowers("expand.default", "expand_copy.default")
def _expand(b: Builder, x: Any, size: Any, implicit: bool) -> Any:
    return b.expand(x, size)


@lowers("expand_as.default")
def _expand_as(b: Builder, x: Any, other: Any) -> Any:
    return b.expand(x, other.shape)


@lowers("squeeze.dim", "squeeze.dims", "squeeze_copy.dim", "squeeze_copy.dims")
def _squeeze_axes(b: Builder, x: Any, dim: Any) -> Any:
    chosen = [one_axis(axis, len(x.shape)) for axis in ([dim] if isinstance(dim, int) else dim)]
    if not chosen or not x.shape:
        return x
    if any(not isinstance(x.shape[axis], int) for axis in chosen):
        unsupported("whether a symbolic size is 1 is not known")
    return b.squeeze(x, chosen)


# --- parts ------------------------------------------------------------------------------------------------------------


@lowers("slice.Tensor", "slice_copy.Tensor")
def _slice(b: Builder, x: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    if not x.shape:
        unsupported("a tensor without dimensions is not sliced")
    axis = one_axis(dim, len(x.shape))
    stop = x.shape[axis] if end is None or (isinstance(end, int) and end >= END) else end
    return part(b, x, axis, 0 if start is None else start, stop, step)


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
    return _put_back(b, b.unsqueeze(gradient, axis), axis, first, shape[axis] - first - 1)


def _put_back(b: Builder, x: Any, axis: int, before: int, after: int) -> Any:
    """x with zeros around it along one axis."""
    return b.pad(x, [*([0, 0] * (len(x.shape) - 1 - axis)), before, after])


# --- joining ----------------------------------------------------------------------------------------------------------


@lowers("cat.default", "concat.default", "concatenate.default")
def _cat(b: Builder, tensors: Any, dim: int) -> Any:
    """Vectors without elements are left out, for others of any rank: a rule that PyTorch keeps for old programs."""
    if any(tensor.shape == (0,) for tensor in tensors) and len({len(tensor.shape) for tensor in tensors}) > 1:
        unsupported("cat of tensors of several ranks is not lowered")
    return b.cat(tensors, dim)


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
    return _replaced(b, x, b.unsqueeze(whole, axis), axis, index % size)


def _replaced(b: Builder, x: Any, middle: Any, axis: int, first: int) -> Any:
    """What comes before, something else, and what comes after it."""
    last = first + middle.shape[axis]
    pieces = [part(b, x, axis, 0, first), middle, part(b, x, axis, last, x.shape[axis])]
    return b.cat([piece for piece in pieces if piece.shape[axis] != 0] or [x], axis)
