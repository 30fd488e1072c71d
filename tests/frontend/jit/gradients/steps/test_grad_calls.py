"""`torch.autograd.grad` within training steps: what it gives is computed in the step's program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ingot
from tests.frontend.jit.gradients.comparing_gradients import same
from tests.frontend.jit.gradients.step_pairs import Pair, Step, Write, learning_model


def _descent(model: Any, optimizer: Any) -> Step:
    """Updates written by hand; nothing is accumulated."""

    def step(x, y):
        loss = F.mse_loss(model(x), y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for one, gradient in zip(model.parameters(), gradients, strict=True):
                one.sub_(gradient, alpha=0.01)
        return loss

    return step


def _penalty(model: Any, optimizer: Any) -> Step:
    """The gradient of a gradient is part of the backward pass."""
    weight = next(iter(model.parameters()))

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
        loss = loss + gradient.square().sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


def _of_hidden(model: Any, optimizer: Any) -> Step:
    first, *others = model
    rest = nn.Sequential(*others)

    def step(x, y):
        optimizer.zero_grad()
        hidden = first(x)
        found = rest(hidden)
        loss = F.mse_loss(found, y)
        (gradient,) = torch.autograd.grad(found, hidden, torch.ones_like(found), retain_graph=True)
        loss.backward()
        optimizer.step()
        return loss, gradient

    return step


def _several(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        found = model(x)
        outputs = [F.mse_loss(found, y), F.l1_loss(found, y)]
        return torch.autograd.grad(outputs, tuple(model.parameters()), [torch.ones(()), torch.ones(()) * 2])

    return step


@pytest.mark.parametrize("write", [_descent, _penalty, _of_hidden, _several], ids=lambda write: write.__name__)
def test_gradients_that_are_asked_for(write: Write):
    pair = Pair(write=write)
    pair.run(8)
    assert pair.is_compiled


def test_with_statistics_and_random_numbers():
    pair = Pair(learning_model, write=_descent)
    pair.run(8)
    assert pair.is_compiled


def test_results_that_were_used_up_can_not_be_differentiated_again():
    pair = Pair(write=_descent)
    pair.run(4)
    for step in (pair.compiled, _descent(pair.models[1], pair.optimizers[1])):
        loss = step(torch.randn(5, 6), torch.randn(5, 3))
        assert loss.requires_grad
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_hooks_of_what_is_differentiated_by_are_seen_at_every_call():
    pair = Pair(write=_descent)
    pair.run(5)
    assert pair.is_compiled
    handles = [next(iter(model.parameters())).register_hook(lambda gradient: gradient * 2) for model in pair.models]
    pair.run(3)
    for handle in handles:
        handle.remove()
    pair.run(3)


def _kept(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        return loss, torch.autograd.grad(loss, next(iter(model.parameters())), retain_graph=True)

    return step


def _unused(model: Any, optimizer: Any) -> Step:
    other = torch.ones(3, requires_grad=True)

    def step(x, y):
        loss = F.mse_loss(model(x), y)
        return torch.autograd.grad(loss, (next(iter(model.parameters())), other), allow_unused=True)

    return step


@pytest.mark.parametrize("write", [_kept, _unused], ids=lambda write: write.__name__)
def test_what_is_not_compiled_is_right_all_the_same(write: Write):
    pair = Pair(write=write)
    pair.run(6)
    assert not pair.is_compiled


def test_a_history_that_is_kept_can_be_used():
    pair = Pair(write=_kept)
    for number in range(5):
        torch.manual_seed(number)
        given = torch.randn(5, 6), torch.randn(5, 3)
        for model, step in zip(pair.models, (pair.compiled, _kept(pair.models[1], None)), strict=True):
            model.zero_grad()
            step(*given)[0].backward()
        pair.compare()


def test_gradients_by_an_argument_are_left_to_eager():
    def forces(x):
        return torch.autograd.grad((x * x).sin().sum(), x)[0]

    compiled: Any = ingot.jit(forces)
    for number in range(6):
        x = (torch.arange(5.0) + number).requires_grad_()
        if number > 3:
            x.register_hook(lambda gradient: gradient * 2)
        same(compiled(x), forces(x))
