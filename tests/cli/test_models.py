"""`ingot compile` and `ingot run`, with the faults that users make."""

import json
import os
import sys
import zipfile
from pathlib import Path

import numpy
import pytest

pytest.importorskip("onnx")

import onnx
from click.testing import CliRunner
from onnx import helper

from ingot.cli.main import commands, main
from tests.frontend.onnx.building import floats, model_of, reference
from tests.warm_processes import run_python

SOURCE = """
from dataclasses import dataclass
import torch
def scaled(x, y): return torch.tanh(x * y).sum(-1)
def noisy(x): print("effect"); return x + 1
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
    def forward(self, x): return self.linear(x).relu()
@dataclass
class Outputs:
    plus: torch.Tensor
    rest: tuple
def several(x): return Outputs(x + 1, (x * 2, "text"))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "users_module.py").write_text(SOURCE)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"], axis=-1),
    ]
    inputs, weights = {"x": floats(3, 4)}, {"w": floats(4, 5), "b": floats(5)}
    model = model_of(nodes, inputs, ["y"], weights, sizes={"x": ["batch", 4]})
    onnx.save(model, str(tmp_path / "model.onnx"))
    numpy.save(tmp_path / "x.npy", inputs["x"])
    numpy.savez(tmp_path / "expected.npz", y=reference(model, inputs)[0])
    numpy.save(tmp_path / "wrong.npy", reference(model, inputs)[0] + 1)
    return tmp_path


def ingot(*arguments: str):
    return CliRunner().invoke(commands, list(arguments))


def test_a_model_of_onnx_is_compiled_and_run_and_agrees_with_the_reference(folder):
    done = ingot("compile", "model.onnx")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("model.ingot: ") and "(float32[{size0}, 4]) -> float32[{size0}, 5]" in done.stdout
    done = ingot("run", "model.ingot", "--input", "x.npy", "--compare", "expected.npz", "--output", "out.npz")
    assert done.exit_code == 0 and "largest difference" in done.output and "[3, 5]" in done.output
    assert numpy.allclose(numpy.load("out.npz")["result0"], numpy.load("expected.npz")["y"], atol=1e-5)
    told = json.loads(ingot("run", "model.ingot", "--random", "--repeat", "2", "--json").stdout)
    assert told["results"] == {"result0": {"dtype": "float32", "shape": [8, 5]}}
    assert set(told["milliseconds"]) == {"load", "first call", "second call", "call"}


def test_functions_and_modules_are_compiled_by_their_names(folder):
    done = ingot("compile", "users_module:scaled", "--input", "float32[2|4,3]", "--input", "float32[2|4,3]", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["bundle"] == "scaled.ingot" and told["bytes"] == (folder / "scaled.ingot").stat().st_size
    assert told["recordings"] == ["(float32[{size0}, 3], float32[{size0}, 3]) -> float32[{size0}]"]
    named = ingot("compile", "users_module:several", "--input", "float32[2]", "-o", "several.ingot")
    assert named.exit_code == 0, named.output
    assert list(json.loads(ingot("run", "several.ingot", "--random", "--json").stdout)["results"]) == [
        "result0",
        "result1",
    ]
    done = ingot("compile", "users_module:Layer", "--input", "x=float32[2,4]", "-o", "layer.ingot")
    assert done.exit_code == 0 and ingot("run", "layer.ingot", "--random").exit_code == 0


def test_a_bundle_carries_kernels_where_that_is_asked_for(folder):
    compiled = ["compile", "users_module:scaled", "--input", "float32[4,3]", "--input", "float32[4,3]"]
    assert ingot(*compiled).exit_code == 0
    plain = (folder / "scaled.ingot").stat().st_size
    assert ingot(*compiled, "--kernels").exit_code == 0
    with zipfile.ZipFile(folder / "scaled.ingot") as archive:
        assert "kernels.cache" in archive.namelist() and (folder / "scaled.ingot").stat().st_size > plain
    for flags in ((), ("--trust-kernels",)):
        assert ingot("run", "scaled.ingot", "--random", *flags).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compile", "model"], 2, "module:name"),
        (["compile", "users_module:scaled"], 2, "--input"),
        (["compile", "users_module:scaled", "--input", "float33[2]"], 2, "'float33' is no dtype"),
        (["compile", "users_module:scaled", "--input", "float32[2,x]"], 2, "is not like"),
        (["compile", "users_module:nothing", "--input", "float32[2]"], 2, "has no nothing"),
        (["compile", "users_module:noisy", "--input", "float32[2]"], 1, "Python would have to run"),
        (["compile", "users_module:Layer", "--input", "float32[2,5]"], 1, "fails on these inputs"),
        (["compile", "missing.onnx"], 1, "cannot be read"),
        (["run", "missing.ingot", "--random"], 1, "cannot be read"),
        (["run", "x.npy", "--random"], 1, "not a bundle"),
        (["run", "model.ingot"], 2, "--random"),
        (["run", "model.ingot", "--input", "users_module.py"], 1, "cannot be read"),
        (["run", "model.ingot", "--input", "wrong.npy"], 1, r"must be float32[{size0}, 4], not float32[3, 5]"),
        (["run", "model.ingot", "--input", "x.npy", "--compare", "wrong.npy"], 1, "differ from wrong.npy: by 1"),
    ],
)
def test_faults_are_one_message_and_say_whose_they_are(folder, arguments, code, message, monkeypatch, capsys):
    if "model.ingot" in arguments:
        assert ingot("compile", "model.onnx").exit_code == 0
    monkeypatch.setattr(sys, "argv", ["ingot", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    told = capsys.readouterr().err
    assert caught.value.code == code and message in told and "Traceback" not in told


def test_the_cache_is_filled_for_processes_that_import_the_function(folder):
    cache = folder / "cache"
    script = "import torch, users_module, ingot; f = ingot.jit(users_module.scaled); x = torch.ones(4, 3);"
    script += "torch.set_grad_enabled(False); y = f(x, x.clone()); print(f.recordings)"
    environment = os.environ | {"INGOT_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(["", *sys.path])}

    def run(*command: str) -> str:
        done = run_python(*command, env=environment, cwd=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    inputs = ("--input", "float32[4,3]", "--input", "float32[4,3]")
    told = json.loads(run("-m", "ingot.cli.main", "compile", "users_module:scaled", *inputs, "--cache", "--json"))
    assert told["directory"] == str(cache) and told["tier"] == "skipping"
    assert 0 < told["entries"] <= len(list(cache.iterdir())) and not (folder / "scaled.ingot").exists()
    assert run("-c", script).split()[0] == "0"


def test_examples_may_stand_in_the_module(folder):
    with (folder / "users_module.py").open("a") as module:
        module.write("EXAMPLE_INPUTS = (torch.ones(2, 3), torch.ones(2, 3))\n")
    sys.modules.pop("users_module", None)
    done = ingot("compile", "users_module:scaled")
    assert done.exit_code == 0 and "(float32[2, 3], float32[2, 3]) -> float32[2]" in done.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("model.onnx", "--cache", "--output", "model.ingot"), "--cache writes no bundle"),
        (("model.onnx", "--python", "skip"), "no Python that could be skipped"),
    ],
)
def test_options_that_exclude_each_other_are_refused(folder, arguments, text):
    done = ingot("compile", *arguments)
    assert done.exit_code == 2 and text in done.output
