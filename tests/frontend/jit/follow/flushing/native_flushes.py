"""Flushes that native code has been shown: they need no Python, unless something has changed since the first one. Each
test runs twice: while there is no other thread, and beside one that does nothing."""

from __future__ import annotations

import ctypes
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ingot.frontend.jit.follow.following import Following
from ingot.frontend.jit.follow.segments import SegmentFunction
from ingot.frontend.jit.follow.steps.step_tree import MOST_BRANCHES
from ingot.runtime.native.following import native_following
from ingot.runtime.native.launch.records import WordArena
from tests.frontend.jit.follow.following_checks import check, followed, nothing_is_left

_X = torch.arange(12.0).reshape(3, 4)


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(autouse=True, params=["alone", "beside another thread"])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is pending keeps its marks while it is written if there are other threads."""
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait, daemon=True)
    if request.param != "alone":
        other.start()
    yield
    is_over.set()
    if other.is_alive():
        other.join()


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flushes that Python makes or ends."""
    seen: list[str] = []
    flush, finish = Following._flush, Following._finish

    def noting_flush(self: Following, *given: Any) -> None:
        if self._now_pending().values:
            seen.append("flush")
        flush(self, *given)

    def noting_finish(self: Following, *given: Any) -> None:
        seen.append("finish")
        finish(self, *given)

    monkeypatch.setattr(Following, "_flush", noting_flush)
    monkeypatch.setattr(Following, "_finish", noting_finish)
    return seen


def asks_twice(x: torch.Tensor) -> Any:
    y = x * 2 + 1
    total = y.sum().item()
    z = y / total
    return z, bool(z.max() > 0)


def _plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    scripted: Any = torch.jit.script(_plus_one)


def passes_to_a_script(x: torch.Tensor) -> torch.Tensor:
    return scripted(x * 2) * 3


def writes_in_place(x: torch.Tensor) -> Any:
    y = x + 1
    x += y
    y.mul_(2)
    first = x.sum().item()
    x[0] = first
    return y


@pytest.mark.parametrize("function", [asks_twice, passes_to_a_script, writes_in_place], ids=lambda one: one.__name__)
def test_known_flushes_need_no_python(function: Any, in_python: list[str]) -> None:
    jitted = check(function, lambda: (_X + torch.rand(1),), calls=8)
    assert in_python, "the first flushes are made in Python"
    in_python.clear()
    torch.testing.assert_close(jitted(_X.clone()), function(_X.clone()))
    assert not in_python


def test_other_results_may_be_needed(in_python: list[str]) -> None:
    kept: list[torch.Tensor] = []

    def function(x: torch.Tensor, keeps: bool) -> float:
        y = x * 3
        if keeps:
            kept.append(y)
        total = (y + 1).sum()
        del y
        return total.item()

    jitted = followed(function)
    for _ in range(6):
        assert jitted(_X, False) == (_X * 3 + 1).sum().item()
    in_python.clear()
    assert jitted(_X, True) == (_X * 3 + 1).sum().item()
    assert "finish" in in_python
    torch.testing.assert_close(kept[0], _X * 3)
    nothing_is_left()


def sums(shown: list[torch.Tensor], finalise: Any) -> Any:
    """A function that leaves a result to be let go when it is flushed, which calls something then."""

    def function(x: torch.Tensor) -> float:
        y = x * 2
        unused = torch.tanh(x)
        weakref.finalize(unused, finalise)
        for _ in range(8):
            y = y + 1
        shown.append(y)
        del unused
        return y.sum().item()

    return function


def test_a_thread_that_begins_during_a_flush_waits_for_what_it_reads(in_python: list[str]) -> None:
    threads: list[threading.Thread] = []
    shown: list[torch.Tensor] = []
    read: list[float] = []
    armed: list[bool] = []

    def begin() -> None:
        if armed:
            threads.append(threading.Thread(target=lambda: read.append(shown[-1].sum().item())))
            threads[-1].start()

    jitted = followed(sums(shown, begin))
    for _ in range(6):
        jitted(_X)
    in_python.clear()
    armed.append(True)
    for _ in range(20):
        assert jitted(_X) == (_X * 2 + 8).sum().item()
        for thread in threads:
            thread.join(60)
    assert read == [(_X * 2 + 8).sum().item()] * 20
    assert not in_python
    nothing_is_left()


def test_a_thread_reads_what_a_long_segment_writes() -> None:
    """Kernels on this much data run without the GIL: another thread meets tensors that are being written."""
    shown: list[torch.Tensor] = []
    found: list[float] = []
    is_over = threading.Event()

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(torch.tanh(x) * 0.5) + 1
        shown.append(y)
        return y

    def read() -> None:
        while not is_over.is_set():
            if shown:
                y = shown.pop()
                found.append((y - wanted).abs().max().item())
            else:
                time.sleep(0)

    jitted, x = followed(function), torch.linspace(-1, 1, 2_000_000)
    wanted = function(x)
    shown.clear()
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(60):
            jitted(x)
    finally:
        is_over.set()
        reader.join(60)
    assert found and max(found) < 1e-5
    nothing_is_left()


def test_settings_that_change_during_a_flush_are_not_those_of_what_was_pending(in_python: list[str]) -> None:
    shown: list[torch.Tensor] = []
    armed: list[bool] = []

    def change() -> None:
        if armed:
            torch.set_grad_enabled(True)

    jitted = followed(sums(shown, change))
    for _ in range(6):
        jitted(_X)
    in_python.clear()
    armed.append(True)
    total = jitted(_X)
    assert torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    assert total == (_X * 2 + 8).sum().item()
    assert not shown[-1].requires_grad
    assert "finish" in in_python
    nothing_is_left()


def test_an_interrupted_segment_runs_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> float:
        y = x * 2 + 1
        shown.append(y)
        return y.sum().item()

    jitted = followed(function)
    for _ in range(6):
        jitted(_X)
    call, left = SegmentFunction.__call__, [1]

    def interrupted(self: SegmentFunction, *args: Any) -> Any:
        if left:
            left.pop()
            raise KeyboardInterrupt
        return call(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFunction, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            jitted(_X)
    torch.testing.assert_close(shown[-1], _X * 2 + 1)
    assert not left
    nothing_is_left()
    assert jitted(_X) == (_X * 2 + 1).sum().item()


def test_native_flushes_are_counted() -> None:
    jitted = followed(asks_twice)
    for _ in range(30):
        jitted(_X)
    (item,) = [one for one in jitted._compiled.follower.flushes.by_line() if one.cause == "Tensor.item"]
    assert item.count >= 25


def test_a_function_with_many_flushes_is_learned_whole(in_python: list[str]) -> None:
    functions = [torch.sin, torch.cos, torch.tanh, torch.exp, torch.sigmoid, torch.relu, torch.neg, torch.abs]
    reductions = [torch.Tensor.sum, torch.Tensor.mean, torch.Tensor.amax, torch.Tensor.amin, torch.Tensor.prod]

    def function(x: torch.Tensor) -> list[Any]:
        found: list[Any] = [one(x).tolist() for one in functions]
        for one in reductions:
            found += [one(x, dim).tolist() for dim in (0, 1, -1, -2)]
            found += [one(x, dim, True).tolist() for dim in (0, 1, -1, -2)]
        return found

    jitted = check(function, lambda: (torch.rand(3, 4),), calls=8)
    assert len(functions) + 8 * len(reductions) > MOST_BRANCHES
    in_python.clear()
    (root,) = jitted._compiled.follower._roots.values()
    assert root.misses == 0
    jitted(torch.rand(3, 4))
    assert not in_python


def test_looking_for_a_value_is_made_of_steps(in_python: list[str]) -> None:
    def function(x: torch.Tensor) -> tuple[bool, bool, torch.Tensor]:
        y = x * 2
        return 4.0 in y, 5.0 in y, y

    jitted = check(function, lambda: (_X.clone(),), calls=8)
    assert "__contains__" not in jitted.explain()
    in_python.clear()
    assert jitted(_X)[:2] == (True, False)
    assert not in_python


def test_calls_that_give_their_operand_run_nothing() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(x * 2, 0.5, False).to(torch.float32).contiguous()
        return y + y.sum().item()

    explained = check(function, lambda: (_X.clone(),)).explain()
    (line,) = [line for line in explained.splitlines() if "runs at once" in line]
    assert line.rpartition(": ")[2] == "Tensor.item"


def test_a_call_inside_of_a_call_may_have_its_steps_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_following, "MOST_STEPS", 2)
    inner: list[Any] = []

    def function(x: torch.Tensor, number: float) -> float:
        y = x.pow(number)
        if inner:
            depth = inner.pop()
            for other in range(4):
                jitted(x, number + 1 + other + depth)
        return (y + 1).sum().item()

    jitted: Any = followed(function)
    for number in range(30):
        inner += [10.0 * number] if number % 2 else []
        assert jitted(torch.ones(3), float(number % 5)) == 6.0
    nothing_is_left()


def test_an_arena_gives_words_side_by_side() -> None:
    arena = WordArena()
    one, other = arena.words(3), arena.words(5)
    assert ctypes.addressof(other) == ctypes.addressof(one) + ctypes.sizeof(one)
    large = arena.words(100_000)
    many = [arena.words(100) for _ in range(100)]
    for index, words in enumerate((one, other, large, *many)):
        assert not any(words)
        words[:] = [index + 1] * len(words)
    assert all(set(words) == {index + 1} for index, words in enumerate((one, other, large, *many)))
