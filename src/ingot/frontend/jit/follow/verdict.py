"""Whether following a function pays: calls take turns with plain ones, once everything they need has been compiled.

In: how long calls took, followed and not. Out: whose turn it is, and the verdict. Where the plain function is quicker,
it runs from then on; after a good while following gets another chance, and after that less and less often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ingot.frontend.jit.autotune.eager_comparison import EagerComparison
from ingot.frontend.jit.autotune.timing import stopwatch
from ingot.runtime.backends.interface import Stopwatch

QUIET_CALLS = 2
"""Calls in a row in which nothing was learned or compiled, before anything is measured."""
PATIENCE = 64
"""Calls after which a function that still learns is taken to go on so for ever, and is measured as it is."""
SHARE = 0.97
"""Share of a followed call's time that the plain function's must stay below to be preferred."""
FIRST_REST = 4096
"""Calls that run as they are before following gets another chance; each time four times as many."""
HANDED_ON = 32
"""Calls that are given to the plain function at once, before somebody looks whether they have become larger."""


class Verdict:
    """The verdict on calls of one function that bring about as much data."""

    def __init__(self, hand_on: Callable[[int], None]):
        """`hand_on(calls)` is told that so many calls are best given to the plain function at once."""
        self._hand_on = hand_on
        self._rest = FIRST_REST
        self._begin()

    def _begin(self) -> None:
        self._comparison = EagerComparison()
        self._quiet = self._calls = 0
        self._resting = 0
        self.text: str | None = None
        """Why the plain function runs, if it does."""

    @property
    def is_open(self) -> bool:
        """Whether there is something left to measure."""
        return self.text is None and not self._comparison.is_settled

    def takes_plain(self) -> bool:
        """Whether this call runs as it is, because following does not pay."""
        if self.text is None:
            return False
        self._resting -= HANDED_ON
        if self._resting > 0:
            self._hand_on(HANDED_ON)
            return True
        self._begin()
        return False

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
        if comparison.is_over and comparison.rounds > 0:
            self._judge()
        return result

    def _note(self, watch: Stopwatch, was_busy: bool) -> None:
        self._calls += 1
        self._quiet = 0 if was_busy else self._quiet + 1
        if self._quiet >= QUIET_CALLS or self._calls >= PATIENCE:
            self._comparison.note_program(watch.stop())

    def _judge(self) -> None:
        comparison = self._comparison
        if min(map(float, comparison.eager)) < SHARE * min(map(float, comparison.program)):
            self.text = comparison.text
            self._resting = self._rest
            self._rest *= 4
            self._hand_on(HANDED_ON)
        comparison.is_warm = True
