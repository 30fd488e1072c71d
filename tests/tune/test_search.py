"""The search: what it finds, where it ends, and that it never takes what is not clearly quicker."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ingot
from ingot.runtime.kernels import TunedKernel
from ingot.tune import cost, search_space
from ingot.tune.cost import predicted_seconds
from ingot.tune.findings import Finding, size_class
from ingot.tune.measurement import FIRST_ROUNDS, LAST_ROUNDS, ROUNDS, is_clearly_quicker
from ingot.tune.search import Limits, ordered, search
from ingot.tune.search_space import Candidate
from tests.tune.conftest import Measurements
from tests.tune.test_search_space import space_of

SIZE = 40_000


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * y) * torch.tanh(x - y)


def tuned(function: Any = gate, calls: int = 3, size: int = SIZE, **options: Any) -> Any:
    """A compiled function that has been called with tensors of a size."""
    compiled = ingot.jit(function, **{"tune": True, **options})
    generator = torch.Generator().manual_seed(size)
    tensors = [torch.randn(size, generator=generator) for _ in range(2)]
    expected = function(*tensors)
    for _ in range(calls):
        torch.testing.assert_close(compiled(*tensors), expected)
    return compiled


def finding_of(compiled: Any) -> TunedKernel:
    (found,) = compiled.stats().tuned
    return found


def quicker(**figures: float) -> Any:
    """A clock for which candidates with these figures are so many times as fast."""

    def seconds(candidate: Candidate, rounds: int) -> float:
        found = 1.0
        for figure in candidate.changes:
            found /= figures.get(figure, 1.0)
        return found

    return seconds


def test_the_best_figures_of_several_are_found_together(measurements: Measurements):
    measurements.cost = quicker(flat_block=1.25, vector_bytes=1.1)
    compiled = tuned()
    found = finding_of(compiled)
    assert "blocks of" in found.chosen and "vectors of" in found.chosen
    assert found.speedup == pytest.approx(1.25 * 1.1) and not found.stopped and not found.is_from_disk
    assert found.sizes == (SIZE,)
    told = compiled.explain()
    assert f"tuned for {SIZE}: " in told and "1.38 times as fast as by default" in told
    assert str(found) in str(compiled.stats())
    assert f"vectors of {dict(measurements.measured[-1])['vector_bytes']} bytes" in compiled.inspect("schedule")


def test_nothing_is_measured_again_in_a_process_or_in_the_next(measurements: Measurements):
    measurements.cost = quicker(vector_bytes=2)
    tuned()
    count = len(measurements.measured)
    again = tuned()  # another compiler
    measurements.end_process()
    later = tuned()
    assert len(measurements.measured) == count > 0
    assert finding_of(again).chosen == finding_of(later).chosen != ""
    assert finding_of(later).is_from_disk and "from the cache on disk" in later.explain()
    assert "vectors of" in later.inspect("schedule")


def test_sizes_of_a_class_share_what_was_found(measurements: Measurements):
    tuned(size=40_001)
    count = len(measurements.measured)
    tuned(size=40_901)
    assert len(measurements.measured) == count
    tuned(size=60_001)
    assert len(measurements.measured) > count
    assert [size_class(size) for size in (0, 1, 7, 8, 9, 1000)] == [0, 1, 7, 8, 8, 896]


@pytest.mark.parametrize("lucky", [FIRST_ROUNDS, ROUNDS])
def test_who_wins_by_luck_is_not_taken(measurements: Measurements, lucky: int):
    """Luck lasts for the first rounds, or until the last ones."""
    measurements.cost = lambda candidate, rounds: 0.5 if candidate.changes and rounds <= lucky else 1.0
    found = finding_of(tuned())
    assert found.chosen == "" and found.speedup == 1.0 and found.candidates > 3


def test_what_is_a_little_quicker_is_not_taken(measurements: Measurements):
    measurements.cost = lambda candidate, rounds: 0.98 if candidate.changes else 1.0
    assert finding_of(tuned()).chosen == ""
    assert not is_clearly_quicker([0.5] * 7 + [1.1] * 4, [1.0] * LAST_ROUNDS)  # quicker in too few rounds
    assert is_clearly_quicker([0.9] * 10 + [9.0], [1.0] * LAST_ROUNDS)


def test_steps_bound_the_candidates_and_more_steps_go_on(measurements: Measurements):
    assert finding_of(tuned(tune=None, tuning_steps=2)).candidates == 2
    first = list(measurements.measured)
    assert finding_of(tuned(tune=None, tuning_steps=4)).candidates == 4
    assert len(measurements.measured) == 4 and measurements.measured[:2] == first
    tuned(tune=None, tuning_steps=3)
    assert len(measurements.measured) == 4


def test_time_bounds_a_search(measurements: Measurements, monkeypatch: pytest.MonkeyPatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr("ingot.tune.search.time.perf_counter", lambda: float(next(clock)))
    finding = Finding()
    space = space_of("flat")
    search(space, _NoBench(measurements), finding, Limits(1000, 10.0), lambda found: None)  # type: ignore[arg-type]
    assert len(finding.tried) == 2 and not finding.is_exhausted
    assert finding.is_over(1000, 10.0) and not finding.is_over(1000, 60.0) and not finding.is_over(1001, 10.0)


class _NoBench:
    def __init__(self, measurements: Measurements):
        self.seconds = lambda candidates, rounds: measurements.seconds(self, candidates, rounds)  # type: ignore[arg-type]

    def forget(self, candidate: Candidate) -> None: ...


# --- what is tried first ----------------------------------------------------------------------------------------------


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cost, search_space):
        monkeypatch.setattr(module, "thread_count", lambda: 2)


def test_even_shares_are_tried_first(two_threads: None):
    """Three blocks for two threads: one of them has twice as much to do."""
    space = space_of("three blocks")
    assert cost.grains_of(space.default.call) == 3
    first, *_ = ordered(space, list(space.around({})))
    assert "flat_block" in first.changes


def test_threads_are_worth_it_where_there_is_much_to_do(two_threads: None):
    for name, is_worth_it in (("two short blocks", False), ("streamed", True)):
        space = space_of(name)
        alone, together = (space.candidate({"parallel_elements": value}) for value in (search_space.NEVER, 1))
        assert alone is not None and together is not None and together.is_parallel > alone.is_parallel
        program = space.kernel.program
        assert (predicted_seconds(program, together) < predicted_seconds(program, alone)) is is_worth_it


def test_grains_are_those_that_threads_share():
    assert cost.grains_of(space_of("rows").default.call) == 70
    assert cost.grains_of(space_of("rows to a total").default.call) == 1001  # three rows each
    assert cost.grains_of(space_of("tiled").default.call) == 2
    assert cost.grains_of(space_of("columns").default.call) == 2
    assert cost.grains_of(space_of("split").default.call) == 5
