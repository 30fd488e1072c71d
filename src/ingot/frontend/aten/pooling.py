"""Pooling: the largest element of each window, or the mean, as a chain of operations on shifted parts of the tensor.

PyTorch walks through each window element by element. Here all windows are looked at side by side, one element of each
at a time, so that vectors are compared. Interpolation by the nearest element is here as well: by whole factors it
repeats elements, which makes windows of equal ones; other factors need an index for each, and are left to PyTorch.

    upsample_nearest2d(x[n, c, h, w], [2 * h, 3 * w])  ->  x[n, c, h, 1, w, 1] expanded to [n, c, h, 2, w, 3], reshaped
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from ingot.frontend.aten.table import Row, lowers, unsupported
from ingot.ir.builder import Builder
from ingot.ops.definitions.movement.rearrangements import part

LARGEST_WINDOW = 25
"""The most elements of a window: for larger ones PyTorch's algorithm, which reads each element once, is as quick."""


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows along one axis."""

    size: int
    kernel: int
    stride: int
    dilation: int

    @property
    def count(self) -> int:
        return (self.size - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    def element(self, b: Builder, x: Any, axis: int, place: int) -> Any:
        """The element at one place of every window."""
        first = place * self.dilation
        return part(b, x, axis, first, first + (self.count - 1) * self.stride + 1, self.stride)


@lowers("max_pool2d.default")
def _max_pool2d(b: Builder, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    return _largest(b, x, *_windows(x, kernel, stride, padding, dilation, ceil_mode))


@lowers("avg_pool2d.default")
def _avg_pool2d(
    b: Builder, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, counts_padding: bool, divisor: Any
) -> Any:
    rows, columns = _windows(x, kernel, stride, padding, (1,), ceil_mode)
    if not x.dtype.is_float:
        unsupported("means of whole numbers are not lowered")
    wide = x.dtype.widened
    total = b.constant(0.0, wide)  # PyTorch begins with it, so that no sum is a negative zero
    for element in _elements(b, x, rows, columns):
        total = b.add(total, b.cast(element, wide))
    return b.cast(b.div(total, b.constant(float(divisor or rows.kernel * columns.kernel), wide)), x.dtype)


@lowers("_adaptive_avg_pool2d.default")
def _adaptive_avg_pool2d(b: Builder, x: Any, size: Any) -> Any:
    """Where windows do not overlap: sums of neighbouring rows, then of neighbouring elements within them."""
    *leading, height, width = x.shape
    counts = size if len(size) > 1 else size * 2
    area = list(zip((height, width), counts, strict=True))
    if not all(isinstance(number, int) for pair in area for number in pair) or not x.dtype.is_float:
        unsupported("only pooling of floats by known sizes is lowered")
    if any(not count or not given or given % count for given, count in area):
        unsupported("windows that overlap are not lowered")
    rows, columns = (given // count for given, count in area)
    values = b.reshape(b.cast(x, x.dtype.widened), (*leading, counts[0], rows, width))
    totals = b.reshape(b.sum(values, [-2]), (*leading, counts[0], counts[1], columns))
    return b.cast(b.div(b.sum(totals, [-1]), b.constant(float(rows * columns), x.dtype.widened)), x.dtype)


def _windows(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple[_Windows, ...]:
    """Those along the last two axes, if all of them lie inside the tensor and are small."""
    if ceil_mode or any(padding):
        unsupported("pooling beyond the edges is not lowered")
    area = x.shape[-2:]
    if len(x.shape) < 3 or not all(isinstance(size, int) for size in area):
        unsupported("pooling of symbolic sizes is not lowered")
    given = (kernel, stride or kernel, dilation)
    rows, columns = (_Windows(size, *(_along(numbers, axis) for numbers in given)) for axis, size in enumerate(area))
    if rows.kernel * columns.kernel > LARGEST_WINDOW or rows.count < 1 or columns.count < 1:
        unsupported("pooling with windows of this size is not lowered")
    return rows, columns


def _elements(b: Builder, x: Any, rows: _Windows, columns: _Windows) -> Iterator[Any]:
    """The first element of every window, the second of every window, and so on, row by row."""
    for row in range(rows.kernel):
        of_row = rows.element(b, x, len(x.shape) - 2, row)
        for column in range(columns.kernel):
            yield columns.element(b, of_row, len(x.shape) - 1, column)


def _largest(b: Builder, x: Any, rows: _Windows, columns: _Windows) -> Any:
    """The first of the largest elements of each window, or the last that is no number, as PyTorch has it."""
    largest = None
    for element in _elements(b, x, rows, columns):
        if largest is None:
            largest = element
            continue
        is_larger = b.gt(element, largest)
        if x.dtype.is_float:
            is_larger = b.logical_or(is_larger, b.ne(element, element))
        largest = b.where(is_larger, element, largest)
    return largest


def _along(numbers: Sequence[int], axis: int) -> int:
    """PyTorch takes one number for both axes, or one each."""
    return numbers[axis] if len(numbers) > 1 else numbers[0]


# --- interpolation ----------------------------------------------------------------------------------------------------


def _repeated(offset: float) -> Row:
    """How each element comes several times; PyTorch looks at where an element's index and the offset lie."""

    def row(b: Builder, x: Any, sizes: Any, *scales: Any) -> Any:
        leading, shape = x.shape[:2], x.shape[2:]
        if not all(isinstance(size, int) and size for size in (*shape, *sizes)):
            unsupported("interpolation between symbolic sizes is not lowered")
        narrow, wide, joined = list(leading), list(leading), list(leading)
        for size, wanted, scale in zip(shape, sizes, scales, strict=True):
            if wanted % size or not _is_repetition(size, wanted, scale, offset):
                unsupported("only interpolation by whole factors is lowered")
            narrow += [size, 1]
            wide += [size, wanted // size]
            joined.append(wanted)
        return b.reshape(b.expand(b.reshape(x, narrow), wide), joined)

    return row


def _is_repetition(size: int, wanted: int, scale: float | None, offset: float) -> bool:
    """Whether PyTorch, which computes places in float32, takes every element equally often."""
    step = numpy.float32(1 / scale if scale else size / wanted)
    places = numpy.arange(wanted, dtype=numpy.float32) + numpy.float32(offset)
    found = numpy.minimum(numpy.floor(places * step), size - 1)
    return bool((found == numpy.arange(wanted) // (wanted // size)).all())


for _axes in (1, 2, 3):
    lowers(f"upsample_nearest{_axes}d.default")(_repeated(0.0))
    lowers(f"_upsample_nearest_exact{_axes}d.default")(_repeated(0.5))
