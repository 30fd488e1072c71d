"""What a new tensor is to be like, as native code reads it: a few words that say everything but where its memory is."""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache

import torch

PROTOTYPE_TYPE, PROTOTYPE_BYTES, PROTOTYPE_SIZES, PROTOTYPE_STRIDES = range(4)
_HEADER_WORDS = 4

_KINDS = {torch.bool: 6, torch.bfloat16: 4, torch.uint8: 1}
"""DLPack's codes for dtypes that are neither signed integers (0) nor plain floating point (2)."""
DTYPES = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)
"""The dtypes native code knows."""


def type_word(dtype: torch.dtype, rank: int) -> int:
    """A tensor's rank and dtype in one word, as they lie side by side in a DLTensor."""
    kind = _KINDS.get(dtype, 2 if dtype.is_floating_point else 0)
    return rank | kind << 32 | dtype.itemsize * 8 << 40 | 1 << 48


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements, as torch gives them to a new tensor."""
    return tuple(math.prod(max(size, 1) for size in shape[axis + 1 :]) for axis in range(len(shape)))


class Prototype:
    """The words of one kind of tensor: row-major, of one shape and dtype."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype):
        rank = len(shape)
        self.shape, self.dtype = shape, dtype
        self.nbytes = math.prod(shape) * dtype.itemsize
        self._words = (ctypes.c_int64 * (_HEADER_WORDS + 2 * rank))()
        self.address = ctypes.addressof(self._words)
        self.sizes = self.address + _HEADER_WORDS * 8
        """Where they are."""
        self.strides = self.sizes + rank * 8
        header = type_word(dtype, rank), self.nbytes, self.sizes, self.strides
        self._words[:] = [*header, *shape, *row_major_strides(shape)]


@lru_cache(maxsize=1024)
def prototype(shape: tuple[int, ...], dtype: torch.dtype) -> Prototype:
    return Prototype(shape, dtype)
