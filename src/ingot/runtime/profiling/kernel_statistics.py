"""What kernels cost: launches, bytes, seconds, and how much of what the machine can do that is.

In: tallies of runs, and functions whose calls are to be timed. Out: frozen records. The speed of a device's memory is
measured once, when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ingot.base.forks import new_lock
from ingot.ir.interpreter import Spent, bytes_of, clock

_PROBE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class KernelStatistics:
    """What all launches of one kernel, or of one operation that PyTorch computes, have cost."""

    name: str
    launches: int
    bytes_moved: int | None = None
    seconds: float | None = None
    """None where times were not asked for: `enable_profiling` in the configuration does."""

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second; None where nothing was timed."""
        if self.bytes_moved is None or not self.seconds:
            return None
        return self.bytes_moved / self.seconds

    def __add__(self, other: KernelStatistics) -> KernelStatistics:
        """Both together: one kernel may be part of several modules."""
        moved = [one.bytes_moved for one in (self, other) if one.bytes_moved is not None]
        seconds = [one.seconds for one in (self, other) if one.seconds is not None]
        launches = self.launches + other.launches
        return KernelStatistics(self.name, launches, sum(moved) if moved else None, sum(seconds) if seconds else None)


class CallCosts:
    """What calls of one function have cost, added up. Threads may add to it."""

    def __init__(self, name: str):
        self._name = name
        self._spent, self._lock = Spent(), new_lock()

    def add(self, bytes_moved: int, seconds: float) -> None:
        with self._lock:
            self._spent.launches += 1
            self._spent.bytes_moved += bytes_moved
            self._spent.seconds += seconds

    @property
    def statistics(self) -> KernelStatistics:
        spent = self._spent
        return KernelStatistics(self._name, spent.launches, spent.bytes_moved, spent.seconds)


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A function that is called as it is, and whose calls are timed."""

    function: Callable[..., Any]
    costs: CallCosts
    device: torch.device

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = clock(self.device)
        result = self.function(*args, **kwargs)
        seconds = clock(self.device) - start
        given = [value for name, value in kwargs.items() if name != "out"]
        self.costs.add(bytes_of([*args, *given, result]), seconds)
        return result


@cache
def memory_speed(device: torch.device) -> float:
    """Bytes a second that copying moves on a device."""
    source, target = torch.ones(_PROBE_BYTES // 4, device=device), torch.empty(_PROBE_BYTES // 4, device=device)
    best = float("inf")
    for _ in range(4):
        start = clock(device)
        target.copy_(source)
        best = min(best, clock(device) - start)
    return 2 * _PROBE_BYTES / best
