"""Putting off Python's garbage collection while something is compiled.

Compiling makes many small objects, most of which stay, so Python begins to look for garbage among all objects of the
process: with a few large packages loaded that takes longer than compiling a kernel. It comes later instead. Importing
makes objects of which all stay: these need not be looked at by the next collection either.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ingot.base.forks import ThreadCount, new_lock

_lock = new_lock()
_compiling = ThreadCount()
_was_enabled = False


@contextmanager
def importing() -> Iterator[None]:
    """A block that imports modules: no collection starts by itself, and what it has made counts as old afterwards."""
    with collecting_later():
        yield
        if _compiling.total == 1 and gc.get_freeze_count() == 0:
            gc.freeze()  # all there is, without a look at it,
            gc.unfreeze()  # goes to the oldest objects


@contextmanager
def collecting_later() -> Iterator[None]:
    """A block in which no collection starts by itself, in any thread; if collection was off before, it stays off."""
    token = object()
    try:
        _begin(token)
        yield
    finally:
        try:
            _end(token)
        except KeyboardInterrupt:  # in the middle of it, or before it began
            _end(token)
            raise


def _begin(token: object) -> None:
    global _was_enabled
    with _lock:
        if _compiling.total == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _compiling.enter(token)


def _end(token: object) -> None:
    with _lock:
        _compiling.leave(token)
        _collect_again()


def _collect_again() -> None:
    global _was_enabled
    if _compiling.total == 0 and _was_enabled:
        gc.enable()
        _was_enabled = False  # a later block that is interrupted before it begins must not use it


if hasattr(os, "register_at_fork"):  # the threads that were compiling are not in the child
    os.register_at_fork(after_in_child=_collect_again)
