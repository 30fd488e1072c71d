"""Python code in a backward pass runs as it does eagerly: functions of the user's, hooks, checkpoints."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ingot
from tests.frontend.jit.gradients.comparing_gradients import (
    gated,
    gradients_match,
    leaf,
    modules_match,
    pair,
    same,
)


class Rounded(torch.autograd.Function):
    """The straight-through estimator."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, *gradients):
        return gradients


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *gradients):
        return -ctx.scale * gradients[0], None


@pytest.mark.parametrize("python", ["auto", "skip"])
def test_straight_through_estimator(python):
    gradients_match(lambda x: Rounded.apply(x * 3) * 2, lambda: (leaf(4, 8),), python=python)


@pytest.mark.parametrize("python", ["auto", "skip"])
def test_gradient_reversal(python):
    gradients_match(lambda x: Reversed.apply(torch.tanh(x), 0.5) * 2, lambda: (leaf(4, 8),), python=python)


@pytest.mark.parametrize("python", ["auto", "skip"])
def test_hook_of_a_tensor_inside(python):
    def hooked(x):
        y = torch.tanh(x)
        y.register_hook(lambda gradient: gradient * 10)
        return y * 2

    gradients_match(hooked, lambda: (leaf(4, 8),), python=python)


def test_hooks_of_arguments_and_parameters_run_once():
    compiled, module, eager = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    seen, handles = [], []
    for step in range(8):
        if step == 4:
            handles = [
                one[0].weight.register_hook(lambda gradient: (seen.append(1), gradient * 2)[1])
                for one in (module, eager)
            ]
        modules_match(compiled, eager, lambda: (torch.randn(5, 8),), calls=1)
    assert len(seen) == 8
    for handle in handles:
        handle.remove()
    modules_match(compiled, eager, lambda: (torch.randn(5, 8),), calls=2)


def _triple(parameter):
    parameter.grad.mul_(3)


def test_hooks_that_are_there_from_the_beginning():
    compiled, module, eager = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    for one in (module, eager):
        one[0].weight.register_hook(lambda gradient: gradient * 2)
        one[0].bias.register_post_accumulate_grad_hook(_triple)
    modules_match(compiled, eager, lambda: (torch.randn(5, 8),), calls=6)


def test_argument_that_keeps_its_gradient():
    compiled = ingot.jit(gated)
    for step in range(6):
        first, y = leaf(4, 8), leaf(4, 8)
        kept = []
        for function in (compiled, gated):
            x = first * 1
            if step != 2:
                x.retain_grad()
            function(x, y).sum().backward()
            kept.append(x.grad if step != 2 else None)
        same(*kept)


def test_backward_hooks_of_modules_inside():
    calls = []
    compiled, module, eager = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    for step in range(8):
        if step == 4:
            for one in (module, eager):
                one[0].register_full_backward_hook(lambda *_: calls.append(1))
        modules_match(compiled, eager, lambda: (torch.randn(5, 8, requires_grad=True),), calls=1)
    assert len(calls) == 8


def test_checkpoint_inside():
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    for use_reentrant in (False, True):
        function = lambda x, way=use_reentrant: checkpoint(model, x, use_reentrant=way) * 2
        gradients_match(function, lambda: (leaf(4, 8),))
