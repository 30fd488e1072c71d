"""What ingot costs where little is to be gained: eager and ingot make the same calls, and are then measured in turn.

In: the cases of `slow_cases`. Out: a row for each, with the recordings that were made after the third call: of
kinds of calls that come later as well, where a case has many.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import ingot
from benchmarks.capture.contests import Job, Row, Settings, difference, medians, quiet
from benchmarks.capture.slow_cases import CASES, Program, Slow
from benchmarks.capture.telling import recordings_of, tier_of
from benchmarks.contestants import JIT_CALLS
from benchmarks.results import EAGER, JIT

FEW_CALLS = 3
"""Calls after which nothing should have to be recorded any more."""


class Player:
    """Makes the calls of a program one after the other, each with the number of the next."""

    def __init__(self, program: Program, function: Any, case: Slow):
        self._call, self._function, self._case = program.call, function, case
        self._number = 0

    def next(self) -> Any:
        self._number += 1
        return self._call(self._function, self._number - 1)

    def measured_calls(self) -> None:
        """The calls of a cycle that count, which are numbered on from cycle to cycle."""
        call, function, case = self._call, self._function, self._case
        start = self._number + case.measured_from
        for number in range(start, self._number + case.cycle):
            call(function, number)
        self._number += case.cycle


def slow(settings: Settings) -> list[Job]:
    """Calls that cost what eager costs, at best."""
    return [Job(case.name, partial(measure_slow, case, settings)) for case in CASES]


def measure_slow(case: Slow, settings: Settings) -> Row:
    with quiet(), torch.set_grad_enabled(case.needs_gradients):
        program, other = case.make(), case.make()
        jitted = ingot.jit(other.function)
        eager, ours = Player(program, program.function, case), Player(other, jitted, case)
        differs, early = "", None
        for number in range(case.cycle * JIT_CALLS):
            wanted = eager.next()
            differs = differs or difference(ours.next(), wanted, where=f"call {number}")
            if number == FEW_CALLS - 1:
                early = recordings_of(jitted)
        differs = differs or difference(other.state(), program.state(), where="state")
        late = recordings_of(jitted)
        calls = {EAGER: eager.measured_calls, JIT: ours.measured_calls}
        seconds = medians(calls, settings.calls_of_microseconds, case.cycle - case.measured_from)
    recordings = None if early is None or late is None else late - early
    return Row(case.name, seconds, differs, tier_of(jitted), recordings)
