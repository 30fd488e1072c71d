"""What Python's indexing of a tensor says about the sizes of its axes.

In: the index of `tensor[index]`. Out: the bounds of every slice in it, with the axis that each is taken along; None
where that cannot be told. Bounds are clamped to the size of the axis before PyTorch sees an operation: `x[:512]` of 300
elements is x itself, and that of 600 is a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ingot.base.sizes import Size, SizeExpression
from ingot.frontend.jit.trace.trace import SliceBounds, TraceValue

INDEXING: frozenset[Any] = frozenset({torch.Tensor.__getitem__, torch.Tensor.__setitem__})
"""Methods that take an index."""


def slice_bounds(register: TraceValue, rank: int, index: Any) -> list[SliceBounds] | None:
    """The slices of an index that have bounds; None if it is not known which axes they are taken along."""
    parts: Sequence[Any] = index if isinstance(index, tuple) else (index,)
    slices = [part for part in parts if isinstance(part, slice) and (part.start, part.stop) != (None, None)]
    if not slices:
        return []
    taken = [_axes_of(part) for part in parts]
    if None in taken or sum(part is Ellipsis for part in parts) > 1:
        return None
    hidden = rank - sum(count or 0 for count in taken)
    axis, found = 0, []
    for part, count in zip(parts, taken, strict=True):
        if isinstance(part, slice) and (part.start, part.stop) != (None, None):
            if not _is_bound(part.start) or not _is_bound(part.stop):
                return None
            found.append(SliceBounds(register, axis, part.start, part.stop))
        axis += hidden if part is Ellipsis else count or 0
    return found


def part_of_axis(
    arguments: Sequence[Any], source: Sequence[Size], result: Sequence[Size]
) -> tuple[Size, Size, Size] | None:
    """Start, end and size of the axis for `aten.slice(tensor, dim, start, end, step)` whose result is as long as they
    say, by the sizes of tensor and result; None for one that is clamped, or has steps. For sizes that stay open, that
    is so as long as 0 <= start <= end <= size."""
    _, dim, start, end, step = (*arguments, *(0, None, None, 1)[len(arguments) - 1 :])
    if type(step) is not int or step != 1 or type(dim) is not int or not -len(source) <= dim < len(source):
        return None
    size = source[dim]
    start = 0 if start is None else start
    end = size if end is None or (isinstance(end, int) and end >= _UNBOUNDED) else end
    if not all(isinstance(one, int | SizeExpression) for one in (start, end)):
        return None
    return (start, end, size) if end + start * -1 == result[dim] else None


_UNBOUNDED = 2**62


def _axes_of(part: Any) -> int | None:
    """How many axes a part of an index stands for, an ellipsis apart; None if that is not known."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if isinstance(part, int | slice):
        return 1
    if isinstance(part, torch.Tensor):
        return part.dim() if part.dtype in (torch.bool, torch.uint8) else 1
    is_numbers = isinstance(part, list) and all(type(number) is int for number in part)
    return 1 if is_numbers else None


def _is_bound(bound: Any) -> bool:
    return bound is None or isinstance(bound, int)
