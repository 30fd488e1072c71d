"""Putting off Python's garbage collection while something is compiled.

Compiling makes many small objects, most of which stay, so Python begins to look for garbage among all objects of the
process: with a few large packages loaded that takes longer than compiling a kernel. It comes later instead. Importing,
and what a process compiles first, make objects most of which stay: these need not be looked at by the next collection
either.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from operator import call

from ingot.base.forks import ThreadCount, new_lock

_lock = new_lock()
_compiling = ThreadCount()
_was_enabled = False
_MOST_AGED = 16
"""After how many blocks that compile all objects count as old. They do not count towards the next full collection:
done at every block, garbage among them might never be collected."""
_aged = 0


@contextmanager
def importing() -> Iterator[None]:
    """A block that imports modules: no collection starts by itself, and what it has made counts as old afterwards."""
    with collecting_later():
        yield
        if _compiling.total == 1:
            _age()


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


def _age() -> None:
    """Let all objects count as old, unless the program has frozen some."""
    if gc.get_freeze_count() == 0:
        # All there is, without a look at it, goes to the frozen objects, and these to the oldest. An interrupt between
        # the two would leave them frozen, so this is one native call.
        list(map(call, (gc.freeze, gc.unfreeze)))


def _collect_again() -> None:
    global _was_enabled, _aged
    if _compiling.total == 0 and _was_enabled:
        if _aged < _MOST_AGED:
            _aged += 1
            _age()
        gc.enable()
        _was_enabled = False  # a later block that is interrupted before it begins must not use it


if hasattr(os, "register_at_fork"):  # the threads that were compiling are not in the child
    os.register_at_fork(after_in_child=_collect_again)
