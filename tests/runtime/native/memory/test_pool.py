"""The pool: memory of dead results is given out again, within bounds, whatever thread they die on."""

import mmap
import re
import threading
from pathlib import Path

import pytest
import torch

import ingot
from ingot.base.errors import ArgumentError
from ingot.runtime.native.assembler.routines import Library
from ingot.runtime.native.memory import pool as pool_module
from ingot.runtime.native.memory.pool import default_capacity, empty, pool
from ingot.runtime.native.memory.pool_routines import HUGE_PAGE

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def clean():
    """No idle blocks before, the usual capacity after."""
    ingot.memory.empty_cache()
    yield
    ingot.memory.set_capacity(default_capacity())


def change(before, name):
    return getattr(ingot.memory.stats(), name) - getattr(before, name)


@pytest.mark.parametrize("nbytes", [1, 64, 1000, 100_000, 3 * MEGABYTE])
def test_memory_of_a_dead_tensor_is_used_again(nbytes):
    before = ingot.memory.stats()
    first = empty((nbytes,), torch.uint8)
    address = first.data_ptr()
    del first
    second = empty((nbytes,), torch.uint8)
    assert second.data_ptr() == address
    assert change(before, "allocations") == 2
    assert change(before, "reuses") == 1


def test_live_tensors_never_share_memory():
    sizes = [1, 63, 64, 65, 80, 1000, 4096, 300_000, HUGE_PAGE + 1]
    tensors = [empty((size,), torch.uint8).fill_(number) for number, size in enumerate(sizes * 5)]
    assert all((tensor == number).all() for number, tensor in enumerate(tensors))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.float64, torch.int8, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 4), (2, 3 * MEGABYTE)])
def test_tensors_are_what_torch_would_make(dtype, shape):
    tensor, expected = empty(shape, dtype), torch.empty(shape, dtype=dtype)
    assert type(tensor) is torch.Tensor
    assert (tensor.shape, tensor.dtype, tensor.stride()) == (expected.shape, dtype, expected.stride())
    assert tensor.numel() == 0 or tensor.data_ptr() % 64 == 0
    assert tensor.storage_offset() == 0
    assert not tensor.zero_().any()


def test_blocks_waste_at_most_a_quarter_of_what_is_asked():
    for nbytes in (64, 65, 81, 1000, 4097, 123_456, MEGABYTE + 1, 3 * MEGABYTE - 7, 10**8):
        before = ingot.memory.stats()
        tensor = empty((nbytes,), torch.uint8)
        assert nbytes <= change(before, "bytes_in_use") <= nbytes * 1.25
        del tensor


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="the system has no huge pages")
def test_large_blocks_ask_for_huge_pages():
    tensor = empty((HUGE_PAGE * 4,), torch.uint8)
    assert tensor.data_ptr() % HUGE_PAGE == 0
    assert "hg" in flags_of_region(tensor.data_ptr())


def flags_of_region(address):
    """What the system was told of the memory at an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if region := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(region[1], 16) <= address < int(region[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise LookupError(address)


def test_idle_memory_is_bounded_and_what_was_used_longest_ago_goes_first():
    ingot.memory.set_capacity(10 * MEGABYTE)
    sizes = [4 * MEGABYTE, 5 * MEGABYTE, 3 * MEGABYTE]
    for size in sizes:
        empty((size,), torch.uint8)
    before = ingot.memory.stats()
    assert before.bytes_idle == 8 * MEGABYTE
    for size in reversed(sizes):
        empty((size,), torch.uint8)
    assert change(before, "reuses") == 2


def test_a_block_beyond_the_capacity_leaves_the_others_alone():
    ingot.memory.set_capacity(MEGABYTE)
    small = empty((1000,), torch.uint8)
    large = empty((8 * MEGABYTE,), torch.uint8)
    del small
    idle = ingot.memory.stats().bytes_idle
    del large
    assert ingot.memory.stats().bytes_idle == idle > 0


def test_emptying_gives_everything_idle_back():
    before = ingot.memory.stats()
    tensors = [empty((size,), torch.uint8) for size in (100, 200_000, 5 * MEGABYTE)]
    del tensors[1:]
    assert ingot.memory.stats().bytes_idle >= 5 * MEGABYTE
    ingot.memory.empty_cache()
    assert ingot.memory.stats().bytes_idle == 0
    assert change(before, "blocks_released") == 2
    assert not tensors[0].zero_().any()


def test_no_capacity_means_fresh_memory_every_time():
    ingot.memory.set_capacity(0)
    before = ingot.memory.stats()
    for _ in range(3):
        empty((1000,), torch.float32)
    assert change(before, "allocations") == 3
    assert change(before, "reuses") == 0
    assert ingot.memory.stats().bytes_idle == 0


def test_the_peak_is_the_most_that_was_in_use():
    tensors = [empty((64 * MEGABYTE,), torch.uint8) for _ in range(2)]
    peak = ingot.memory.stats().peak_bytes_in_use
    assert peak >= 128 * MEGABYTE
    tensors.clear()
    assert ingot.memory.stats().peak_bytes_in_use == peak


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "1GB", None, 1 << 63])
def test_a_capacity_is_a_number_of_bytes(wrong):
    with pytest.raises(ArgumentError, match="a capacity is a number of bytes"):
        ingot.memory.set_capacity(wrong)


def test_tensors_that_die_on_another_thread_return():
    before = ingot.memory.stats()
    held = [empty((300_000,), torch.float32)]
    assert change(before, "bytes_in_use") > 0
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert change(before, "bytes_in_use") == 0
    assert change(before, "bytes_idle") > 0


def test_many_threads_take_and_give_at_once():
    before = ingot.memory.stats()
    wrong = []

    def work(seed):
        held = []
        for step in range(2000):
            value = (seed * 31 + step) % 251
            held.append((value, empty((64 + 97 * (step % 40),), torch.uint8).fill_(value)))
            if step % 7 == seed % 7:
                value, tensor = held.pop(step % len(held))
                wrong.extend([seed] if not (tensor == value).all() else [])
            if len(held) > 50:
                del held[::2]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert change(before, "bytes_in_use") == 0
    assert change(before, "allocations") == 8 * 2000


def test_a_request_that_cannot_be_met_is_an_error_and_nothing_else():
    with pytest.raises(MemoryError, match=f"no {1 << 62} bytes"):
        empty((1 << 62,), torch.uint8)
    with pytest.raises(MemoryError, match="use smaller inputs"):
        empty((1 << 47,), torch.uint8)  # all that a process can address
    assert not empty((8,), torch.uint8).zero_().any()


def test_without_machine_code_results_come_from_torch(monkeypatch):
    def refuse(self):
        raise RuntimeError("LLVM has had enough")

    monkeypatch.setattr(Library, "compile", refuse)
    with pytest.warns(UserWarning, match="torch's allocator, which is slower: LLVM has had enough"):
        assert pool.__wrapped__() is None  # pyright: ignore[reportFunctionMemberAccess]
    monkeypatch.setattr(pool_module, "pool", lambda: None)
    assert empty((3, 4), torch.int16).shape == (3, 4)


def test_there_is_one_pool():
    assert pool() is pool()
