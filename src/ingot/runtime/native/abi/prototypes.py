"""What a new tensor is to be like, as native code reads it: a few words that say everything but where its memory is."""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache

import torch

from ingot.runtime.native.assembler.structs import Field, Struct


class PrototypeWords(Struct):
    type: Field
    """Rank and dtype, as `type_word` packs them."""
    bytes: Field
    sizes: Field
    """The address of the sizes."""
    strides: Field
    """The address of the strides."""


_KINDS = {torch.bool: 6, torch.bfloat16: 4, torch.uint8: 1, torch.complex64: 5, torch.complex128: 5}
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
        torch.complex64,
        torch.complex128,
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
        self._extents = (ctypes.c_int64 * (2 * rank))(*shape, *row_major_strides(shape))
        self.sizes = ctypes.addressof(self._extents)
        """The address of the sizes."""
        self.strides = self.sizes + rank * 8
        self._words = PrototypeWords(
            type=type_word(dtype, rank), bytes=self.nbytes, sizes=self.sizes, strides=self.strides
        )
        self.address = self._words.address


@lru_cache(maxsize=1024)
def prototype(shape: tuple[int, ...], dtype: torch.dtype) -> Prototype:
    return Prototype(shape, dtype)
