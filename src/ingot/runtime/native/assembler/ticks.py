"""The clock that native calls are timed by. Every call reads it twice.

In: a routine. Out: its moment in ticks, and what ticks are in seconds. On x86 a tick is one of the processor's own
counter, which is read in less than half the time that asking the system takes; how long a tick is, is measured with the
system's clock when a statistic is first read. Other processors do not let every program read such a counter: there
ticks are nanoseconds.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from ingot.base.once import once
from ingot.codegen.llvm.host import host
from ingot.runtime.native.assembler.addresses import system_function
from ingot.runtime.native.assembler.routines import Library, Routine, Word

_COMPARED_NANOSECONDS = 2_000_000
"""How long both clocks are compared to measure a tick."""
_TRIES = 20


def now(routine: Routine) -> Word:
    """The time in ticks, from some moment on."""
    if _has_counter():
        return routine.cycles()
    cells = routine.stack(2)
    routine.call(system_function("clock_gettime", 32), time.CLOCK_MONOTONIC, cells)
    return routine.add(routine.multiply(routine.load(cells, 0), 1_000_000_000), routine.load(cells, 1))


def seconds(ticks: int) -> float:
    """How long so many ticks take."""
    return ticks * _tick() * 1e-9


def _has_counter() -> bool:
    return host().triple.startswith("x86_64")


@once
def _tick() -> float:
    """Nanoseconds."""
    if not _has_counter():
        return 1.0
    library = Library("clock")
    routine = library.routine("read", 0)
    routine.give_back(now(routine))
    library.compile()
    read = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("read"))
    first_ticks, first = _moment(read)
    while time.perf_counter_ns() - first < _COMPARED_NANOSECONDS:
        pass
    last_ticks, last = _moment(read)
    return (last - first) / (last_ticks - first_ticks)


def _moment(read: Callable[[], int]) -> tuple[int, float]:
    """Both clocks at one moment: of several tries the one that took the least time."""
    tries = [(time.perf_counter_ns(), read(), time.perf_counter_ns()) for _ in range(_TRIES)]
    before, ticks, after = min(tries, key=lambda moment: moment[2] - moment[0])
    return ticks, (before + after) / 2
