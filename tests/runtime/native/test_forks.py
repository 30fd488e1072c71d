"""Children forked while other threads compile: they go on, compile and run. INGOT_TEST_EXAMPLES is how many forks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from ingot.base.collecting import collecting_later
from ingot.base.forks import cached_property, new_lock
from ingot.runtime.native.abi.settings import suspended
from tests.runtime.native.test_processes import in_child

FORKS = int(os.environ.get("INGOT_TEST_EXAMPLES", "20"))
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

_PROGRAM = """
    import os, random, signal, sys, threading, time, warnings
    import torch
    import ingot
    from ingot.frontend.jit.autotune import eager_comparison

    eager_comparison.ROUNDS = 0
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    number = [0.0]

    def compiled(case):
        # A number of its own each time, so that there is a kernel to compile each time.
        number[0] += 1.0
        scale = number[0]
        function = ingot.jit(lambda x: torch.tanh(x * scale + case).sum(-1) * scale)
        x = torch.linspace(-1, 1, 64).reshape(4, 16)
        for _ in range(3):
            torch.testing.assert_close(function(x), torch.tanh(x * scale + case).sum(-1) * scale)
        return function

    @ingot.jit
    def shared(x):
        return torch.exp(x - 1.0) * x.shape[0]

    def call_shared(case):
        x = torch.linspace(0, 1, case % 7 + 1)
        torch.testing.assert_close(shared(x), torch.exp(x - 1.0) * x.shape[0])

    stop = False
    def compile_on_and_on():
        case = 0
        while not stop:
            case += 1
            call_shared(case)
            if case % 5 == 0:
                ingot.reset()
            compiled(case)

    known = compiled(1.5)
    threads = [threading.Thread(target=compile_on_and_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    for attempt in range(int(sys.argv[1])):
        time.sleep(random.random() * 0.03)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                known(torch.linspace(-1, 1, 64).reshape(4, 16))
                compiled(2.5)
                for case in range(7):
                    call_shared(case)
                status = 0
            finally:
                os._exit(status)
        limit = time.monotonic() + 60
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > limit:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                stop = True
                sys.exit(f"child {attempt} hangs")
            time.sleep(0.002)
        if status:
            stop = True
            sys.exit(f"child {attempt} ended with {status}")
    stop = True
    for thread in threads:
        thread.join()
"""


def test_children_forked_beside_compiling_threads_compile_and_run():
    command = [sys.executable, "-c", textwrap.dedent(_PROGRAM), str(FORKS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120 + 10 * FORKS)
    assert done.returncode == 0, done.stderr


def holding(*contexts):
    """A thread that is inside contexts until the event it returns is set."""
    inside, leave = threading.Event(), threading.Event()

    def hold():
        from contextlib import ExitStack

        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context)
            inside.set()
            leave.wait()

    threading.Thread(target=hold).start()
    inside.wait()
    return leave


def test_locks_of_other_threads_are_free_in_a_child():
    lock, own = new_lock(), new_lock()
    leave = holding(lock)

    def work():
        assert lock.acquire(timeout=5)
        own.release()
        with pytest.raises(RuntimeError):
            own.release()

    try:
        with own:
            assert in_child(work) == 0
            assert not lock.acquire(blocking=False)
    finally:
        leave.set()


def test_a_child_counts_its_own_thread_alone():
    leave = holding(collecting_later(), suspended())
    word = suspended._word

    def work():
        assert word[0] == 1
        assert gc.isenabled()
        with collecting_later():
            assert not gc.isenabled()

    try:
        with suspended():
            assert not gc.isenabled() and word[0] == 2
            assert in_child(work) == 0
    finally:
        leave.set()


def test_a_property_that_another_thread_computes_can_be_computed_in_a_child():
    inside, leave = threading.Event(), threading.Event()

    class Thing:
        @cached_property
        def number(self):
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                leave.wait()
            return 3

    slow, other = Thing(), Thing()
    threading.Thread(target=lambda: slow.number).start()
    inside.wait()

    def work():
        assert other.number == 3

    try:
        assert in_child(work) == 0
    finally:
        leave.set()
