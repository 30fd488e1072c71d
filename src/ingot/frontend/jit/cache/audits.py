"""When calls that a recording would answer are audited: Python runs as well, and is compared with the recording.

In: how many calls a recording has answered, and what audits of it have cost. Out: whether the next one is audited. The
numbers of audited calls are powers of two, so that n calls are audited log2(n) times at most; of these, audits that
would slow a program down are left out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

FIRST = 2
"""The first call after the recording that is audited: everything that changes from call to call shows there."""
PAUSE = 32
"""After an audit that took t seconds the same recording is not audited for PAUSE * t seconds. So apart from the first
one, its audits take at most 1 / PAUSE of a program's time."""


@dataclass(slots=True)
class Audits:
    """The audits of one recording."""

    due: int = field(default_factory=lambda: FIRST)
    """The number of the call that is to be audited next."""
    count: int = 0
    seconds: float = 0.0
    """How long the last one took."""
    ended: float = 0.0
    """When the last one ended, by the clock."""
    is_put_off: bool = False
    """Whether a call that was due has not been audited, and that has not been noted yet."""

    def begin(self, number: int, is_possible: bool = True) -> bool:
        """Whether to audit a call, which has this number; the next one is due later in any case."""
        self.due = next_due(number)
        self.is_put_off = not is_possible or time.perf_counter() - self.ended < PAUSE * self.seconds
        return not self.is_put_off

    def end(self, seconds: float) -> None:
        """An audit took place."""
        self.count += 1
        self.seconds, self.ended = seconds, time.perf_counter()


def next_due(number: int) -> int:
    """The number of the next call to be audited after this one."""
    return 1 << number.bit_length()
