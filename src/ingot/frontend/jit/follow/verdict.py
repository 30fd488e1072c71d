"""Whether following a function pays: calls take turns with plain ones, once everything they need has been compiled.

In: how long calls took, followed and not. Out: how each call is to be made. Following must be quicker by more than
noise, or the plain function runs. No verdict is for ever, unless following is far ahead: after some calls both ways
are measured again, and after that less and less often.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import torch

from ingot.base.logs import log
from ingot.frontend.jit.autotune.eager_comparison import EagerComparison
from ingot.frontend.jit.autotune.timing import stopwatch
from ingot.runtime.backends.interface import Stopwatch

QUIET_CALLS = 2
"""Calls in a row in which nothing was learned or compiled, before anything is measured."""
PATIENCE = 64
"""After this many calls a function that still learns is measured as it is: it may go on learning for ever."""
SHARE = 0.97
"""Share of the plain function's time that a followed call's must stay below to be preferred."""
FIRST_REST = {True: 4096, False: 64}
"""Calls before both ways are measured again, where the plain function won and where following did; each time four times
as many. Measuring plain calls costs a followed function little; measuring followed calls may cost a plain function a
lot."""
HANDED_ON = 32
"""How many calls native code gives to the plain function at once, before Python checks whether they bring more data."""


class Way(Enum):
    """How a call is made."""

    PLAIN = auto()
    FOLLOWED = auto()
    MEASURED = auto()
    """Plain or followed in turns, and timed."""


class Verdict:
    """The verdict on calls of one function that bring about as much data."""

    def __init__(self, hand_on: Callable[[int], None], is_compared: bool = True, name: str = "a function"):
        """`hand_on(calls)` is called when that many next calls should go to the plain function at once. Where the two
        ways are not compared, calls are followed."""
        self._hand_on = hand_on
        self._is_compared, self._name = is_compared, name
        self._rests = dict(FIRST_REST)
        self._begin()

    def _begin(self) -> None:
        self._comparison = EagerComparison() if self._is_compared else EagerComparison(rounds=0)
        self._quiet = self._calls = 0
        self._way = Way.MEASURED
        self._calls_left: float = 0
        """How many calls are left until both ways are measured again."""
        self.text: str | None = None
        """Why the plain function runs, if it does."""

    def way(self) -> Way:
        """How to make the next call."""
        if self._way is Way.MEASURED:
            return Way.MEASURED
        is_plain = self._way is Way.PLAIN
        self._calls_left -= HANDED_ON if is_plain else 1
        if self._calls_left <= 0:
            self._begin()
        elif is_plain:
            self._hand_on(HANDED_ON)
        return self._way

    def run(self, plain: Callable[[], Any], followed: Callable[[], tuple[Any, bool]]) -> Any:
        """Make a call in the way whose turn it is. `followed` also tells whether it learned or compiled something."""
        comparison = self._comparison
        watch = stopwatch(torch.device("cuda" if torch.cuda.is_initialized() else "cpu"))
        if comparison.is_eagers_turn:
            result = plain()
            comparison.eager.append(watch.stop())
        else:
            result, was_busy = followed()
            self._note(watch, was_busy)
        if comparison.is_settled:
            self._judge()
        return result

    def _note(self, watch: Stopwatch, was_busy: bool) -> None:
        self._calls += 1
        self._quiet = 0 if was_busy else self._quiet + 1
        if self._quiet >= QUIET_CALLS or self._calls >= PATIENCE:
            self._comparison.note_program(watch.stop())

    def _judge(self) -> None:
        comparison = self._comparison
        if comparison.rounds:
            log("perf", f"{self._name}, followed: {comparison.times}")
        if not comparison.rounds or comparison.is_program_far_ahead:
            self._way, self._calls_left = Way.FOLLOWED, math.inf
            return
        is_plain = not comparison.is_program_below(SHARE)
        self._way = Way.PLAIN if is_plain else Way.FOLLOWED
        self._calls_left = self._rests[is_plain]
        self._rests[is_plain] *= 4
        if is_plain:
            self.text = comparison.text
            self._hand_on(HANDED_ON)
