"""Results of native calls are ordinary tensors, whatever is done with them and however long they live."""

import copy
import gc
import pickle
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ingot import memory
from ingot.runtime.native.launch.records import TensorGuard
from tests.runtime.native.kernels import Fallback, multiply_add, one_step

SHAPE = (32, 64)


def computed():
    """A result, and what it must be equal to."""
    a, b, c = (torch.randn(SHAPE) for _ in range(3))
    (result,) = multiply_add([a, b, c])([a, b, c])
    return result, a * b + c


def test_results_outlive_function_record_and_inputs():
    result, expected = computed()
    gc.collect()
    assert torch.equal(result, expected)


def test_results_take_part_in_everything():
    result, expected = computed()
    assert result.is_contiguous() and result.is_leaf and not result.requires_grad and result._version == 0
    assert torch.equal(result.view(-1)[5:9], expected.view(-1)[5:9])
    assert (result.numpy() == expected.numpy()).all()
    assert torch.equal(pickle.loads(pickle.dumps(result)), expected)
    assert torch.equal(copy.deepcopy(result), expected)
    assert torch.equal(torch.from_dlpack(result), expected)
    assert torch.equal(result.clone().share_memory_(), expected)
    assert torch.equal(result.share_memory_(), expected)
    assert result.is_shared()


def test_results_change_in_place():
    result, expected = computed()
    result.add_(1.0)
    result[0].zero_()
    expected = expected + 1.0
    expected[0] = 0.0
    assert torch.equal(result, expected)
    assert result._version > 0
    other = torch.empty(0)
    other.set_(result)
    assert torch.equal(other, expected)
    with torch.no_grad():
        parameter = torch.nn.Parameter(torch.zeros(SHAPE))
        parameter.data = result
    assert parameter.data_ptr() == result.data_ptr()


def test_results_take_part_in_autograd():
    result, expected = computed()
    result.requires_grad_()
    (result * 3.0).sum().backward()
    assert torch.equal(result.grad, torch.full(SHAPE, 3.0))
    assert torch.equal(result.detach(), expected)


def test_a_view_keeps_the_memory():
    before = memory.stats().bytes_in_use
    result, expected = computed()
    row = result[3]
    del result
    assert memory.stats().bytes_in_use > before
    assert torch.equal(row, expected[3])
    del row
    assert memory.stats().bytes_in_use == before


def test_results_freed_on_another_thread_return():
    held = [computed()[0]]
    before = memory.stats().bytes_in_use
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert memory.stats().bytes_in_use == before - 32 * 64 * 4


@pytest.mark.parametrize("is_long", [False, True])
def test_threads_call_at_once(is_long):
    inputs = [torch.randn(SHAPE) for _ in range(3)]
    call = multiply_add(inputs, is_long=is_long)

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        a, b, c = (torch.randn(SHAPE, generator=generator) for _ in range(3))
        expected = a * b + c
        kept = []
        for _ in range(300):
            (result,) = call([a, b, c])
            kept = [*kept[-5:], result]
        return all(torch.equal(result, expected) for result in kept)

    with ThreadPoolExecutor(8) as executor:
        assert all(executor.map(work, range(8)))
    assert call.statistics.executions == 8 * 300
    assert call.fallback.calls == []


# --- references -------------------------------------------------------------------------------------------------------


def counts(*things):
    return [sys.getrefcount(thing) for thing in things]


def test_references_are_balanced_whichever_way_a_call_goes():
    a, b, c = inputs = [torch.randn(SHAPE) for _ in range(3)]
    value = object()
    hit = multiply_add(inputs)
    long = multiply_add(inputs, is_long=True)
    miss = multiply_add(inputs, fallback=lambda *arguments, **keywords: value)
    wrong = multiply_add(inputs, fallback=Fallback(error=KeyError("no")))
    fault = one_step("refuse", [TensorGuard(torch.int64, (), ())], (), inputs=[0])
    bad = torch.tensor(-1)
    transposed = torch.randn(64, 32).t()
    before = counts(a, b, c, inputs, value, bad, transposed, None)
    for _ in range(100):
        hit(inputs)
        long(inputs)
        miss([a, b, transposed])
        miss(inputs, a)
        miss(inputs, device=b)
        with pytest.raises(KeyError):
            wrong([a, transposed, b])
        fault([bad])
        fault.fallback.calls.clear()
        wrong.fallback.calls.clear()
    wrong.fallback.error = None
    gc.collect()
    assert counts(a, b, c, inputs, value, bad, transposed) == before[:-1]
    assert abs(sys.getrefcount(None) - before[-1]) < 100


def test_calls_leave_no_python_memory_behind():
    inputs = [torch.randn(SHAPE) for _ in range(3)]
    call = multiply_add(inputs, fallback=lambda *arguments: None)
    other = [*inputs[:2], torch.randn(3)]

    def work():
        for _ in range(1000):
            call(inputs)
            call(other)

    work()
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 2000
    finally:
        tracemalloc.stop()


def test_a_result_is_the_callers_alone():
    inputs = [torch.randn(SHAPE) for _ in range(3)]
    results, usual = multiply_add(inputs)(inputs), [torch.ones(SHAPE)]
    assert counts(results, results[0]) == counts(usual, usual[0])
