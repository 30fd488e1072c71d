"""Products of matrices by generated code: x times a matrix, plus a bias, into given memory.

In: tensors of float32 on the CPU. Out: the results, written. A matrix that stays the same is packed once, as panels;
one that may change is packed in every call, into memory that was used before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import torch

from ingot.codegen.cpu.products import CompiledProducts, ProductTile, ProductWord, compiled_products
from ingot.runtime.disk_cache.process import process_functions
from ingot.runtime.native.memory.pool import empty
from ingot.runtime.profiling.ranges import in_range
from ingot.runtime.threads import bind_openmp, thread_count

_Words = ctypes.c_int64 * len(ProductWord)
_BYTES = torch.float32.itemsize
_Function = Callable[[ctypes.Array[ctypes.c_int64]], None]


class _Functions:
    """The generated functions, as Python calls them: without the GIL."""

    def __init__(self, compiled: CompiledProducts):
        self.tile: ProductTile = compiled.tile
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.multiply: _Function = kind(compiled.multiply)
        self.pack_transposed: _Function = kind(compiled.pack_transposed)
        self.pack_straight: _Function = kind(compiled.pack_straight)


@lru_cache(maxsize=1)
def _functions() -> _Functions:
    bind_openmp()
    return _Functions(compiled_products(process_functions()))


def can_pack(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a matrix of inner x columns lies so that it can be packed: dense along one of its axes."""
    (inner, columns), (down, along) = shape, strides
    return (along == 1 and down >= columns) or (down == 1 and along >= inner)


def pack(matrix: torch.Tensor) -> torch.Tensor:
    """The panels of a matrix of inner x columns."""
    inner, columns = matrix.shape
    panels = torch.empty(_functions().tile.panel_floats(columns, inner))
    _pack(matrix, _Words(0, 0, panels.data_ptr(), 0, 0, 0, *_place(matrix), 0, columns, inner, thread_count(), 0))
    return panels


def multiply_packed(
    x: torch.Tensor, panels: torch.Tensor, columns: int, bias: torch.Tensor | None, out: torch.Tensor
) -> torch.Tensor:
    """x times a matrix of so many columns, by its panels; both x and `out` may have any number of axes."""
    inner = x.shape[-1]
    rows = _rows(x)
    in_range("multiply", _functions().multiply, _words(rows, panels, bias, out, (0, 0), columns, inner))
    return out


def multiply(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> torch.Tensor:
    """x times a matrix of inner x columns, as it is now."""
    functions = _functions()
    inner, columns = matrix.shape
    panels = empty((functions.tile.panel_floats(columns, inner),), torch.float32)
    rows = _rows(x)
    words = _words(rows, panels, bias, out, _place(matrix), columns, inner)
    _pack(matrix, words)
    in_range("multiply", functions.multiply, words)
    return out


def _pack(matrix: torch.Tensor, words: ctypes.Array[ctypes.c_int64]) -> None:
    functions = _functions()
    if matrix.stride(1) == 1:
        in_range("pack_straight", functions.pack_straight, words)
    else:
        in_range("pack_transposed", functions.pack_transposed, words)


def _place(matrix: torch.Tensor) -> tuple[int, int]:
    """Where a matrix is, and how many bytes its rows are apart, as they lie."""
    down, along = matrix.stride()
    return matrix.data_ptr(), _BYTES * (down if along == 1 else along)


def _rows(x: torch.Tensor) -> torch.Tensor:
    """A tensor of any number of axes as one of dense rows: itself, where it is that already, or a copy."""
    return x if x.is_contiguous() or (x.dim() == 2 and x.stride(1) == 1) else x.contiguous()


def _words(
    rows: torch.Tensor,
    panels: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    weights: tuple[int, int],
    columns: int,
    inner: int,
) -> ctypes.Array[ctypes.c_int64]:
    """In the order of `ProductWord`: written at once, which takes Python a fifth of the time of one by one.

    Only a matrix may have rows that are further apart than they are long. An axis of one element may have any stride.
    """
    return _Words(
        *(rows.data_ptr(), _BYTES * (rows.stride(0) if rows.dim() == 2 else inner)),
        *(panels.data_ptr(), 0 if bias is None else bias.data_ptr()),
        *(out.data_ptr(), _BYTES * (out.stride(0) if out.dim() == 2 else columns)),
        *(*weights, out.numel() // columns if columns else 0, columns, inner, thread_count(), 0),
    )
