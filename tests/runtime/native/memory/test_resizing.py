"""Results can be resized as eager's can, and the memory they leave goes back to the pool."""

from __future__ import annotations

import ctypes
import io
import pickle
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ingot import memory
from ingot.runtime.native.abi import storages
from ingot.runtime.native.abi.storages import StorageLayout
from ingot.runtime.native.memory.pool import empty
from tests.runtime.native.kernels import multiply_add
from tests.warm_processes import run_python

SHAPE = (32, 64)
BYTES = 32 * 64 * 4


def computed():
    """A result, and what it must be equal to."""
    a, b, c = (torch.randn(SHAPE) for _ in range(3))
    (result,) = multiply_add([a, b, c])([a, b, c])
    return result, a * b + c


def test_a_result_says_so():
    result, expected = computed()
    assert result.untyped_storage().resizable()
    assert result.untyped_storage().nbytes() == expected.untyped_storage().nbytes() == BYTES


def test_a_result_grows_and_shrinks():
    result, expected = computed()
    before = memory.stats().bytes_in_use
    view = result[1]
    assert torch.equal(result.resize_(3, 7).view(-1), expected.view(-1)[:21])
    assert memory.stats().bytes_in_use == before
    result.resize_(100, 100).view(-1)[BYTES // 4 :] = 5.0
    assert torch.equal(result.view(-1)[: BYTES // 4], expected.view(-1))
    assert result.sum().isfinite() and torch.equal(view, expected[1])
    assert memory.stats().bytes_in_use == before - BYTES
    del result, view
    assert memory.stats().bytes_in_use == before - BYTES


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_result_takes_others(size):
    result, _ = computed()
    before = memory.stats().bytes_in_use
    x = torch.randn(size)
    torch.add(x, 1.0, out=result)
    assert torch.equal(result, x + 1.0)
    del result
    assert memory.stats().bytes_in_use == before - BYTES


def test_a_storage_goes_to_nothing_and_back():
    result, expected = computed()
    before = memory.stats().bytes_in_use
    storage = result.untyped_storage()
    storage.resize_(0)
    assert memory.stats().bytes_in_use == before - BYTES and storage.data_ptr() == 0
    storage.resize_(BYTES)
    with torch.no_grad():
        result.copy_(expected)
    assert torch.equal(result, expected)


def test_a_result_can_still_be_saved_shared_differentiated_and_seen_by_numpy():
    result, expected = computed()
    file = io.BytesIO()
    torch.save(result, file)
    file.seek(0)
    assert torch.equal(torch.load(file), expected)
    assert torch.equal(pickle.loads(pickle.dumps(result)), expected)
    result.add_(1.0).sub_(1.0).copy_(expected)
    (result.requires_grad_() * 2.0).sum().backward()
    assert torch.equal(result.grad, torch.full(SHAPE, 2.0))
    result = result.detach()
    array = result.numpy()
    assert (array == expected.numpy()).all()
    with pytest.raises(RuntimeError, match="not resizable"):  # as eager's
        result.resize_(100, 100)
    shared, expected = computed()
    before = memory.stats().bytes_in_use
    assert torch.equal(shared.share_memory_(), expected)
    assert memory.stats().bytes_in_use == before - BYTES


def test_empty_memory_and_other_types_can_grow():
    for dtype in (torch.bool, torch.int64, torch.bfloat16):
        for shape in ((0,), (), (3, 0, 2), (5,)):
            made = empty(shape, dtype)
            made.zero_()
            made.resize_(1000).zero_()
            assert made.shape == (1000,) and not made.any()


def test_threads_resize_at_once():
    before = memory.stats().bytes_in_use

    def work(seed):
        for size in range(1, 200):
            result = empty((size,), torch.float32).fill_(seed)
            result.resize_(2 * size)
            assert (result[:size] == seed).all()
        return True

    with ThreadPoolExecutor(4) as executor:
        assert all(executor.map(work, range(4)))
    assert memory.stats().bytes_in_use == before


def test_many_resizes_leave_memory_flat():
    """In a process of its own, which ends with results that were resized."""
    program = """
        import os, torch
        from ingot.runtime.native.memory.pool import empty

        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def work(rounds):
            for _ in range(rounds):
                empty((100_000,), torch.float32).resize_(300_000)[-1] = 1
                empty((100_000,), torch.float32).untyped_storage().resize_(0)
        work(50)
        before = resident()
        work(2000)
        assert resident() - before < 8 << 20, resident() - before
        kept = [empty((10,), torch.float32).resize_(20) for _ in range(100)]
    """
    done = run_python("-c", textwrap.dedent(program))
    assert done.returncode == 0, done.stderr


# --- where storages are not as expected -------------------------------------------------------------------------------


def test_the_layout_is_that_of_torch():
    found = StorageLayout.find()
    assert found is not None
    x = torch.empty(10)
    address = x.untyped_storage()._cdata
    assert ctypes.c_uint8.from_address(address + found.flag_byte).value == 1
    assert ctypes.c_uint64.from_address(address + 8 * found.allocator_word).value == found.allocator


def test_there_is_no_layout_where_another_byte_changes(monkeypatch: pytest.MonkeyPatch):
    looks = iter(range(1000))
    monkeypatch.setattr(storages, "_bytes", lambda tensor: bytes([next(looks) % 2 * 3] * 80))
    assert StorageLayout.find() is None


def test_there_is_no_layout_where_the_allocator_is_not_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(storages, "torch_function", lambda library, name: None)
    assert StorageLayout.find() is None
    monkeypatch.undo()
    monkeypatch.setattr(storages, "_words", lambda tensor: [1, 2, 3])
    assert StorageLayout.find() is None
