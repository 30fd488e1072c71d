"""Calls through the launcher: which go natively, which to the fallback, and that both give what they should."""

import ctypes
import gc
import inspect
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ingot.runtime.native.abi.prototypes import prototype
from ingot.runtime.native.launch.record_structs import MOST_RECORDS, Convention
from ingot.runtime.native.launch.records import (
    MOST_STACK_WORDS,
    NumberGuard,
    Patch,
    Record,
    Step,
    TensorGuard,
    can_record,
)
from tests.runtime.native.kernels import (
    FIRST_ADDRESS,
    Fallback,
    FusedCall,
    integer_kernels,
    multiply_add,
    multiply_add_record,
    one_step,
)

SHAPE = (32, 64)
WORD = TensorGuard(torch.int64, (), ())


def three(shape=SHAPE):
    return [torch.randn(shape) for _ in range(3)]


def test_a_matching_call_runs_natively():
    a, b, c = three()
    call = multiply_add([a, b, c])
    for inputs in ([a, b, c], (a, b, c), [c, c, a]):
        (result,) = call(inputs)
        assert torch.equal(result, inputs[0] * inputs[1] + inputs[2])
    assert call.fallback.calls == []
    assert call.statistics.executions == call.statistics.launches == 3
    assert call.statistics.bytes_moved == 3 * 4 * 4 * a.numel()
    assert call.statistics.seconds > 0


def test_positional_inputs_give_a_bare_tensor_or_a_tuple():
    a, b, c = three()
    call = multiply_add([a, b, c], Convention.POSITIONAL)
    assert torch.equal(call(a, b, c), a * b + c)
    several = FusedCall(1, 2, Convention.POSITIONAL)
    copy = integer_kernels().address("copy")
    steps = [Step(copy, (0, 0, 1, 0, 0), (Patch(FIRST_ADDRESS, 0), Patch(FIRST_ADDRESS + 1, slot))) for slot in (1, 2)]
    results = [prototype((), torch.int64)] * 2
    several.table.add(Record([WORD], results, steps, several.statistics))
    first, second = several(torch.tensor(7))
    assert (first.item(), second.item()) == (7, 7)
    assert first.data_ptr() != second.data_ptr()
    assert several.fallback.calls == []


def test_calls_without_a_record_go_to_the_fallback_with_their_arguments():
    a, b, c = three()
    call = multiply_add([a, b, c], fallback=Fallback("slow"))
    odd = [
        (([a, b],), {}),
        (([a, b, c, c],), {}),
        ((a, b, c), {}),
        ((), {}),
        (([a, b, c], "cpu"), {}),
        (([a, b, c],), {"device": "cpu"}),
        ((), {"inputs": [a, b, c]}),
        ((iter([a, b, c]),), {}),
        (({0: a, 1: b, 2: c},), {}),
        ((None,), {}),
        (([a, b, 1.0],), {}),
        (([a, b, None],), {}),
        (([a, b, [c]],), {}),
    ]
    for arguments, keywords in odd:
        assert call(*arguments, **keywords) == "slow"
    assert call.fallback.calls == odd
    assert call.statistics.executions == 0


def test_the_fallback_may_raise():
    call = FusedCall(3, 1, fallback=Fallback(error=ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        call(three())


def test_records_are_added_while_calls_go_on_and_the_oldest_unused_goes():
    call = FusedCall(3, 1)
    sizes = range(1, MOST_RECORDS + 4)
    for size in sizes:
        call.table.add(multiply_add_record(call.statistics, three((size, 8))))
        call(three((1, 8)))  # the first stays in use
    assert len(call.table) == MOST_RECORDS
    assert call.fallback.calls == []
    natively = []
    for size in sizes:
        a, b, c = three((size, 8))
        result = call([a, b, c])
        if result is not None:
            natively.append(size)
            assert torch.equal(result[0], a * b + c)
    assert natively == [1, *range(5, MOST_RECORDS + 4)]


def test_an_equal_record_is_not_added_twice():
    call = FusedCall(3, 1)
    for _ in range(3):
        call.table.add(multiply_add_record(call.statistics, three()))
    assert len(call.table) == 1


def test_records_hold_the_machine_code_and_the_function_the_records():
    a, b, c = three()
    call = multiply_add([a, b, c])
    table = weakref.ref(call.table)
    function = call.function
    del call
    gc.collect()
    assert torch.equal(function([a, b, c])[0], a * b + c)
    del function
    gc.collect()
    assert table() is None


def test_a_function_that_is_part_of_a_cycle_is_collected():
    class Owner:
        def __init__(self):
            self.call = FusedCall(1, 1, fallback=self.slow)

        def slow(self, *arguments):
            return self

    owner = Owner()
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_sizes_of_one_and_empty_tensors_match_with_any_strides():
    one = TensorGuard(torch.int64, (2, 1), (1, 1))
    call = one_step("copy", [one], (2, 1), inputs=[0], count=2)
    odd = torch.tensor([5, 6]).as_strided((2, 1), (1, 77))
    assert call([odd])[0].tolist() == [[5], [6]]
    none = TensorGuard(torch.int64, (0, 3), (3, 1))
    call = one_step("copy", [none], (0, 3), inputs=[0], count=0)
    assert call([torch.empty(0, 3, dtype=torch.int64).as_strided((0, 3), (50, 60))])[0].shape == (0, 3)
    assert call.fallback.calls == []


def test_the_addresses_of_views_are_their_own():
    call = one_step("copy", [TensorGuard(torch.int64, (3,), (1,))], (3,), inputs=[0], count=3)
    assert call([torch.arange(10)[4:7]])[0].tolist() == [4, 5, 6]


# --- numbers ----------------------------------------------------------------------------------------------------------


def shown(guard, value, doubles=()):
    """The word a number arrives as, or None if it went to the fallback."""
    call = one_step("show", [guard], (2,), scalars=[0], doubles=doubles)
    result = call([value])
    return None if result is None else result[0][1].item()


def bits(value):
    return ctypes.c_int64.from_buffer(ctypes.c_double(value)).value


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, float("inf"), 5e-324])
def test_floats_arrive_as_the_bits_of_a_double(value):
    assert shown(NumberGuard(float), value) == bits(value)


@pytest.mark.parametrize("value", [0, 1, -1, 2**31, 2**63 - 1, -(2**63)])
def test_ints_arrive_as_words(value):
    assert shown(NumberGuard(int), value) == value


def test_numbers_of_another_type_or_out_of_bounds_go_to_the_fallback():
    assert shown(NumberGuard(int), 2**63) is None
    assert shown(NumberGuard(int), -(2**63) - 1) is None
    assert shown(NumberGuard(int), 1.0) is None
    assert shown(NumberGuard(int), True) is None
    assert shown(NumberGuard(float), 1) is None
    assert shown(NumberGuard(bool), 1) is None
    assert shown(NumberGuard(float), torch.tensor(1.0)) is None
    assert shown(NumberGuard(float), type("Real", (float,), {})(1.0)) is None
    assert shown(NumberGuard(int, lowest=-5, highest=5), 6) is None
    assert shown(NumberGuard(int, lowest=-5, highest=5), -6) is None
    assert shown(NumberGuard(int, lowest=-5, highest=5), 5) == 5


def test_bools_are_words_and_ints_become_doubles_where_asked():
    assert shown(NumberGuard(bool), True) == 1
    assert shown(NumberGuard(bool), False) == 0
    assert shown(NumberGuard(int), 3, doubles=[0]) == bits(3.0)
    assert shown(NumberGuard(int), 2**60 + 1, doubles=[0]) == bits(float(2**60 + 1))
    assert shown(NumberGuard(bool), True, doubles=[0]) == bits(1.0)


# --- steps ------------------------------------------------------------------------------------------------------------


def test_intermediate_values_live_in_an_arena_that_returns():
    from ingot import memory

    copy = integer_kernels().address("copy")
    call = FusedCall(1, 1)
    to_arena = Step(copy, (0, 0, 4, 0, 0), (Patch(FIRST_ADDRESS, 0), Patch(FIRST_ADDRESS + 1, 2, 4096)))
    back = Step(copy, (0, 0, 4, 0, 0), (Patch(FIRST_ADDRESS, 2, 4096), Patch(FIRST_ADDRESS + 1, 1)))
    guard = TensorGuard(torch.int64, (4,), (1,))
    results = [prototype((4,), torch.int64)]
    call.table.add(Record([guard], results, [to_arena, back], call.statistics, arena_bytes=8192))
    before = memory.stats().bytes_in_use
    (result,) = call([torch.tensor([4, 5, 6, 7])])
    assert result.tolist() == [4, 5, 6, 7]
    assert call.statistics.launches == 2
    assert memory.stats().bytes_in_use - before == 64


def test_a_fault_gives_everything_back_and_calls_the_fallback():
    from ingot import memory

    call = one_step("refuse", [WORD], (), inputs=[0], arena_bytes=1000)
    assert call([torch.tensor(3)])[0].item() == 3
    before = memory.stats().bytes_in_use
    bad = torch.tensor(-3)
    assert call([bad]) is None
    assert call.fallback.calls == [(([bad],), {})]
    assert memory.stats().bytes_in_use == before
    assert call.statistics.executions == 1


def test_too_little_memory_goes_to_the_fallback():
    huge = Record([WORD], [prototype((1 << 60,), torch.int8)], [], FusedCall(1, 1).statistics)
    call = FusedCall(1, 1)
    call.table.add(huge)
    assert call([torch.tensor(1)]) is None
    assert len(call.fallback.calls) == 1


@pytest.mark.parametrize("is_parallel", [False, True])
def test_parallel_steps_get_as_many_threads_as_torch_has(is_parallel):
    call = one_step("show", [NumberGuard(int)], (2,), scalars=[0], is_parallel=is_parallel)
    usual = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert call([0])[0][0].item() == (count if is_parallel else 1)
            with ThreadPoolExecutor(1) as executor:
                assert executor.submit(call, [0]).result()[0][0].item() == (count if is_parallel else 1)
    finally:
        torch.set_num_threads(usual)


def test_long_steps_run_without_the_gil_and_hold_their_inputs():
    call = one_step("wait", [WORD], (), inputs=[0], is_long=True)
    flag = torch.tensor(0)
    inputs = [flag]
    held = sys.getrefcount(flag)
    results = []
    thread = threading.Thread(target=lambda: results.append(call(inputs)))
    thread.start()
    while not any(record.is_running for record in call.table._records.values()):
        pass
    inputs.clear()
    assert sys.getrefcount(flag) == held  # not the list's any more, but the call's
    flag.fill_(2)
    thread.join()
    assert results[0][0].item() == 1
    assert sys.getrefcount(flag) == held - 1


def test_what_is_too_large_for_the_stack_is_not_recorded():
    step = Step(0, (0,) * MOST_STACK_WORDS, ())
    assert not can_record([WORD], [step])
    assert not can_record([WORD] * MOST_STACK_WORDS, [])
    assert can_record([WORD], [Step(0, (0, 0), ())])
    assert not can_record([TensorGuard(torch.complex32, (), ())], [])


# --- as a Python function ---------------------------------------------------------------------------------------------


def test_it_is_an_ordinary_builtin():
    call = FusedCall(1, 1)
    assert inspect.isbuiltin(call.function)
    assert call.function.__name__ == "execute"
    assert call.function.__doc__ == "Runs a kernel."
    assert str(inspect.signature(call.function)) == "(inputs)"
