"""The native part over the life of a process: memory stays flat, forked children work, and the end is quiet."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from ingot import memory
from ingot.runtime.native.launch.records import NumberGuard
from ingot.runtime.native.memory.pool import empty
from tests.runtime.native.kernels import multiply_add, one_step


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell")
def test_many_calls_leave_memory_flat():
    inputs = [torch.randn(32, 64) for _ in range(3)]
    call = multiply_add(inputs, fallback=lambda *arguments: None)
    other = [*inputs[:2], 1.0]
    kept = []
    for _ in range(1000):
        kept = [*kept[-20:], call(inputs), call(other)]
    before, idle = resident_bytes(), memory.stats().bytes_idle
    for _ in range(200_000):
        kept = [*kept[-20:], call(inputs)]
    for _ in range(50_000):
        call(other)
    assert resident_bytes() - before < 1 << 20
    assert memory.stats().bytes_idle - idle < 1 << 20


def in_child(work):
    """Run something in a forked child; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:  # nothing of the tests' own machinery may run in the child
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_calls_allocates_and_frees():
    inputs = [torch.randn(32, 64) for _ in range(3)]
    expected = inputs[0] * inputs[1] + inputs[2]
    call = multiply_add(inputs)
    parallel = one_step("show", [NumberGuard(int)], (2,), scalars=[0], is_parallel=True)
    (held,) = call(inputs)
    torch.set_num_threads(max(2, torch.get_num_threads()))

    def work():
        assert torch.equal(held, expected)
        for _ in range(100):
            assert torch.equal(call(inputs)[0], expected)
        assert parallel([0])[0][0].item() == 1
        empty((5 << 20,), torch.uint8)[-1].zero_()  # all of it would start torch's threads, which hangs here
        memory.empty_cache()
        assert memory.stats().bytes_idle == 0
        assert torch.equal(call(inputs)[0], expected)

    assert in_child(work) == 0
    assert torch.equal(call(inputs)[0], expected)
    assert parallel([0])[0][0].item() == torch.get_num_threads()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_the_lock_is_held_forgets_what_was_idle():
    from ingot.runtime.native.memory.pool import pool

    found = pool()
    assert found is not None
    empty((1000,), torch.uint8)

    def work():
        assert found._state.lock == 0
        assert memory.stats().bytes_idle == 0
        assert not empty((1000,), torch.uint8).zero_().any()

    assert memory.stats().bytes_idle > 0
    found._state.lock = 1
    try:
        status = in_child(work)
    finally:
        found._state.lock = 0
    assert status == 0


def test_tensors_may_outlive_the_interpreter():
    """Tensors in cycles, in modules, in thread-locals and in torch's own hands when Python ends."""
    program = """
        import threading
        import torch
        from ingot.runtime.native.memory.pool import empty
        from tests.runtime.native.kernels import multiply_add

        inputs = [torch.randn(32, 64) for _ in range(3)]
        call = multiply_add(inputs)
        kept = call(inputs)
        kept.append(kept)
        torch.kept_here = call(inputs)
        local = threading.local()
        local.kept = call(inputs)
        leaf = call(inputs)[0].requires_grad_()
        graph = (leaf * 2).sum()
        graph.backward()
        large = empty((3 << 20,), torch.uint8)
        print("done")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
