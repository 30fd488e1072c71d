"""Functions and modules that decide by the values of tensors while gradients are needed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import ingot
from ingot.frontend.jit.cache.paths import Paths
from tests.frontend.jit.gradients.comparing_gradients import gradients_match, same


def _paths(compiled: Any) -> list[Any]:
    owner: Any = compiled.forward if isinstance(compiled, nn.Module) else compiled
    return [path for kind in owner._compiled.specialisations.values() if isinstance(kind, Paths) for path in kind.paths]


def _are_compiled(compiled: Any, count: int) -> bool:
    """Whether there are so many paths, each with two programs."""
    found = [path.gradients for path in _paths(compiled)]
    return len(found) == count and all(one is not None and one.programs is not None for one in found)


def _signs() -> Callable[[], list[torch.Tensor]]:
    """Makes arguments whose sums are positive and negative in turn."""
    state = [1.0]

    def make() -> list[torch.Tensor]:
        state[0] = -state[0]
        return [(torch.rand(4, 6) * state[0]).requires_grad_(), torch.randn(6, 6, requires_grad=True)]

    return make


def test_decisions_by_arguments_that_need_gradients():
    def function(x, w):
        hidden = torch.tanh(x @ w)
        return hidden * x if x.sum() > 0 else hidden.exp() - w[0]

    compiled = gradients_match(function, _signs(), calls=16)
    assert _are_compiled(compiled, 2)
    assert "2 paths by the values of tensors" in compiled.explain()
    assert "where bool(r0) is True" in compiled.explain() and "backward:" in compiled.explain()


def test_decisions_by_what_is_differentiated():
    def function(x, w):
        hidden = x @ w
        while hidden.norm() > 4:
            hidden = hidden * 0.5
        return F.dropout(hidden, 0.5)

    gradients_match(function, _signs(), calls=24)


class _Masked(nn.Module):
    """Draws, and updates statistics, before it asks. A bias before the statistics would have gradients of rounding."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = F.dropout(self.norm(self.first(x)), 0.25, self.training)
        if mask.all():
            return self.last(hidden)
        if mask.any():
            return self.last(hidden * mask[:, None])
        return self.last(hidden * 0.5)


def _train(masks: list[torch.Tensor]) -> Any:
    torch.manual_seed(0)
    model = _Masked()
    models = [model, copy.deepcopy(model)]
    optimizers = [torch.optim.AdamW(one.parameters(), 1e-2, eps=1e-5) for one in models]
    compiled: Any = ingot.jit(model)
    for number, mask in enumerate(masks):
        torch.manual_seed(number)
        x, y, left = torch.randn(5, 6), torch.randn(5, 3), []
        for module, optimizer in zip((compiled, models[1]), optimizers, strict=True):
            torch.manual_seed(1000 + number)
            optimizer.zero_grad()
            loss = F.mse_loss(module(x, mask), y)
            loss.backward()
            optimizer.step()
            left.append((loss.detach(), torch.rand(())))
        same(*left)
        same(models[0].state_dict(), models[1].state_dict())
    return compiled


_FULL, _PADDED, _EMPTY = torch.ones(5) > 0, torch.arange(5) < 3, torch.zeros(5) > 0


def test_random_numbers_and_statistics_around_a_decision():
    assert _are_compiled(_train([_FULL, _PADDED, _FULL, _FULL, _PADDED] * 8), 2)


def test_a_path_that_comes_late():
    compiled = _train([*[_FULL, _PADDED] * 10, *[_EMPTY, _FULL, _PADDED, _EMPTY] * 5])
    assert _are_compiled(compiled, 3) and compiled.forward.recordings == 3


def test_calls_without_gradients_in_between():
    compiled = _train([_FULL, _PADDED] * 6)
    x = torch.randn(5, 6)
    for mask in (_FULL, _PADDED) * 4:
        with torch.no_grad():
            compiled.eval()
            assert not compiled(x, mask).requires_grad
            compiled.train()
        assert compiled(x, mask).requires_grad


def test_gradients_of_gradients_of_a_path():
    def function(x, w):
        return (x @ w).tanh() * x if x.sum() > 0 else (x @ w).exp()

    compiled = gradients_match(function, _signs(), calls=8)
    for sign in (1, -1):
        found = []
        for run in (compiled, function):
            x = (torch.arange(24.0).reshape(4, 6) / 24 * sign).requires_grad_()
            w = (torch.eye(6) * 0.5).requires_grad_()
            (first,) = torch.autograd.grad(run(x, w).square().sum(), x, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), (x, w)))
        same(found[0], found[1])


def test_a_path_that_needs_no_gradients():
    def function(x, w):
        return x @ w if x.sum() > 0 else x.detach().exp()

    compiled: Any = ingot.jit(function)
    for number in range(12):
        x = torch.rand(4, 6) * (-1) ** number
        w = torch.randn(6, 6, requires_grad=True)
        found, expected = compiled(x, w), function(x, w)
        same(found, expected)
        assert found.requires_grad == expected.requires_grad


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0] * 3


def test_a_path_that_only_eager_serves():
    def function(x, w):
        return _Doubled.apply(x @ w) if x.sum() > 0 else (x @ w).exp()

    gradients_match(function, _signs(), calls=16)


def test_a_decision_after_a_write_into_what_it_reads_is_left_to_PyTorch():
    counts = torch.zeros(())

    def function(x, w):
        counts.add_(1)
        return x @ w if counts % 2 == 0 else (x @ w).exp()

    def eager(x, w, number):
        return x @ w if number % 2 == 0 else (x @ w).exp()

    compiled: Any = ingot.jit(function)
    for number in range(1, 13):
        x, w = torch.rand(4, 6), torch.randn(6, 6, requires_grad=True)
        same(compiled(x, w), eager(x, w, number))
        assert counts == number
