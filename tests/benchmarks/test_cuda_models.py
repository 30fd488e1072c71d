"""The comparison of whole models on a GPU: every model is right, everyone is in the table. A CPU stands in for it."""

import json
from argparse import Namespace
from dataclasses import replace
from typing import Any

import pytest
import torch
from benchmarks.contestants import WrongResult
from benchmarks.cuda.__main__ import main as main_of_cases
from benchmarks.cuda.models.__main__ import main, measure, options, show_profiles, wanted
from benchmarks.cuda.models.contests import COMPILE_REPLAYED, JIT_REPLAYED, Reference, prepare
from benchmarks.cuda.models.networks import NETWORKS
from benchmarks.cuda.models.report import best_over_best, line, page, sheets, targets
from benchmarks.results import COMPILE, EAGER, JIT, Results, Row

CPU = torch.device("cpu")
QUICK = ["--quick", "--no-compile", "--dtype", "float32"]


@pytest.fixture(scope="module")
def results():
    """What a quick run measures."""
    chosen = options([*QUICK, "--model", "Llama-like 1x64", "--model", "ResNet-18 x1"])
    return measure(CPU, chosen, {JIT: 0.1})


def test_models_asked_for_are_measured(results):
    assert [row.name for row in results.groups["float32"]] == ["Llama-like 1x64", "ResNet-18 x1"]
    for row in results.groups["float32"]:
        assert set(row.seconds) == {EAGER, JIT, JIT_REPLAYED} and set(row.second_result) == {JIT}
        assert not row.reason and row.nbytes > 0
        assert f"{row.name}, float32: eager" in line("float32", row)


def test_page_names_every_model(results):
    text = page(sheets(results, quick=True))
    assert text.startswith("# Whole models on an NVIDIA GPU")
    assert all(f"| {row.name} |" in text for row in results.groups["float32"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("network", NETWORKS[::2], ids=lambda network: network.name)
def test_models_are_compiled_whole_and_right(network, dtype):
    with torch.no_grad():
        contest = prepare(network, CPU, dtype, with_compile=False, is_small=True)
    assert list(contest.calls) == [EAGER, JIT, JIT_REPLAYED]
    jitted: Any = contest.calls[JIT]
    assert jitted.func.tier == "skipping"


def test_models_made_alike_are_alike():
    (network,) = wanted(["Llama-like 1x64"])
    (one, given), (other, also_given) = (network.make(CPU, torch.float32, is_small=True) for _ in range(2))
    assert torch.equal(given[0], also_given[0]) and torch.equal(one(*given), other(*also_given))


def test_wrong_results_are_seen():
    (network,) = wanted(["Llama-like 1x64"])
    module, inputs = network.make(CPU, torch.bfloat16, is_small=True)
    with torch.no_grad():
        reference = Reference("a model", module, inputs)
    reference.require_close(reference.expected)
    wrong = reference.expected.clone()
    wrong.view(-1)[-1] += 0.1 * wrong.abs().max()
    with pytest.raises(WrongResult, match="a model: up to"):
        reference.require_close(wrong)
    with pytest.raises(WrongResult, match="strides"):
        reference.require_close(reference.expected.transpose(0, 1).contiguous().transpose(0, 1))
    with pytest.raises(WrongResult, match="float32"):
        reference.require_close(reference.expected.float())


def test_a_wrong_model_has_no_row_and_the_others_go_on(monkeypatch, capsys):
    def refuse(self, found):
        if self._name.startswith("Llama"):
            raise WrongResult(f"{self._name}: off")

    monkeypatch.setattr(Reference, "require_close", refuse)
    found = measure(CPU, options([*QUICK, "--model", "Llama-like", "--model", "ResNet-18 x1"]), {})
    assert [row.name for row in found.groups["float32"]] == ["ResNet-18 x1"]
    assert "float32: WRONG: Llama-like 1x64: off" in capsys.readouterr().err


def test_rows_for_which_there_is_no_time_are_left_out(capsys):
    found = measure(CPU, options([*QUICK, "--model", "ResNet", "--minutes", "0.0"]), {})
    assert len(found.groups["float32"]) <= 1
    assert "ResNet-18 x64, float32: left out, there is no time" in capsys.readouterr().err


def test_the_better_modes_are_compared():
    row = Row("row", {EAGER: 4.0, COMPILE: 3.0, COMPILE_REPLAYED: 1.0, JIT: 2.0, JIT_REPLAYED: 0.8}, 1, 1)
    other = replace(row, name="other", seconds={COMPILE: 1.0, JIT: 2.0}, second_result={COMPILE: 20.0, JIT: 4.0})
    assert best_over_best(row) == pytest.approx(1.25)
    assert best_over_best(replace(row, seconds={JIT: 1.0})) is None
    found = {target.text: target for target in targets(Results({}, (), {}, {"float32": (row, other)}))}
    worst = found["best over torch.compile's best"]
    assert (worst.where, worst.reached, worst.is_met) == ("other, float32", 0.5, False)
    assert found["best over torch.compile's best, geometric mean"].reached == pytest.approx((1.25 * 0.5) ** 0.5)
    assert found["second result over torch.compile's"].is_met
    text = page(sheets(Results({}, (), {}, {"float32": (row, other)}), quick=False))
    assert "| row | 4000.000 | 3000.000 | 1000.000 | 2000.000 | 800.000 | 2.00x | 1.50x | 1.25x | 1.25x |" in text


def test_profiles_name_the_longest_first(capsys):
    show_profiles(CPU, Namespace(profile="Llama-like 1x64", dtype=["float32"], quick=True, no_compile=True))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Llama-like 1x64, float32" and lines[1].startswith("ingot.jit: ")
    times = [float(text.split()[0]) for text in lines[2:] if " us " in text]
    assert times and times == sorted(times, reverse=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_other_comparison_is_named(capsys, monkeypatch):
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_DISABLE", "INGOT_CACHE_DIR"):
        monkeypatch.setenv(name, "")
    assert main_of_cases(["--models", "--quick"]) == main(["--quick"]) == 2
    assert "python -m benchmarks is the one for CPUs" in capsys.readouterr().err


@pytest.mark.cuda
def test_a_quick_run_on_a_gpu_saves_what_it_says(tmp_path, capsys, monkeypatch):
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_DISABLE", "INGOT_CACHE_DIR"):
        monkeypatch.setenv(name, "")
    files = {"json": tmp_path / "figures.json", "markdown": tmp_path / "page.md"}
    arguments = [*QUICK, "--dtype", "bfloat16", *(f"--{name}={path}" for name, path in files.items())]
    assert main(arguments) == 0
    figures = json.loads(files["json"].read_text())
    assert [len(rows) for rows in figures["groups"].values()] == [len(NETWORKS)] * 2
    assert files["markdown"].read_text().startswith("# Whole models")
    assert "GPU" in figures["machine"]
    assert main(["--quick", "--no-compile", "--profile", "U-Net"]) == 0
    assert "ingot.jit" in capsys.readouterr().out
