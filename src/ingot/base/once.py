"""Things a process makes once, at first need, on any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, MutableMapping
from functools import wraps
from typing import Generic, TypeVar

from ingot.base.forks import new_lock

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


def once(make: Callable[[], Made]) -> Callable[[], Made]:
    """A function that makes its result at its first call, while other threads wait, and returns it ever after."""
    made: list[Made] = []
    lock = new_lock()

    @wraps(make)
    def get() -> Made:
        if not made:
            with lock:
                if not made:
                    made.append(make())
        return made[0]

    return get


class OncePerKey(Generic[Key, Made]):
    """Things made once for each key. Different keys are made at the same time, and a failure is tried again.

    What was made is kept in a mapping; if the mapping holds it weakly, it is made again after its last user has dropped
    it.
    """

    def __init__(self, made: MutableMapping[Key, Made] | None = None) -> None:
        self.made = {} if made is None else made
        self._lock = new_lock()
        self._in_progress: dict[Key, threading.RLock] = {}

    def get(self, key: Key, make: Callable[[], Made]) -> Made:
        """What was made for a key; made now if it is new, by one thread while others wait for it."""
        found = self.made.get(key)
        if found is not None:
            return found
        with self._lock:
            progress = self._in_progress.setdefault(key, new_lock())
        try:
            with progress:
                found = self.made.get(key)
                if found is None:
                    found = self.made[key] = make()
                return found
        finally:
            with self._lock:
                self._in_progress.pop(key, None)
