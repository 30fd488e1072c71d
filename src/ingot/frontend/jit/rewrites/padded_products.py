"""Strategies for a product of matrices on a GPU whose rows are off the alignment that its library is quick with.

    plain       PyTorch's own
    "rows"      every matrix that is off gets rows of an aligned length, and keeps its sizes: operands are copied, the
                result is written into wider memory
    "sizes"     axes along which a matrix is off are made longer, in all matrices that have them: beyond the ends of an
                axis that is summed over there are zeros, what lies beyond the ends of the result is cut off

In: a call of mm, addmm or bmm. Out: the strategy that takes the least time, by measuring, once for all products of the
same sizes; and the function that takes it. The results are the same within rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from ingot.frontend.jit.autotune.benchmarking import CLEARLY, seconds_of, stand_in
from ingot.frontend.jit.trace.trace import TensorMeta
from ingot.runtime.disk_cache.process import remembered

_library = torch.library.Library("ingot", "FRAGMENT")
_library.define("padded_product(Tensor x, Tensor matrix, Tensor? bias, str padded, bool is_dense) -> Tensor")
PADDED_PRODUCT: torch._ops.OpOverload = torch.ops.ingot.padded_product.default
"""How a trace says that a product is computed with padded matrices. Programs call `padded_product` themselves."""

ALIGNMENT = 16
"""Bytes that the distance between two rows is to be a multiple of: what a thread loads and stores at once."""
STRATEGIES = ("rows", "sizes")
INNER = 1
"""The axis that is summed over; 0 are the rows of the result, 2 its columns."""
_AXES = ((0, INNER), (INNER, 2), (0, 2))
"""The axes of both operands and the result."""


# --- what is off ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """How a matrix lies in memory, or a batch of matrices."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(given: TensorMeta) -> MatrixLayout:
        return MatrixLayout(given.dtype, given.shape, given.strides)

    @property
    def dense_axis(self) -> int | None:
        """Which of its two axes has neighbours side by side; None if neither has, or it has a single row."""
        (rows, columns), (down, across) = self.shape[-2:], self.strides[-2:]
        if across == 1 and rows > 1 and down >= columns:
            return 1
        return 0 if down == 1 and columns > 1 and across >= rows else None

    @property
    def is_off(self) -> bool:
        """Whether its rows, or columns, do not all begin at aligned addresses."""
        axis = self.dense_axis
        steps = (*self.strides[:-2], 1 if axis is None else self.strides[-2:][1 - axis])
        return axis is not None and any(step * self.dtype.itemsize % ALIGNMENT for step in steps)


def axes_off(x: MatrixLayout, matrix: MatrixLayout, result: MatrixLayout) -> tuple[int, ...]:
    """The axes along which one of the matrices of a product is off."""
    found = set()
    for layout, axes in zip((x, matrix, result), _AXES, strict=True):
        if layout.is_off and layout.dense_axis is not None:
            found.add(axes[layout.dense_axis])
    return tuple(sorted(found))


def aligned_length(length: int, dtype: torch.dtype) -> int:
    """The next length of a row after which another one begins at an aligned address."""
    elements = ALIGNMENT // dtype.itemsize
    return -(-length // elements) * elements


# --- the strategies ---------------------------------------------------------------------------------------------------


def padded_product(
    x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None, padded: str, is_dense: bool
) -> torch.Tensor:
    """A product by a strategy. The result has wider rows than it has columns, unless it is to be dense."""
    shape = (*x.shape[:-1], matrix.shape[-1])
    likeness = MatrixLayout(x.dtype, shape, torch.empty(shape, device="meta").stride())
    if padded == "rows":
        made = _with_wider_rows(x, matrix, bias, likeness)
    else:
        made = _with_longer_axes(x, matrix, bias, likeness)
    return made.contiguous() if is_dense else made


def _with_wider_rows(
    x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None, likeness: MatrixLayout
) -> torch.Tensor:
    operands = [_in_aligned_rows(one) for one in (x, matrix)]
    rows, columns = likeness.shape[-2:]
    width = aligned_length(columns, x.dtype) if likeness.is_off else columns
    out = x.new_empty((*likeness.shape[:-2], rows, width)).narrow(-1, 0, columns)
    if bias is not None:
        return torch.addmm(bias, *operands, out=out)
    return (torch.mm if x.dim() == 2 else torch.bmm)(*operands, out=out)


def _with_longer_axes(
    x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None, likeness: MatrixLayout
) -> torch.Tensor:
    axes = axes_off(_layout_of(x), _layout_of(matrix), likeness)
    rows, columns = likeness.shape[-2:]
    lengths = [
        aligned_length(length, x.dtype) if axis in axes else length
        for axis, length in enumerate((rows, x.shape[-1], columns))
    ]
    operands = [
        _lengthened(one, (lengths[first], lengths[second]))
        for one, (first, second) in zip((x, matrix), _AXES, strict=False)
    ]
    if bias is not None:
        made = torch.addmm(_lengthened_row(bias, lengths[2]), *operands)
    else:
        made = (torch.mm if x.dim() == 2 else torch.bmm)(*operands)
    return made.narrow(-2, 0, rows).narrow(-1, 0, columns)


def _layout_of(tensor: torch.Tensor) -> MatrixLayout:
    return MatrixLayout(tensor.dtype, tuple(tensor.shape), tensor.stride())


def _in_aligned_rows(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix in the same order of memory, a copy if it is off."""
    layout = _layout_of(matrix)
    axis = layout.dense_axis
    if not layout.is_off or axis is None:
        return matrix
    sizes = list(matrix.shape[-2:])
    sizes[axis] = aligned_length(sizes[axis], matrix.dtype)
    return _like(matrix, sizes).narrow(axis - 2, 0, matrix.shape[axis - 2]).copy_(matrix)


def _lengthened(matrix: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """A matrix of such sizes, in the same order of memory, with zeros beyond the ends: a copy if it had others."""
    rows, columns = matrix.shape[-2:]
    if (rows, columns) == tuple(sizes):
        return matrix
    made = _like(matrix, sizes)
    made.narrow(-2, 0, rows).narrow(-1, 0, columns).copy_(matrix)
    for axis, length in ((-2, rows), (-1, columns)):
        if made.shape[axis] > length:
            made.narrow(axis, length, made.shape[axis] - length).zero_()
    return made


def _lengthened_row(row: torch.Tensor, length: int) -> torch.Tensor:
    return row if length == row.shape[0] else torch.nn.functional.pad(row, (0, length - row.shape[0]))


def _like(matrix: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Memory for a matrix of such sizes whose neighbours lie side by side along the same axis."""
    rows, columns = sizes
    if _layout_of(matrix).dense_axis == 0:
        return matrix.new_empty((*matrix.shape[:-2], columns, rows)).transpose(-1, -2)
    return matrix.new_empty((*matrix.shape[:-2], rows, columns))


# --- the choice -------------------------------------------------------------------------------------------------------


def quickest(x: MatrixLayout, matrix: MatrixLayout, has_bias: bool, is_dense: bool, device: torch.device) -> str | None:
    """The strategy that is clearly quicker than PyTorch's own product, by measuring; None if there is none."""
    return _remembered(x, matrix, has_bias, is_dense, device, torch.backends.cuda.matmul.fp32_precision)


@lru_cache(maxsize=4096)
def _remembered(
    x: MatrixLayout, matrix: MatrixLayout, has_bias: bool, is_dense: bool, device: torch.device, precision: str
) -> str | None:
    layouts = [(str(one.dtype), one.shape, one.strides) for one in (x, matrix)]
    what = (torch.cuda.get_device_name(device), torch.version.cuda, *layouts, has_bias, is_dense, precision)
    found = remembered("padded product", what, lambda: _measured(x, matrix, has_bias, is_dense, device))
    return found if found in STRATEGIES else None


def _measured(x: MatrixLayout, matrix: MatrixLayout, has_bias: bool, is_dense: bool, device: torch.device) -> str:
    operands = _stand_in(x, device), _stand_in(matrix, device)
    bias = torch.zeros(matrix.shape[-1], dtype=x.dtype, device=device) if has_bias else None
    ways: dict[str, Callable[[], Any]] = {"plain": plain_product(*operands, bias)}
    ways |= {strategy: partial(padded_product, *operands, bias, strategy, is_dense) for strategy in STRATEGIES}
    try:
        taken = seconds_of(*ways.values(), device=device)
    except RuntimeError:  # there is no memory for it, say
        return "plain"
    return choice(dict(zip(ways, taken, strict=True)))


def choice(taken: dict[str, float]) -> str:
    """The strategy to take, from how long each has taken."""
    best = min(STRATEGIES, key=taken.__getitem__)
    return best if taken[best] < CLEARLY * taken["plain"] else "plain"


def plain_product(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> Callable[[], torch.Tensor]:
    if bias is not None:
        return lambda: torch.addmm(bias, x, matrix)
    return (lambda: torch.mm(x, matrix)) if x.dim() == 2 else (lambda: torch.bmm(x, matrix))


def _stand_in(layout: MatrixLayout, device: torch.device) -> torch.Tensor:
    return stand_in(layout.shape, layout.strides, layout.dtype, device)
