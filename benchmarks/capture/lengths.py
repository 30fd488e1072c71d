"""One model and ten lengths of sequences: how many recordings they need, and how each length runs.

In: BERT of the other comparison. Out: a row for each length, all with the recordings that the ten needed together.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import torch

import ingot
from benchmarks.capture.contests import Job, Row, Settings, difference, medians, quiet
from benchmarks.capture.telling import recordings_of, tier_of
from benchmarks.contestants import JIT_CALLS
from benchmarks.model_contests import TOLERANCE
from benchmarks.models import MODELS
from benchmarks.results import EAGER, JIT

LENGTHS = {True: tuple(range(5, 55, 5)), False: tuple(range(32, 352, 32))}
"""By whether the model is small."""


class Contest:
    """Eager and ingot, which meet all lengths before one is measured."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self.lengths = LENGTHS[settings.small_models]

    @cached_property
    def _modules(self) -> tuple[Any, Any]:
        (bert,) = (model for model in MODELS if model.name == "BERT")
        module, other = (bert.make(self._settings.small_models)[0] for _ in range(2))
        other.forward = ingot.jit(other.forward)
        return module, other

    def _words(self, length: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(length)
        return torch.randint(0, 100, (2, length), generator=generator)

    @cached_property
    def _differences(self) -> dict[int, str]:
        """The first difference at each length. Lengths come in turn, as they do where texts differ in length."""
        module, other = self._modules
        found = dict.fromkeys(self.lengths, "")
        for number in range(JIT_CALLS):
            for length in self.lengths:
                words = self._words(length)
                differs = difference(other(words), module(words), TOLERANCE, f"call {number}")
                found[length] = found[length] or differs
        return found

    def measure(self, length: int) -> Row:
        with quiet(), torch.no_grad():
            differs = self._differences[length]
            module, other = self._modules
            words = self._words(length)
            seconds = medians({EAGER: partial(module, words), JIT: partial(other, words)}, self._settings.effort)
        return Row(name_of(length), seconds, differs, tier_of(other.forward), recordings_of(other.forward))


def name_of(length: int) -> str:
    return f"length {length}"


def lengths(settings: Settings) -> list[Job]:
    """Ten lengths of one model."""
    contest = Contest(settings)
    return [Job(name_of(length), partial(contest.measure, length)) for length in contest.lengths]
