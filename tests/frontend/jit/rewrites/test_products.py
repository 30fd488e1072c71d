"""Matrix products: as calls of linear, together where they share weights, and by the quicker way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import ingot
from ingot.frontend.jit.rewrites import product_strategies


@torch.no_grad()
def check(function: Callable[..., Any], make: Callable[[], list[torch.Tensor]]) -> str:
    """Three calls as eager's; the text of the program."""
    compiled: Any = ingot.jit(function)
    for _ in range(3):
        inputs = make()
        expected = function(*[one.clone() for one in inputs])
        torch.testing.assert_close(compiled(*inputs), expected, rtol=1e-4, atol=1e-4)
    return compiled.inspect("program")


@pytest.mark.parametrize("shape", [(6,), (2, 6), (3, 2, 6)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear_is_one_call(shape: tuple[int, ...], has_bias: bool):
    weight, bias = torch.randn(5, 6), torch.randn(5)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(functional.linear(x, weight, bias if has_bias else None))

    text = check(function, lambda: [torch.randn(shape)])
    if len(shape) > 1:
        assert "linear" in text and "view" not in text and "aten_t_" not in text


def test_large_results_are_written_into_recycled_memory():
    weight, bias = torch.randn(300, 64), torch.randn(300)
    text = check(lambda x: functional.linear(x, weight, bias) * 2, lambda: [torch.randn(4, 70, 64)])
    assert "out=empty((4, 70, 300)" in text


def test_a_product_that_is_read_as_a_matrix_too_stays_one():
    weight = torch.randn(5, 6)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        matrix = torch.mm(x.view(6, 6), weight.t())
        return matrix.view(2, 3, 5) + 1, matrix.sum(0)

    check(function, lambda: [torch.randn(2, 3, 6)])


def test_results_may_be_written_in_place():
    weight, bias = torch.randn(5, 6), torch.randn(5)
    check(lambda x: functional.linear(x, weight, bias).relu_().mul_(2), lambda: [torch.randn(4, 6)])


@pytest.mark.parametrize("axis", [0, 1])
def test_products_of_all_parts_are_one(axis: int):
    weight, bias = torch.randn(5, 6), torch.randn(5)

    def function(x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(3, 5)
        for part in x.unbind(axis):
            state = torch.tanh(functional.linear(part, weight, bias) + state)
        return state

    shape = (7, 3, 6) if axis == 0 else (3, 7, 6)
    assert check(function, lambda: [torch.randn(shape)]).count("linear") == 1


def test_parts_that_depend_on_each_other_are_not_joined():
    weight = torch.randn(6, 6)

    def function(x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(3, 6)
        for part in x.unbind(0):
            state = functional.linear(torch.tanh(part + state), weight)
        return state

    assert check(function, lambda: [torch.randn(5, 3, 6)]).count("linear") == 5


def test_weights_that_change_in_between_are_not_shared():
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(3, 5)
        for part in x.unbind(0):
            total = total + functional.linear(part, weight)
            weight.mul_(2)
        return total

    check(function, lambda: [torch.randn(4, 3, 6), torch.randn(5, 6)])


def test_returned_products_have_memory_of_their_own():
    weight = torch.randn(5, 6)
    compiled: Any = ingot.jit(lambda x: [functional.linear(part, weight) for part in x.unbind(0)])
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 3, 6)
            first, second, *_ = compiled(x)
            first.zero_()
            torch.testing.assert_close(second, functional.linear(x[1], weight))
            assert second.is_contiguous()


@pytest.mark.parametrize("has_bias", [True, False])
def test_few_rows_take_the_quicker_way(has_bias: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(product_strategies, "_quickest", lambda *_: "swapped")
    weight, bias = torch.randn(600, 500), torch.randn(600)
    calls: list[int] = []
    swapped = product_strategies.swapped_linear

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        return swapped(*args, **kwargs)

    monkeypatch.setattr(product_strategies, "swapped_linear", counted)
    check(lambda x: functional.linear(x, weight, bias if has_bias else None) + 1, lambda: [torch.randn(3, 500)])
    assert len(calls) == 2


@pytest.fixture
def by_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring finds generated code the quicker way."""
    monkeypatch.setattr(product_strategies, "_quickest", lambda *_: "panels")
    monkeypatch.setattr(product_strategies, "_is_quicker_packed", lambda *_: True)
    monkeypatch.setattr(product_strategies, "_FEWEST_OPERATIONS", 0)
    monkeypatch.setattr(product_strategies, "_QUICKER_PACKED", {})


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(9, 40), (2, 5, 40)])
def test_linear_by_panels(has_bias: bool, shape: tuple[int, ...], by_panels: None):
    weight, bias = torch.randn(70, 40), torch.randn(70)
    function = lambda x: functional.linear(x, weight, bias if has_bias else None) * 2
    assert "linear_by_panels(" in check(function, lambda: [torch.randn(shape)])


def test_matrices_in_both_orders_by_panels(by_panels: None):
    matrix, bias = torch.randn(40, 70), torch.randn(70)
    transposed = torch.randn(70, 41)[:, 1:]
    function = lambda x: torch.addmm(bias, x, matrix) - torch.mm(x, transposed.t())
    text = check(function, lambda: [torch.randn(9, 40)])
    assert "addmm_by_panels(" in text and "by_panels(" in text.replace("addmm_by_panels(", "")


def test_weights_that_change_are_packed_anew(by_panels: None):
    weight = torch.nn.Parameter(torch.randn(70, 40))
    compiled: Any = ingot.jit(lambda x: functional.linear(x, weight) + 1)
    x = torch.randn(9, 40)
    with torch.no_grad():
        for step in range(4):
            torch.testing.assert_close(compiled(x), functional.linear(x, weight) + 1, rtol=1e-4, atol=1e-4)
            weight.data.add_(step)  # which leaves no trace on the parameter


def test_negated_views_are_not_taken_for_their_memory():
    x, matrix, bias = torch.randn(9, 40, dtype=torch.complex64).conj().imag, torch.randn(40, 70), torch.randn(70)
    assert x.is_neg()
    panels = product_strategies.pack(matrix)
    for made in (
        product_strategies.linear_by_panels(x, matrix.t().contiguous(), bias, out=torch.empty(9, 70)),
        product_strategies.addmm_by_panels(bias, x, matrix, out=torch.empty(9, 70)),
        product_strategies.mm_by_panels(x, matrix, out=torch.empty(9, 70)) + bias,
        product_strategies.packed_product(x, panels, 70, bias),
    ):
        torch.testing.assert_close(made, x @ matrix + bias, rtol=1e-4, atol=1e-4)


def test_what_generated_products_cannot_do_stays_pytorchs(by_panels: None):
    wide, spread = torch.randn(40, 70, dtype=torch.float64), torch.randn(40, 140)[:, ::2]
    column, row = torch.randn(9, 1), torch.randn(70)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        matrix = spread.contiguous()
        return (
            x.double() @ wide,
            torch.mm(x, spread),
            torch.addmm(column, x, matrix),
            torch.addmm(row, x, matrix, beta=2),
        )

    assert "by_panels" not in check(function, lambda: [torch.randn(9, 40)])


def test_a_bias_may_be_one_number_for_all_columns(by_panels: None):
    matrix, one = torch.randn(40, 70), torch.nn.Parameter(torch.randn(1))
    plain = lambda x: torch.addmm(one, x, matrix) * 2
    assert "by_panels" not in check(plain, lambda: [torch.randn(9, 40)])

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.matrix = one, torch.nn.Parameter(matrix)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.addmm(self.one, x, self.matrix) * 2

    model = Model().eval()
    frozen: Any = ingot.jit(model, freeze=True)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(9, 40)
            torch.testing.assert_close(frozen(x), model(x), rtol=1e-4, atol=1e-4)


def test_frozen_products_are_packed_once(by_panels: None, monkeypatch: pytest.MonkeyPatch):
    model = torch.nn.Sequential(torch.nn.Linear(40, 70), torch.nn.GELU(), torch.nn.Linear(70, 30, bias=False)).eval()
    packed: list[int] = []
    pack = product_strategies.pack
    monkeypatch.setattr(product_strategies, "pack", lambda matrix: [pack(matrix), packed.append(1)][0])
    frozen: Any = ingot.jit(model, freeze=True)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 6, 40)
            torch.testing.assert_close(frozen(x), model(x), rtol=1e-4, atol=1e-4)
    assert len(packed) == 2
    assert frozen.forward.inspect("program").count("packed_product") == 2


def test_explain_tells_generated_products_from_pytorchs(by_panels: None):
    weight, other = torch.randn(70, 40), torch.randn(30, 70, dtype=torch.float64)
    compiled: Any = ingot.jit(lambda x: functional.linear(functional.linear(x, weight).double(), other) + 1)
    with torch.no_grad():
        for _ in range(2):
            compiled(torch.randn(9, 40))
    assert "2 kernels, 1 product by generated code and 1 call of PyTorch's" in compiled.explain()


def test_the_way_follows_from_sizes(monkeypatch: pytest.MonkeyPatch):
    """Few rows and large weights are not packed at every call; what is, is measured."""
    monkeypatch.setattr(product_strategies, "prefers_generated", lambda *_: True)
    monkeypatch.setattr(product_strategies, "is_clearly_quicker", lambda *_: True)
    quickest: Any = product_strategies._quickest.__wrapped__
    assert quickest(64, 256, 256, True, False, 1) == "panels"
    assert quickest(8, 256, 1024, True, False, 1) == "torch"
    assert quickest(8, 256, 1024, True, True, 1) == "swapped"
    assert quickest(4, 16, 16, True, False, 1) == "torch"
    monkeypatch.setattr(product_strategies, "_MOST_PACKED_BYTES", 256 * 256)
    assert quickest(64, 256, 256, True, False, 1) == "torch"
