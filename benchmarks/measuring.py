"""How time is taken: contestants take turns, round by round, and the median of the rounds counts.

In: named calls. Out: seconds a call, per contestant. Turns, because a machine that is shared slows down and speeds up
from one second to the next: what disturbs one contestant in a round disturbs the others as well.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

Call = Callable[[], object]
Clock = Callable[[Call, int], float]
"""Takes a call and how often to make it, gives the seconds one call takes."""


@dataclass(frozen=True)
class Contestant:
    call: Call
    prepare: Call | None = None
    """Done before its turn in every round, outside the measured time."""


@dataclass(frozen=True)
class Timing:
    """Seconds a call, one figure per round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def best(self) -> float:
        return min(self.rounds)


@dataclass(frozen=True)
class Effort:
    """How much measuring is done."""

    rounds: int
    shortest_turn: float
    """Seconds a turn lasts at least: calls that are shorter are repeated until it is over."""


def seconds(call: Call, repeats: int = 1) -> float:
    """Seconds a call takes, on average over calls in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


class Race:
    """Every contestant measured in every round. Each is called before the first round, so that nothing is new to it."""

    def __init__(self, contestants: Mapping[str, Contestant], effort: Effort, clock: Clock = seconds):
        self._contestants = contestants
        self._effort = effort
        self._clock = clock
        self._repeats: dict[str, int] = {}
        for name, contestant in contestants.items():
            _prepare(contestant)
            contestant.call()
            self._repeats[name] = _calls_in_a_turn(contestant.call, effort.shortest_turn, clock)
        self._spent: dict[str, list[float]] = {name: [] for name in contestants}

    def run(self) -> None:
        """All rounds of the effort; once more, where it is called again."""
        for _ in range(self._effort.rounds):
            for name, contestant in self._contestants.items():
                _prepare(contestant)
                self._spent[name].append(self._clock(contestant.call, self._repeats[name]))

    @property
    def timings(self) -> dict[str, Timing]:
        return {name: Timing(tuple(spent)) for name, spent in self._spent.items()}


def race(contestants: Mapping[str, Contestant], effort: Effort, clock: Clock = seconds) -> dict[str, Timing]:
    """What a race gives that is run once."""
    once = Race(contestants, effort, clock)
    once.run()
    return once.timings


def geometric_mean(ratios: Iterable[float]) -> float:
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def _prepare(contestant: Contestant) -> None:
    if contestant.prepare is not None:
        contestant.prepare()


def _calls_in_a_turn(call: Call, shortest_turn: float, clock: Clock) -> int:
    repeats = 1
    # Twice, because a call that is slow once says nothing of the next one.
    while (spent := min(clock(call, repeats) for _ in range(2)) * repeats) < shortest_turn:
        # Approached in steps, because the first calls of a kind are slower than the rest.
        repeats = max(repeats + 1, min(repeats * 10, math.ceil(repeats * shortest_turn / spent)))
    return repeats
