"""Locks and counts that hold in a forked child.

A child has one thread, the one that forked. What the other threads of its parent held at that moment would stay held
for ever: locks here are free in the child unless its own thread holds them, and a count of threads counts that thread
alone. What a lock guards is a Python object that changes in single steps, so the child can use it as it is.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any, TypeVar
from weakref import WeakSet

Value = TypeVar("Value")
_MISSING: Any = object()

_locks: WeakSet[Any] = WeakSet()
_counts: WeakSet[ThreadCount] = WeakSet()


def new_lock() -> threading.RLock:
    """A lock that the thread which holds it may take again."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


class ThreadCount:
    """How often threads are inside something, all together. Each entry has a token; entering or leaving twice with the
    same token counts once."""

    def __init__(self) -> None:
        self._threads: dict[object, int] = {}
        _counts.add(self)

    @property
    def total(self) -> int:
        return len(self._threads)

    @property
    def others(self) -> int:
        """How often other threads are inside."""
        own = threading.get_ident()
        return sum(thread != own for thread in list(self._threads.values()))

    def enter(self, token: object) -> None:
        self._threads[token] = threading.get_ident()

    def leave(self, token: object) -> None:
        self._threads.pop(token, None)

    def forget_others(self) -> None:
        own = threading.get_ident()
        self._threads = {token: thread for token, thread in self._threads.items() if thread == own}


class cached_property(functools.cached_property[Value]):
    """A property that is computed once, as from Python 3.12 on: before, all instances share a lock, which a forked
    child may find held, and which takes longer than most properties. Threads that ask at once may each compute it."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        values = instance.__dict__
        found = values.get(self.attrname, _MISSING)
        if found is _MISSING:
            found = values[self.attrname] = self.func(instance)
        return found


def _free_in_child() -> None:
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()
    for count in list(_counts):
        count.forget_others()


if hasattr(os, "register_at_fork"):  # where processes can fork
    os.register_at_fork(after_in_child=_free_in_child)
