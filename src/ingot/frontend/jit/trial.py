"""A trial: the first calls of a new program take turns with eager ones, and the quicker way is kept.

In: how long calls took, one way and the other. Out: whose turn it is, and the verdict. Every call runs once, in one of
the ways, so a trial costs no more than the difference between them. The best of a few calls counts: what disturbs a
measurement only ever makes it longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ROUNDS = 5
"""Calls each way."""
CLEARLY = 0.9
"""Share of the program's time that eager's must stay below to be preferred."""


@dataclass(slots=True)
class Trial:
    """Seconds that calls took."""

    program: list[float] = field(default_factory=list)
    eager: list[float] = field(default_factory=list)
    rounds: int = field(default_factory=lambda: ROUNDS)
    is_warm: bool = False
    """Whether the program has run; kernels are compiled in its first run, which does not count."""

    @property
    def is_over(self) -> bool:
        return len(self.program) >= self.rounds and len(self.eager) >= self.rounds

    @property
    def is_eagers_turn(self) -> bool:
        return self.is_warm and not self.is_over and len(self.eager) <= len(self.program)

    @property
    def prefers_eager(self) -> bool:
        return self.rounds > 0 and self.is_over and min(self.eager) < CLEARLY * min(self.program)

    def note_program(self, seconds: float) -> None:
        """A call that the program answered."""
        if self.is_warm and not self.is_over:
            self.program.append(seconds)
        self.is_warm = True

    @property
    def text(self) -> str:
        best = f"{min(self.eager) * 1e6:.3g} us against {min(self.program) * 1e6:.3g}"
        return f"eager PyTorch is quicker here, {best}"
