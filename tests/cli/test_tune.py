"""`ingot tune`: what it finds is told and kept, and what stops it is told as well."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import ingot
from ingot.base.config import Config
from ingot.cli import main
from ingot.tune import tuner
from ingot.tune.measurement import Workbench
from ingot.tune.search_space import Candidate

MODULE = """
import torch

EXAMPLE_INPUTS = (torch.ones(40_001), torch.ones(40_001))


def gate(x, y):
    return torch.sigmoid(x * y) * torch.tanh(x - y)


def nothing(x):
    return x


model = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.GELU()).eval()
"""


@pytest.fixture(autouse=True)
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates with longer vectors are twice as fast; what other tests have found is not known."""

    def seconds(bench: Workbench, candidates: Sequence[Candidate], rounds: int) -> list[list[float]]:
        return [[0.5 if "vector_bytes" in one.changes else 1.0] * rounds for one in candidates]

    (tmp_path / "to_tune.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "to_tune", raising=False)
    monkeypatch.setattr(Workbench, "seconds", seconds)
    monkeypatch.setattr(tuner, "_findings", {})
    monkeypatch.setattr(tuner, "read", lambda key: None)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main.commands, ["tune", *arguments])


def test_tune_tells_what_it_has_found():
    done = command("to_tune:gate", "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert found["speedup"] == 2.0 and "vectors of" in found["chosen"] and found["sizes"] == [40_001]
    assert found["kernel"].startswith("mul_sigmoid") and not found["stopped"] and not found["is_from_disk"]
    told = command("to_tune:model", "--input", "float32[8,40001]", "--steps", "3").stdout
    assert "2.00x" in told and "kept in" in told and "Schedules for to_tune:model" in told


def test_functions_use_what_the_command_has_found(monkeypatch: pytest.MonkeyPatch):
    assert command("to_tune:gate").exit_code == 0
    monkeypatch.delattr(Workbench, "seconds")  # nothing is measured
    module: Any = sys.modules["to_tune"]
    compiled: Any = ingot.jit(module.gate, tune=True)
    for _ in range(2):
        compiled(torch.ones(40_001), torch.ones(40_001))
    (found,) = compiled.stats().tuned
    assert found.speedup == 2.0


def test_a_function_without_kernels_is_a_problem():
    done = command("to_tune:nothing", "--inputs", "float32[3]")
    assert done.exit_code == 1 and "no kernel of to_tune:nothing was tuned" in done.stderr


def test_a_search_that_was_stopped_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ingot.tune.measurement._free_bytes", lambda: 0)
    done = command("to_tune:gate", "--json")
    (found,) = json.loads(done.stdout)
    assert done.exit_code == 1 and "stand-ins would take" in found["stopped"]


def test_an_interrupted_command_tells_what_it_has(monkeypatch: pytest.MonkeyPatch):
    def interrupted(bench: Workbench, candidates: Sequence[Candidate], rounds: int) -> list[list[float]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Workbench, "seconds", interrupted)
    done = command("to_tune:gate", "--json")
    assert done.exit_code == 130 and json.loads(done.stdout)[0]["stopped"] == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gate"], 2, "write module:function"),
        (["to_tune:gate", "--steps", "0"], 2, "--steps"),
        (["to_tune:gate", "--seconds", "0"], 2, "--seconds"),
        (["to_tune:gate", "--input", "float32[2]", "--input", "float32[3]"], 1, "raised RuntimeError"),
    ],
)
def test_faults_of_tune(arguments: list[str], code: int, message: str):
    done = command(*arguments)
    assert done.exit_code == code and message in done.stderr


def test_its_help_tells_the_defaults_of_the_flags():
    told = " ".join(command("--help").stdout.split())
    for flag in ("kernel_tuning_steps", "kernel_tuning_seconds"):
        assert f"[default: {Config()[flag]};" in told
