"""Calls on a GPU that are answered natively: streams, graphs, memory, threads and faults."""

import ctypes
import threading
from dataclasses import replace

import pytest
import torch

import ingot
from ingot import FusionDefinition, JitCompiler
from ingot.runtime.cuda import kernels as cuda_kernels
from ingot.runtime.native.abi.prototypes import prototype
from ingot.runtime.native.assembler.addresses import TensorExchange
from ingot.runtime.native.cuda.device_launching import device_launcher
from ingot.runtime.native.cuda.device_records import DeviceStep
from ingot.runtime.native.launch.records import Patch, Record, TensorGuard
from ingot.runtime.plan import Plan
from ingot.runtime.runner import site_for
from tests.runtime.native.kernels import Fallback, FusedCall

pytestmark = pytest.mark.cuda

SHAPE = (33, 65)
LONG = 200_000_000
"""Cycles of the device: about a tenth of a second."""


def define(make, *ranks):
    with FusionDefinition() as fd:
        inputs = [fd.define_tensor(rank) for rank in ranks]
        for output in make(fd, *inputs):
            fd.add_output(output)
    return JitCompiler().compile(fd.graph)


def multiply_add():
    return define(lambda fd, a, b, c: [a * b + c], 2, 2, 2)


def two_kernels():
    """Several kernels with a value between them, which lies in the arena."""
    return define(lambda fd, x: [fd.ops.softmax(fd.ops.permute(fd.ops.softmax(x, -1), [1, 0]), -1)], 2)


def two_softmaxes(x):
    return torch.softmax(torch.softmax(x, -1).t(), -1)


def three(shape=SHAPE):
    return [torch.randn(shape, device="cuda") for _ in range(3)]


def natives(module):
    return module._runner._native.executions


def answered(function):
    """Calls of a jitted function that were answered natively."""
    return function._compiled.native.total


def test_there_is_a_launcher_for_the_device():
    assert device_launcher() is not None
    assert site_for(torch.device("cuda", 0)) is not None


def test_the_second_call_is_native():
    module = multiply_add()
    a, b, c = three()
    first, second = module.execute([a, b, c]), module.execute([a, b, c])
    assert natives(module) == 1
    assert torch.equal(first[0], second[0])
    torch.testing.assert_close(second[0], a * b + c)
    assert second[0].device == a.device and second[0].is_contiguous() and not second[0].requires_grad


def test_kernels_follow_each_other():
    module = two_kernels()
    x = torch.randn(SHAPE, device="cuda")
    for _ in range(5):
        (result,) = module.execute([x])
        torch.testing.assert_close(result, two_softmaxes(x))
    assert natives(module) == 4


def test_the_stream_is_torchs_current_one():
    exchange = TensorExchange.find()
    assert exchange is not None
    ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(exchange.current_stream.address)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream(priority=-1)):
        with torch.cuda.stream(stream):
            found = (ctypes.c_uint64 * 1)()
            assert ask(2, 0, ctypes.addressof(found)) == 0
            assert found[0] == stream.cuda_stream


@pytest.mark.parametrize("make", [multiply_add, two_kernels])
def test_calls_run_on_side_streams(make):
    """What the stream does before is waited for: the inputs get their values late."""
    module = make()
    inputs = three()[: len(module.graph.inputs)]
    module.execute(inputs)
    values = [torch.randn_like(tensor) for tensor in inputs]
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        for tensor, value in zip(inputs, values, strict=True):
            tensor.copy_(value)
        (result,) = module.execute(inputs)
    side.synchronize()
    expected = values[0] * values[1] + values[2] if len(values) == 3 else two_softmaxes(values[0])
    torch.testing.assert_close(result, expected)
    assert natives(module) == 1


def test_results_are_kept_for_streams_that_they_are_recorded_on():
    """Memory of a dead result is not given out while another stream may still read it."""
    module, inputs = multiply_add(), three((512, 512))
    module.execute(inputs)
    (result,) = module.execute(inputs)
    side, address = torch.cuda.Stream(), result.data_ptr()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
    result.record_stream(side)
    del result
    others = [torch.empty(512, 512, device="cuda") for _ in range(4)]
    assert all(other.data_ptr() != address for other in others)
    side.synchronize()
    assert natives(module) == 1


def test_memory_that_runs_out_is_torchs_error_and_may_come_back():
    module, inputs = multiply_add(), three((4096, 4096))
    expected = module.execute(inputs)[0].cpu()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 20)) / total)
    try:
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError):
                module.execute(inputs)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert natives(module) == 0
    assert torch.equal(module.execute(inputs)[0].cpu(), expected)
    assert natives(module) == 1


@pytest.mark.parametrize("make", [multiply_add, two_kernels])
def test_calls_are_captured_in_graphs(make):
    module = make()
    inputs = three()[: len(module.graph.inputs)]
    module.execute(inputs)
    graph, before = torch.cuda.CUDAGraph(), natives(module)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        (result,) = module.execute(inputs)
    assert natives(module) == before + 1
    for _ in range(3):
        values = [torch.randn_like(tensor) for tensor in inputs]
        for tensor, value in zip(inputs, values, strict=True):
            tensor.copy_(value)
        graph.replay()
        expected = values[0] * values[1] + values[2] if len(values) == 3 else two_softmaxes(values[0])
        torch.testing.assert_close(result, expected)


def test_many_calls_leave_memory_as_it_was():
    module, x = two_kernels(), torch.randn(SHAPE, device="cuda")
    for _ in range(100):
        module.execute([x])
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(20_000):
        module.execute([x])
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


def test_tensors_at_odd_addresses_have_records_of_their_own():
    module = define(lambda fd, x, y: [x * y + 1.0], 1, 1)
    memory = torch.randn(5000, device="cuda")
    for time in range(2):
        for one, other in ((0, 4), (1, 4), (0, 4), (3, 2), (4, 8)):
            x, y = memory[one : one + 4096], memory[other : other + 4096]
            torch.testing.assert_close(module.execute([x, y])[0], x * y + 1.0)
        torch.cuda.synchronize()
        assert natives(module) == (2, 7)[time]


def test_new_threads_are_answered_natively():
    module, inputs, results = multiply_add(), three(), []
    module.execute(inputs)

    def run():
        results.extend(module.execute(inputs)[0] for _ in range(3))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert natives(module) == 3
    for result in results:
        torch.testing.assert_close(result, inputs[0] * inputs[1] + inputs[2])


def test_a_failing_launch_goes_to_the_fallback():
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor(1) + 1.0)
    x = torch.randn(1024, device="cuda")
    module = JitCompiler().compile(fd.graph)
    module.execute([x])
    plan, site = module._plan, site_for(x.device)
    assert isinstance(plan, Plan) and site is not None
    prepared = cuda_kernels.prepare(plan.kernels()[0], [x], {"s0": 1024})
    patches = (Patch(prepared.addresses[0], 1), Patch(prepared.addresses[1], 0))
    impossible = tuple(replace(launch, block=(4096, 1, 1)) for launch in prepared.launches)
    for launches in (prepared.launches, impossible):
        call = FusedCall(1, 1, fallback=Fallback("slow"))
        step = DeviceStep(launches, prepared.words, patches)
        guards, results = [TensorGuard.like(x)], [prototype((1024,), torch.float32)]
        call.table.add(Record(guards, results, [step], call.statistics, is_long=True, site=site.site))
        found = call([x])
        assert found == "slow" if launches is impossible else torch.equal(found[0], x + 1.0)
    torch.cuda.synchronize()


def test_calls_inside_transformations_are_right():
    """Inside grad and functionalize torch's new tensors are wrappers, which a record cannot fill."""
    module, inputs = multiply_add(), three()
    (expected,) = module.execute(inputs)
    seen = []

    def fused(x):
        seen.append(module.execute(inputs)[0])
        return x.sum()

    for transform in (torch.func.grad, torch.func.vmap, torch.func.functionalize):
        transform(fused)(torch.randn(4, device="cuda"))
    for result in seen:
        torch.testing.assert_close(torch.func.debug_unwrap(result), expected)
    assert len(seen) == 3


def test_jitted_functions_are_answered_natively():
    @ingot.jit
    def function(x, y):
        return torch.sigmoid(x * y) + y

    x, y = torch.randn(SHAPE, device="cuda"), torch.randn(SHAPE, device="cuda")
    for _ in range(30):  # more than it takes until a record answers
        torch.testing.assert_close(function(x, y), torch.sigmoid(x * y) + y)
    before = answered(function)
    torch.testing.assert_close(function(x, y), torch.sigmoid(x * y) + y)
    assert answered(function) == before + 1
    with torch.autocast("cuda"):  # which the recording knows nothing of
        torch.testing.assert_close(function(x, y), torch.sigmoid(x * y) + y)
    assert answered(function) == before + 1


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_calls_on_a_device_that_is_not_current_are_right():
    module = multiply_add()
    inputs = [tensor.to("cuda:1") for tensor in three()]
    for _ in range(3):
        (result,) = module.execute(inputs)
        assert result.device == torch.device("cuda", 1)
        torch.testing.assert_close(result, inputs[0] * inputs[1] + inputs[2])
    assert natives(module) == 0
    with torch.cuda.device(1):
        module.execute(inputs)
    assert natives(module) == 1
