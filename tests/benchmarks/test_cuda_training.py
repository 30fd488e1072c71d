"""The comparison of training steps on a GPU: everyone trains and is compared. A CPU stands in for the GPU."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from benchmarks.cuda.__main__ import main as main_of_cases
from benchmarks.cuda.clocks import whole_clock
from benchmarks.cuda.training import __main__ as command
from benchmarks.cuda.training import contests
from benchmarks.cuda.training.__main__ import main, measure, options, wanted
from benchmarks.cuda.training.cases import CASES
from benchmarks.cuda.training.contests import (
    JIT_MODEL,
    JIT_STEP,
    STEP_REPLAYED,
    Trainer,
    TrainingRow,
    differs,
    prepare,
    replay_lines,
)
from benchmarks.cuda.training.report import best_over, line, page, sheets, targets
from benchmarks.results import COMPILE, EAGER

CPU = torch.device("cpu")
QUICK = ["--quick", "--no-compile"]
WITHOUT_COMPILE = {EAGER, JIT_MODEL, JIT_STEP, STEP_REPLAYED}


@pytest.fixture
def surroundings(monkeypatch):
    """Variables that a whole run sets, as they were after it."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_DISABLE", "INGOT_CACHE_DIR"):
        monkeypatch.setenv(name, "")


def measured(*arguments):
    return list(measure(CPU, options([*QUICK, *arguments]), with_compile=False, begun=time.monotonic()))


def a_row(name, **seconds):
    return TrainingRow(name, seconds, 0, 0)


@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case.name)
def test_losses_of_every_case_are_eagers(case):
    trainers, batch, failures = prepare(case, CPU, with_compile=False, is_small=True)
    assert set(trainers) == WITHOUT_COMPILE and not failures
    assert set(batch) == {"inputs", "labels"}
    losses = trainers[EAGER].losses
    assert len(losses) == contests.WARM_STEPS and losses[-1] < losses[0] and len(set(losses)) > 1
    for name in (JIT_MODEL, JIT_STEP, STEP_REPLAYED):
        assert differs(trainers[name], trainers[EAGER], name) == ""


def test_rows_tell_of_everyone(capsys):
    (row,) = measured("--model", "MLP", "--explain")
    assert set(row.seconds) == set(row.second_result) == set(row.first_steps) == WITHOUT_COMPILE
    assert row.tiers == {JIT_MODEL: "skipping", JIT_STEP: "skipping", STEP_REPLAYED: "skipping"}
    assert not row.difference and not row.is_replayed and set(row.peaks.values()) == {None}
    told = capsys.readouterr().err
    assert "MLP x1024, dropout: eager " in told and "ingot.jit(step): whole_step.<locals>.step: skipping" in told
    text = page(sheets([row], {"GPU": "none"}, quick=True))
    assert text.startswith("# Training steps on an NVIDIA GPU") and "\nGPU none\n" in text
    assert "| MLP x1024, dropout |" in text and "| yes |" in text


def test_cases_made_alike_are_alike():
    (one, given), (other, also_given) = (wanted(["Llama"])[0].make(CPU, is_small=True) for _ in range(2))
    assert all(torch.equal(given[name], also_given[name]) for name in given)
    assert one.training and torch.equal(one(given["inputs"]), other(given["inputs"]))


def test_losses_that_are_not_eagers_are_seen():
    eager = Trainer(lambda batch: torch.zeros(()), losses=[10.0] * 12)
    near, later = [10.1] * 12, [10.0] * 8 + [10.5] * 4
    assert not any(differs(replace(eager, losses=losses), eager, "x") for losses in (near, later))
    for losses in ([10.3] * 12, [10.0] * 11 + [12.0], [float("nan")] * 12):
        assert differs(replace(eager, losses=losses), eager, "x").startswith("x, loss ")
    wrong = replace(a_row("row", eager=1.0), difference="x, loss 0: 1 instead of 2")
    text = page(sheets([wrong], {}, quick=True))
    assert "| NO |" in text and "WRONG: row: x, loss 0" in text and "WRONG: x, loss 0" in line(wrong)


def test_who_fails_is_told_of_and_the_others_go_on(monkeypatch, capsys):
    made = contests.trainer

    def refuse(case, device, is_small, name):
        if name == JIT_STEP or (name == EAGER and case.name.startswith("AlexNet")):
            raise RuntimeError("out of luck")
        return made(case, device, is_small, name)

    monkeypatch.setattr(contests, "trainer", refuse)
    (row,) = measured("--model", "MLP", "--model", "AlexNet")
    assert set(row.seconds) == WITHOUT_COMPILE - {JIT_STEP}
    assert row.remarks[0] == "ingot.jit(step) fails, RuntimeError: out of luck"
    assert "AlexNet x128: FAILED: RuntimeError: out of luck" in capsys.readouterr().err


def test_rows_for_which_there_is_no_time_are_left_out(capsys):
    assert not measured("--model", "MLP", "--minutes", "-1")
    assert "MLP x1024, dropout: left out, there is no time" in capsys.readouterr().err


def test_the_quickest_of_ingots_is_compared():
    row = replace(
        a_row("GPT-2 1x128", **{EAGER: 9.0, COMPILE: 4.0, JIT_MODEL: 5.0, JIT_STEP: 3.0, STEP_REPLAYED: 2.0}),
        second_result={COMPILE: 30.0, STEP_REPLAYED: 1.0},
        is_host_limited=True,
        peaks={EAGER: 2_000_000_000, STEP_REPLAYED: 1_500_000_000},
        is_replayed=True,
    )
    other = a_row("other", **{EAGER: 1.0, COMPILE: 1.0, JIT_MODEL: 2.0})
    assert (best_over(row, EAGER), best_over(other, COMPILE)) == (4.5, 0.5)
    assert best_over(a_row("eager alone", eager=1.0), EAGER) is None
    found = {target.text: target for target in targets([row, other])}
    assert found["limited by the host, best over eager"].is_met
    worst = found["best over torch.compile"]
    assert (worst.where, worst.reached, worst.is_met) == ("other", 0.5, False)
    assert found["best over torch.compile, geometric mean"].reached == pytest.approx(1.0)
    assert found["second step over torch.compile's"].reached == 30.0
    text = page(sheets([row, other], {}, quick=False))
    assert "| GPT-2 1x128 | 9000.000 | 4000.000 | 5000.000 | 3000.000 | 2000.000 | 4.50x | 2.00x | yes |" in text
    assert "| 2,000 |  |  |  | 1,500 |" in text


def test_what_is_said_of_graphs_is_found():
    class Function:
        def explain(self):
            return (
                "step: skipping\n\n1. called\n  replayed as 1 CUDA graph\n  not replayed as a CUDA graph: it is small\n"
            )

    assert replay_lines(Function()) == ["replayed as 1 CUDA graph", "not replayed as a CUDA graph: it is small"]
    assert replay_lines(None) == []


def test_the_clock_counts_what_a_call_takes():
    calls: list[Any] = []

    def call():
        calls.append(time.sleep(0.002))

    assert whole_clock(CPU)(call, 3) >= 0.002 and len(calls) == 3


def test_a_run_saves_what_it_says(tmp_path, capsys, monkeypatch, surroundings):
    monkeypatch.setattr(command, "current_gpu", lambda: CPU)
    files = {"json": tmp_path / "figures.json", "markdown": tmp_path / "page.md"}
    arguments = [*QUICK, "--model", "MLP", *(f"--{name}={path}" for name, path in files.items())]
    assert main_of_cases(["--training", *arguments]) == 0
    figures = json.loads(files["json"].read_text())
    (row,) = figures["groups"]["training"]
    assert row["name"] == "MLP x1024, dropout" and set(row["seconds"]) == WITHOUT_COMPILE
    assert files["markdown"].read_text().startswith("# Training steps")
    assert "Training steps with fused AdamW" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_other_comparison_is_named(capsys, surroundings):
    assert main(["--quick"]) == 2
    assert "python -m benchmarks is the one for CPUs" in capsys.readouterr().err


@pytest.mark.cuda
def test_a_quick_run_on_a_gpu_measures_memory(tmp_path, surroundings):
    file = tmp_path / "figures.json"
    assert main([*QUICK, f"--json={file}"]) == 0
    rows = json.loads(file.read_text())["groups"]["training"]
    assert [row["name"] for row in rows] == [case.name for case in CASES]
    assert all(peak > 0 for row in rows for peak in row["peaks"].values())
