"""Weights taken as they are: batch norms folded, weights packed, and what must not be touched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import ingot
from ingot.frontend.jit.rewrites import product_strategies
from ingot.frontend.jit.rewrites import weight_packing as packer


class Block(nn.Module):
    def __init__(self, in_place: bool = True, bias: bool = False, affine: bool = True):
        super().__init__()
        self.convolution = nn.Conv2d(8, 8, 3, padding=1, bias=bias)
        self.norm = nn.BatchNorm2d(8, affine=affine)
        self.relu = nn.ReLU(inplace=in_place)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm(self.convolution(x)))
        return self.last((y + x).mean((2, 3)))


def ready(module: nn.Module) -> nn.Module:
    """In evaluation mode, with statistics that are not 0 and 1."""
    for buffer in module.buffers():
        if buffer.dtype.is_floating_point:
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return module.eval()


@pytest.fixture(params=[True, False], ids=["packed", "plain"])
def packing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Which way measuring finds quicker."""
    monkeypatch.setattr(packer, "_is_quicker", lambda *given: request.param)
    monkeypatch.setattr(product_strategies, "_is_quicker_packed", lambda *given: request.param)
    monkeypatch.setattr(product_strategies, "_QUICKER_PACKED", {})
    return request.param


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
@torch.no_grad()
def test_batch_norms_are_folded(packing: bool, in_place: bool, bias: bool, affine: bool):
    module = ready(Block(in_place, bias, affine))
    frozen = ingot.jit(module, freeze=True)
    for _ in range(3):
        x = torch.randn(2, 8, 6, 6)
        torch.testing.assert_close(frozen(x), module(x), rtol=1e-4, atol=1e-5)
    forward: Any = frozen.forward
    text = forward.inspect("program")
    assert "batch_norm" not in text
    assert forward.inspect("optimized_graph").count("sqrt") == 0
    assert ("pointwise" in text) == packing


@torch.no_grad()
def test_a_norm_whose_input_is_needed_elsewhere_stays(packing: bool):
    convolution, norm = nn.Conv2d(3, 4, 1), ready(nn.BatchNorm2d(4))

    def function(x: torch.Tensor) -> torch.Tensor:
        y = convolution(x)
        return norm(y) + y

    frozen = ingot.jit(function, freeze=True)
    for _ in range(3):
        x = torch.randn(2, 3, 5, 5)
        torch.testing.assert_close(frozen(x), function(x), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_training_statistics_are_kept(packing: bool):
    frozen, plain = ingot.jit(Block().train(), freeze=True), Block().train()
    plain.load_state_dict(frozen.state_dict())
    for _ in range(3):
        x = torch.randn(2, 8, 6, 6)
        torch.testing.assert_close(frozen(x), plain(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(frozen.norm.running_mean, plain.norm.running_mean)


@torch.no_grad()
def test_a_value_that_is_read_before_relu_is_not_rectified(packing: bool):
    convolution = nn.Conv2d(3, 4, 1)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = convolution(x)
        total = y.sum()
        return y.relu_(), total

    frozen = ingot.jit(function, freeze=True)
    for _ in range(3):
        x = torch.randn(2, 3, 5, 5)
        torch.testing.assert_close(frozen(x), function(x), rtol=1e-4, atol=1e-4)


class Planes(nn.Module):
    """Convolutions, pooling and a residual, whose result is also read as rows."""

    def __init__(self, *, in_place: bool):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.in_place = in_place

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = nn.functional.max_pool2d(self.first(x), 3, 2, 1)
        z = nn.functional.relu(y + self.second(y), inplace=self.in_place)
        return z, z.flatten(1) * 2, z.mean((2, 3)), nn.functional.adaptive_avg_pool2d(z, 2).flatten(1)


@pytest.mark.parametrize("in_place", [True, False])
@torch.no_grad()
def test_results_and_views_lie_as_eagers(packing: bool, in_place: bool):
    module = Planes(in_place=in_place).eval()
    frozen: Any = ingot.jit(module, freeze=True)
    for _ in range(3):
        x = torch.randn(2, 3, 9, 11)
        for found, expected in zip(frozen(x), module(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            assert found.stride() == expected.stride()
    assert ("pointwise" in frozen.forward.inspect("program")) == packing


def viewed_before_a_write(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = y.view(2, -1)
    return y.relu_(), rows


def written_through_a_view(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y.view(2, -1).add_(1)
    return y * 2, y


def written_by_a_view_of_a_sum(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = y + 1
    z.view(2, -1)[:, 3:].mul_(5)
    return (z,)


def written_after_a_copy(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = y.reshape(2, -1) + 1
    return y.mul_(3), rows


def added_to_another(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    total = torch.ones(2, 4, 5, 6)
    total.add_(y)
    return total, total.view(-1)


@pytest.mark.parametrize(
    "rest",
    [
        viewed_before_a_write,
        written_through_a_view,
        written_by_a_view_of_a_sum,
        written_after_a_copy,
        added_to_another,
    ],
)
@torch.no_grad()
def test_views_still_share_memory(packing: bool, rest: Any):
    convolution = nn.Conv2d(3, 4, 1)
    frozen = ingot.jit(lambda x: rest(convolution(x)), freeze=True)
    for _ in range(3):
        x = torch.randn(2, 3, 5, 6)
        for found, expected in zip(frozen(x), rest(convolution(x)), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            assert found.stride() == expected.stride()


@torch.no_grad()
def test_a_replaced_weight_is_seen(packing: bool):
    module: Any = ready(Block())
    frozen = ingot.jit(module, freeze=True)
    x = torch.randn(2, 8, 6, 6)
    for _ in range(3):
        frozen(x)
    module.last.weight = nn.Parameter(torch.randn(5, 8))
    torch.testing.assert_close(frozen(x), module(x), rtol=1e-4, atol=1e-5)
