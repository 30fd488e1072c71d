"""What INGOT_LOGS prints, and what INGOT_KEEP_INTERM keeps in the working directory, in one process for each."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from ingot.base.environment_variables import LOGS
from tests.warm_processes import run_python

SCRIPT = """
import torch, ingot

@ingot.jit
def gate(x, y):
    return (torch.sigmoid(x * y) * torch.tanh(x - y)).cumsum(0)

@ingot.jit
def twin(x, y):
    return torch.sigmoid(x * y) * torch.tanh(x - y)

losses = []
@ingot.jit
def noted(x, y):
    hidden = torch.tanh(x * y) + 1
    losses.append(hidden.sum().item())
    return hidden / losses[-1]

with torch.no_grad():
    for size in (16, 24):
        for function in (gate, twin, noted):
            for _ in range(30):
                function(torch.ones(size, 16), torch.ones(size, 16))
"""


def run(folder: Path, **variables: str) -> str:
    paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
    environment = os.environ | {"PYTHONPATH": paths} | variables
    (folder / "script.py").write_text(SCRIPT)
    done = run_python("script.py", cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run with everything switched on: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("logs")
    return folder, run(folder, INGOT_LOGS=",".join(LOGS), INGOT_KEEP_INTERM="1", INGOT_WORKDIR="kept/here")


@pytest.mark.parametrize(
    ("subject", "line"),
    [
        ("recompiles", r"gate: recorded again: x: size 0 was 16, is 24, y: .*"),
        ("fallbacks", r"noted is followed: .*script.py:\d+\)"),
        ("fusion", r"graph [0-9a-f]{12}: mul_sigmoid_sub_tanh_mul_[0-9a-f]{8} ends here: .*"),
        ("cache", r"graph [0-9a-f]{12}: compiled now"),
        ("cache", r"kernel mul_sigmoid_sub_tanh_mul_[0-9a-f]{8}: made now"),
        ("cache", r"kernel mul_sigmoid_sub_tanh_mul_[0-9a-f]{8}: machine code is there"),
        ("perf", r"kernel mul_sigmoid_sub_tanh_mul_[0-9a-f]{8} made in [\d.]+ ms"),
        ("perf", r"twin: compiled calls take [\d.e+]+ us, eager ones [\d.e+]+"),
        ("perf", r"noted, followed: compiled calls take [\d.e+]+ us, eager ones [\d.e+]+"),
    ],
)
def test_each_log_says_what_its_name_says(ran: tuple[Path, str], subject: str, line: str):
    assert re.search(f"^ingot {subject}: {line}$", ran[1], re.MULTILINE), ran[1]


def test_every_stage_is_kept_in_a_tree_that_explains_itself(ran: tuple[Path, str]):
    root = ran[0] / "kept" / "here"
    index = (root / "index.txt").read_text()
    folders = [line for line in index.splitlines() if re.match(r"(programs|graphs|kernels)/\S*[0-9a-f]{12}$", line)]
    assert len(folders) == len(set(folders)) and all((root / folder).is_dir() for folder in folders)
    kinds = {"programs": {"trace", "program"}, "graphs": {"graph", "optimized_graph", "clusters", "kernels"}}
    kinds["kernels"] = {"schedule", "nests", "llvm", "assembly"}
    for folder in folders:
        assert {path.stem for path in (root / folder).iterdir()} == kinds[folder.partition("/")[0]]
    (kernel, *_) = root.glob("kernels/mul_sigmoid_sub_tanh_mul_*/*")
    assert kernel.parent.name in (kernel / "assembly.txt").read_text()
    assert "vector for" in (kernel / "nests.txt").read_text()


def test_a_working_directory_that_cannot_be_made_is_warned_of_once(tmp_path: Path):
    (tmp_path / "file").write_text("")
    printed = run(tmp_path, INGOT_KEEP_INTERM="1", INGOT_WORKDIR="file/inside")
    assert printed.count("INGOT_WORKDIR cannot be used") == 1
