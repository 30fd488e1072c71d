"""KeyboardInterrupt during calls of jitted functions, and what has to be as before afterwards.

In: a subject (which calls are made) and how many interrupts. Out: how many came, or an exit with what was left behind
and where the interrupt was. Two ways: at random moments, by a timer, and at chosen points. Python looks for
interrupts when a function begins, after calls and when a loop goes on: a trace function raises at the n-th of these
points, so with all numbers every moment at which an interrupt can come has been tried.

Runs as a process of its own (`python -m tests.frontend.jit.interrupting SUBJECT COUNT SEED`): an interrupt that comes
inside a callback of the garbage collector is printed and forgotten, which is Python's way.
"""

from __future__ import annotations

import dis
import gc
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils import _python_dispatch

import ingot
from ingot.base import collecting
from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.follow.following import ACTIVE
from ingot.frontend.jit.kept import recordings
from ingot.runtime.native.abi.settings import suspended
from tests.warm_processes import run_python

_ROOT = Path(__file__).resolve().parents[3]
_LOOPS = 6
_PER_NEW = 4
"""Interrupts after which a new function is compiled to see whether that still works."""


# --- what has to stay as it is ----------------------------------------------------------------------------------------


def state() -> dict[str, object]:
    """What a call may change while it runs, of this thread and of the process."""
    flags = {name: value for name, value in vars(_python_dispatch).items() if name.startswith("_is_in_")}
    return flags | {
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "profile hook": sys.getprofile(),
        "torch functions": torch._C._is_torch_function_enabled(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "included keys": str(torch._C._dispatch_tls_local_include_set()),
        "excluded keys": str(torch._C._dispatch_tls_local_exclude_set()),
        "followed calls": len(ACTIVE),
        "has_torch_function": torch.overrides.has_torch_function,
        "collector": gc.isenabled(),
        "frozen objects": gc.get_freeze_count(),
        "compiling": collecting._compiling.total,
        "suspended": suspended._word[0],
    }


def compare_states(before: dict[str, object], where: str) -> None:
    """Exit if anything is not as it was."""
    now = state()
    changed = {name: (value, now[name]) for name, value in before.items() if now[name] != value}
    if changed:
        sys.exit(f"{where}: left behind: {changed}")


# --- which calls are made ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A function, what it gives, and how it is compiled."""

    function: Callable[[torch.Tensor], Any]
    options: dict[str, Any]
    calls: int
    """How many calls a new function gets; the first ones learn and compile."""

    def compiled(self) -> Any:
        return ingot.jit(self.function, **self.options)

    def run(self) -> Any:
        compiled = self.compiled()
        for _ in range(self.calls):
            compiled(X)
        return compiled


torch.manual_seed(0)
WEIGHT, X = torch.randn(8, 8), torch.randn(4, 8)
SEEN: list[torch.Tensor] = []
"""What the functions have shown to the world, in their order."""


def _plain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(10):
        x = torch.tanh(x @ WEIGHT) * 0.5 + x.sum(-1, keepdim=True) * 0.01
    return x


def _values(x: torch.Tensor) -> torch.Tensor:
    for _ in range(_LOOPS):
        x = torch.tanh(x @ WEIGHT) * 0.5 + x.sum(-1, keepdim=True) * 0.01
        SEEN.append(x)
        if x[0, 0].item() > 1e9:
            return x
    return x


def _settings(x: torch.Tensor) -> torch.Tensor:
    """Goes through states of torch, Python functions of torch, views and containers."""
    with torch.no_grad():
        first, second = torch.tanh(x).chunk(2, -1)
        x = torch.cat([second, first * 2], -1)
    SEEN.append(torch.nn.functional.layer_norm(x, (8,)))
    with torch.inference_mode():
        SEEN.append(torch.relu(x) + 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        SEEN.append((x @ WEIGHT).float())
    x = x.t().contiguous().t() + x.max(-1, keepdim=True).values
    SEEN.append(x)
    return x * x[0, 0].item()


def _in_place(x: torch.Tensor) -> torch.Tensor:
    """Writes what it has made; what is written twice is wrong."""
    total = x + 1
    for _ in range(_LOOPS):
        total += x
        total.mul_(1.5)
        if total[0, 0].item() > 1e9:
            break
    SEEN.append(total)
    return total * 1.0


SUBJECTS = {
    "recorded": Subject(_plain, {}, 2),
    "followed": Subject(_values, {"python": "run"}, 4),
    "settings": Subject(_settings, {"python": "run"}, 4),
    "in place": Subject(_in_place, {"python": "run"}, 4),
}


class Checks:
    """Compares the world after an interrupt with the world before."""

    def __init__(self, subject: Subject):
        self._subject = subject
        self.expected = subject.function(X)
        self._values = [one.clone() for one in SEEN]
        self._before = state()
        self._count = 0

    def after(self, kept: Any, where: str) -> None:
        compare_states(self._before, where)
        for number, one in enumerate(SEEN):
            self._same(one, self._values[number % len(self._values)], where)
        self._count += 1
        for compiled in (kept, self._subject.compiled())[: 2 if self._count % _PER_NEW == 0 else 1]:
            for _ in range(3):
                SEEN.clear()
                self._same(compiled(X), self.expected, f"{where}, a later call")
                for one, value in zip(SEEN, self._values, strict=True):
                    self._same(one, value, f"{where}, a later call")
        compare_states(self._before, f"{where}, after later calls")

    def _same(self, found: torch.Tensor, expected: torch.Tensor, where: str) -> None:
        try:
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        except AssertionError as error:
            sys.exit(f"{where}: {error}")


# --- at random moments ------------------------------------------------------------------------------------------------


class Alarm:
    """A timer that interrupts the main thread."""

    def __init__(self) -> None:
        self._is_armed = False
        signal.signal(signal.SIGALRM, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        if self._is_armed:
            raise KeyboardInterrupt

    @contextmanager
    def after(self, seconds: float) -> Iterator[None]:
        try:
            self._is_armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            self._is_armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)


def at_random_moments(subject: Subject, count: int, seed: int) -> int:
    """Interrupt calls of new functions and of one that is kept, by turns; how many were."""
    alarm, length, kept = Alarm(), 0.0, subject.compiled()
    for _ in range(3):
        start = time.perf_counter()
        kept = subject.run()
        length = time.perf_counter() - start
    SEEN.clear()
    checks, choose, interrupted = Checks(subject), random.Random(seed), 0
    for attempt in range(count):
        SEEN.clear()
        place = ""
        try:
            with alarm.after(choose.uniform(1e-6, length if attempt % 2 else 2e-3)):
                _turn(subject, kept, attempt)
        except KeyboardInterrupt as error:
            interrupted += 1
            place = "".join(traceback.format_exception(error))
        checks.after(kept, f"attempt {attempt}, interrupted at\n{place}")
    return interrupted


def _turn(subject: Subject, kept: Any, attempt: int) -> None:
    if attempt % 2:
        subject.run()
        return
    if subject.options.get("python") != "run":
        ingot.reset()  # so that it is recorded
    for _ in range(3):
        kept(X)


# --- at every point ---------------------------------------------------------------------------------------------------

_CALLS = ("CALL", "CALL_FUNCTION_EX", "CALL_KW")


@cache
def _points(code: CodeType) -> frozenset[int]:
    """The offsets of instructions before which Python looks for interrupts: after calls, and where loops go on."""
    parse: Any = dis._parse_exception_table  # type: ignore[attr-defined]
    table, found, previous = parse(code), set(), None

    def handler(offset: int) -> int | None:
        return next((entry.target for entry in table if entry.start <= offset < entry.end), None)

    for one in dis.get_instructions(code):
        if one.opname.startswith("JUMP_BACKWARD"):
            found.add(one.offset)
        # An interrupt after a call is handled where the call is, not where the next instruction is.
        is_after_call = previous is not None and previous.opname in _CALLS
        if previous is not None and is_after_call and handler(previous.offset) == handler(one.offset):
            found.add(one.offset)
        if one.opname != "CACHE":
            previous = one
    return frozenset(found)


class Interrupter:
    """A trace function that sends a signal at the n-th point."""

    def __init__(self, at: int):
        self._at = at
        self.count = 0
        self.where: str | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            if frame.f_code.co_filename.startswith("<frozen"):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._pass(frame)
        elif event == "opcode" and frame.f_lasti in _points(frame.f_code):
            self._pass(frame)
        return self

    def _pass(self, frame: FrameType) -> None:
        self.count += 1
        if self.count == self._at:
            sys.settrace(None)
            self.where = "".join(traceback.format_stack(frame))
            if not _is_in_block_of_program(frame):
                signal.raise_signal(signal.SIGALRM)


def _is_in_block_of_program(frame: FrameType | None) -> bool:
    """Whether the program has just begun or ended a block of torch's, such as no_grad: some of these leave things
    behind when they are interrupted, compiled or not."""
    while frame is not None:
        caller = frame.f_back
        is_block = frame.f_code.co_filename.endswith(("autocast_mode.py", "grad_mode.py"))
        if is_block and caller is not None and caller.f_code.co_filename == __file__:
            return True
        frame = caller
    return False


def at_every_point(subject: Subject, step: int, seed: int, warm: int) -> int:
    """Interrupt the call after `warm` calls at every `step`-th of its points; how many were interrupted."""
    signal.signal(signal.SIGALRM, _interrupt)
    checks, at, interrupted, kept = Checks(subject), 1 + seed % step, 0, subject.compiled()
    for _ in range(warm):
        kept(X)
    while True:
        if warm < STEADY:
            kept = subject.compiled()
            for _ in range(warm):
                kept(X)
        interrupter = Interrupter(at)
        SEEN.clear()
        try:
            sys.settrace(interrupter)
            kept(X)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(None)
        if interrupter.where is None:
            return interrupted
        checks.after(kept, f"point {at} after {warm} calls, interrupted at\n{interrupter.where}")
        at += step


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


STEADY = 8
"""Calls after which nothing is learned or compiled any more."""


# --- as a process -----------------------------------------------------------------------------------------------------


def run(subject: str, count: int, warm: int | None = None) -> int:
    """Interrupt calls in a process of its own; how many were interrupted.

    `count` is the number of random moments, or, where `warm` says which call it is, how many points are passed between
    two that are tried."""
    command = ["-m", __name__, subject, str(count), str(os.getpid()), *([] if warm is None else [str(warm)])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = run_python(*command, cwd=_ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def main(subject: str, count: str, seed: str, *warm: str) -> None:
    eager_comparison.ROUNDS = 0
    recordings.find_recording = lambda what: None  # or else nothing is left to interrupt
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if warm:
        print(at_every_point(SUBJECTS[subject], int(count), int(seed), int(warm[0])))
    else:
        print(at_random_moments(SUBJECTS[subject], int(count), int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
