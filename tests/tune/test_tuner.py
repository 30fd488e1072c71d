"""Tuning as users meet it: searches that are ended, what lies on disk, gradients, following, other devices."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ingot
from ingot import FusionDefinition, GraphBuilder, JitCompiler
from ingot.base.errors import ConfigError
from ingot.runtime.backends.registry import using
from ingot.runtime.cpu.backend import CpuBackend
from ingot.runtime.cpu.kernels import scheduled
from ingot.tune import findings, tuner
from ingot.tune.findings import Finding
from tests.loops.running import cpu_backend
from tests.tune.conftest import Measurements
from tests.tune.test_search import finding_of, gate, quicker, tuned
from tests.warm_processes import run_python

pytestmark = pytest.mark.usefixtures("no_eager_comparison")


jit: Any = ingot.jit


def ending_after(count: int, error: BaseException, **figures: float) -> Any:
    """A clock that raises when so many candidates have been measured."""
    begun: list[Any] = []
    seconds = quicker(**figures)

    def cost(candidate: Any, rounds: int) -> float:
        if candidate.changes and candidate.changes not in begun:
            begun.append(candidate.changes)
        if len(begun) > count:
            raise error
        return seconds(candidate, rounds)

    return cost


# --- searches that do not come to their end ---------------------------------------------------------------------------


def test_an_interrupted_search_keeps_the_best_so_far(measurements: Measurements):
    measurements.cost = ending_after(5, KeyboardInterrupt(), vector_bytes=2)
    compiled = jit(gate, tune=True)
    x, y = torch.randn(40_001), torch.randn(40_001)
    compiled(x, y)
    with pytest.raises(KeyboardInterrupt):
        compiled(x, y)
    count = len(measurements.measured)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, y), gate(x, y))
    assert len(measurements.measured) == count, "it begins no other search"
    found = finding_of(compiled)
    assert "vectors of" in found.chosen and found.speedup == 2 and found.stopped == "interrupted"
    assert "stopped: interrupted" in compiled.explain()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=["interrupted", "ended"])
def test_another_process_goes_on_where_one_was_ended(measurements: Measurements, error: BaseException):
    measurements.cost = ending_after(5, error, vector_bytes=2)
    with pytest.raises(type(error)):
        tuned()
    measured = list(measurements.measured)
    known = next(iter(measurements.disk.values()))
    assert len(known.tried) == 5 and not known.is_complete and known.speedup == 2
    measurements.end_process()
    measurements.cost, measurements.measured = quicker(vector_bytes=2), []
    found = finding_of(tuned())
    assert found.speedup == 2 and not found.stopped and found.candidates > 5
    best = {"vector_bytes": known.changes["vector_bytes"]}
    again = [changes for changes in measurements.measured if changes in measured[:-1] and changes != best]
    assert not again


def test_a_machine_that_is_busy_is_not_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tuner, "read", lambda key: None)
    monkeypatch.setattr(tuner, "_findings", {})
    monkeypatch.setattr("ingot.tune.measurement._preemptions", itertools.count().__next__)
    monkeypatch.setattr("ingot.tune.measurement.TURN_SECONDS", 0.0)
    compiled = tuned()
    found = finding_of(compiled)
    assert found.chosen == "" and "do not have a processor each" in found.stopped
    assert "do not have a processor each" in compiled.explain()


def test_what_does_not_fit_memory_is_not_measured(measurements: Measurements, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ingot.tune.measurement._free_bytes", lambda: 1000)
    assert "stand-ins would take" in finding_of(tuned()).stopped
    assert not measurements.measured


# --- what lies on disk ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"column_block": 64}, {"no such figure": 1}, {"flat_block": 7}, {"few_rows": 1}, {"vector_bytes": 1 << 40}],
    ids=str,
)
def test_findings_that_do_not_fit_are_not_used(measurements: Measurements, changes: dict[str, int]):
    tuned()
    count = len(measurements.measured)
    for key in measurements.disk:
        measurements.disk[key] = Finding(changes, 3.0, ["x"], 1000, 10.0, True, True)
    measurements.end_process()
    found = finding_of(tuned())
    assert found.chosen == "" and not found.is_from_disk and len(measurements.measured) == 2 * count


WHOLE = {
    "format": 1,
    "changes": {"flat_block": 1024},
    "speedup": 1.5,
    "tried": ["a"],
    "steps": 1000,
    "seconds": 10,
    "is_exhausted": True,
}


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {},
        3,
        WHOLE | {"format": 2},
        WHOLE | {"more": 1},
        WHOLE | {"changes": {"flat_block": "1024"}},
        WHOLE | {"changes": [["flat_block", 1024]]},
        WHOLE | {"tried": [1]},
        WHOLE | {"speedup": -1.0},
        WHOLE | {"speedup": float("nan")},
        WHOLE | {"steps": True},
        WHOLE | {"is_exhausted": 1},
    ],
    ids=str,
)
def test_what_is_no_finding_counts_as_nothing(found: Any):
    assert findings.parsed(found) is None
    assert findings.parsed(WHOLE) == Finding({"flat_block": 1024}, 1.5, ["a"], 1000, 10, True, True)


def test_a_finding_belongs_to_sizes_threads_and_figures(measurements: Measurements, monkeypatch: pytest.MonkeyPatch):
    tuned()
    (key,) = measurements.disk
    monkeypatch.setattr("ingot.tune.findings.thread_count", lambda: 7)
    tuned()
    with using(replace(cpu_backend(), tuning=replace(cpu_backend().tuning, flat_block=4096))):
        tuned()
    first, second, third = measurements.disk
    assert first == key and (second.threads, third.figures == key.figures) == (7, False)


def test_code_that_is_not_kept_leaves_no_finding(measurements: Measurements):
    tuned(config={"enable_caching": False})
    assert measurements.measured and not measurements.disk


SCRIPT = """
import sys
import torch, ingot, json

plain = ingot.jit(torch.tanh)
plain(torch.ones(9)), plain(torch.ones(9))
assert "ingot.tune" not in sys.modules, "loaded without tuning"

from ingot.tune.measurement import Workbench

def seconds(bench, candidates, rounds):
    assert sys.argv[1] == "first", "measured again"
    return [[0.5 if "vector_bytes" in one.changes else 1.0] * rounds for one in candidates]

Workbench.seconds = seconds

@ingot.jit(tune=True)
def gate(x, y):
    return torch.sigmoid(x * y) * torch.tanh(x - y)

x = torch.randn(40_001)
for _ in range(3):
    gate(x, x)
(found,) = gate.stats().tuned
print(json.dumps([found.chosen, found.speedup, found.is_from_disk]))
"""


def test_a_second_process_uses_what_the_first_has_found(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    told = []
    for name in ("first", "second"):
        environment = {**os.environ, "INGOT_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        done = run_python(str(tmp_path / "script.py"), name, env=environment)
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    (first, *_), (second, *_) = told
    assert first == second != "" and [row[1:] for row in told] == [[2.0, False], [2.0, True]]


# --- what is tuned ----------------------------------------------------------------------------------------------------


def test_results_are_those_without_tuning_and_tensors_are_left_alone(measurements: Measurements):
    """In place, in segments of a followed function, by columns: each with machine code of the chosen candidates."""
    measurements.cost, measurements.runs = lambda candidate, rounds: 0.9 ** len(candidate.changes), True

    def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(y).add_(1)
        return x * 2

    def followed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(float((x * y).sum()))
        return torch.tanh(x) * y

    def columns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y).reshape(100, -1).sum(0)

    seen: list[float] = []
    for function in (in_place, followed, columns):
        results = []
        for options in ({"tune": True, "tuning_steps": 3}, {}):
            compiled: Any = ingot.jit(function, **options)
            torch.manual_seed(1)
            x, y = torch.randn(40_000), torch.randn(40_000)
            results.append([[compiled(x, y).clone(), x.clone()] for _ in range(4)])
            assert torch.equal(y, torch.manual_seed(1) and (torch.randn(40_000), torch.randn(40_000))[1])
            if options:
                assert compiled.stats().tuned and all(one.chosen for one in compiled.stats().tuned), function
        for ours, theirs in zip(*results, strict=True):
            assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)), function


def test_both_passes_of_gradients_are_tuned(measurements: Measurements):
    measurements.cost = lambda candidate, rounds: 0.9 ** len(candidate.changes)
    compiled = jit(gate, tuning_steps=2)
    for seed in range(4):
        torch.manual_seed(seed)
        x, y = torch.randn(40_000, requires_grad=True), torch.randn(40_000)
        (expected,) = torch.autograd.grad(gate(x, y).square().sum(), x)
        compiled(x, y).square().sum().backward()
        torch.testing.assert_close(x.grad, expected, rtol=1e-4, atol=1e-5)
    assert compiled.explain().count(" tuned for 40000: ") == 2


def test_compilers_and_fusions_take_the_flags(measurements: Measurements):
    measurements.cost = lambda candidate, rounds: 0.9 ** len(candidate.changes)
    config = {"tune": True, "kernel_tuning_steps": 3, "kernel_tuning_seconds": 5}
    builder = GraphBuilder()
    x = builder.input((-1,))
    builder.output(builder.ops.tanh(x) * x)
    compiler = JitCompiler(config)
    given = torch.randn(40_001)
    (result,) = compiler.compile(builder.build()).execute([given])
    torch.testing.assert_close(result, torch.tanh(given) * given)
    assert compiler.tuner is not None
    (found,) = compiler.tuner.findings()
    assert found.candidates == 3 and found.chosen
    with FusionDefinition(config=config) as fusion:
        y = fusion.define_tensor(1)
        fusion.add_output(fusion.ops.exp(y) * y)
    fusion.execute([given])
    assert len(measurements.disk) == 2 and all(finding.changes for finding in measurements.disk.values())


def test_without_tuning_nothing_is_asked_for():
    assert JitCompiler().tuner is None and JitCompiler({"kernel_tuning_steps": 5}).tuner is None
    assert jit(gate)._compiled.compiler.tuner is None


def test_options_go_before_flags():
    assert jit(gate, tuning_steps=7)._options.config["kernel_tuning_steps"] == 7
    assert jit(gate, config={"tune": True})._options.tune
    assert jit(gate, config={"kernel_tuning_steps": 9}, tune=True)._options.tuning_steps == 9
    assert jit(gate, tune=True)._options.tuning_steps == 1000
    off = jit(gate, config={"tune": True}, tune=False)
    assert not off._options.tune and off._compiled.compiler.tuner is None
    for wrong in ({"kernel_tuning_steps": 0}, {"kernel_tuning_seconds": 0}, {"tune": 1}, {"kernel_tuning_steps": 2.0}):
        with pytest.raises(ConfigError):
            ingot.Config(wrong)


class _Untuned(CpuBackend):
    """Stands for a device whose kernels are not tuned."""

    tunes = False


def test_devices_whose_kernels_are_not_tuned_say_so(measurements: Measurements):
    with using(_Untuned()), pytest.warns(UserWarning, match="kernels on cpu devices are not tuned"):
        JitCompiler({"tune": True}).compile(_tanh()).execute([torch.ones(3)])


def _tanh() -> Any:
    builder = GraphBuilder()
    builder.output(builder.ops.tanh(builder.input((-1,))))
    return builder.build()


def test_what_runs_eagerly_says_so(measurements: Measurements):
    compiled = jit(lambda x: torch.tanh(x).tolist(), tune=True, python="run")
    for _ in range(3):
        compiled(torch.ones(3))
    assert ("not tuned: PyTorch computes it" in compiled.explain()) is (compiled.tier == "eager")


def test_what_is_not_allowed_for_a_call_is_not_used(measurements: Measurements, monkeypatch: pytest.MonkeyPatch):
    """Sizes of a class share a finding, but not everything that is allowed for one is allowed for all."""
    builder = GraphBuilder()
    builder.output(builder.ops.tanh(builder.input((4096,))))
    (kernel,) = JitCompiler({"tune": True}).compile(builder.build()).kernels()
    tensors, default = [torch.empty(4096, device="meta")], CpuBackend().tuning
    call, _ = scheduled(kernel, tensors, {}, {}, default)
    key = findings.FindingKey.of(kernel.program, call, default)
    assert kernel.tuner is not None
    for changes, expected in (({"flat_block": 1024}, 1024), ({"flat_block": 1000}, default.flat_block)):
        monkeypatch.setitem(tuner._findings, key, Finding(changes, is_exhausted=True))
        assert kernel.tuner.tuned(kernel, tensors, {}, {}, default).flat_block == expected
    assert not measurements.measured
