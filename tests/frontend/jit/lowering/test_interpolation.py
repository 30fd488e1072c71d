"""Interpolation by the nearest element: generated where all elements come equally often, else PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import interpolate

from tests.frontend.jit.comparing import check


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (7, 5)], ids=str)
def test_whole_factors_are_generated(factors: tuple[int, int], layout: torch.memory_format, mode: str):
    def blended(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return interpolate(x, scale_factor=factors, mode=mode) * 2 + y

    def make() -> list[torch.Tensor]:
        wide = torch.randn(2, 3, 6 * factors[0], 10 * factors[1])
        return [torch.randn(2, 3, 6, 10).to(memory_format=layout), wide.to(memory_format=layout)]

    assert "upsample" not in check(blended, make).inspect("program")


@pytest.mark.parametrize(
    "options",
    [
        {"size": (9, 10)},
        {"size": (6, 5)},
        {"scale_factor": 1.5},
        {"scale_factor": 2.3, "recompute_scale_factor": False},
    ],
    ids=str,
)
def test_other_factors_stay(options: dict[str, Any]):
    compiled = check(lambda x: interpolate(x, **options) + 1, lambda: [torch.randn(2, 3, 6, 10)])
    assert "upsample" in compiled.inspect("program")


def test_odd_scales_that_give_whole_sizes_are_eagers():
    """Of three elements 2.3 times as many are six, but a scale of 2.3 may take them unequally often."""
    check(lambda x: interpolate(x, scale_factor=2.3) + 1, lambda: [torch.randn(1, 2, 3, 3)])
    check(lambda x: interpolate(x, size=3) + 1, lambda: [torch.arange(6.0).view(1, 1, 2, 3).expand(2, 2, 2, 3)])
