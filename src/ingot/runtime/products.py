"""Products of matrices by generated code: x times a matrix, plus a bias, into given memory.

In: tensors of float32 on the CPU. Out: the results, written. A matrix that stays the same is packed once, as panels;
one that may change is packed in every call, into memory that was used before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import torch

from ingot.codegen.llvm.products import CompiledProducts, Tile, Word, compiled_products
from ingot.runtime.native.pool import empty
from ingot.runtime.threads import bind_openmp, thread_count

_Words = ctypes.c_int64 * len(Word)
_Function = Callable[[ctypes.Array[ctypes.c_int64]], None]


class _Functions:
    """The generated functions, as Python calls them: without the GIL."""

    def __init__(self, compiled: CompiledProducts):
        self.tile: Tile = compiled.tile
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.multiply: _Function = kind(compiled.multiply)
        self.pack_turned: _Function = kind(compiled.pack_turned)
        self.pack_straight: _Function = kind(compiled.pack_straight)

    def pack(self, matrix: torch.Tensor, words: ctypes.Array[ctypes.c_int64]) -> None:
        """Put a matrix of inner x columns into panels, whose address stands in the words."""
        is_turned = matrix.stride(1) != 1
        words[Word.WEIGHTS_ADDRESS] = matrix.data_ptr()
        words[Word.WEIGHTS_STRIDE] = matrix.stride(1 if is_turned else 0) * matrix.itemsize
        (self.pack_turned if is_turned else self.pack_straight)(words)


@lru_cache(maxsize=1)
def _functions() -> _Functions:
    bind_openmp()
    return _Functions(compiled_products())


def can_pack(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a matrix of inner x columns lies so that it can be packed: dense along one of its axes."""
    (inner, columns), (down, along) = shape, strides
    return (along == 1 and down >= columns) or (down == 1 and along >= inner)


def pack(matrix: torch.Tensor) -> torch.Tensor:
    """The panels of a matrix of inner x columns."""
    functions = _functions()
    inner, columns = matrix.shape
    panels = torch.empty(functions.tile.panel_floats(columns, inner))
    functions.pack(matrix, _words(panels, columns, inner))
    return panels


def multiply_packed(
    x: torch.Tensor, panels: torch.Tensor, columns: int, bias: torch.Tensor | None, out: torch.Tensor
) -> torch.Tensor:
    """x times a matrix of so many columns, by its panels; both x and `out` may have any number of axes."""
    words = _words(panels, columns, x.shape[-1])
    _multiply(words, x, bias, out)
    return out


def multiply(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> torch.Tensor:
    """x times a matrix of inner x columns, as it is now."""
    functions = _functions()
    inner, columns = matrix.shape
    panels = empty((functions.tile.panel_floats(columns, inner),), torch.float32)
    words = _words(panels, columns, inner)
    functions.pack(matrix, words)
    _multiply(words, x, bias, out)
    return out


def _words(panels: torch.Tensor, columns: int, inner: int) -> ctypes.Array[ctypes.c_int64]:
    """The words of a product whose rows are not known yet."""
    words = _Words()
    words[Word.PANELS_ADDRESS] = panels.data_ptr()
    words[Word.COLUMNS] = columns
    words[Word.INNER] = inner
    words[Word.THREADS] = thread_count()
    return words


def _multiply(
    words: ctypes.Array[ctypes.c_int64], x: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor
) -> None:
    rows = x if x.dim() == 2 and x.stride(1) == 1 else x.reshape(-1, x.shape[-1]).contiguous()
    words[Word.ROWS_ADDRESS] = rows.data_ptr()
    words[Word.ROWS_STRIDE] = rows.stride(0) * rows.itemsize
    words[Word.ROWS] = rows.shape[0]
    if bias is not None:
        words[Word.BIAS_ADDRESS] = bias.data_ptr()
    words[Word.RESULTS_ADDRESS] = out.data_ptr()
    words[Word.RESULTS_STRIDE] = out.stride(-2) * out.itemsize if out.dim() > 1 else 0
    _functions().multiply(words)
