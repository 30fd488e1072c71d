"""Commands that run functions and look at the machine: `explain`, `bench`, `doctor`, `demo`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ingot.cli import doctor as doctoring
from ingot.cli import main
from ingot.cli.doctor import CHECKS_IN_ORDER, CheckResult
from tests.warm_processes import run_python

MODULE = """
import torch

EXAMPLE_INPUTS = (torch.ones(4, 8), torch.ones(4, 8))


def gate(x, y):
    return torch.sigmoid(x * y) * torch.tanh(x - y)


def counted(x, index, factor):
    return x[index] * factor


def broken(x, y):
    return x @ y


model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.GELU()).eval()
constant = 3
"""

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "of_the_user.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "of_the_user", raising=False)
    return tmp_path


def ingot(*arguments: str) -> Result:
    return CliRunner().invoke(main.commands, list(arguments))


@pytest.mark.parametrize("command", sorted(main.commands.commands))
def test_every_command_has_help(command: str):
    done = ingot(command, "--help")
    assert done.exit_code == 0 and "Usage:" in done.output
    assert main.commands.commands[command].help


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_tells_what_became_of_a_function_of_the_current_directory(folder: Path):
    done = run_python("-m", "ingot", "explain", "of_the_user:gate", cwd=folder, env=ENVIRONMENT)
    assert done.returncode == 0 and done.stdout.startswith("gate: ")
    assert "mul_sigmoid_sub_tanh_mul_" in done.stdout


def test_explain_writes_reports_and_json(folder: Path):
    done = ingot("explain", "of_the_user:model", "--input", "float32[2, 8]", "--html", "model.html", "--json")
    assert done.exit_code == 0 and "wrote model.html" in done.stderr
    assert (folder / "model.html").read_text().startswith("<!DOCTYPE html>")
    told = json.loads(done.stdout)
    assert told["calls"] == 20 and told["is_profiled"] and told["kernels"] and told["tier"] == "skipping"


def test_explain_takes_tensors_of_all_kinds_and_literals(folder: Path):
    inputs = ["--input", "bfloat16[9,2]", "--input", "int64[3]", "--input", "0.5"]
    done = ingot("explain", "of_the_user:counted", *inputs)
    assert done.exit_code == 0 and "counted: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gate"], 2, "write module:function"),
        (["absent_module:gate"], 2, "cannot be imported"),
        (["of_the_user:absent"], 2, "has no absent"),
        (["of_the_user:constant"], 2, "cannot be called"),
        (["of_the_user:gate", "--input", "float33[2]"], 2, "'float33' is no dtype"),
        (["of_the_user:gate", "--input", "import os"], 2, "neither a tensor"),
        (["of_the_user:broken"], 1, "raised RuntimeError"),
        (["of_the_user:gate", "--html", "absent/report.html"], 1, ""),
    ],
)
def test_faults_of_explain(folder: Path, arguments: list[str], code: int, message: str):
    done = ingot("explain", *arguments)
    assert done.exit_code == code and message in done.stderr


# --- bench, demo ------------------------------------------------------------------------------------------------------


def test_bench_compares_and_tells_programs_too():
    done = ingot("bench", "--size", "32", "--rounds", "1", "--json")
    assert done.exit_code == 0
    rows = json.loads(done.stdout)
    assert len(rows) == 8 and all(row["eager_seconds"] > 0 and row["ingot_seconds"] > 0 for row in rows)
    assert ingot("bench", "--device", "nonsense").exit_code == 2


# --- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_checks_everything():
    done = ingot("doctor", "--json")
    told = json.loads(done.stdout)
    assert [row["name"] for row in told] == [name for name, _ in CHECKS_IN_ORDER]
    assert done.exit_code == (1 if any(row["state"] == "broken" for row in told) else 0)
    assert all(row["advice"] for row in told if row["state"] != "fine")
    assert {row["name"]: row["state"] for row in told}["generated code"] == "fine"


def test_doctor_fails_where_something_is_broken(monkeypatch: pytest.MonkeyPatch):
    def failing() -> CheckResult:
        raise RuntimeError("out of order")

    checks: Any = (("one", failing), ("two", lambda: CheckResult("two", "slower", "old", "renew it")))
    monkeypatch.setattr(doctoring, "CHECKS_IN_ORDER", checks)
    done = ingot("doctor")
    assert done.exit_code == 1 and "RuntimeError" in done.stdout and "renew it" in done.stdout
    monkeypatch.setattr(doctoring, "CHECKS_IN_ORDER", checks[1:])
    assert ingot("doctor").exit_code == 0


def test_doctor_names_a_wrong_variable_and_exits_with_1():
    done = run_python("-m", "ingot", "doctor", "--json", env=ENVIRONMENT | {"INGOT_LOGS": "nonsense"})
    assert done.returncode == 1 and json.loads(done.stdout)[0]["state"] == "broken"
