"""The comparison of training: everyone trains the same, and a wrong loss is told. No test looks at times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.flop_counter
from benchmarks.capture.contests import Job, Row
from benchmarks.measuring import Effort
from benchmarks.training import __main__ as command
from benchmarks.training import optimizers, steps
from benchmarks.training.cases import CASES, Batch, TrainingCase
from benchmarks.training.floors import products_of
from benchmarks.training.memory import peak_of, saved_by_eager
from benchmarks.training.steps import EAGER, FLOOR, FUSED, JIT_MODEL, JIT_STEP, Settings, TrainingRow, measure_step

import ingot

SETTINGS = Settings(Effort(1, 0.0), is_small=True, with_compile=False)
QUICK = ["--quick", "--repeats", "1", "--size", "small"]


@pytest.fixture(autouse=True)
def on_one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(command, "SHORTEST_TURN", 0.0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["ResNet x16", "MLP x512 h256, dropout"])
def test_steps_are_compared_and_measured(name: str):
    row = measure_step(next(case for case in CASES if case.name == name), SETTINGS)
    assert row.is_equal, row.difference
    assert set(row.second_step) == set(row.warm_steps) == {EAGER, FUSED, JIT_MODEL, JIT_STEP}
    assert set(row.seconds) == {*row.second_step, FLOOR} and set(row.peaks) == {FUSED, JIT_MODEL, JIT_STEP}
    assert row.saved[FUSED] and set(row.saved) == {FUSED, JIT_MODEL}
    assert all(row.warm_steps[who] > spent for who, spent in row.second_step.items())


def test_the_floor_is_made_of_products():
    weight = torch.nn.Parameter(torch.randn(4, 4))
    again = products_of(lambda: (torch.randn(4, 4) @ weight).sigmoid().sum().backward())
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counted:
        again()
    assert counted.get_total_flops() == 2 * (2 * 4**3)


def test_the_share_of_the_distance_that_is_closed():
    assert TrainingRow("a", {FUSED: 4.0, JIT_STEP: 3.0, FLOOR: 2.0}).closed == 0.5
    assert TrainingRow("a", {FUSED: 1.0, JIT_STEP: 1.0, FLOOR: 2.0}).closed is None


@pytest.mark.skipif(peak_of(lambda: None) is None, reason="the system does not tell how much memory was resident")
def test_a_steps_peak_counts_all_memory():
    """Whoever asks for it: PyTorch, and ingot's pool."""
    nbytes = 64 << 20
    added: Any = ingot.jit(lambda x: x + 1)
    x = torch.ones(nbytes // 4)
    for _ in range(3):
        added(x)
    for step in (lambda: torch.ones(nbytes // 4), lambda: added(x)):
        peak = peak_of(step)
        assert peak is not None and 0.9 * nbytes < peak < 1.5 * nbytes


def test_what_eager_saves_is_counted_once_and_without_parameters():
    def build(is_small: bool) -> tuple[torch.nn.Module, Batch]:
        layers = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
        return torch.nn.Sequential(*layers), {"x": torch.ones(3, 4)}

    case = TrainingCase("a", build, lambda module, batch: module(batch["x"]).sum())
    assert saved_by_eager(case, True) == 3 * 8 * 4  # what tanh gives, which the second layer reads as well


def test_wrong_losses_are_told():
    """A loss that grows from call to call, whoever calls it."""
    case = CASES[0]
    calls: list[float] = []

    def growing(module: object, batch: Batch) -> torch.Tensor:
        calls.append(1.0)
        return case.loss(module, batch) * (1 + len(calls) / 10)

    row = measure_step(TrainingCase("growing", case.build, growing), SETTINGS)
    assert row.difference.startswith(f"{JIT_MODEL}, loss 0: ")


def test_weights_that_are_not_trained_are_told(monkeypatch: pytest.MonkeyPatch):
    """That losses fall is what tells a step that does its work from one that does not."""
    made = steps.trainer

    def idle(case: TrainingCase, is_small: bool, name: str) -> steps.Trainer:
        one = made(case, is_small, FUSED)
        if name != JIT_STEP:
            return one
        module, _ = case.make(is_small)
        return steps.Trainer(lambda batch: case.loss(module, batch).detach())

    monkeypatch.setattr(steps, "trainer", idle)
    assert measure_step(CASES[0], SETTINGS).difference.startswith(f"{JIT_STEP}, loss 1: ")


def test_the_command_prints_and_saves_everything(tmp_path, capsys):
    figures, tables = tmp_path / "figures.json", tmp_path / "tables.md"
    given = [*QUICK, "--row", "AdamW", "--row", "LSTM", f"--json={figures}", f"--markdown={tables}"]
    assert command.main(given) == 0
    saved = json.loads(figures.read_text())["sections"]
    assert [len(saved[name]) for name in ("steps", "optimizers")] == [1, len(optimizers.SMALL_WIDTHS)]
    assert saved["steps"][0]["second_step"].keys() == {EAGER, FUSED, JIT_MODEL, JIT_STEP}
    assert "LSTM" in capsys.readouterr().out and "| geometric mean |" in tables.read_text()


def test_a_wrong_loss_makes_the_status_one(monkeypatch, capsys):
    fine = TrainingRow("a", {FUSED: 2e-3, JIT_STEP: 1e-3}, second_step={JIT_STEP: 0.5})
    jobs = [Job("a", lambda: fine), Job("b", lambda: Row("b", {}, "loss 3: 1 instead of 2"))]
    monkeypatch.setattr(command, "SECTIONS", {"steps": lambda how: jobs})
    assert command.main(QUICK) == 1
    printed = capsys.readouterr().out
    assert "WRONG: b: loss 3: 1 instead of 2" in printed and "2.00x" in printed
    assert command.main([*QUICK, "--row", "a"]) == 0


def test_the_sizes_of_optimizers_are_those_that_are_told():
    assert [optimizers.name_of(width).split(", ")[2] for width in optimizers.WIDTHS] == [
        "0.803M values",
        "13M values",
        "91M values",
    ]
