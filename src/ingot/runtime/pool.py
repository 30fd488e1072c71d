"""Memory for large results: recycled blocks, because fresh memory costs more than the work on it.

The kernel hands out fresh pages one fault at a time; for a simple operation on large tensors that is most of the time.
Blocks of dead results are kept here and given out again. They are mapped in huge pages where the system has them.
Small results come from torch's own allocator, which recycles those itself.
"""

from __future__ import annotations

import mmap
import threading
from dataclasses import dataclass

import numpy
import torch

SMALLEST = 1 << 20
"""Results below this size are left to torch."""
CAPACITY = 4 << 30
"""Bytes of idle blocks that are kept; more are given back to the system."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    bytes_in_use: int
    bytes_idle: int
    allocations: int
    reuses: int


class _Block:
    """Memory that goes back to its pool when the last tensor on it dies."""

    __slots__ = ("__weakref__", "memory", "pool")

    def __init__(self, pool: Pool, memory: mmap.mmap):
        self.pool = pool
        self.memory = memory

    @property
    def __array_interface__(self) -> dict[str, object]:
        """How numpy, and through it torch, takes the memory and keeps this object alive with it."""
        address = numpy.frombuffer(self.memory, dtype=numpy.uint8).__array_interface__["data"]
        return {"data": address, "shape": (len(self.memory),), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self.pool.take_back(self.memory)


class Pool:
    """Blocks by size class. Safe from any thread: a tensor may die anywhere."""

    def __init__(self, capacity: int = CAPACITY):
        self._capacity = capacity
        self._idle: dict[int, list[mmap.mmap]] = {}
        self._idle_bytes = 0
        self._used_bytes = 0
        self._allocations = 0
        self._reuses = 0
        self._lock = threading.RLock()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor, row-major, in recycled memory if it is large."""
        count = 1
        for size in shape:
            count *= size
        nbytes = count * dtype.itemsize
        if nbytes < SMALLEST:
            return torch.empty(shape, dtype=dtype)
        block = _Block(self, self._memory(size_class(nbytes)))
        flat = torch.from_numpy(numpy.asarray(block))
        return flat[:nbytes].view(dtype).view(shape)

    def take_back(self, memory: mmap.mmap) -> None:
        size = len(memory)
        with self._lock:
            self._used_bytes -= size
            if self._idle_bytes + size <= self._capacity:
                self._idle.setdefault(size, []).append(memory)
                self._idle_bytes += size

    def statistics(self) -> PoolStatistics:
        with self._lock:
            return PoolStatistics(self._used_bytes, self._idle_bytes, self._allocations, self._reuses)

    def empty_cache(self) -> None:
        """Give all idle blocks back to the system."""
        with self._lock:
            self._idle.clear()
            self._idle_bytes = 0

    def _memory(self, size: int) -> mmap.mmap:
        with self._lock:
            self._allocations += 1
            self._used_bytes += size
            idle = self._idle.get(size)
            if idle:
                self._reuses += 1
                self._idle_bytes -= size
                return idle.pop()
        memory = mmap.mmap(-1, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memory


def size_class(nbytes: int) -> int:
    """The size of the block for a request: four classes per power of two, so at most a fifth of a block is wasted."""
    step = max(1 << (nbytes - 1).bit_length() - 3, mmap.PAGESIZE)
    return -(-nbytes // step) * step
