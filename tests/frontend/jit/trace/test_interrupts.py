"""KeyboardInterrupt while a function is recorded, at random moments and at chosen ones.

INGOT_TEST_EXAMPLES is how many.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any

import pytest
import torch
from torch.utils import _python_dispatch

import ingot
from ingot.base import collecting
from ingot.codegen.llvm import unlocked
from ingot.frontend.jit.trace.effects import EffectMonitor
from ingot.frontend.jit.trace.recorder import Recording
from tests.frontend.jit import interrupting
from tests.frontend.jit.comparing import why_followed

INTERRUPTS = int(os.environ.get("INGOT_TEST_EXAMPLES", "60"))

_HAS_TIMERS = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers that interrupt")


@_HAS_TIMERS
def test_interrupts_leave_nothing_behind():
    assert interrupting.run("recorded", INTERRUPTS) > INTERRUPTS // 10, "hardly any call was interrupted"


@_HAS_TIMERS
@pytest.mark.parametrize("warm", [0, 1], ids=["while recording", "while compiling"])
def test_interrupts_at_chosen_points_leave_nothing_behind(warm: int):
    """Other points in every run."""
    assert interrupting.run("recorded", max(2000 * 60 // INTERRUPTS, 1), warm) > 10


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


@pytest.mark.parametrize("number", range(12))
def test_an_interrupt_inside_the_profiling_hook(number: int, monkeypatch: pytest.MonkeyPatch):
    """The first events are those of attaching, which end between two of Python's own functions."""
    notice, events = EffectMonitor._notice, iter(range(10_000))

    def interrupted(*given: Any) -> None:
        if next(events) == number:
            raise KeyboardInterrupt
        notice(*given)

    before = stacks()
    monkeypatch.setattr(EffectMonitor, "_notice", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        ingot.jit(lambda x: torch.tanh(x * 2.0) + x.sum())(torch.ones(3))
    assert stacks() == before
    assert raised.type is KeyboardInterrupt  # which holds the frames: nothing may wait for them to be freed


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
