"""Gradients of modules: statistics, dropout, frozen parameters, grad modes, autocast."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.frontend.jit.gradients.comparing_gradients import (
    is_compiled,
    modules_match,
    pair,
    same,
)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(F.dropout(torch.relu(self.norm(self.first(x))), 0.25, self.training))


def test_statistics_and_dropout_in_training_and_evaluation():
    compiled, module, eager = pair(Normed)
    for is_training in (True, False, True):
        compiled.train(is_training)
        eager.train(is_training)
        modules_match(compiled, eager, lambda: (torch.randn(6, 8),))
        assert is_compiled(compiled)
    assert module.norm.num_batches_tracked == eager.norm.num_batches_tracked


def test_two_calls_of_statistics_before_the_first_backward():
    compiled, _, eager = pair(Normed)
    for _ in range(5):
        x, y = torch.randn(6, 8), torch.randn(6, 8)
        for seed, module in ((1, compiled), (1, eager)):
            torch.manual_seed(seed)
            (module(x).sum() + module(y).square().sum()).backward()
        for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
            same(one.grad, other.grad)
        same(list(compiled.buffers()), list(eager.buffers()))


def test_other_outputs_of_a_module_with_statistics_and_dropout():
    class Several(Normed):
        def forward(self, x):
            hidden = torch.relu(self.norm(self.first(x)))
            return self.second(F.dropout(hidden, 0.5, self.training)), hidden.mean()

    compiled, _, eager = pair(Several)
    for used in [0, 0, 0, 1, 0]:
        x, drawn = torch.randn(6, 8), []
        for module in (compiled, eager):
            torch.manual_seed(3)
            module(x)[used].sum().backward()
            drawn.append(torch.rand(2))
        assert torch.equal(*drawn)
        for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
            assert (one.grad is None) == (other.grad is None)
            same(one.grad, other.grad)
        same(list(compiled.buffers()), list(eager.buffers()))


def test_random_numbers_after_a_call_are_eagers():
    compiled, _, eager = pair(Normed)
    for _ in range(5):
        x, drawn = torch.randn(6, 8), []
        for module in (compiled, eager):
            torch.manual_seed(3)
            module(x).sum().backward()
            drawn.append(torch.rand(3))
        assert torch.equal(*drawn)


def test_parameters_that_are_frozen_and_thawed():
    compiled, module, eager = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)))
    for needs in (True, False, True, False):
        module[0].requires_grad_(needs)
        eager[0].requires_grad_(needs)
        modules_match(compiled, eager, lambda: (torch.randn(5, 8),), calls=4)
        assert is_compiled(compiled)


def test_grad_modes_alternate():
    compiled, _, eager = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)))
    for _ in range(4):
        modules_match(compiled, eager, lambda: (torch.randn(5, 8),), calls=1)
        x = torch.randn(5, 8)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                found = compiled(x)
                assert not found.requires_grad
                same(found, eager(x))


def test_functional_call():
    compiled, _, eager = pair(lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)))
    x = torch.randn(5, 8)
    for number in range(5):
        torch.manual_seed(number)
        other = {name: torch.randn_like(one).requires_grad_() for name, one in eager.named_parameters()}
        compiled(x).sum().backward()
        found = torch.autograd.grad(torch.func.functional_call(compiled, other, (x,)).sum(), list(other.values()))
        expected = torch.autograd.grad(torch.func.functional_call(eager, other, (x,)).sum(), list(other.values()))
        same(found, expected)


def test_autocast():
    def make():
        return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))

    compiled, _, eager = pair(make)
    for _ in range(5):
        x = torch.randn(5, 8)
        for module in (compiled, eager):
            with torch.autocast("cpu", torch.bfloat16):
                result = module(x)
            assert result.dtype is torch.bfloat16
            result.float().square().sum().backward()
        for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=3e-2, atol=3e-2)
            one.grad = other.grad = None
    assert is_compiled(compiled)
    with torch.autocast("cpu", torch.bfloat16):
        x = torch.randn(5, 8, requires_grad=True)
        compiled(x).float().sum().backward()
