"""Bringing LLVM's tables into memory ahead of the compilations that need them.

LLVM chooses instructions by tables of tens of megabytes. They are part of its library's file, and each page of them is
brought in when a compilation first touches it, which adds a third to the time of the first kernels of a process, more
on virtual machines. Linux can do that in one go, on a thread of its own, while the first kernel is being compiled.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from functools import lru_cache

from llvmlite.binding import ffi

_POPULATE_READ = 22
"""MADV_POPULATE_READ, since Linux 5.14; older systems refuse it, and pages come in one by one."""


@lru_cache(maxsize=1)
def bring_in_tables() -> threading.Thread | None:
    """Start doing so, once per process."""
    if not sys.platform.startswith("linux"):
        return None
    thread = threading.Thread(target=_populate, name="ingot: LLVM's tables", daemon=True)
    thread.start()
    return thread


def _populate() -> None:
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        with open("/proc/self/maps") as maps:
            lines = [line for line in maps if ffi.lib._name in line and " r--p " in line]
    except OSError:
        return
    for line in lines:
        first, last = (int(address, 16) for address in line.split()[0].split("-"))
        advise(first, last - first, _POPULATE_READ)
