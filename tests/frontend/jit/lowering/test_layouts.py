"""Tensors that are computed lie as eager's do, axes of one element included: PyTorch's functions go by these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import ingot

CASES: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "computed": ((3, 16, 1, 4), lambda x: x * 2 + 1),
    "one channel": ((3, 1, 4, 5), lambda x: x * 2 + 1),
    "one place": ((3, 8, 1, 1), lambda x: x * 2 + 1),
    "one of everything": ((1, 1, 1, 1), lambda x: x * 2 + 1),
    "one row before pooling": ((2, 3, 1, 5), lambda x: F.adaptive_avg_pool2d(x * 2, (5, 2))),
    "one column after pooling": ((2, 16, 16, 4), lambda x: F.max_pool2d(x * 2, 3, 3)),
    "one row before a convolution": ((2, 3, 1, 5), lambda x: F.conv2d(x * 2, torch.ones(4, 3, 1, 1))),
    "one channel before a convolution": ((2, 1, 6, 5), lambda x: F.conv2d(x * 2, torch.ones(4, 1, 3, 3))),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_layouts_with_axes_of_one_element(case: str, layout: torch.memory_format):
    shape, function = CASES[case]
    x = torch.empty(shape, memory_format=layout).normal_()
    if layout is torch.channels_last:  # as PyTorch tells it
        _, channels, height, width = shape
        strides = (height * width * channels, 1, width * channels, channels)
        x = torch.empty_strided(shape, strides).normal_()
    compiled = ingot.jit(function)
    for _ in range(5):
        expected, found = function(x), compiled(x)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "every other column": lambda x: (x * 2)[:, ::2].neg_(),
    "a column": lambda x: (x * 2)[:, 1].mul_(3),
    "a corner, and a part of it": lambda x: (x * 2)[1:, 1:].neg_()[1:],
    "a diagonal": lambda x: (x * 2).diagonal().neg_(),
    "half of it, activated": lambda x: F.relu((x * 2).chunk(2, 1)[1], inplace=True),
    "a copy with gaps": lambda x: torch.empty(4, 8)[:, ::2].copy_(x),
    "strides of one's own": lambda x: torch.empty_strided((4, 4), (1, 8)).copy_(x),
    "all of it": lambda x: (x * 2).t().neg_(),
}


@pytest.mark.parametrize("case", PARTS)
def test_parts_that_are_written_and_returned_keep_their_strides(case: str):
    function = PARTS[case]
    compiled: Any = ingot.jit(function)
    x = torch.randn(4, 4)
    for _ in range(5):
        expected, found = function(x), compiled(x)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    assert compiled.tier == "skipping"


NEW: dict[str, Callable[[], torch.Tensor]] = {
    "number": lambda: torch.zeros(1) + 1,
    "matrix of one number": lambda: torch.full((1, 1), 2.0).neg(),
    "expanded number": lambda: torch.ones(()).expand(1) * 2,
    "one row": lambda: torch.zeros(1, 3) + 1,
    "no element": lambda: torch.zeros(0, 3) + 1,
}


@pytest.mark.parametrize("case", NEW)
def test_layouts_of_tensors_made_from_numbers_alone(case: str):
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return NEW[case](), x * 2

    compiled = ingot.jit(function)
    for _ in range(5):
        for expected, found in zip(function(torch.ones(3)), compiled(torch.ones(3)), strict=True):
            assert torch.equal(found, expected) and found.stride() == expected.stride()


COMPUTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.t() * 2,
    "copied": lambda x: x.t().clone() + 1,
    "expanded": lambda x: x.expand(2, 3, 4) * 1,
    "summed": lambda x: x.sum(1, keepdim=True),
}


@pytest.mark.parametrize("case", COMPUTED)
def test_tensors_in_other_layouts_are_views_of_none(case: str):
    compiled = ingot.jit(COMPUTED[case])
    for _ in range(5):
        x = torch.randint(9, (3, 4)).float()
        expected, found = COMPUTED[case](x), compiled(x)
        assert found._base is None and found.stride() == expected.stride()
        assert torch.equal(found.detach_(), expected)  # PyTorch refuses this for views


def test_parts_of_tensors_in_other_layouts_are_views_of_them():
    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        doubled = x.t() * 2
        return doubled, *doubled.chunk(2, 1)

    compiled = ingot.jit(parts)
    for _ in range(5):
        whole, *others = compiled(torch.randn(4, 3))
        assert all(part._base is whole for part in others)
        others[0].add_(1)
        assert whole._version == others[0]._version == 1
