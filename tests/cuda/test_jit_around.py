"""What surrounds `ingot.jit` on a GPU: trials, settings, streams, captures, texts, statistics, frozen models."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot import DataType, FusionDefinition
from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.autotune.benchmarking import is_clearly_quicker
from ingot.frontend.jit.autotune.timing import stopwatch
from tests.frontend.jit.comparing import is_compiled, why_followed

pytestmark = pytest.mark.cuda

GPU = torch.device("cuda", 0)
jit: Any = ingot.jit


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x * y) * torch.tanh(x - y)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=GPU)


def kind_of(compiled: Any) -> Any:
    (found,) = compiled._compiled.specialisations.values()
    return found


def test_an_eager_comparison_measures_both_ways_on_the_device():
    compiled = jit(gate)
    x, y = draw(4096, 4096), draw(4096, 4096)
    for _ in range(2 + 2 * eager_comparison.ROUNDS + 2):
        torch.testing.assert_close(compiled(x, y), gate(x, y))
    measured = kind_of(compiled).eager_comparison
    assert measured.is_over and len(measured.eager) == eager_comparison.ROUNDS
    moved = 3 * x.nbytes
    for seconds in map(float, (*measured.eager, *measured.program)):
        assert 0 < moved / seconds < 20e12  # no GPU moves that much in a second: the work itself was measured
    assert is_compiled(compiled) != measured.prefers_eager


def test_a_stopwatch_waits_for_the_device():
    watch = stopwatch(GPU)
    torch.cuda._sleep(20_000_000)
    assert float(watch.stop()) > 0.005


def test_the_quicker_way_is_found_on_the_device():
    x, small = draw(4096, 4096), draw(16, 16)
    assert is_clearly_quicker(lambda: small + 1, lambda: x @ x, GPU)
    assert not is_clearly_quicker(lambda: x @ x, lambda: small + 1, GPU)


@pytest.mark.usefixtures("no_eager_comparison")
def test_the_stream_is_no_part_of_a_recording():
    compiled = jit(gate)
    x, y = draw(8, 8), draw(8, 8)
    torch.cuda.synchronize()
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            torch.testing.assert_close(compiled(x, y), gate(x, y))
        stream.synchronize()
    assert compiled._compiled.recordings == 1


@pytest.mark.usefixtures("no_eager_comparison")
def test_settings_that_choose_operators_ask_for_a_recording():
    compiled = jit(gate)
    x, y = draw(8, 8), draw(8, 8)
    compiled(x, y)
    with torch.backends.cudnn.flags(enabled=False):
        compiled(x, y)
    compiled(x, y)
    assert compiled._compiled.recordings == 2
    assert any("cuDNN was True, is False" in reason for reason in compiled._compiled.recompiles)


def synchronizes(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.synchronize()
    return x * 2


def changes_streams(x: torch.Tensor) -> torch.Tensor:
    with torch.cuda.stream(torch.cuda.Stream()):
        return x * 2


def records_event(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.Event().record()
    return x * 2


@pytest.mark.parametrize("function", [synchronizes, changes_streams, records_event])
def test_functions_that_deal_with_streams_are_followed(function: Callable[..., Any]):
    compiled = jit(function)
    x = draw(8)
    torch.cuda.synchronize()
    for _ in range(3):
        compiled(x)
    assert "waits for a GPU" in why_followed(compiled)
    torch.cuda.synchronize()
    torch.testing.assert_close(compiled(x), x * 2)


def test_a_call_that_is_new_inside_a_capture_is_captured_as_it_is():
    compiled = jit(lambda x: torch.relu(x * 2) + torch.tensor([1.0], device=x.device).expand(8))
    x = draw(8)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    compiled_in_a_capture = jit(gate)
    with torch.cuda.graph(graph):
        found = compiled_in_a_capture(x, x)
    x.copy_(draw(8))
    graph.replay()
    torch.testing.assert_close(found, gate(x, x))
    assert compiled_in_a_capture._compiled.recordings == 0
    for _ in range(3):
        torch.testing.assert_close(compiled(x), torch.relu(x * 2) + 1)


@pytest.mark.usefixtures("no_eager_comparison")
def test_texts_of_every_stage():
    compiled = jit(gate)
    for _ in range(3):
        compiled(draw(64, 64), draw(64, 64))
    assert ".entry" in compiled.inspect("ptx") and "ptx_kernel" in compiled.inspect("llvm")
    assert "float32[64, 64] on cuda:0 x2" in compiled.explain()
    if shutil.which("ptxas") and (shutil.which("nvdisasm") or shutil.which("cuobjdump")):
        assert "EXIT" in compiled.inspect("sass")


def test_statistics_and_profiles():
    with FusionDefinition(config={"enable_profiling": True}) as fd:
        x = fd.define_tensor(2)
        fd.add_output(fd.ops.softmax(x * 2, -1))
    x = draw(1024, 1024)
    for _ in range(3):
        fd.execute([x])
    found = fd.module.stats()
    assert found.executions == found.kernel_launches == 3
    assert found.memory_transferred == 3 * 2 * x.nbytes
    (spent,) = found.time_per_operator_us.values()
    assert spent > 0


def test_definitions_are_validated_on_the_device():
    with FusionDefinition() as fd:
        x = fd.define_tensor(2)
        noise = fd.ops.uniform(0.0, 1.0, [16, 16], DataType.Float)
        fd.add_output(x * 2 + noise + fd.ops.full([16], 3.0, DataType.Float))
    (found,) = fd.validate([draw(16, 16)])
    assert found.device == GPU


@pytest.mark.usefixtures("no_eager_comparison")
def test_frozen_convolutions_give_what_eager_gives():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Conv2d(16, 8, 1)
    )
    model = model.to(GPU).eval()
    compiled = ingot.jit(model, freeze=True)
    x = draw(4, 3, 32, 32)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(compiled(x), model(x), rtol=2e-3, atol=2e-3)


@pytest.mark.usefixtures("no_eager_comparison")
def test_a_model_that_moves_is_recorded_again():
    model = nn.Linear(8, 8)
    compiled = ingot.jit(model)
    with torch.no_grad():
        for device in ("cpu", GPU, "cpu", GPU):
            model.to(device)
            for _ in range(3):
                x = torch.randn(4, 8).to(device)
                torch.testing.assert_close(compiled(x), model(x))
