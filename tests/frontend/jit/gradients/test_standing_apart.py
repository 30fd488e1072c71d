"""Inputs that were made of each other, and hooks of inputs: what comes in for one input goes on outside, and once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import ingot
from tests.frontend.jit.gradients.comparing_gradients import calls_of, is_compiled, same

CALLS = 12


def mixed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y + torch.sin(y)


def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * y, torch.sin(x) + y


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x) + self.outer(state))


def gradients_agree(
    compiled: Callable[..., Any], function: Callable[..., Any], use: Callable[[Any, int], Sequence[Any]]
) -> None:
    """Let a program use a function compiled and as it is, on equal numbers, and compare what it gives."""
    for number in range(CALLS):
        torch.manual_seed(number)
        found = use(compiled, number)
        torch.manual_seed(number)
        same(found, use(function, number))


def total(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([one.sum() for one in parts]).sum()


def leaf() -> torch.Tensor:
    return torch.randn(4, 4, requires_grad=True)


@pytest.mark.parametrize("make", [torch.sin, lambda x: x * 2, lambda x: x[:], lambda x: x.t()])
def test_an_input_made_of_another(make: Callable[[torch.Tensor], torch.Tensor]):
    def use(function: Callable[..., Any], number: int) -> Sequence[Any]:
        root = leaf()
        x = root if number % 2 else root * 3
        result = function(x, make(x))
        result.sum().backward(retain_graph=True)
        result.square().sum().backward()
        return result.detach(), root.grad

    compiled = ingot.jit(mixed)
    gradients_agree(compiled, mixed, use)
    assert is_compiled(compiled)


def test_the_state_of_a_recurrent_network_is_made_of_its_weights():
    def use(module: Any, number: int) -> Sequence[Any]:
        state = torch.zeros(3, 4)
        for _ in range(3):
            state = module(torch.randn(3, 4), state)
        module.zero_grad()
        state.sum().backward()
        return state.detach(), [one.grad.clone() for one in module.parameters()]

    cell = Cell()
    compiled = ingot.jit(copy.deepcopy(cell))
    gradients_agree(compiled, cell, use)
    assert is_compiled(compiled)


def test_gradients_of_gradients_of_inputs_made_of_each_other():
    def use(module: Any, number: int) -> Sequence[Any]:
        weights = list(module.parameters())
        state = leaf()
        for _ in range(3):
            state = module(torch.randn(4, 4), state)
        first = torch.autograd.grad(state.square().sum(), weights, create_graph=True)
        second = torch.autograd.grad(total([one.square() for one in first]), weights, create_graph=True)
        third = torch.autograd.grad(total(second), weights)
        return [one.detach() for one in (*first, *second, *third)]

    cell = Cell().double()
    torch.set_default_dtype(torch.float64)
    try:
        gradients_agree(ingot.jit(copy.deepcopy(cell)), cell, use)
    finally:
        torch.set_default_dtype(torch.float32)


def test_other_outputs_of_inputs_made_of_each_other():
    def use(function: Callable[..., Any], number: int) -> Sequence[Any]:
        x = leaf()
        results = function(x * 2, (x * 2).exp())
        results[number > CALLS // 2].sum().backward()
        return [x.grad]

    compiled = ingot.jit(both)
    gradients_agree(compiled, both, use)
    assert is_compiled(compiled)


@pytest.mark.parametrize("kind", ["leaf", "made", "retained"])
def test_hooks_run_once_where_a_call_runs_again(kind: str):
    def use(function: Callable[..., Any], number: int) -> Sequence[Any]:
        seen: list[torch.Tensor] = []
        root, y = leaf(), leaf()
        x = root if kind == "leaf" else root * 2
        is_late = number > CALLS // 2
        if is_late and kind != "retained":
            x.register_hook(lambda gradient: seen.append(gradient.clone()) or gradient * 2)
        if is_late and kind == "retained":
            x.retain_grad()
        result = function(x, y)[is_late]
        creates = is_late and number % 2 == 0
        first = torch.autograd.grad(result.square().sum(), [root, y], retain_graph=True, create_graph=creates)
        if first[0].requires_grad:
            total([one.square() for one in first]).backward()
        elif is_late:
            function(x, y)[1].sum().backward()
        return [one.detach() for one in (*first, *seen)], root.grad, y.grad

    compiled = ingot.jit(both)
    gradients_agree(compiled, both, use)
    assert is_compiled(compiled)


def test_hooks_of_parameters_run_once_where_a_call_runs_again():
    def use(module: Any, number: int) -> Sequence[Any]:
        seen: list[torch.Tensor] = []
        module.zero_grad()
        result = module(leaf(), leaf())
        hook = module.outer.weight.register_hook(lambda gradient: seen.append(gradient.detach().clone()))  # after it
        wanted = list(module.parameters())
        first = torch.autograd.grad(result.square().sum(), wanted, create_graph=number > CALLS // 2)
        hook.remove()
        return [one.detach() for one in (*first, *seen)]

    cell = Cell()
    compiled = ingot.jit(copy.deepcopy(cell))
    gradients_agree(compiled, cell, use)
    assert is_compiled(compiled)


def test_a_tensor_around_a_function_that_was_made_of_its_argument():
    x = leaf()
    made = torch.sin(x)

    def function(given: torch.Tensor) -> torch.Tensor:
        return given * made

    compiled = ingot.jit(function)
    for _ in range(CALLS):
        found = torch.autograd.grad(compiled(x).sum(), x, retain_graph=True)
        same(found, torch.autograd.grad(function(x).sum(), x, retain_graph=True))
    assert all(one.programs is None for one in calls_of(compiled))
