"""Things a process makes once, at first need, whichever thread needs them first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Made = TypeVar("Made")


def once(make: Callable[[], Made]) -> Callable[[], Made]:
    """A function that makes its result at its first call, while other threads wait, and returns it ever after."""
    made: list[Made] = []
    lock = threading.Lock()

    @wraps(make)
    def get() -> Made:
        if not made:
            with lock:
                if not made:
                    made.append(make())
        return made[0]

    return get
