"""Pooling: generated where no operation reads the indices, padded or not, and PyTorch's own everywhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.frontend.jit.comparing import check

NAN, INF = float("nan"), float("inf")


def images(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Some elements are equal, some are no numbers, some infinite, and some zeros are negative."""
    values = torch.tensor([0.0, -0.0, 1.0, 2.0, -3.0, INF, -INF, NAN], dtype=dtype)
    return values[torch.randint(0, 8, shape)]


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 3, "stride": 2},
        {"kernel_size": 2},
        {"kernel_size": (2, 3), "stride": (1, 2), "dilation": (2, 1)},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 5), "padding": (0, 2)},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(2, 3, 12, 11), (3, 9, 9)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_maxima_are_generated(settings: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype):
    function = lambda x: functional.max_pool2d(torch.relu(x) - 1, **settings)
    compiled = check(function, lambda: [images(*shape, dtype=dtype)])
    assert "max_pool2d" not in compiled.inspect("program")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.max_pool2d(x, 2, return_indices=True),
        lambda x: functional.max_pool2d(x, 2, ceil_mode=True),
        lambda x: functional.max_pool2d(x, 7),
        lambda x: functional.max_pool2d(x.to(memory_format=torch.channels_last), 3, padding=1),
    ],
    ids=["indices", "ceil_mode", "large windows", "channels last"],
)
def test_everything_else_stays(function: Any):
    compiled = check(function, lambda: [images(2, 3, 15, 15)])
    assert "max_pool2d" in compiled.inspect("program")


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.max_pool2d(torch.relu(x), 2),
        lambda x: functional.avg_pool2d(torch.relu(x), 2),
        lambda x: functional.avg_pool2d(x, (2, 3), (1, 2), divisor_override=5),
        lambda x: functional.adaptive_avg_pool2d(torch.relu(x), 4),
        lambda x: functional.adaptive_avg_pool2d(x, (2, 1)) * 2,
    ],
    ids=["max 2", "average 2", "average with a divisor", "adaptive 4", "adaptive (2, 1)"],
)
def test_windows_are_generated_in_both_layouts(function: Any, layout: torch.memory_format):
    compiled = check(function, lambda: [torch.randn(2, 5, 12, 8).to(memory_format=layout)])
    assert "pool2d" not in compiled.inspect("program")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.avg_pool2d(x, 3, padding=1),
        lambda x: functional.avg_pool2d(x, 2, ceil_mode=True),
        lambda x: functional.avg_pool2d(x, 7),
        lambda x: functional.adaptive_avg_pool2d(x, 7),
    ],
    ids=["padded", "ceil_mode", "large windows", "windows that overlap"],
)
def test_other_averages_stay(function: Any):
    compiled = check(function, lambda: [torch.randn(2, 3, 15, 15)])
    assert "avg_pool2d" in compiled.inspect("program")


def test_averages_have_no_negative_zeros_and_keep_what_is_no_number():
    check(lambda x: functional.avg_pool2d(x, 2), lambda: [images(2, 3, 12, 12)])
    check(lambda x: 1 / functional.avg_pool2d(x, 2), lambda: [torch.full((1, 1, 4, 4), -0.0)])


def test_whole_numbers_are_pooled():
    check(lambda x: functional.max_pool2d(x, 3, 2, 1), lambda: [torch.randint(-9, 9, (2, 3, 8, 8))])


def test_windows_larger_than_the_tensor_are_refused():
    check(lambda x: functional.max_pool2d(x, 5), lambda: [torch.randn(1, 1, 4, 4)])
