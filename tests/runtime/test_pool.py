"""The pool: memory of dead results is given out again, within bounds, whatever thread they die on."""

import gc
import threading

import pytest
import torch

from ingot.runtime.pool import SMALLEST, Pool, size_class

LARGE = (SMALLEST // 4 + 1000,)


def test_large_results_are_recycled_and_small_ones_left_to_torch():
    pool = Pool()
    first = pool.empty(LARGE, torch.float32)
    address = first.data_ptr()
    del first
    second = pool.empty(LARGE, torch.float32)
    assert second.data_ptr() == address
    assert pool.statistics().reuses == 1
    pool.empty((8,), torch.float32)
    assert pool.statistics().allocations == 2


def test_live_results_never_share_memory():
    pool = Pool()
    tensors = [pool.empty(LARGE, torch.float32).fill_(number) for number in range(5)]
    assert all((tensor == number).all() for number, tensor in enumerate(tensors))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.float64, torch.int8])
def test_tensors_are_ordinary(dtype):
    tensor = Pool().empty((2, 3, SMALLEST), dtype)
    assert tensor.shape == (2, 3, SMALLEST)
    assert tensor.dtype is dtype
    assert tensor.is_contiguous()
    assert tensor.data_ptr() % 64 == 0
    tensor.zero_()
    assert not tensor.clone().any()


def test_idle_memory_is_bounded_and_can_be_given_back():
    pool = Pool(capacity=3 * SMALLEST)
    tensors = [pool.empty(LARGE, torch.float32) for _ in range(4)]
    del tensors
    gc.collect()
    assert 0 < pool.statistics().bytes_idle <= 3 * SMALLEST
    assert pool.statistics().bytes_in_use == 0
    pool.empty_cache()
    assert pool.statistics().bytes_idle == 0


def test_results_that_die_on_another_thread_return():
    pool = Pool()
    held = [pool.empty(LARGE, torch.float32)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert pool.statistics().bytes_in_use == 0
    assert pool.statistics().bytes_idle > 0


def test_size_classes_waste_at_most_a_quarter():
    for nbytes in (SMALLEST, SMALLEST + 1, 3 * SMALLEST - 7, 10**8, 2**31 + 5):
        assert nbytes <= size_class(nbytes) <= nbytes * 1.25 + 4096
