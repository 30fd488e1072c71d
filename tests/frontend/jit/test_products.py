"""Matrix products: as calls of linear, together where they share weights, and by the quicker way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import ingot
from ingot.frontend.jit import product_ways


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
    monkeypatch.setattr(product_ways, "_quickest", lambda *_: "swapped")
    weight, bias = torch.randn(600, 500), torch.randn(600)
    calls: list[int] = []
    swapped = product_ways.swapped_linear

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        return swapped(*args, **kwargs)

    monkeypatch.setattr(product_ways, "swapped_linear", counted)
    check(lambda x: functional.linear(x, weight, bias if has_bias else None) + 1, lambda: [torch.randn(3, 500)])
    assert len(calls) == 2
