"""Sizes that Python reads of tensors, and what indexing a tensor says about them.

In: a tensor of the call and how its sizes are asked for, or an index. Out: open numbers; for an index, the conditions
under which it means the same for other sizes: on which side of an axis's end each bound of a slice lies, and which of
them count from the end. What always holds: reads are noted exactly where modes of PyTorch see them, so that the
recording has the same ones in the same order; inside PyTorch's own functions they are plain numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain import open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import (
    AbstractTensor,
    AbstractValue,
    Known,
    is_open,
    is_tensor,
    open_items,
    tuple_of,
)

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

INDEXING = frozenset(["__getitem__", "__setitem__"])


def shape_of(walker: Walker, value: AbstractTensor, name: str) -> AbstractValue:
    """What `shape`, `size()` and the like give for a tensor of the call."""
    assert value.meta is not None
    if walker.is_within_torch:
        return Known(value.meta.shape)
    return tuple_of(walker.sizes.read(name, value.meta), torch.Size)


def sizes_of(
    walker: Walker, name: str, args: list[AbstractValue], kwargs: dict[str, AbstractValue]
) -> AbstractValue | None:
    """What a method gives whose answer is made of sizes alone; None where that is for PyTorch to say."""
    value = args[0] if args else None
    if not isinstance(value, AbstractTensor) or value.meta is None or walker.is_within_torch:
        return None
    dims = [*args[1:], *kwargs.values()]
    if len(dims) > 1 or any(not (type(dim) is Known and type(dim.value) is int) for dim in dims):
        return None
    rank = value.meta.dim()
    if dims and not -rank <= dims[0].value < rank:  # type: ignore[attr-defined]
        return None
    read = walker.sizes.read(name, value.meta)
    if name != "size":
        return functools.reduce(walker.sizes.multiply, read, Known(1))
    return read[dims[0].value] if dims else tuple_of(read, torch.Size)  # type: ignore[attr-defined]


def note(walker: Walker, value: AbstractValue, meta: torch.Tensor, key: AbstractValue) -> None:
    """Notes what an index says about sizes, where modes of PyTorch see it."""
    parts: Sequence[AbstractValue] = (
        open_items(key) or (walker.sequence(key) if _is_tuple(walker, key) else None) or [key]
    )
    if walker.is_within_torch:
        open_sizes.pin(walker, *parts)
        return
    if isinstance(value, AbstractTensor):
        axes: list[AbstractValue] = walker.sizes.read("__getitem__", meta)
    else:
        axes = [Known(size) for size in meta.shape]
    counts = [_axes_of(walker, part) for part in parts]
    hidden = meta.dim() - sum(count for count in counts if count is not None)
    if None in counts or hidden < 0:
        open_sizes.pin(walker, *parts, *axes)
        return
    axis = 0
    for part, count in zip(parts, counts, strict=True):
        if count == 1 and not is_tensor(part):
            _note_part(walker, part, axes[axis])
        axis += hidden if type(part) is Known and part.value is ... else count or 0


def _is_tuple(walker: Walker, key: AbstractValue) -> bool:
    return walker.class_of(key) is tuple


def _axes_of(walker: Walker, part: AbstractValue) -> int | None:
    """How many axes a part of an index stands for, an ellipsis apart; None if that is not known."""
    if is_tensor(part) or walker.class_of(part) in (int, slice):
        return 1
    if type(part) is Known and (part.value is None or part.value is ... or isinstance(part.value, bool)):
        return 0
    items = walker.sequence(part) if walker.class_of(part) is list else None
    is_numbers = items is not None and all(type(item) is Known and type(item.value) is int for item in items)
    return 1 if is_numbers else None


def _note_part(walker: Walker, part: AbstractValue, axis: AbstractValue) -> None:
    cls = walker.class_of(part)
    if cls is int and open_sizes.is_number(part):
        _note_position(walker, part, axis)
        return
    bounds = _bounds(part) if cls is slice else None
    if bounds is None:
        if cls is not list:
            open_sizes.pin(walker, part, axis)
        return
    start, stop, step = bounds
    open_sizes.pin(walker, step)
    first = _note_bound(walker, start, axis) if start is not None else Known(0)
    last = _note_bound(walker, stop, axis) if stop is not None else axis
    if any(map(is_open, (first, last))) and not walker.sizes.is_less(last, first):
        walker.sizes.mention(walker.sizes.subtract(last, first))


def _bounds(part: AbstractValue) -> tuple[AbstractValue | None, AbstractValue | None, AbstractValue] | None:
    """Start, stop and step of a slice; None unless they are integers."""
    if isinstance(part, Known) and type(part) is Known:
        held: Any = part.value
        items: Sequence[AbstractValue] = [Known(held.start), Known(held.stop), Known(held.step)]
    else:
        items = getattr(part, "items", ())
    given = [None if type(item) is Known and item.value is None else item for item in items]
    if len(given) != 3 or not all(item is None or open_sizes.is_number(item) for item in given):
        return None
    return given[0], given[1], given[2] or Known(1)


def _note_bound(walker: Walker, bound: AbstractValue, axis: AbstractValue) -> AbstractValue:
    """Where a bound of a slice lies on an axis; PyTorch clamps it to the ends."""
    sizes = walker.sizes
    sizes.mention(bound)
    if sizes.is_less(bound, Known(0)):
        bound = sizes.add(axis, bound)
        if sizes.is_less(bound, Known(0)):
            return Known(0)
    # A slice that reaches the end exactly is none: PyTorch gives the axis itself.
    if open_sizes.number_of(bound) == open_sizes.number_of(axis):
        sizes.is_equal(bound, axis)
    elif sizes.is_less(axis, bound):
        return axis
    sizes.mention(bound)
    return bound


def _note_position(walker: Walker, position: AbstractValue, axis: AbstractValue) -> None:
    """One element of an axis, which must be there; those that count from the end do so in every call."""
    sizes = walker.sizes
    sizes.mention(position)
    if sizes.is_less(position, Known(0)):
        position = sizes.add(axis, position)
        sizes.is_less(position, Known(0))
    sizes.is_less(position, axis)
    sizes.mention(position)
