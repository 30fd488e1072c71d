"""Calls that are followed on several threads hand each other tensors that are not written yet; and processes fork
meanwhile. INGOT_TEST_EXAMPLES is how often."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch

from ingot.frontend.jit.follow.following import ACTIVE, Following
from ingot.runtime.native.following.native_following import CallState
from tests.frontend.jit.follow.following_checks import CALLS, followed, nothing_is_left

ROUNDS = int(os.environ.get("INGOT_TEST_EXAMPLES", "200"))
FORKS = int(os.environ.get("INGOT_TEST_EXAMPLES", "20"))


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_on_threads(count: int, work: Callable[[int], None]) -> None:
    """Call a function on each of several threads; all end, without an error."""
    problems: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    assert not problems, problems
    nothing_is_left()


@pytest.mark.parametrize("size", [3, 200], ids=["short", "without the GIL"])
@pytest.mark.parametrize("count", [2, 4])
def test_shells_handed_through_queues(count: int, size: int):
    queues: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(count)]
    wrong: list[Any] = []

    def function(me, number, x):
        y = x * 2 + 1
        queues[(me + 1) % count].put((number, y))
        z = y.exp2() * 0 + y
        z = z - y.sum() * 0
        try:
            expected, got = queues[me].get_nowait()
        except queue.Empty:
            expected, got = number, y
        w = got + 1
        if float(w.min()) != expected * 2 + 2 or float(w.max()) != expected * 2 + 2:
            wrong.append((me, number, expected))
        return torch.tanh(z) * 0 + z

    jitted = [followed(function) for _ in range(count)]

    def work(me):
        for turn in range(ROUNDS):
            number = float(turn % 50)
            result = jitted[me](me, number, torch.full((size, size), number))
            if result.min() != number * 2 + 1 or result.max() != number * 2 + 1:
                wrong.append((me, number, "result"))

    run_on_threads(count, work)
    assert not wrong


@pytest.mark.parametrize("count", [2, 4])
def test_calls_that_read_each_others_shells_do_not_wait_for_each_other(count: int):
    handed: list[Any] = [None] * count
    barrier, wrong = threading.Barrier(count), []

    def function(me, x):
        handed[me] = x * 2 + 1
        z = handed[me] * 3
        barrier.wait(60)
        w = handed[(me + 1) % count].cumsum(0) + z
        barrier.wait(60)
        return w

    jitted = [followed(function) for _ in range(count)]

    def work(me):
        for turn in range(ROUNDS):
            result = jitted[me](me, torch.full((3, 3), float(turn)))
            if result[0, 0].item() != (2 * turn + 1) * 4:
                wrong.append((me, turn))

    run_on_threads(count, work)
    assert not wrong


def test_one_function_on_threads_that_write_in_place():
    handed: queue.SimpleQueue[Any] = queue.SimpleQueue()
    wrong: list[Any] = []

    def function(number, x):
        total = x + 1
        total += x
        handed.put((number, total))
        first, other = handed.get()
        if other.sum().item() != 16 * (2 * first + 1):
            wrong.append((number, first))
        return total.t().reshape(-1)[3:5] * 2

    jitted = followed(function)

    def work(me):
        for turn in range(ROUNDS):
            number = float(turn % 20 + me)
            result = jitted(number, torch.full((4, 4), number))
            if result.tolist() != [2 * (2 * number + 1)] * 2:
                wrong.append((me, number, "result"))

    run_on_threads(4, work)
    assert not wrong


# --- forks ------------------------------------------------------------------------------------------------------------


@contextmanager
def busy_threads(work: Callable[[int], None], count: int) -> Iterator[None]:
    """Threads that call a function on and on."""
    stop = threading.Event()

    def on_and_on(me: int) -> None:
        while not stop.is_set():
            work(me)

    threads = [threading.Thread(target=on_and_on, args=(me,), daemon=True) for me in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def status_of(child: int, seconds: float) -> int | None:
    """How a child ended; None if it had to be killed."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot fork here")
def test_children_forked_while_other_threads_are_followed_read_what_they_left():
    torch.set_num_threads(1)
    shown: list[tuple[float, torch.Tensor]] = [(0.0, torch.ones(40, 40))] * 2

    def function(me, number, x):
        y = x * 2 + 1
        shown[me] = number, y
        time.sleep(0)
        z = y * 3
        return z + z[0, 0].item()

    jitted = [followed(function) for _ in range(3)]

    def work(me):
        number = float(torch.randint(100, ()).item())
        jitted[me](me, number, torch.full((40, 40), number))

    def look() -> bool:
        seen = [(number, tensor.min().item(), tensor.max().item()) for number, tensor in shown]
        seen_right = all(low == high == number * 2 + 1 for number, low, high in seen)
        shown.append((0.0, torch.ones(1)))
        result = jitted[2](2, 5.0, torch.full((4, 4), 5.0))
        torch.nn.Parameter(torch.ones(1))
        return seen_right and result.tolist() == [[66.0] * 4] * 4

    for me in (0, 1):
        for _ in range(5):
            work(me)
    with busy_threads(work, 2):
        for attempt in range(FORKS):
            time.sleep(0.003)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = 0 if look() else 3
                finally:
                    os._exit(status)
            assert status_of(child, 60) == 0, f"child {attempt}"


def test_a_call_that_begins_while_another_thread_runs_what_the_last_one_left(monkeypatch: pytest.MonkeyPatch):
    """What calls have pending is kept in objects that later calls use again: the other thread found one of them, and
    looks at it when the next call has already taken steps."""
    held, first_step, second_step, is_done = (threading.Event() for _ in range(4))
    found: list[Following] = []
    owner = threading.get_ident()

    def function(x: torch.Tensor) -> torch.Tensor:
        found[:] = ACTIVE
        y = x * 2 + 1
        first_step.set()
        if held.is_set():
            is_done.wait(1)
        z = y * 3
        second_step.set()
        return z - y.exp2() * 0

    jitted, x = followed(function), torch.full((3, 3), 2.0)
    for _ in range(CALLS):
        jitted(x)
    hold, node = CallState.hold, cast(property, CallState.node)

    def hold_and_wait(self: CallState) -> None:
        hold(self)
        held.set()
        first_step.wait(0.3)

    def node_of_before(self: CallState) -> int:
        found_node = node.__get__(self)
        if threading.get_ident() != owner:
            is_done.set()
            second_step.wait(0.3)
        return found_node

    monkeypatch.setattr(CallState, "hold", hold_and_wait)
    monkeypatch.setattr(CallState, "node", property(node_of_before, node.__set__))
    (following,) = found
    first_step.clear()
    second_step.clear()
    thread = threading.Thread(target=following.flush)
    thread.start()
    assert held.wait(60)
    result = jitted(x)
    thread.join(60)
    assert not thread.is_alive()
    assert torch.equal(result, torch.full((3, 3), 15.0))


def test_another_thread_runs_what_is_pending_while_a_step_is_taken(monkeypatch: pytest.MonkeyPatch):
    """A step lets go of shells that nothing refers to, and finalisers run: another thread begins to run what is pending
    just then, and the step must not be noted any more."""
    is_looking, is_taken = threading.Event(), threading.Event()
    owner, found, threads = threading.get_ident(), [], []
    armed: list[bool] = []

    def interfere() -> None:
        if armed:
            threads.append(threading.Thread(target=found[0].flush))
            threads[-1].start()
            is_looking.wait(60)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found[:] = ACTIVE
        y = x * 2
        unused = x * 5
        weakref.finalize(unused, interfere)
        del unused
        z = y + 1
        is_taken.set()
        return z * 3, y

    jitted, x = followed(function), torch.full((3, 3), 2.0)
    for _ in range(CALLS):
        jitted(x)
    node = cast(property, CallState.node)

    def node_of_before(self: CallState) -> int:
        found_node = node.__get__(self)
        if threading.get_ident() != owner:
            is_looking.set()
            is_taken.wait(0.3)
        return found_node

    monkeypatch.setattr(CallState, "node", property(node_of_before, node.__set__))
    armed.append(True)
    is_taken.clear()
    result, same = jitted(x)
    for thread in threads:
        thread.join(60)
    assert threads and not any(thread.is_alive() for thread in threads)
    assert torch.equal(result, torch.full((3, 3), 15.0)) and torch.equal(same, x * 2)
