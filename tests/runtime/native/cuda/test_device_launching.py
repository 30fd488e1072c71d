"""Calls on a device: what is launched where, whose memory it is, and that all that goes wrong goes to Python."""

import ctypes
import gc
import resource
import threading
from dataclasses import replace

import pytest
import torch

from ingot.base.errors import CudaError
from ingot.runtime.cuda.prepared import Launch
from ingot.runtime.native.abi import devices
from ingot.runtime.native.abi.prototypes import DTYPES, prototype
from ingot.runtime.native.assembler.addresses import torch_function
from ingot.runtime.native.assembler.routines import Foreign, Library
from ingot.runtime.native.cuda import device_launching, device_records
from ingot.runtime.native.cuda.device_launching import DeviceFunctions, device_launcher
from ingot.runtime.native.cuda.device_records import DeviceStep
from ingot.runtime.native.launch.record_structs import Convention
from ingot.runtime.native.launch.records import CallSlots, NumberGuard, Patch, Record, TensorGuard
from tests.runtime.native.devices import CONTEXT, STREAM, Machine
from tests.runtime.native.kernels import (
    COUNT_WORD,
    FIRST_ADDRESS,
    Fallback,
    FusedCall,
    integer_kernels,
    multiply_add_kernel,
)

GRID, BLOCK = (7, 5, 3), (128, 4, 2)
CURRENT_STREAM = (2 << 32) + STREAM
"""Of device 0 among CUDA's."""


@pytest.fixture(params=[True, False], ids=["direct", "dispatched"])
def machine(request):
    return Machine(request.param)


def three(shape=(32, 64)):
    return [torch.randn(shape) for _ in range(3)]


def device_call(machine, tensors, convention=Convention.LIST, fallback=None, overlaps=False, **replaced):
    """A native function of one record: a * b + c of tensors like these, launched on a machine."""
    kernel = multiply_add_kernel()
    launch = Launch(kernel.address("multiply_add"), GRID, BLOCK, overlaps=overlaps)
    patches = tuple(Patch(FIRST_ADDRESS + number, number) for number in range(4))
    step = DeviceStep((launch,), (0, 0, tensors[0].numel(), 0, 0, 0, 0), patches)
    call = FusedCall(3, 1, convention, fallback)
    guards = [TensorGuard.like(tensor) for tensor in tensors]
    result, site = prototype(tuple(tensors[0].shape), torch.float32), machine.site(**replaced)
    call.table.add(Record(guards, [result], [step], call.statistics, is_long=True, keeps=kernel, site=site))
    return call


def copies(machine, chain, results, arena_bytes=0, fallback=None):
    """A native function of one input, eight words: each link of the chain copies words from a slot to another, whose
    numbers come with offsets in bytes."""
    slots = CallSlots(1, results)
    place = {"in": slots.input(0), "arena": slots.arena} | {f"out{n}": slots.result(n) for n in range(results)}
    copy = Launch(integer_kernels().address("copy"), (1, 1, 1), (32, 1, 1))
    steps = []
    for links in chain:
        patches = [Patch(FIRST_ADDRESS + n, place[name], offset) for n, (name, offset) in enumerate(links)]
        steps.append(DeviceStep((copy,), (0, 0, 8, 0, 0), tuple(patches)))
    call = FusedCall(1, results, fallback=fallback)
    guard, prototypes = TensorGuard(torch.int64, (8,), (1,)), [prototype((8,), torch.int64)] * results
    site = machine.site()
    record = Record(
        [guard],
        prototypes,
        steps,
        call.statistics,
        arena_bytes=arena_bytes,
        is_long=True,
        keeps=integer_kernels(),
        site=site,
    )
    call.table.add(record)
    return call


# --- launching --------------------------------------------------------------------------------------------------------


def test_a_kernel_is_launched_on_the_current_stream_with_its_grid_and_words(machine):
    a, b, c = three()
    call = device_call(machine, [a, b, c])
    (result,) = call([a, b, c])
    assert torch.equal(result, a * b + c)
    (launch, stream) = machine.launches[0]
    assert launch == Launch(multiply_add_kernel().address("multiply_add"), GRID, BLOCK)
    assert stream == CURRENT_STREAM
    assert call.fallback.calls == []
    assert call.statistics.executions == call.statistics.launches == machine.launch_count == 1


def test_a_kernel_that_waits_by_itself_may_overlap_with_the_launch_before_it(machine):
    tensors = three()
    waiting, other = (device_call(machine, tensors, overlaps=overlaps) for overlaps in (True, False))
    for call in (waiting, other, waiting):
        assert torch.equal(call(tensors)[0], tensors[0] * tensors[1] + tensors[2])
    assert machine.overlap == [True, False, True]
    launch = Launch(multiply_add_kernel().address("multiply_add"), GRID, BLOCK)
    assert machine.launches == [(launch, CURRENT_STREAM)] * 3


@pytest.mark.parametrize("captures_attributes", [True, False])
def test_a_captured_launch_is_one_that_the_driver_can_capture(machine, captures_attributes):
    if not captures_attributes:
        machine.lose_captures_with_attributes()
    tensors = three()
    call = device_call(machine, tensors, overlaps=True)
    for is_captured in (True, False):
        machine.capture(is_captured)
        assert torch.equal(call(tensors)[0], tensors[0] * tensors[1] + tensors[2])
    assert machine.overlap == [captures_attributes, True]


def test_launches_do_not_overlap_where_the_driver_has_no_words_for_it(machine):
    machine.lose_launches_with_attributes()
    tensors = three()
    call = device_call(machine, tensors, overlaps=True)
    assert torch.equal(call(tensors)[0], tensors[0] * tensors[1] + tensors[2])
    assert machine.overlap == [False] and machine.launch_count == 1


def test_a_failing_launch_that_may_overlap_goes_to_the_fallback(machine):
    tensors = three()
    call = device_call(machine, tensors, fallback=Fallback("slow"), overlaps=True)
    machine.fail_launch(0, 719)
    assert call(tensors) == "slow" and machine.launch_count == 0 and call.statistics.executions == 0


def test_results_are_new_ordinary_tensors_of_torch(machine):
    tensors = three((4, 8))
    call = device_call(machine, tensors, Convention.POSITIONAL)
    first, second = call(*tensors), call(*tensors)
    assert type(first) is torch.Tensor and first.is_leaf and not first.requires_grad and not first.is_inference()
    assert first.is_contiguous() and first.data_ptr() != second.data_ptr()
    assert first.untyped_storage().resizable() and first.untyped_storage().nbytes() == first.nbytes
    first.resize_(16, 16).fill_(1.0)
    with torch.inference_mode():
        assert call(*tensors).is_inference()


def test_results_are_shared_and_given_up_where_torch_cannot_hand_them_over(machine):
    """Older versions of torch have no function that takes a tensor; the one that shares it does."""
    tensors, library = three((4, 8)), Library("test")
    deleted = library.memory("deleted", 1)
    library.routine("where", 0).give_back(deleted)
    delete = library.routine("delete_tensor", 1)
    delete.increase(1, deleted)
    delete.give_back(delete.call(machine.functions.tensors.delete, *delete.parameters))
    library.compile()
    count = ctypes.c_int64.from_address(ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("where"))())
    replaced = {"hand_over": None, "delete": Foreign(library.address("delete_tensor"), 32)}
    call = device_call(machine, tensors, Convention.POSITIONAL, **replaced)
    result = call(*tensors)
    assert torch.equal(result, tensors[0] * tensors[1] + tensors[2]) and result.is_leaf
    assert count.value == 1 and result._use_count() == 1


def test_nothing_else_holds_a_result(machine):
    tensors = three((4, 8))
    assert device_call(machine, tensors, Convention.POSITIONAL)(*tensors)._use_count() == 1


@pytest.mark.parametrize("hand_over", [True, False])
def test_a_result_that_python_has_no_memory_for_is_given_up(machine, hand_over):
    """Of two results the second has no object: both are gone, and Python makes the call."""
    library = Library("test")
    calls = library.memory("calls", 1)
    wrap = library.routine("wrap", 1)
    with wrap.when(wrap.compare(wrap.increase(1, calls), "==", 2)):
        wrap.give_back(0)
    functions = machine.functions.tensors
    chosen = functions.hand_over if hand_over else functions.wrap
    assert chosen is not None
    wrap.give_back(wrap.call(chosen, *wrap.parameters))
    library.compile()
    wrapping = Foreign(library.address("wrap"))
    replaced = {"hand_over": wrapping if hand_over else None, "wrap": wrapping}
    call = FusedCall(0, 2, fallback=Fallback("slow"))
    results = [prototype((8,), torch.int64)] * 2
    call.table.add(Record([], results, [], call.statistics, is_long=True, site=machine.site(**replaced)))
    assert call([]) == "slow" and call.statistics.executions == 0
    assert [result.shape for result in call([])] == [(8,), (8,)]


def test_the_caller_gets_what_its_convention_says(machine):
    tensors = three((4, 8))
    assert isinstance(device_call(machine, tensors, Convention.TUPLE)(*tensors), tuple)
    assert isinstance(device_call(machine, tensors, Convention.LIST)(tuple(tensors)), list)


@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str))
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4, 5, 6, 7)])
def test_results_may_have_any_shape_and_dtype(machine, dtype, shape):
    call = FusedCall(0, 1)
    call.table.add(Record([], [prototype(shape, dtype)], [], call.statistics, is_long=True, site=machine.site()))
    (result,) = call([])
    assert result.dtype is dtype and result.shape == shape and result.is_contiguous()


def test_kernels_follow_each_other_through_intermediate_values(machine):
    """in -> arena -> arena, 256 bytes on -> two results"""
    chain = [[("in", 0), ("arena", 0)], [("arena", 0), ("arena", 256)], [("arena", 256), ("out1", 0)]]
    call = copies(machine, [*chain, [("in", 0), ("out0", 0)]], 2, arena_bytes=320)
    x = torch.arange(8)
    first, second = call([x])
    assert torch.equal(first, x) and torch.equal(second, x)
    assert first.data_ptr() != second.data_ptr()
    assert machine.launch_count == 4
    assert {stream for _, stream in machine.launches} == {CURRENT_STREAM}


def test_a_kernel_of_several_launches_gives_all_of_them_the_same_words(machine):
    """Partial results go through a workspace: the first launch writes what the second reads."""
    slots, kernels = CallSlots(1, 1), Library("test")
    for name, source, target in (("gather", 0, 2), ("combine", 2, 1)):
        routine = kernels.routine(name, 1)
        read = lambda place, routine=routine: routine.load(routine.parameters[0], FIRST_ADDRESS + place)
        with routine.loop(routine.load(routine.parameters[0], COUNT_WORD)) as index:
            routine.store(routine.add(routine.load(read(source), index), 1), read(target), index)
        routine.give_back()
    kernels.compile()
    launches = tuple(Launch(kernels.address(name), (1, 1, 1), (1, 1, 1)) for name in ("gather", "combine"))
    patches = tuple(Patch(FIRST_ADDRESS + n, slot) for n, slot in enumerate((0, slots.result(0), slots.arena)))
    call = FusedCall(1, 1)
    step = DeviceStep(launches, (0, 0, 8, 0, 0, 0), patches)
    guard, result = TensorGuard(torch.int64, (8,), (1,)), prototype((8,), torch.int64)
    call.table.add(
        Record([guard], [result], [step], call.statistics, arena_bytes=256, is_long=True, site=machine.site())
    )
    assert torch.equal(call([torch.arange(8)])[0], torch.arange(8) + 2)
    assert [launch.function for launch, _ in machine.launches] == [launch.function for launch in launches]


def test_numbers_reach_the_words(machine):
    call, slots = FusedCall(2, 1), CallSlots(2, 1)
    launch = Launch(integer_kernels().address("show"), (1, 1, 1), (1, 1, 1))
    patches = (Patch(FIRST_ADDRESS, slots.result(0)), Patch(COUNT_WORD, slots.double(1)))
    step = DeviceStep((launch,), (5, 0, 0, 0), patches)
    guards = [NumberGuard(float), NumberGuard(int)]
    result = prototype((2,), torch.int64)
    call.table.add(Record(guards, [result], [step], call.statistics, doubles=[1], is_long=True, site=machine.site()))
    seen = call([1.5, 7])[0]
    assert seen[0].item() == 5 and seen.view(torch.float64)[1].item() == 7.0


def counting_call(machine, streams, fallback=None):
    """A native function whose kernel shows the address that its blocks are counted by."""
    call, slots = FusedCall(0, 1, fallback=fallback), CallSlots(0, 1)
    launch = Launch(integer_kernels().address("show"), (1, 1, 1), (1, 1, 1))
    patches = (Patch(FIRST_ADDRESS, slots.result(0)), Patch(COUNT_WORD, slots.counters))
    words, result = (ctypes.c_int64 * (1 + 2 * 8))(len(streams)), prototype((2,), torch.int64)
    for place, word in enumerate((word for known in streams.items() for word in known), 1):
        words[place] = word
    site, step = machine.site(ctypes.addressof(words)), DeviceStep((launch,), (5, 0, 0, 0), patches)
    call.table.add(
        Record([], [result], [step], call.statistics, is_long=True, keeps=(words, integer_kernels()), site=site)
    )
    return call


def test_blocks_are_counted_by_what_belongs_to_the_stream(machine):
    call = counting_call(machine, {0: 0x1000, CURRENT_STREAM: 0x2000, CURRENT_STREAM + 1: 0x3000})
    assert call([])[0][1].item() == 0x2000


def test_blocks_on_a_new_stream_or_in_a_captured_call_are_counted_by_what_python_finds(machine):
    assert counting_call(machine, {0: 0x1000}, Fallback("slow"))([]) == "slow"
    call = counting_call(machine, {CURRENT_STREAM: 0x2000}, Fallback("slow"))
    machine.capture()
    assert call([]) == "slow" and machine.launch_count == 0
    machine.capture(False)
    assert call([])[0][1].item() == 0x2000


# --- what goes to Python ----------------------------------------------------------------------------------------------


def test_a_call_in_another_context_goes_to_the_fallback(machine):
    tensors = three()
    call = device_call(machine, tensors, fallback=Fallback("slow"))
    machine.make_current(CONTEXT + 1)
    assert call(tensors) == "slow"
    machine.make_current(CONTEXT, code=3)
    assert call(tensors) == "slow"
    machine.make_current(CONTEXT)
    assert torch.equal(call(tensors)[0], tensors[0] * tensors[1] + tensors[2])
    assert machine.launch_count == 1 and machine.pushed == 0


def test_a_thread_without_a_context_gets_that_of_the_first_device(machine):
    tensors = three()
    call = device_call(machine, tensors, fallback=Fallback("slow"))
    machine.make_current(0)
    for _ in range(2):
        assert torch.equal(call(tensors)[0], tensors[0] * tensors[1] + tensors[2])
    assert machine.pushed == 1 and call.fallback.calls == []


def test_a_call_without_a_stream_goes_to_the_fallback(machine):
    tensors = three()
    call = device_call(machine, tensors, fallback=Fallback("slow"))
    machine.lose_stream()
    assert call(tensors) == "slow" and machine.launch_count == 0


def test_a_call_whose_new_tensors_are_not_ordinary_goes_to_the_fallback(machine):
    """As inside torch.func.grad: torch's new tensors are wrappers then. Here their memory is nowhere instead."""
    library, meta = Library("test"), torch_function("torch_cpu", "aoti_torch_device_type_meta", 32)
    assert meta is not None
    new = library.routine("new_tensor", 7)
    *described, _, index, target = new.parameters
    new.give_back(new.call(machine.functions.tensors.make, *described, new.call(meta), index, target))
    library.compile()
    tensors = three()
    made = Foreign(library.address("new_tensor"), 32)
    call = device_call(machine, tensors, fallback=Fallback("slow"), make=made, direct=None)
    assert call(tensors) == "slow" and machine.launch_count == 0


def test_new_tensors_inside_torch_func_come_from_the_dispatcher():
    """Which makes wrappers of them on a GPU. Here it makes none, and fails."""
    machine, library, tensors, seen = Machine(), Library("test"), three(), []
    library.routine("fail", 7).give_back(1)
    library.compile()
    call = device_call(machine, tensors, fallback=Fallback("slow"), make=Foreign(library.address("fail"), 32))

    def function(x):
        seen.append(call(tensors))
        return x.sum()

    torch.func.grad(function)(torch.randn(4))
    assert seen == ["slow"]
    assert torch.equal(call(tensors)[0], tensors[0] * tensors[1] + tensors[2])


def test_a_call_whose_new_tensors_are_on_another_device_goes_to_the_fallback(machine, monkeypatch):
    """As when torch's current device is one without a context yet. Here the record wants another than the CPU."""
    known, place = devices.device_kind(torch.device("cpu")), devices._device_shift()
    assert known is not None and place is not None
    elsewhere = replace(known, mask=known.mask | 0xFF << place, bits=1 << place)
    monkeypatch.setattr(device_records, "device_kind", lambda device: elsewhere)
    tensors = three()
    call = device_call(machine, tensors, fallback=Fallback("slow"))
    assert call(tensors) == "slow" and machine.launch_count == 0


@pytest.mark.parametrize("failing", range(3))
def test_a_failing_launch_goes_to_the_fallback_which_raises_it(machine, failing):
    chain = [[("in", 0), ("arena", 0)], [("arena", 0), ("out1", 0)], [("in", 0), ("out0", 0)]]
    call = copies(machine, chain, 2, arena_bytes=64, fallback=Fallback(error=RuntimeError("launch failed: 701")))
    machine.fail_launch(failing, 701)
    with pytest.raises(RuntimeError, match="launch failed: 701"):
        call([torch.arange(8)])
    assert machine.launch_count == failing and call.statistics.executions == 0
    machine.fail_launch(-1, 0)
    assert torch.equal(call([torch.arange(8)])[1], torch.arange(8))


@pytest.mark.parametrize("failing", range(3))
def test_what_was_allocated_is_given_back_when_memory_is_short(machine, failing):
    """Two results and an arena; the allocator fails at one of them, and the earlier ones are deleted."""
    library = Library("test")
    counts = library.memory("counts", 2)
    where = library.routine("where", 0)
    where.give_back(counts)
    new = library.routine("new_tensor", 7)
    with new.when(new.compare(new.load(counts), "==", failing)):
        new.give_back(1)
    new.increase(1, counts)
    new.give_back(new.call(machine.functions.tensors.make, *new.parameters))
    delete = library.routine("delete_tensor", 1)
    delete.increase(1, counts, 1)
    delete.give_back(delete.call(machine.functions.tensors.delete, *delete.parameters))
    library.compile()
    made = (ctypes.c_int64 * 2).from_address(ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("where"))())
    make, delete = (Foreign(library.address(name), 32) for name in ("new_tensor", "delete_tensor"))
    call = FusedCall(0, 2, fallback=Fallback("slow"))
    results = [prototype((8,), torch.int64)] * 2
    site = machine.site(make=make, delete=delete, direct=None)
    record = Record([], results, [], call.statistics, arena_bytes=64, is_long=True, site=site)
    call.table.add(record)
    assert call([]) == "slow"
    assert made[0] == made[1] == failing


def test_what_the_allocator_throws_goes_to_the_fallback(machine):
    """A small result, then one larger than any memory."""
    call = FusedCall(0, 2, fallback=Fallback("slow"))
    results = [prototype((4096,), torch.int8), prototype((1 << 58,), torch.int8)]
    call.table.add(Record([], results, [], call.statistics, is_long=True, site=machine.site()))
    assert all(call([]) == "slow" for _ in range(100))
    assert call.statistics.executions == 0


def test_there_is_no_device_launcher_without_a_driver(monkeypatch):
    def fail(name):
        raise CudaError("no driver")

    monkeypatch.setattr(device_launching, "address_of", fail)
    assert DeviceFunctions.of_cuda() is None
    assert device_launcher.__wrapped__() is None  # pyright: ignore[reportFunctionMemberAccess]


# --- many calls -------------------------------------------------------------------------------------------------------


def test_many_calls_leave_memory_as_it_was(machine):
    chain = [[("in", 0), ("arena", 0)], [("arena", 0), ("out1", 0)], [("in", 0), ("out0", 0)]]
    call, x = copies(machine, chain, 2, arena_bytes=4096), torch.arange(8)

    def run(count):
        for _ in range(count):
            call([x])

    run(10_000)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(100_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024
    assert call.fallback.calls == []


def test_threads_may_call_at_once(machine):
    tensors = three((64,))
    call, expected = device_call(machine, tensors), tensors[0] * tensors[1] + tensors[2]
    wrong = []

    def run():
        for _ in range(500):
            if not torch.equal(call(list(tensors))[0], expected):
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and call.fallback.calls == []
