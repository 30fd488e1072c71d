"""Weights that programs pack for themselves: used as long as they hold the same bits, and not one call longer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot.base.errors import CodegenError
from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.lowering import checked_weights
from ingot.frontend.jit.lowering.checked_weights import CheckedWeights
from ingot.frontend.jit.rewrites import product_strategies, weight_packing
from ingot.frontend.jit.rewrites.trace_passes import _ON_CHECKED_WEIGHTS, TRACE_PASSES

ENOUGH = 40
"""Calls until weights are packed, and packed calls are measured."""


@pytest.fixture(autouse=True)
def decided(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Weights are packed after two calls, and packed ones are always the quicker; eager is not compared."""
    monkeypatch.setattr(weight_packing, "_is_quicker", lambda *_: True)
    monkeypatch.setattr(product_strategies, "_is_quicker_packed", lambda *_: True)
    monkeypatch.setattr(product_strategies, "_QUICKER_PACKED", {})
    monkeypatch.setattr(product_strategies, "_FEWEST_OPERATIONS", 0)
    monkeypatch.setattr(eager_comparison, "CLEARLY", 0.0)
    monkeypatch.setattr(eager_comparison, "ROUNDS", 3)
    monkeypatch.setattr(checked_weights, "FIRST_WAIT", 2)
    monkeypatch.setattr(checked_weights, "_SHORTEST", 0.0)
    monkeypatch.setattr(checked_weights, "_GAIN", float("inf"))
    with torch.no_grad():
        yield


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(96, 80), nn.GELU(), nn.Linear(80, 64, bias=False)).eval()


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()).eval()


def rows() -> torch.Tensor:
    return torch.randn(128, 96)


def images() -> torch.Tensor:
    return torch.randn(2, 4, 12, 12)


MODELS = {"products": (layers, rows), "convolutions": (convolutions, images)}
Make = tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]


def function_of(compiled: Any) -> CheckedWeights:
    (found,) = compiled.forward._compiled.specialisations.values()
    function = found.program.function
    assert isinstance(function, CheckedWeights)
    return function


def is_packed(compiled: Any) -> bool:
    return "weights are packed" in function_of(compiled).text


def run(compiled: Any, model: nn.Module, make: Callable[[], torch.Tensor], calls: int) -> None:
    for _ in range(calls):
        x = make()
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def packed(make: Make) -> tuple[Any, nn.Module]:
    """A compiled model with packed weights, and an eager one over the same weights."""
    model = make[0]()
    compiled: Any = ingot.jit(model)
    run(compiled, model, make[1], ENOUGH)
    assert is_packed(compiled)
    return compiled, model


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_weights_are_packed_after_some_calls(make: Make):
    compiled, _ = packed(make)
    assert compiled.tier == "skipping"
    assert "weights are packed, and compared at every call" in str(compiled.forward.explain())


def _through_data(weight: Any) -> None:
    weight.data.mul_(1.5)


def _through_numpy(weight: Any) -> None:
    weight.detach().numpy()[0] += 1.0


def _one_element(weight: Any) -> None:
    weight.data.view(-1)[-1] = 7.0


def _other_memory(weight: Any) -> None:
    weight.data = torch.flip(weight.data, [0])


def _in_place(weight: Any) -> None:
    weight.copy_(torch.randn_like(weight))


def _not_a_number(weight: Any) -> None:
    weight.data.view(-1)[3] = float("nan")


def _through_storage(weight: Any) -> None:
    weight.untyped_storage().copy_(torch.randn_like(weight).untyped_storage())


CHANGES = [_through_data, _through_numpy, _one_element, _other_memory, _in_place, _not_a_number, _through_storage]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_no_call_uses_weights_that_have_changed(make: Make, change: Callable[[Any], None]):
    compiled, model = packed(make)
    for weight in list(model.parameters()):
        change(weight)
        x = make[1]()
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4, equal_nan=True)
    for _ in range(3):
        x = make[1]()
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4, equal_nan=True)


def test_weights_change_between_all_calls_of_the_comparison():
    """Also before it is known whether packing pays."""
    model = layers()
    compiled: Any = ingot.jit(model)
    for number in range(30):
        x = rows()
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        if number % 3 == 0:
            model[number % 2 * 2].weight.data.add_(0.1)  # type: ignore[index, union-attr]


def test_weights_are_packed_again_after_longer_and_longer_waits():
    compiled, model = packed(MODELS["products"])
    waits = []
    for _ in range(3):
        model[0].weight.data.mul_(1.01)  # type: ignore[index]
        run(compiled, model, rows, 1)
        assert not is_packed(compiled)
        waits.append(function_of(compiled)._left)
        run(compiled, model, rows, waits[-1] + ENOUGH)
        assert is_packed(compiled)
    assert waits[0] < waits[1] < waits[2]


def test_a_weight_that_is_used_twice_is_compared():
    """It is still read where it is not packed."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(80, 96)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(self.words(x).tanh(), self.words.weight)

    model = Tied().eval()
    make = lambda: torch.randint(0, 80, (2, 64))
    compiled: Any = ingot.jit(model)
    run(compiled, model, make, ENOUGH)
    assert is_packed(compiled)
    model.words.weight.data.mul_(-1.0)
    run(compiled, model, make, 2)


def test_few_rows_are_left_as_they_are():
    model = layers()
    compiled: Any = ingot.jit(model)
    run(compiled, model, lambda: torch.randn(32, 96), ENOUGH)
    assert not is_packed(compiled) and function_of(compiled)._left < 0


def test_plain_programs_stay_where_packing_gains_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checked_weights, "_GAIN", 0.0)
    model = layers()
    compiled: Any = ingot.jit(model)
    run(compiled, model, rows, ENOUGH)
    assert not is_packed(compiled) and function_of(compiled)._left < 0


def test_short_calls_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checked_weights, "_SHORTEST", float("inf"))
    model = layers()
    compiled: Any = ingot.jit(model)
    run(compiled, model, rows, ENOUGH)
    assert not is_packed(compiled) and function_of(compiled)._left < 0


def test_a_program_that_cannot_be_packed_stays_as_it_is():
    def pack() -> Any:
        raise CodegenError("not today")

    function = CheckedWeights(lambda *given: ["plain", *given], pack, [torch.randn(3)])
    assert all(function([1], [2], [3]) == ["plain", [1], [2], [3]] for _ in range(ENOUGH))
    assert function._left < 0


def test_packed_programs_that_cannot_run_are_given_up():
    def fails(*given: Any) -> Any:
        raise CodegenError("not today")

    weight = torch.randn(3)
    function = CheckedWeights(
        lambda *given: ["plain"], lambda: checked_weights.PackedWeights(fails, [weight]), [weight]
    )
    assert all(function((), (), ()) == ["plain"] for _ in range(ENOUGH))
    assert function._left < 0 and not function.text


def test_weights_that_change_while_they_are_packed_are_packed_later():
    weight, made = torch.zeros(1000), []

    def pack() -> Any:
        made.append(weight.clone())
        if len(made) == 1:
            weight.add_(1.0)  # as another thread would
        return checked_weights.PackedWeights(lambda *_: [made[-1]], [weight])

    function = CheckedWeights(lambda *_: [weight.clone()], pack, [weight])
    for _ in range(2 * ENOUGH):
        expected = weight.clone()
        (found,) = function((), (), ())
        assert torch.equal(found, expected)
    assert len(made) == 2


def test_frozen_profiled_and_writing_programs_check_nothing():
    def writes(x: torch.Tensor) -> torch.Tensor:
        weight.mul_(1.0)
        return x @ weight

    weight = torch.randn(96, 80)
    frozen: Any = ingot.jit(layers(), freeze=True)
    profiled: Any = ingot.jit(layers(), config={"enable_profiling": True})
    writing: Any = ingot.jit(writes)
    for _ in range(ENOUGH):
        frozen(rows())
        profiled(rows())
        writing(rows())
    for one in (frozen.forward, profiled.forward, writing):
        (found,) = one._compiled.specialisations.values()
        assert found.program is None or not isinstance(found.program.function, CheckedWeights)


def test_threads_share_packed_weights():
    compiled, model = packed(MODELS["products"])
    faults: list[BaseException] = []

    def work() -> None:
        try:
            with torch.no_grad():
                run(compiled, model, rows, 30)
        except BaseException as error:
            faults.append(error)

    for _ in range(3):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        model[2].weight.data.mul_(0.5)  # type: ignore[index]
    assert not faults


def test_passes_on_checked_weights_are_those_that_need_frozen_ones():
    frozen = {one.name for one in TRACE_PASSES if one.needs_frozen}
    assert _ON_CHECKED_WEIGHTS.keys() <= frozen
    assert all(name == one.name for name, one in _ON_CHECKED_WEIGHTS.items())
