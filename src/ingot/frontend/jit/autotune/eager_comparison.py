"""The comparison with eager: the first calls of a new program take turns with eager ones, and the quicker is kept.

In: how long calls of the program and eager calls took (timing.py). Out: which of the two runs the next call, and the
verdict. Every call runs once, so the comparison costs no more than the difference between the two. The best of a few
calls counts: a disturbance can only make a measurement longer. The comparison ends as soon as one side is far ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import SupportsFloat

from ingot.runtime.profiling.ranges import is_profiled

ROUNDS = 5
"""Calls each way."""
CLEARLY = 0.9
"""Share of the program's time that eager's must stay below to be preferred."""
_FAR_AHEAD = 2.0
"""A side that is this many times as quick need not be measured again."""
_PAIRS_FOR_EAGER = 2
"""Calls each way before eager is taken to be far ahead: a program's first calls find caches cold that eager's left."""
_SHORT = 1e-4
"""Calls shorter than this, in seconds, are all measured: an interrupt of the machine makes them twice as long."""


@dataclass(slots=True)
class EagerComparison:
    """Seconds that calls took, or what becomes seconds when it is asked for them."""

    program: list[SupportsFloat] = field(default_factory=list)
    eager: list[SupportsFloat] = field(default_factory=list)
    rounds: int = field(default_factory=lambda: ROUNDS)
    is_warm: bool = False
    """Whether the program has run; kernels are compiled in its first run, which does not count."""
    verdict: bool | None = None
    """Whether eager is preferred, once that is known."""

    @property
    def is_over(self) -> bool:
        pairs = min(len(self.program), len(self.eager))
        return pairs >= self.rounds or (pairs > 0 and self._is_clear(pairs))

    def _is_clear(self, pairs: int) -> bool:
        """Whether one way is far ahead; a GPU is not waited for to find out."""
        if not all(isinstance(seconds, float) for seconds in (*self.program, *self.eager)):
            return False
        if min(_best(self.eager), _best(self.program)) < _SHORT:
            return False
        is_eager_far_ahead = _best(self.eager) * _FAR_AHEAD <= _best(self.program)
        return self.is_program_far_ahead or (pairs >= _PAIRS_FOR_EAGER and is_eager_far_ahead)

    def is_program_below(self, share: float) -> bool:
        """Whether the program takes less than a share of eager's time."""
        return _best(self.program) < share * _best(self.eager)

    @property
    def is_program_far_ahead(self) -> bool:
        return _best(self.program) * _FAR_AHEAD <= _best(self.eager)

    @property
    def is_settled(self) -> bool:
        """Whether the program has run and there is nothing left to measure."""
        return self.is_warm and self.is_over

    @property
    def is_eagers_turn(self) -> bool:
        return self.is_warm and not self.is_over and len(self.eager) <= len(self.program) and not is_profiled()

    @property
    def prefers_eager(self) -> bool:
        if self.verdict is None and self.is_over:
            self.verdict = self.rounds > 0 and _best(self.eager) < CLEARLY * _best(self.program)
        return bool(self.verdict)

    def note_program(self, seconds: SupportsFloat) -> None:
        """A call that the program answered. Under a profiler it takes a slower way, and does not count."""
        if self.is_warm and not self.is_over and not is_profiled():
            self.program.append(seconds)
        self.is_warm = True

    @property
    def text(self) -> str:
        best = f"{_best(self.eager) * 1e6:.3g} us against {_best(self.program) * 1e6:.3g}"
        return f"eager PyTorch is quicker here, {best}"

    @property
    def times(self) -> str:
        """What both ways took at best, in words."""
        return f"compiled calls take {_best(self.program) * 1e6:.3g} us, eager ones {_best(self.eager) * 1e6:.3g}"


def _best(times: list[SupportsFloat]) -> float:
    return min(map(float, times))
