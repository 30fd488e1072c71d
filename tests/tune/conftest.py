"""Searches whose measurements are made up: how long candidates take is what the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from ingot.tune import tuner
from ingot.tune.findings import Finding, FindingKey
from ingot.tune.measurement import Workbench
from ingot.tune.search_space import Candidate, Changes

Cost = Callable[[Candidate, int], float]
"""Seconds of a call under a candidate, given the number of rounds."""


@dataclass
class Measurements:
    """What stands in for the clock, and for what lies on disk."""

    cost: Cost = lambda candidate, rounds: 1.0
    measured: list[Changes] = field(default_factory=list)
    """Every candidate that a search has begun to measure, with repetitions."""
    runs: bool = False
    """Whether candidates are compiled, and run once."""
    disk: dict[FindingKey, Finding] = field(default_factory=dict)
    written: list[Finding] = field(default_factory=list)

    def seconds(self, bench: Workbench, candidates: Sequence[Candidate], rounds: int) -> list[list[float]]:
        self.measured.append(candidates[0].changes)
        found = [[self.cost(candidate, rounds)] * rounds for candidate in candidates]
        if self.runs:
            for candidate in candidates:
                bench._call(candidate)()
        return found

    def end_process(self) -> None:
        """Forget what only this process knows."""
        tuner._findings.clear()


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> Iterator[Measurements]:
    found = Measurements()

    def write(key: FindingKey, name: str, finding: Finding) -> None:
        kept = Finding(dict(finding.changes), finding.speedup, list(finding.tried), finding.steps, finding.seconds)
        kept.is_exhausted, kept.is_from_disk = finding.is_exhausted, True
        found.disk[key] = kept
        found.written.append(kept)

    monkeypatch.setattr(Workbench, "seconds", lambda *given: found.seconds(*given))
    monkeypatch.setattr(tuner, "read", lambda key: found.disk.get(key))
    monkeypatch.setattr(tuner, "write", write)
    monkeypatch.setattr(tuner, "_findings", {})
    yield found
