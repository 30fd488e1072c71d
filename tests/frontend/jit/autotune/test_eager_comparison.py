"""Programs take turns with eager calls at first, and the quicker way is kept."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import ingot
from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.autotune.benchmarking import seconds_of
from ingot.frontend.jit.autotune.eager_comparison import EagerComparison


def compiled_of(function: Any) -> Any:
    return function._compiled


def run(eager: list[float], program: list[float]) -> EagerComparison:
    found = EagerComparison(rounds=3)
    found.note_program(1.0)  # compiles, and does not count
    while not found.is_over:
        if found.is_eagers_turn:
            found.eager.append(eager[len(found.eager)])
        else:
            found.note_program(program[len(found.program)])
    return found


def test_the_best_calls_decide():
    assert run([3.0, 1.0, 3.0], [2.0, 2.0, 2.0]).prefers_eager
    assert not run([3.0, 2.1, 3.0], [9.0, 2.0, 9.0]).prefers_eager


def test_eager_must_be_clearly_quicker():
    assert not run([0.95, 0.95, 0.95], [1.0, 1.0, 1.0]).prefers_eager


def test_ways_take_turns():
    found = EagerComparison(rounds=2)
    assert not found.is_eagers_turn  # nothing is compiled yet
    found.note_program(1.0)
    turns = []
    while not found.is_over:
        turns.append(found.is_eagers_turn)
        (found.eager.append if found.is_eagers_turn else found.note_program)(1.0)
    assert turns == [True, False, True, False]


def test_a_way_that_is_far_ahead_is_not_measured_again():
    found = run([2.0], [1.0])
    assert found.is_over and not found.prefers_eager and len(found.program) == len(found.eager) == 1
    found = run([1.0, 1.0], [2.0, 2.0])
    assert found.is_over and found.prefers_eager and len(found.program) == len(found.eager) == 2


def test_a_race_ends_when_one_way_is_far_ahead():
    calls: list[str] = []

    def quick() -> None:
        calls.append("quick")

    def slow() -> None:
        calls.append("slow")
        time.sleep(0.002)

    seconds_of(quick, slow)
    assert len(calls) == 4


@pytest.mark.parametrize("quicker", ["eager", "program"])
def test_the_quicker_way_is_kept(quicker: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(eager_comparison, "ROUNDS", 2)
    monkeypatch.setattr(EagerComparison, "prefers_eager", property(lambda self: self.is_over and quicker == "eager"))

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1)

    jitted: Any = ingot.jit(function)
    for number in range(12):
        x = torch.randn(8, 8) + number
        torch.testing.assert_close(jitted(x), function(x))
    (kind,) = compiled_of(jitted).specialisations.values()
    assert len(kind.eager_comparison.eager) == len(kind.eager_comparison.program) in (1, 2)
    assert (kind.trace is None) == (quicker == "eager")
    assert ("eager PyTorch is quicker here" in jitted.explain()) == (quicker == "eager")


def test_evaluation_and_training_are_both_kept():
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.ReLU())
    jitted = ingot.jit(module)
    x = torch.randn(3, 4)
    with torch.no_grad():
        for _ in range(6):
            jitted.eval()
            for _ in range(2):
                torch.testing.assert_close(jitted(x), module(x))
            jitted.train()
            for _ in range(2):
                torch.manual_seed(0)
                result = jitted(x)
                torch.manual_seed(0)
                torch.testing.assert_close(result, module(x))
    assert compiled_of(jitted.forward).recordings == 2
