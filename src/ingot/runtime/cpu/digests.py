"""Whether tensors hold the bits that they held: compared by digests, which costs reading them once.

In: tensors on the CPU without gaps. Out: what they held, as digests; equal ones say that no bit has changed. Tensors'
own counters do not tell that: they do not count what is written through `.data`, numpy or other libraries.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from ingot.codegen.cpu.digests import DigestWord, compiled_digest
from ingot.runtime.disk_cache.process import process_functions
from ingot.runtime.profiling.ranges import in_range
from ingot.runtime.threads import bind_openmp, thread_count

PIECE = 1 << 17
"""Bytes that a thread digests at a time."""
_Words = ctypes.c_int64 * len(DigestWord)


@lru_cache(maxsize=1)
def _function() -> Callable[[Any], None]:
    bind_openmp()
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(compiled_digest(process_functions()).digest)


def can_digest(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be compared: its elements are bits in memory that nothing lies between."""
    is_plain = tensor.layout is torch.strided and not tensor.is_conj() and not tensor.is_neg()
    return is_plain and tensor.device.type == "cpu" and tensor.is_contiguous()


class Digests:
    """Digests of some tensors, wherever they lie at the time. Threads may share it."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self._tensors = tuple(tensors)
        self.nbytes = sum(tensor.nbytes for tensor in tensors)
        self._pieces: tuple[list[int], Any, int] | None = None
        """Where the tensors were when that was last looked at; for each piece its address and its bytes; how many."""

    def now(self) -> bytes:
        """What the tensors hold; nothing is equal to that of tensors whose memory was given back."""
        places = [tensor.data_ptr() for tensor in self._tensors]
        if 0 in places and any(tensor.nbytes for tensor in self._tensors if not tensor.data_ptr()):
            return b""
        known = self._pieces
        if known is None or known[0] != places:
            known = self._pieces = places, *self._cut(places)
        _, pieces, count = known
        digests = (ctypes.c_int64 * count)()
        words = _Words()
        words[DigestWord.PIECES_ADDRESS] = ctypes.addressof(pieces)
        words[DigestWord.DIGESTS_ADDRESS] = ctypes.addressof(digests)
        words[DigestWord.PIECES] = count
        words[DigestWord.THREADS] = thread_count()
        in_range("compare_weights", _function(), words)
        return bytes(digests)

    def _cut(self, places: Sequence[int]) -> tuple[Any, int]:
        found = [
            word
            for place, tensor in zip(places, self._tensors, strict=True)
            for begin in range(0, tensor.nbytes, PIECE)
            for word in (place + begin, min(PIECE, tensor.nbytes - begin))
        ]
        return (ctypes.c_int64 * len(found))(*found), len(found) // 2
