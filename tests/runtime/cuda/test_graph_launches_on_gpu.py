"""Launches as graphs of one kernel on a GPU: the same results as plain ones, on streams, in threads and in captures."""

import subprocess
import sys
import threading
from dataclasses import replace

import pytest
import torch

import ingot
from ingot import FusionDefinition, JitCompiler
from ingot.runtime.cuda import kernels as cuda_kernels
from ingot.runtime.native.abi.prototypes import prototype
from ingot.runtime.native.cuda import executables
from ingot.runtime.native.cuda.device_launching import DeviceFunctions
from ingot.runtime.native.cuda.device_records import DeviceStep
from ingot.runtime.native.cuda.device_structs import MOST_EXECUTABLES
from ingot.runtime.native.cuda.executables import Executables
from ingot.runtime.native.launch.records import Patch, Record, TensorGuard
from ingot.runtime.plan import Plan
from ingot.runtime.runner import site_for
from tests.runtime.native.kernels import Fallback, FusedCall

pytestmark = pytest.mark.cuda

LONG = 200_000_000
"""Cycles of the device: about a tenth of a second."""


def graphs(stream=None):
    """How many functions are launched by graphs on a stream."""
    handle = (torch.cuda.current_stream() if stream is None else stream).cuda_stream
    return sum(handle in each.streams for each in executables._of_functions.values())


def scaled(number):
    """x * number + y, which no other test has a kernel for."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(2), fd.define_tensor(2)
        fd.add_output(x * number + y)
    return JitCompiler().compile(fd.graph)


def two_softmaxes(x):
    return torch.softmax(torch.softmax(x, -1).t(), -1)


def pair(*shape):
    return [torch.randn(shape or (33, 65), device="cuda") for _ in range(2)]


def test_native_calls_are_graphs():
    functions = DeviceFunctions.of_cuda()
    assert functions is not None and functions.graphs is not None
    module, inputs, before = scaled(2.0), pair(), graphs()
    plain = module.execute(inputs)[0]
    assert graphs() == before
    assert torch.equal(module.execute(inputs)[0], plain) and graphs() == before + 1
    assert torch.equal(module.execute(inputs)[0], plain) and graphs() == before + 1


def test_launches_on_their_way_keep_their_words():
    """Many calls wait behind a long kernel, each with other tensors and results."""
    module, calls = scaled(3.0), [pair(16, 16) for _ in range(200)]
    for _ in range(3):
        module.execute(calls[0])
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    results = [module.execute(inputs)[0] for inputs in calls]
    assert not torch.cuda.current_stream().query(), "nothing has waited"
    for (x, y), result in zip(calls, results, strict=True):
        torch.testing.assert_close(result, x * 3.0 + y)


def test_graphs_and_operators_of_torch_follow_each_other():
    module, (x, y) = scaled(0.5), pair(64, 64)
    found, expected = x, x
    torch.cuda.synchronize()
    for _ in range(100):
        found = module.execute([torch.sin(found), y])[0]
        expected = torch.sin(expected) * 0.5 + y
    torch.testing.assert_close(found, expected)


def test_several_kernels_of_a_jitted_function_are_graphs():
    function, x = ingot.jit(two_softmaxes), torch.randn(70, 50, device="cuda")
    for _ in range(40):
        function(x)
    before = graphs()
    torch.testing.assert_close(function(x), two_softmaxes(x))
    assert graphs() == before > 0


def test_a_stream_does_not_wait_for_the_graphs_of_another():
    module, inputs = scaled(4.0), pair()
    slow, quick = torch.cuda.Stream(), torch.cuda.Stream()
    for stream in (slow, quick):
        with torch.cuda.stream(stream):
            for _ in range(3):
                module.execute(inputs)
    torch.cuda.synchronize()
    with torch.cuda.stream(slow):
        torch.cuda._sleep(LONG)
        (late,) = module.execute(inputs)
    with torch.cuda.stream(quick):
        (early,) = module.execute(inputs)
    quick.synchronize()
    assert not slow.query()
    assert graphs(slow) and graphs(quick)
    slow.synchronize()
    assert torch.equal(early, late)


def test_streams_beyond_those_that_have_graphs_are_right():
    module, inputs = scaled(5.0), pair()
    expected = module.execute(inputs)[0]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(priority=-(number % 2)) for number in range(2 * MOST_EXECUTABLES + 4)]
    results = []
    for stream in streams * 2:
        with torch.cuda.stream(stream):
            results.append(module.execute(inputs)[0])
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("has_own_stream", [False, True])
def test_threads_launch_at_once(has_own_stream):
    module, wrong = scaled(6.0), []
    module.execute(pair(8, 64))
    torch.cuda.synchronize()

    def run(seed):
        stream = torch.cuda.Stream() if has_own_stream else torch.cuda.default_stream()
        with torch.cuda.stream(stream):
            x = torch.full((8, 64), float(seed), device="cuda")
            results = [module.execute([x, x + float(number)])[0] for number in range(400)]
            sums = torch.stack(results).mean((1, 2)).tolist()
        wrong.extend(number for number, found in enumerate(sums) if found != 7.0 * seed + number)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("warm", [1, 5])
def test_calls_that_were_graphs_are_captured_and_are_graphs_again(warm):
    function = ingot.jit(lambda x, y: torch.sigmoid(x * 7.0) + y)
    inputs = pair()
    for _ in range(warm + 30):
        function(*inputs)
    captured = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(captured):
        result = function(*inputs)
    for _ in range(3):
        for tensor in inputs:
            tensor.copy_(torch.randn_like(tensor))
        captured.replay()
        x, y = inputs
        torch.testing.assert_close(result, torch.sigmoid(x * 7.0) + y)
        torch.testing.assert_close(function(*inputs), result)


def test_a_graph_can_be_made_while_another_thread_captures_one():
    """In a process of its own: a capture that fails takes torch's random numbers with it."""
    check = "from tests.runtime.cuda import test_graph_launches_on_gpu as tests; tests.make_a_graph_during_a_capture()"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr


def make_a_graph_during_a_capture():
    module, inputs, found = scaled(8.0), pair(), []
    expected = module.execute(inputs)[0]
    side, captured = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        # While it lives torch keeps memory for results on this stream: it may not ask for some during the capture.
        neighbour = torch.zeros(16, device="cuda")
    torch.cuda.synchronize()

    def run():
        with torch.cuda.stream(side):
            found.extend(module.execute(inputs)[0] for _ in range(2))

    with torch.cuda.graph(captured):
        doubled = expected * 2.0
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    captured.replay()
    torch.cuda.synchronize()
    assert torch.equal(doubled, expected * 2.0) and not neighbour.any()
    assert len(found) == 2 and all(torch.equal(result, expected) for result in found)
    assert graphs(side)
    print("right")


def test_records_share_the_graphs_of_their_functions():
    """More kinds of calls than are remembered: they come and go, and graphs stay as few as there are functions."""
    module = scaled(9.0)
    module.execute(pair(4, 4))
    torch.cuda.synchronize()
    made = lambda: sum(len(each.streams) for each in executables._of_functions.values())
    before = made()
    for _ in range(2):
        for size in range(8, 308):
            x, y = inputs = pair(size, 4)
            for _ in range(2):
                torch.testing.assert_close(module.execute(inputs)[0], x * 9.0 + y)
    assert made() - before <= 16
    assert module._shortcut._table is not None and len(module._shortcut._table) < 300


def test_a_function_whose_launch_failed_is_launched_plainly():
    module, (x, y) = scaled(10.0), pair(16, 64)
    expected = module.execute([x, y])[0]
    plan, site = module._plan, site_for(x.device)
    assert isinstance(plan, Plan) and site is not None
    prepared, own = cuda_kernels.prepare(plan.kernels()[0], [x, y], {"s0": 16, "s1": 64}), Executables()
    possible = tuple(replace(launch, executables=own.address) for launch in prepared.launches)
    impossible = tuple(replace(launch, block=(4096, 1, 1)) for launch in possible)
    patches = tuple(Patch(word, slot) for word, slot in zip(prepared.addresses, (2, 0, 1), strict=True))
    for launches in (possible, impossible, possible):
        call = FusedCall(2, 1, fallback=Fallback("slow"))
        step = DeviceStep(launches, prepared.words, patches)
        guards, results = [TensorGuard.like(x), TensorGuard.like(y)], [prototype((16, 64), torch.float32)]
        call.table.add(Record(guards, results, [step], call.statistics, is_long=True, keeps=own, site=site.site))
        found = call([x, y])
        assert found == "slow" if launches is impossible else torch.equal(found[0], expected)
    assert own.streams == []
    torch.cuda.synchronize()
