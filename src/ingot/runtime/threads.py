"""Threads: those of the OpenMP runtime that torch itself uses, so that nothing is oversubscribed."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path

import torch

from ingot.codegen.llvm.host import add_symbol

_forked = False
"""Whether this process was forked from one that may have had a team of threads: the team is not there any more."""


def _mark_forked() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_mark_forked)


def thread_count() -> int:
    """How many threads a kernel may use: as many as torch, and one after a fork, where starting a team would hang."""
    return 1 if _forked or not bind_openmp() else torch.get_num_threads()


_SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


@lru_cache(maxsize=1)
def bind_openmp() -> bool:
    """Make torch's OpenMP runtime callable from generated code; False where torch brings none."""
    for library in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*")):
        handle = ctypes.CDLL(str(library))
        for name in _SYMBOLS:
            address = ctypes.cast(getattr(handle, name), ctypes.c_void_p).value
            assert address is not None
            add_symbol(name, address)
        return True
    return False
