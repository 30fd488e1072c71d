"""Which views are taken away, and which stay: what is returned stays an object and a piece of memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ingot


def _pairs(x: torch.Tensor) -> Any:
    y = x * 2
    return y, y.detach()


def _argument(x: torch.Tensor) -> Any:
    return x.t().t()


def _written(x: torch.Tensor) -> Any:
    y = x * 2
    turned = y.t().t()
    y.add_(1)
    return turned * 3, y


def _written_view(x: torch.Tensor) -> Any:
    y = x * 2
    same = y.detach()
    same.mul_(3)
    return y + 1


def _reshaped(x: torch.Tensor) -> Any:
    y = x.exp()
    return y.view(-1).view(y.shape).t().reshape(-1).sin()


def _sliced(x: torch.Tensor) -> Any:
    y = x.exp()
    return y[1:].t().t() + y[:-1].detach()


@pytest.mark.parametrize("function", [_pairs, _argument, _written, _written_view, _reshaped, _sliced])
def test_views_are_as_in_eager(function: Callable[[torch.Tensor], Any]):
    compiled: Any = ingot.jit(function)
    for _ in range(4):
        x = torch.randn(5, 3)
        expected = function(x.clone())
        given = x.clone()
        found: Any = compiled(given)
        torch.testing.assert_close(found, expected)
        flat: Any = found if type(found) is tuple else (found,)
        assert len({id(one) for one in flat}) == len(flat)
        if function is _argument:
            assert flat[0] is not given and flat[0].data_ptr() == given.data_ptr()
        if function is _pairs:
            assert flat[0].data_ptr() == flat[1].data_ptr()
    assert compiled.tier == "skipping"
