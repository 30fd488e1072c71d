"""What ingot costs where it gains nothing: calls are no longer looked at, and nothing grows."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import ingot
from ingot.frontend.jit.cache import recorded_function, recording_table, settling
from ingot.frontend.jit.cache.recorded_function import RecordedFunction
from ingot.frontend.jit.settings.options import Options
from ingot.runtime.compiler import JitCompiler
from ingot.runtime.native.dispatch import call_records
from tests.frontend.jit.comparing import same

pytestmark = pytest.mark.usefixtures("no_eager_comparison")
ENOUGH = 100
"""Calls after which everything is settled."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every call whose arguments are looked at."""
    found: list[int] = []
    describe = recorded_function.describe

    def looking(args: Any, kwargs: Any, takes_objects: bool) -> Any:
        found.append(1)
        return describe(args, kwargs, takes_objects)

    monkeypatch.setattr(recorded_function, "describe", looking)
    return found


def recorded(function: Callable[..., Any]) -> RecordedFunction:
    """A function of which nothing is followed."""
    options = Options.of()
    return RecordedFunction(function, options, JitCompiler(options.config), "function")


def test_waits_fit_the_words_that_count_calls():
    """Forty kinds of calls that are refused wait four times as long each."""
    payoff = settling.Payoff()
    for _ in range(100):
        assert 0 < payoff.next_look() < call_records.NEVER
        assert 0 < payoff.next_rest() < call_records.NEVER


class Settings:
    scale = 1.0


class Batch:
    def __init__(self, x: torch.Tensor):
        self.x = x


Call = Callable[[Callable[..., Any], int], Any]


def _changing(period: int) -> tuple[Callable[..., Any], Call]:
    settings = Settings()

    def call(function: Callable[..., Any], number: int) -> Any:
        settings.scale = 1.0 + 0.5 * (number // period)
        return function(torch.ones(4))

    return lambda x: torch.tanh(x * settings.scale) + 1, call


def _cases() -> dict[str, tuple[Callable[..., Any], Call]]:
    weight, batch = torch.ones(4).requires_grad_(), Batch(torch.ones(4))
    return {
        "kinds": (lambda x, text: x * len(text) + 1, lambda f, n: f(torch.ones(4), "a" * n)),
        "every call": _changing(1),
        "every second call": _changing(2),
        "every fifth call": _changing(5),
        "gradients": (lambda x, y: x * y + 1, lambda f, n: f(torch.ones(4) * n, weight)),
        "unknown type": (lambda given: given.x * 2 + 1, lambda f, n: f(batch)),
        "keywords": (lambda x, *, given: x * given.x, lambda f, n: f(torch.ones(4) * n, given=batch)),
        "hooks": (lambda x: x * float(x.sum()), lambda f, n: f(torch.ones(4) * n)),
    }


@pytest.mark.parametrize("name", _cases())
def test_calls_are_not_looked_at_where_that_is_in_vain(name: str, looks: list[int]) -> None:
    function, call = _cases()[name]
    compiled = recorded(function)
    for number in range(ENOUGH):
        same(call(compiled, number), call(function, number))
    before = len(looks)
    for number in range(ENOUGH, 5 * ENOUGH):
        same(call(compiled, number), call(function, number))
    assert len(looks) - before < 4 * ENOUGH / 20


def test_calls_that_need_no_gradients_are_looked_at_at_once(looks: list[int]) -> None:
    weight = torch.ones(4).requires_grad_()
    compiled = recorded(lambda x: x * weight + 1)
    for _ in range(ENOUGH):
        compiled(torch.ones(4, requires_grad=True))
    with torch.no_grad():
        before = len(looks)
        compiled(torch.ones(4))
        assert len(looks) == before + 1
        compiled(torch.ones(4))
    assert compiled.recordings == 2


def test_errors_of_calls_that_are_not_looked_at_are_the_functions() -> None:
    def raises(batch: Batch, is_bad: bool) -> torch.Tensor:
        if is_bad:
            raise ValueError("bad")
        return batch.x

    compiled, batch = recorded(raises), Batch(torch.ones(4))
    for _ in range(ENOUGH):
        compiled(batch, False)
    with pytest.raises(ValueError, match=r"^bad$"):
        compiled(batch, True)
    with pytest.raises(TypeError):
        compiled(batch)
    references = sys.getrefcount(batch)
    for _ in range(ENOUGH):
        compiled(batch, is_bad=False)
    assert sys.getrefcount(batch) == references


def test_calls_that_are_not_looked_at_see_modes_and_switches() -> None:
    seen: list[str] = []

    class Seeing(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    compiled: Any = ingot.jit(lambda batch: torch.tanh(batch.x))
    batch = Batch(torch.ones(4))
    for _ in range(ENOUGH):
        compiled(batch)
    with Seeing():
        compiled(batch)
    assert seen == ["tanh"]
    with ingot.disable():
        same(compiled(batch), torch.tanh(batch.x))


def test_recordings_that_are_used_stay_while_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_table, "MOST_SPECIALISATIONS", 6)
    function = lambda x, text: x * len(text) + 1
    compiled, x = recorded(function), torch.ones(4)
    kept, texts = "kept", ["x" * number for number in range(40)]
    for text in texts:
        for _ in range(settling.PAID + 2):
            same(compiled(x, text), function(x, text))
            same(compiled(x, kept), function(x, kept))
    assert compiled.given_up is None and compiled.recordings == 1 + len(texts)
    assert len(compiled.specialisations) <= 6
    assert max(map(compiled.calls_of, compiled.specialisations.values())) > 5 * settling.PAID


def test_costly_recordings_are_given_up_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_MOST_SECONDS", 0.0)
    compiled = recorded(lambda x, text: x * len(text) + 1)
    for number in range(40):
        compiled(torch.ones(4), "a" * number)
    assert compiled.given_up is not None and compiled.recordings == 4


def test_recording_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling.Payoff, "next_rest", lambda payoff: 50)
    function = lambda x, text: x * len(text) + 1
    compiled, x = recorded(function), torch.ones(4)
    for number in range(60):
        compiled(x, "a" * number)
    assert compiled.given_up is not None and compiled.recordings == settling.MOST_IN_VAIN
    for _ in range(60):
        same(compiled(x, "again"), function(x, "again"))
    assert compiled.given_up is None and compiled.recordings == settling.MOST_IN_VAIN + 1


def _resident() -> float:
    """MiB of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("make", [recorded, ingot.jit])
def test_memory_stays_flat_where_everything_changes(make: Any) -> None:
    settings = Settings()
    compiled = make(lambda x, factor, text: torch.tanh(x * settings.scale) * factor + len(text) + x.shape[0])

    def use(first: int, last: int) -> tuple[int, float]:
        for number in range(first, last):
            settings.scale = 1.0 + number // 5
            compiled(torch.ones(1 + number % 97), number * 0.5, f"text {number}")
        gc.collect()
        return len(gc.get_objects()), _resident()

    (objects, memory), (more_objects, more_memory) = use(0, 1500), use(1500, 3000)
    assert more_objects - objects < 500
    assert more_memory - memory < 16


@pytest.mark.parametrize("name", _cases())
def test_everything_goes_with_the_function(name: str) -> None:
    function, call = _cases()[name]
    compiled: Any = ingot.jit(function)
    for number in range(20):
        call(compiled, number)
    inner = compiled._compiled
    references = [weakref.ref(inner), *(weakref.ref(module) for module in inner.compiler._modules.values())]
    del compiled, inner
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)


def test_steps_of_an_optimizer_are_followed_from_the_second_call() -> None:
    def update(parameters: list[torch.Tensor], step: int) -> None:
        for parameter in parameters:
            parameter.mul_(1 - 0.5**step)

    compiled: Any
    compiled, (mine, eagers) = ingot.jit(update), ([torch.ones(4), torch.ones(3)] for _ in range(2))
    for step in range(1, 12):
        compiled(mine, step)
        update(eagers, step)
        torch.testing.assert_close(mine, eagers)
        assert compiled._compiled.recordings == 1
    assert compiled._compiled.given_up is not None


def test_other_numbers_are_recorded() -> None:
    """Nothing is written, or the number does not count up: a recording for each may pay."""

    def scaled(x: torch.Tensor, power: int) -> torch.Tensor:
        return x * 2**power

    compiled: Any = None
    compiled, x = ingot.jit(scaled), torch.ones(3)
    for _ in range(4):
        for power in (1, 2):
            assert compiled(x, power).equal(scaled(x, power))
    assert compiled._compiled.recordings == 2
