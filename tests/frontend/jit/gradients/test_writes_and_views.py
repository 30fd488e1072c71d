"""Gradients where memory is written, before, within and after a call, and where results are views or arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ingot
from tests.frontend.jit.gradients.comparing_gradients import (
    gradients_match,
    is_compiled,
    leaf,
    pair,
    same,
)


def test_result_that_is_changed_in_place():
    compiled = ingot.jit(lambda x, y: F.relu(x * y) + 1)
    plain = lambda x, y: F.relu(x * y) + 1
    for _ in range(5):
        x, y = leaf(4, 8), leaf(4, 8)
        found, expected = [], []
        for function, into in ((compiled, found), (plain, expected)):
            result = function(x, y)
            result += 2
            result.mul_(3)
            into += torch.autograd.grad(result.sum(), [x, y])
        same(found, expected)
    assert is_compiled(compiled)


def test_argument_that_is_changed_in_place_where_eager_does_not_mind():
    def halved(x):
        return torch.sigmoid(x * 0.5)

    compiled = ingot.jit(halved)
    for _ in range(5):
        x = leaf(4, 8)
        gradients = []
        for function in (compiled, halved):
            inner = x + 0
            result = function(inner)
            with torch.no_grad():
                inner.zero_()
            gradients += torch.autograd.grad(result.sum(), [x])
        same(*gradients)
    assert is_compiled(compiled)


def test_argument_that_is_changed_in_place_where_eager_refuses():
    def squared(x):
        return x * x * 2

    compiled = ingot.jit(squared)
    for _ in range(5):
        inner = leaf(4, 8) * 1
        for function in (compiled, squared):
            result = function(inner).sum()
            inner.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.backward(retain_graph=True)
        leaf(1).sum().backward()
        compiled(leaf(4, 8) * 1).sum().backward()
    assert is_compiled(compiled)


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_stale_graph_after_an_optimizer_step(kind, foreach):
    compiled, module, _ = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
    optimizer = kind(module.parameters(), lr=0.1, foreach=foreach)
    for _ in range(5):
        loss = compiled(torch.randn(5, 8, requires_grad=True)).sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert is_compiled(compiled)


def test_in_place_operations_inside():
    def inside(x, y):
        z = x * 2
        z += y
        z[:, :2] = 0
        z.relu_()
        return z * x

    gradients_match(inside, lambda: (leaf(4, 8), leaf(4, 8)))


def test_argument_written_inside():
    def writes(x, y):
        x.mul_(y)
        return x * 2

    compiled = ingot.jit(writes)
    for _ in range(4):
        first, y = leaf(4, 8), leaf(4, 8)
        found, expected = [], []
        for function, into in ((compiled, found), (writes, expected)):
            x = first * 1
            into += [function(x, y), x]
            into += torch.autograd.grad((into[0] + x).sum(), [first, y])
        same(found, expected)


_UNBOUND = lambda x: (x * 2).unbind(0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x, x * 2),
        lambda x: (x.view(-1), x * 2),
        _UNBOUND,
        lambda x: (lambda y: (y, y.t()))(x * 2),
        lambda x: (lambda y: [y, y])(x * 2),
    ],
)
def test_results_that_are_arguments_views_or_the_same(function):
    compiled = ingot.jit(function)
    for _ in range(4):
        first = leaf(4, 8)
        found, expected = [], []
        for one, into in ((compiled, found), (function, expected)):
            x = first * 1
            results = one(x)
            if function is not _UNBOUND:  # PyTorch refuses to write into one of several views
                results[-1].mul_(3)
            into += results
            into += torch.autograd.grad(torch.stack([result.sum() for result in results]).sum(), [first])
        same(found, expected)


def test_view_as_result_can_be_changed_in_place():
    def transposed(x):
        return (x * 2).t()

    compiled = ingot.jit(transposed)
    for _ in range(5):
        x = leaf(4, 8)
        gradients = []
        for function in (compiled, transposed):
            result = function(x)
            result.mul_(3)
            gradients += torch.autograd.grad((result * result.detach()).sum(), [x])
        same(*gradients)
    assert is_compiled(compiled)


def test_gradients_of_a_view_from_the_beginning_of_memory():
    def corner(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2, 2), (5, 1), 5) * 2

    compiled = ingot.jit(corner)
    for begin in (0, 0, 0, 0, 0, 4, 4, 4):
        found = []
        for function in (compiled, corner):
            root = torch.arange(40.0, requires_grad=True)
            x = (root * 2)[begin : begin + 16].view(4, 4)
            function(x).square().sum().backward()
            found.append(root.grad)
        same(found[0], found[1])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w.t(),
        lambda x, w: x * w,
        lambda x, w: torch.tanh(x) * w.t(),
        lambda x, w: (x * w.sum(0)).exp(),
        lambda x, w: F.linear(x, w[:2]) * w[0, 0],
    ],
)
def test_data_that_is_set_before_the_backward_pass(function: Callable[..., torch.Tensor]):
    """What eager has kept is of the old data, unless it is the tensor itself."""
    compiled = ingot.jit(function)
    for number in range(12):
        found = []
        for called in (compiled, function):
            torch.manual_seed(number)
            x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
            result = called(x, w)
            if number > 4:
                changed = w if number % 2 else x
                changed.data = changed.data * 2
            result.square().sum().backward()
            found.append((result.detach(), x.grad, w.grad))
        same(found[0], found[1])
    assert is_compiled(compiled)


def test_data_that_is_set_before_a_call_runs_again():
    compiled = ingot.jit(torch.sin)
    for number in range(6):
        x = torch.randn(4, requires_grad=True)
        result = compiled(x).sum()
        if number == 5:
            x.data = x.data * 2
            with pytest.raises(RuntimeError, match="modified"):
                torch.autograd.grad(result, x, create_graph=True)
        else:
            result.backward()


def test_a_parameter_is_frozen_between_the_passes():
    def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * w

    compiled = ingot.jit(scaled)
    for number in range(8):
        found = []
        for called in (compiled, scaled):
            torch.manual_seed(number)
            x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
            result = called(x, w)
            w.requires_grad_(number % 2 == 0)
            result.square().sum().backward()
            assert (w.grad is None) == (number % 2 == 1)
            found.append((x.grad, w.grad if number % 2 == 0 else x))
        same(found[0], found[1])
    assert is_compiled(compiled)
