"""Which of two ways is quicker: measured, where nothing else tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_ROUNDS = 5
CLEARLY = 0.9
"""Share of the plain way's time that the other must stay below."""


def seconds_of(*ways: Callable[[], Any]) -> tuple[float, ...]:
    """What each way takes: the best of a few calls in turns."""
    best = [float("inf")] * len(ways)
    for _ in range(_ROUNDS):
        for number, way in enumerate(ways):
            start = time.perf_counter()
            way()
            best[number] = min(best[number], time.perf_counter() - start)
    return tuple(best)


def is_clearly_quicker(candidate: Callable[[], Any], plain: Callable[[], Any]) -> bool:
    """Whether one way takes clearly less time than the other."""
    taken, allowed = seconds_of(candidate, plain)
    return taken < CLEARLY * allowed
