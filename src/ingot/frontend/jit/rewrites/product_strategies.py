"""Strategies for a product of a tensor and a matrix of weights, and the choice of the quickest.

    PyTorch's own
    swapped     PyTorch's, with the roles of both matrices swapped: reads large weights at a multiple of the speed where
                there are few rows
    by panels   generated code; packs the weights at every call, because nothing tells reliably that they have changed
    packed      generated code for weights that were packed once, because they are taken as they are

In: a call of linear, addmm or mm, or weights. Out: a function that takes the same arguments, and memory for the result.
The strategy is chosen by measuring, once for all products of the same sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import torch

from ingot.frontend.jit.autotune.benchmarking import is_clearly_quicker, prefers_generated
from ingot.frontend.jit.trace.ssa import Operation, Version
from ingot.frontend.jit.trace.trace import TensorMeta
from ingot.runtime.disk_cache.process import remembered
from ingot.runtime.native.memory.pool import empty
from ingot.runtime.plan import is_plain
from ingot.runtime.products import can_pack, multiply, multiply_packed, pack

_aten: Any = torch.ops.aten
_library = torch.library.Library("ingot", "FRAGMENT")
_library.define("packed_product(Tensor x, Tensor panels, int columns, Tensor? bias) -> Tensor")
PACKED_PRODUCT: torch._ops.OpOverload = torch.ops.ingot.packed_product.default
"""How a trace says that a product's weights are packed. Programs call `packed_product` themselves."""

_FEWEST_OPERATIONS = 1 << 20
"""The fewest multiplications: with less to compute, the call itself takes longer."""
_FEWEST_PACKED_ROWS = 24
"""The fewest rows: with fewer, packing the weights takes longer than reading them as they lie."""
_MOST_PACKED_BYTES = 1 << 26
"""The largest weights that are packed at every call: their panels take as much memory again."""
_MOST_SWAPPED_ROWS = 128
_FEWEST_SWAPPED_BYTES = 1 << 20
"""The smallest weights that are worth swapping: smaller ones stay in the caches, where both orders are as quick."""


# --- the ways ---------------------------------------------------------------------------------------------------------


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """PyTorch's linear, also into given memory: its own way to do that adds the bias in a second pass."""
    if out is None:
        return torch.nn.functional.linear(x, weight, bias)
    rows, results = x.reshape(-1, x.shape[-1]), out.view(-1, out.shape[-1])
    if bias is None:
        torch.mm(rows, weight.t(), out=results)
    else:
        torch.addmm(bias, rows, weight.t(), out=results)
    return out


def swapped_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, out: torch.Tensor
) -> torch.Tensor:
    transposed = torch.mm(weight, x.t()).t()
    return out.copy_(transposed) if bias is None else torch.add(transposed, bias, out=out)


def linear_by_panels(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, out: torch.Tensor
) -> torch.Tensor:
    if _are_plain(x, weight, bias):
        return multiply(x, weight.t(), bias, out)
    return linear(x, weight, bias, out=out)


def addmm_by_panels(bias: torch.Tensor, x: torch.Tensor, matrix: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    if _are_plain(x, matrix, bias):
        return multiply(x, matrix, bias, out)
    return torch.addmm(bias, x, matrix, out=out)


def mm_by_panels(x: torch.Tensor, matrix: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    if _are_plain(x, matrix, None):
        return multiply(x, matrix, None, out)
    return torch.mm(x, matrix, out=out)


def packed_product(
    x: torch.Tensor, panels: torch.Tensor, columns: int, bias: torch.Tensor | None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    plain = x if is_plain(x) else x.resolve_neg().clone()
    memory = empty((*x.shape[:-1], columns), torch.float32) if out is None else out
    return multiply_packed(plain, panels, columns, bias, memory)


def _are_plain(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether the memory of all of them holds what they stand for."""
    return is_plain(x) and is_plain(matrix) and (bias is None or is_plain(bias))


_BY_PANELS: dict[torch._ops.OpOverload, Callable[..., torch.Tensor]] = {
    _aten.linear.default: linear_by_panels,
    _aten.addmm.default: addmm_by_panels,
    _aten.mm.default: mm_by_panels,
}

GENERATED: frozenset[Callable[..., Any]] = frozenset({*_BY_PANELS.values(), packed_product})
"""The strategies that are generated code."""


# --- the choice -------------------------------------------------------------------------------------------------------


def quicker_product(operation: Operation) -> Callable[..., Any] | None:
    """A strategy that is quicker than PyTorch's own, for a product whose weights may change; None if there is none."""
    target, given = operation.event.target, [value for value in operation.arguments if isinstance(value, Version)]
    if target not in _BY_PANELS or operation.keywords or len(given) != len(operation.arguments):
        return None
    notes = [version.note for version in given]
    (*bias, x, matrix) = notes if target is not _aten.linear.default else (*notes[2:], *notes[:2])
    is_linear = target is _aten.linear.default
    shape, strides = (matrix.shape, matrix.strides)
    if is_linear:
        shape, strides = shape[::-1], strides[::-1]
    if not _is_suitable(x, matrix, bias) or not can_pack(shape, strides):
        return None
    if any(not is_row(note.shape, note.strides, shape[1]) for note in bias):
        return None
    rows = x.nbytes // max(1, x.shape[-1] * x.dtype.itemsize)
    may_swap = is_linear and len(x.shape) == 2 and strides == (1, shape[0]) and _is_worth_swapping(rows, *shape)
    way = _quickest(rows, *shape, strides[0] == 1, may_swap, torch.get_num_threads())
    return _BY_PANELS[target] if way == "panels" else swapped_linear if way == "swapped" else None


def _is_suitable(x: TensorMeta, matrix: TensorMeta, bias: list[TensorMeta]) -> bool:
    """Whether generated code can compute a product, as far as types and sizes tell."""
    operands = (x, matrix, *bias)
    is_plain = all(note.dtype is torch.float32 and note.device.type == "cpu" for note in operands)
    is_fixed = all(note.open_sizes is None for note in operands)
    return is_plain and is_fixed and len(matrix.shape) == 2 and len(x.shape) >= 1


def is_row(shape: tuple[int, ...], strides: tuple[int, ...], columns: int) -> bool:
    """Whether a bias has a number for each of so many columns, side by side. PyTorch also takes one for all of them."""
    return shape == (columns,) and (strides == (1,) or columns == 1)


def _is_worth_swapping(rows: int, inner: int, columns: int) -> bool:
    return rows <= _MOST_SWAPPED_ROWS and inner * columns * 4 >= _FEWEST_SWAPPED_BYTES


@lru_cache(maxsize=4096)
def _quickest(rows: int, inner: int, columns: int, is_transposed: bool, may_swap: bool, threads: int) -> str:
    """The strategy that takes the least time, by measuring. The last argument tells measurements apart."""
    may_pack = rows >= _FEWEST_PACKED_ROWS and rows * inner * columns >= _FEWEST_OPERATIONS
    may_pack = may_pack and inner * columns * torch.float32.itemsize <= _MOST_PACKED_BYTES
    if not may_pack and not may_swap:
        return "torch"
    key = (rows, inner, columns, is_transposed, may_pack, may_swap, threads)
    found = remembered("product", key, lambda: _measured(rows, inner, columns, is_transposed, may_pack, may_swap))
    return found if found in ("panels", "swapped") else "torch"


def _measured(rows: int, inner: int, columns: int, is_transposed: bool, may_pack: bool, may_swap: bool) -> str:
    x, bias, out = torch.ones(rows, inner), torch.ones(columns), torch.empty(rows, columns)
    matrix = torch.ones(columns, inner).t() if is_transposed else torch.ones(inner, columns)
    own, swapped = _pytorchs_ways(x, matrix, bias, out)
    others = [own, swapped] if may_swap else [own]
    if may_pack and prefers_generated(lambda: multiply(x, matrix, bias, out), *others):
        return "panels"
    return "swapped" if may_swap and is_clearly_quicker(swapped, own) else "torch"


def _pytorchs_ways(
    x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor, out: torch.Tensor
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """PyTorch's product as it is, and with the matrices swapped."""
    return (
        lambda: torch.addmm(bias, x, matrix, out=out),
        lambda: swapped_linear(x, matrix.t(), bias, out=out),
    )


# --- weights that stay ------------------------------------------------------------------------------------------------


def packed_if_quicker(x: TensorMeta, matrix: torch.Tensor) -> torch.Tensor | None:
    """The panels of a matrix that stays as it is, if panels make products with such tensors quicker."""
    is_float = x.dtype is torch.float32 and matrix.dtype is torch.float32 and x.device.type == "cpu"
    if not is_float or matrix.dim() != 2 or not x.shape or not is_plain(matrix):
        return None
    if not can_pack(tuple(matrix.shape), matrix.stride()):
        return None
    rows = x.nbytes // max(1, x.shape[-1] * x.dtype.itemsize)
    if rows * math.prod(matrix.shape) < _FEWEST_OPERATIONS:
        return None
    panels = pack(matrix.detach())
    key = (rows, *matrix.shape, matrix.stride(), torch.get_num_threads())
    if key not in _QUICKER_PACKED:
        measure = lambda: _is_quicker_packed(rows, matrix.detach(), panels)
        _QUICKER_PACKED[key] = remembered("packed product", key, measure) is True
    return panels if _QUICKER_PACKED[key] else None


_QUICKER_PACKED: dict[Hashable, bool] = {}
"""The choices made so far, by everything that they depend on."""


def _is_quicker_packed(rows: int, matrix: torch.Tensor, panels: torch.Tensor) -> bool:
    inner, columns = matrix.shape
    x, bias, out = torch.ones(rows, inner), torch.ones(columns), torch.empty(rows, columns)
    own, swapped = _pytorchs_ways(x, matrix, bias, out)
    may_swap = matrix.stride(0) == 1 and _is_worth_swapping(rows, inner, columns)
    others = [own, swapped] if may_swap else [own]
    return prefers_generated(lambda: multiply_packed(x, panels, columns, bias, out), *others)
