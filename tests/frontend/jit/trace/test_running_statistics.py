"""Normalizations that learn write their statistics, although their schemas do not say so."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ingot


def _read_before(x, mean, variance):
    return mean * 2 + variance, F.batch_norm(x, mean, variance, training=True)


def _read_after(x, mean, variance):
    y = F.batch_norm(x.exp(), mean, variance, training=True) + 1
    return y, mean * 2 - variance


def _twice(x, mean, variance):
    first = mean.clone()
    y = F.batch_norm(x, mean, variance, training=True, momentum=0.5)
    second = mean + first
    z = F.batch_norm(y * 2, mean, variance, training=True)
    return z, second, mean.exp()


def _instance(x, mean, variance):
    before = mean + 1
    y = F.instance_norm(x[:, :, None].expand(-1, -1, 5), mean, variance, use_input_stats=True)
    return y, before, variance * 2


def _does_not_learn(x, mean, variance):
    before = mean * 2
    return before, F.batch_norm(x + 1, mean, variance, training=False).relu()


def _decides(x, mean, variance):
    y = F.batch_norm(x, mean, variance, training=True)
    if mean.sum() > 0:  # as long as this is not known, nothing may have been learned twice
        return y + 1
    return y * 2


@pytest.mark.parametrize("python", ["auto", "run", "skip"])
@pytest.mark.parametrize("function", [_decides, _read_before, _read_after, _twice, _instance, _does_not_learn])
def test_statistics_are_read_in_order(function, python, no_eager_comparison):
    jitted: Any = ingot.jit(function, python=python)
    mine, eagers = ((torch.zeros(8), torch.ones(8)) for _ in range(2))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(4, 8, generator=generator)
            torch.testing.assert_close(jitted(x, *mine), function(x, *eagers))
            torch.testing.assert_close(mine, eagers)


@pytest.mark.parametrize("python", ["auto", "run", "skip"])
def test_module_that_learns_and_then_does_not(python, no_eager_comparison):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    other.load_state_dict(plain.state_dict())
    jitted = ingot.jit(other, python=python)
    with torch.no_grad():
        for number in range(12):
            plain.train(number % 4 < 2)
            other.train(number % 4 < 2)
            x = torch.randn(2, 3, 6, 6)
            torch.testing.assert_close(jitted(x), plain(x))
            for mine, eagers in zip(other.buffers(), plain.buffers(), strict=True):
                torch.testing.assert_close(mine, eagers)


def test_frozen_module_that_learns(no_eager_comparison):
    """Statistics that the call itself writes are no constants."""
    plain, other = (nn.BatchNorm1d(8) for _ in range(2))
    jitted = ingot.jit(other, freeze=True)
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(4, 8) + 1
            torch.testing.assert_close(jitted(x), plain(x))
            torch.testing.assert_close(other.running_mean, plain.running_mean)
