"""Streams, captured graphs and devices: ingot's kernels go where PyTorch's would."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

import ingot
from ingot import DataType, FusionDefinition

pytestmark = pytest.mark.cuda

GPU = torch.device("cuda", 0)
LONG = 100_000_000
"""Cycles of a device in which a host can do a lot."""


def definition() -> FusionDefinition:
    """Element by element and along rows: two kernels."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(2)
        y = x * 2 + 1
        fd.add_output(y)
        fd.add_output(fd.ops.softmax(fd.ops.sin(y), -1))
    return fd


def expected(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2 + 1
    return y, torch.softmax(torch.sin(y), -1)


def assert_right(found: Any, x: torch.Tensor) -> None:
    for ours, theirs in zip(found, expected(x), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.fixture(params=["definition", "jit"])
def function(request) -> Any:
    """A fusion or a compiled function, called often enough to be answered natively."""
    if request.param == "definition":
        fd = definition()
        call = lambda x: fd.execute([x])
    else:
        request.getfixturevalue("no_eager_comparison")
        call = ingot.jit(expected)
    for _ in range(4):
        x = torch.randn(64, 100, device=GPU)
        assert_right(call(x), x)
    return call


def test_kernels_wait_for_what_is_before_them_on_a_stream(function):
    x = torch.zeros(64, 100, device=GPU)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        x.add_(3)
        found = function(x)
    stream.synchronize()
    assert_right(found, torch.full((64, 100), 3.0, device=GPU))


def test_other_streams_do_not_wait(function):
    """A kernel on a stream of its own is done while another stream is still busy."""
    x = torch.ones(64, 100, device=GPU)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function(x)  # memory for results on this stream, which the driver would otherwise be asked for
    torch.cuda.synchronize()
    torch.cuda._sleep(20 * LONG)
    with torch.cuda.stream(stream):
        found = function(x)
    stream.synchronize()
    assert not torch.cuda.default_stream().query()
    torch.cuda.synchronize()
    assert_right(found, x)


def test_memory_of_results_is_reused_in_the_order_of_the_stream(function):
    """Results dropped while they are still to be computed give their memory to later ones, and nothing is mixed up."""
    inputs = [torch.full((64, 100), float(number), device=GPU) for number in range(50)]
    torch.cuda._sleep(LONG)
    sums = [function(x)[0].sum() for x in inputs]
    assert [value.item() for value in sums] == [6400.0 * (2 * number + 1) for number in range(50)]


def test_calls_are_captured_in_a_graph(function):
    x = torch.randn(64, 100, device=GPU)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = function(x)
        doubled = found[0] * 2
    for seed in range(3):
        x.copy_(torch.randn(64, 100, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert_right(found, x)
        torch.testing.assert_close(doubled, 2 * expected(x)[0])


def test_threads_with_streams_of_their_own(function):
    wrong = []

    def work(seed: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for repeat in range(50):
                x = torch.full((64, 100), float(seed + repeat), device=GPU)
                if not torch.equal(function(x)[0], x * 2 + 1):
                    wrong.append((seed, repeat))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_calls_leave_no_memory_behind(function):
    x = torch.randn(64, 100, device=GPU)
    function(x)
    before = torch.cuda.memory_allocated()
    for _ in range(2000):
        function(x)
    assert torch.cuda.memory_allocated() == before


# --- devices ----------------------------------------------------------------------------------------------------------


def test_a_fusion_of_numbers_alone_is_told_its_device():
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([3, 4], 2.0, DataType.Float) * fd.define_scalar(dtype=DataType.Double))
    for device in ("cuda", GPU, "cuda:0"):
        (found,) = fd.execute([3.0], device=device)
        assert found.device == GPU
        assert torch.equal(found, torch.full((3, 4), 6.0, device=GPU))
    assert fd.execute([3.0], device="cpu")[0].device.type == "cpu"


def test_one_definition_runs_on_both_kinds_of_devices():
    fd = definition()
    for _ in range(3):
        x = torch.randn(33, 65)
        for there in (x, x.to(GPU)):
            found = fd.execute([there])
            assert found[0].device == there.device
            assert_right(found, there)


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_of_another_device_than_the_current_one(function):
    x = torch.randn(64, 100, device="cuda:1")
    for _ in range(3):
        found = function(x)
        assert found[0].device == x.device
        assert_right(found, x)
    with torch.cuda.device(1):
        assert_right(function(x), x)


def test_an_index_out_of_range_stops_the_process_as_eagers_does():
    """In a process of its own: no kernel, of ingot or not, runs after such an error."""
    code = """
import torch
from ingot import DataType, GraphBuilder, JitCompiler
builder = GraphBuilder()
x, index = builder.input((-1, -1)), builder.input((-1, 1), DataType.Int)
builder.output(builder.ops.take_along_axis(x * 2, index, 1))
module = JitCompiler().compile(builder.build())
x = torch.randn(4, 5, device="cuda")
right = torch.tensor([[0], [4], [2], [1]], device="cuda")
print(torch.equal(module.execute([x, right])[0], (x * 2).gather(1, right)), flush=True)
try:
    module.execute([x, right + 100])
    torch.cuda.synchronize()
except Exception as error:
    print(type(error).__name__)
else:
    print("nothing was noticed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split()[0] == "True", done.stderr
    assert "nothing was noticed" not in done.stdout
