"""The memory of results: how much of it there is, and how much may lie idle.

Results of generated kernels live in a pool of recycled blocks. `stats()` tells what it holds, `empty_cache()` gives
what lies idle back to the system, `set_capacity(nbytes)` bounds what may lie idle.
"""

from __future__ import annotations

from ingot.base.errors import ArgumentValueError
from ingot.runtime.native.memory.pool import MemoryStatistics, pool

__all__ = ["MemoryStatistics", "empty_cache", "set_capacity", "stats"]


def stats() -> MemoryStatistics:
    """What the pool holds and has done so far in this process."""
    memory = pool()
    return MemoryStatistics(0, 0, 0, 0, 0, 0) if memory is None else memory.statistics()


def empty_cache() -> None:
    """Give all idle memory back to the system. Results that are alive keep theirs."""
    memory = pool()
    if memory is not None:
        memory.empty_cache()


def set_capacity(nbytes: int) -> None:
    """Keep at most so many bytes idle, from now on; 0 keeps none, so that every result has fresh memory."""
    if not isinstance(nbytes, int) or isinstance(nbytes, bool) or not 0 <= nbytes < 1 << 63:
        raise ArgumentValueError(f"a capacity is a number of bytes, 0 or more, not {nbytes!r}")
    memory = pool()
    if memory is not None:
        memory.set_capacity(nbytes)
