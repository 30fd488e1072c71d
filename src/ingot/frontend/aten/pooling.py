"""Pooling: the largest element of each window, as a chain of comparisons between shifted parts of the tensor.

PyTorch walks through each window element by element. Here all windows are looked at side by side, one element of each
at a time, so that vectors are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.frontend.aten.table import lowers, unsupported
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
    if ceil_mode or any(padding):
        unsupported("pooling beyond the edges is not lowered")
    area = x.shape[-2:]
    if len(x.shape) < 3 or not all(isinstance(size, int) for size in area):
        unsupported("pooling of symbolic sizes is not lowered")
    given = (kernel, stride or kernel, dilation)
    rows, columns = (_Windows(size, *(_along(numbers, axis) for numbers in given)) for axis, size in enumerate(area))
    if rows.kernel * columns.kernel > LARGEST_WINDOW or rows.count < 1 or columns.count < 1:
        unsupported("pooling with windows of this size is not lowered")
    return _largest(b, x, rows, columns)


def _largest(b: Builder, x: Any, rows: _Windows, columns: _Windows) -> Any:
    """The first of the largest elements of each window, or the last that is no number, as PyTorch has it."""
    largest = None
    for row in range(rows.kernel):
        of_row = rows.element(b, x, len(x.shape) - 2, row)
        for column in range(columns.kernel):
            element = columns.element(b, of_row, len(x.shape) - 1, column)
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
