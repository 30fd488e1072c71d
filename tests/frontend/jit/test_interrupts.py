"""KeyboardInterrupt at random moments of a recording. INGOT_TEST_EXAMPLES is how many.

The calls run in a process of its own: an interrupt that comes inside a callback of the garbage collector is printed
and forgotten, which is Python's way.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from torch.utils import _python_dispatch

import ingot
from ingot.base import collecting
from ingot.codegen.llvm import unlocked
from ingot.frontend.jit.trace.effects import EffectMonitor
from ingot.frontend.jit.trace.recorder import Recording
from tests.frontend.jit.comparing import why_followed

INTERRUPTS = int(os.environ.get("INGOT_TEST_EXAMPLES", "60"))

_PROGRAM = """
    import gc, random, signal, sys, time, warnings
    import torch
    from torch.utils import _python_dispatch
    import ingot
    from ingot.base import collecting
    from ingot.frontend.jit.autotune import eager_comparison
    from ingot.runtime.native.settings import suspended

    eager_comparison.ROUNDS = 0
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)

    def state():
        flags = tuple(value for name, value in vars(_python_dispatch).items() if name.startswith("_is_in_"))
        return (
            torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(), flags, sys.getprofile(),
            torch.is_autocast_cache_enabled(), torch._C._is_torch_function_enabled(), torch.is_grad_enabled(),
            gc.isenabled(), collecting._compiling.total, suspended._word[0],
            str(torch._C._dispatch_tls_local_include_set()), str(torch._C._dispatch_tls_local_exclude_set()),
        )

    weight = torch.randn(8, 8)

    def function(x):
        for _ in range(10):
            x = torch.tanh(x @ weight) * 0.5 + x.sum(-1, keepdim=True) * 0.01
        return x

    x = torch.randn(4, 8)
    expected = function(x)

    def calls():
        compiled = ingot.jit(function)
        for _ in range(2):
            compiled(x)
        return compiled

    is_armed = False
    def interrupt(*_):
        if is_armed:
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    for _ in range(3):
        start = time.perf_counter()
        calls()
        length = time.perf_counter() - start
    before = state()
    choose = random.Random(int(sys.argv[2]))
    count = 0
    kept = ingot.jit(function)
    for attempt in range(int(sys.argv[1])):
        try:
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, choose.uniform(1e-6, length))
                if attempt % 2:
                    calls()
                else:
                    ingot.reset()
                    kept(x)
                    kept(x)
            finally:
                is_armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            count += 1
        now = state()
        if now != before:
            sys.exit(f"attempt {attempt}: {before} became {now}")
        for compiled in (kept, ingot.jit(function)):
            for _ in range(3):
                torch.testing.assert_close(compiled(x), expected)
        if state() != before:
            sys.exit(f"after attempt {attempt}: {before} became {state()}")
    print(count)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no timers that interrupt")
def test_interrupts_leave_nothing_behind():
    command = [sys.executable, "-c", textwrap.dedent(_PROGRAM), str(INTERRUPTS), str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120 + 2 * INTERRUPTS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > INTERRUPTS // 10, "hardly any call was interrupted"


# --- at chosen moments ------------------------------------------------------------------------------------------------


def stacks() -> tuple[object, ...]:
    flags = tuple(value for name, value in vars(_python_dispatch).items() if name.startswith("_is_in_"))
    heights = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    return *heights, flags, sys.getprofile(), torch.is_autocast_cache_enabled()


@pytest.mark.parametrize("owner", [torch.overrides.TorchFunctionMode, _python_dispatch.TorchDispatchMode])
@pytest.mark.parametrize("is_early", [True, False])
def test_an_interrupt_while_a_mode_is_entered(owner: type, is_early: bool, monkeypatch: pytest.MonkeyPatch):
    enter = owner.__enter__

    def interrupted(mode: object) -> object:
        if not is_early:
            enter(mode)
        raise KeyboardInterrupt

    before = stacks()
    monkeypatch.setattr(owner, "__enter__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ingot.jit(lambda x: x * 2.0)(torch.ones(3))
    assert stacks() == before


@pytest.mark.parametrize("name", ["start", "stop"])
@pytest.mark.parametrize("is_early", [True, False])
def test_an_interrupt_while_the_monitor_is_started_or_stopped(
    name: str, is_early: bool, monkeypatch: pytest.MonkeyPatch
):
    method, times = getattr(EffectMonitor, name), iter(range(100))

    def interrupted(monitor: EffectMonitor) -> None:
        is_first = next(times) == 0
        if not (is_first and is_early):
            method(monitor)
        if is_first:
            raise KeyboardInterrupt

    before = stacks()
    monkeypatch.setattr(EffectMonitor, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        ingot.jit(lambda x: x * 2.0)(torch.ones(3))
    assert stacks() == before


def test_a_mode_that_was_left_on_ours_stays():
    class Left(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    left = Left()
    compiled = ingot.jit(lambda x: (left.__enter__(), x * 2.0)[1])
    compiled(torch.ones(3))
    try:
        assert torch._C._len_torch_function_stack() == 1
    finally:
        left.__exit__(None, None, None)
    assert torch._C._len_torch_function_stack() == 0


def add_or_subtract(x: torch.Tensor) -> torch.Tensor:
    try:
        x = x + 1.0
    except KeyboardInterrupt:
        x = x - 1.0
    return x * 2.0


def test_a_call_that_survived_an_interrupt_of_the_monitor_is_not_replayed(monkeypatch: pytest.MonkeyPatch):
    """The function catches what is raised while the monitor is paused, which then misses what follows."""
    paused = EffectMonitor.paused

    class Interrupting:
        def __init__(self, inner):
            self.inner = inner

        def __enter__(self):
            monkeypatch.setattr(EffectMonitor, "paused", paused)
            self.inner.__enter__()
            raise KeyboardInterrupt

        def __exit__(self, *_):
            raise AssertionError("it was never entered")

    compiled = ingot.jit(add_or_subtract)
    monkeypatch.setattr(EffectMonitor, "paused", lambda monitor: Interrupting(paused(monitor)))
    assert compiled(torch.ones(3)).tolist() == [0.0] * 3
    assert "interrupted" in why_followed(compiled)
    for _ in range(3):
        assert compiled(torch.ones(3)).tolist() == [4.0] * 3


def test_a_call_that_survived_an_interrupt_of_an_operation_is_not_replayed(monkeypatch: pytest.MonkeyPatch):
    operate = Recording.operate

    def interrupted(*given: Any) -> Any:
        monkeypatch.setattr(Recording, "operate", operate)
        raise KeyboardInterrupt

    compiled = ingot.jit(add_or_subtract)
    monkeypatch.setattr(Recording, "operate", interrupted)
    assert compiled(torch.ones(3)).tolist() == [0.0] * 3
    assert "interrupted" in why_followed(compiled)
    for _ in range(3):
        assert compiled(torch.ones(3)).tolist() == [4.0] * 3


@pytest.mark.parametrize("module", [collecting, unlocked], ids=["collecting", "unlocked"])
def test_counts_are_right_after_an_interrupt_of_leaving(module: Any, monkeypatch: pytest.MonkeyPatch):
    count = collecting._compiling if module is collecting else unlocked._inside._inside
    leave, times = type(count).leave, iter(range(100))

    def interrupted(counted: Any, token: object) -> None:
        if next(times) == 0:
            raise KeyboardInterrupt
        leave(counted, token)

    monkeypatch.setattr(type(count), "leave", interrupted)
    block = collecting.collecting_later() if module is collecting else unlocked._inside()
    with pytest.raises(KeyboardInterrupt), block:
        pass
    assert count.total == 0 and gc.isenabled()
