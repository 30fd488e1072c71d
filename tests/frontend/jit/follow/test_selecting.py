"""Followed calls that select by a mask, and what numpy does to memory that a followed call has made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ingot.frontend.jit.follow import following
from ingot.frontend.jit.follow.rules.selecting import FEWEST
from tests.frontend.jit.follow.following_checks import check, followed

MANY = 2 * FEWEST


@pytest.fixture
def selections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many elements each selection by generated code had."""
    found: list[int] = []

    def selecting(source: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found.append(source.numel())
        return select(source, mask)

    select = following.select
    monkeypatch.setattr(following, "select", selecting)
    return found


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.exp()[x > 0.5] + 1,
        lambda x: torch.masked_select(x * 2, x > 0).sum(),
        lambda x: (x * 2).masked_select(x * 3 < 1),
        lambda x: (x > 2)[x > 0],
        lambda x: (x + 1)[x > 100].sum() + x[0],
        lambda x: (x * 2).reshape(8, -1)[(x > 0).reshape(8, -1)].mean(),
    ],
)
def test_large_selections_are_generated_code(function: Any, selections: list[int]):
    check(function, lambda: (torch.randn(MANY),), calls=8)
    assert selections and set(selections) == {MANY}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2)[:10][x[:10] > 0],
        lambda x: (x * 2).reshape(-1, 4)[(x > 0).reshape(-1, 4)[:, 0]],
        lambda x: (x * 2)[(x > 0).nonzero()[:, 0]],
        lambda x: (x * 2).reshape(2, -1).T[(x > 0).reshape(2, -1).T],
        lambda x: torch.masked_select(x * 2, (x > 0)[:1]),
        lambda x: torch.masked_select(x * 2, x > 0, out=torch.empty(0)),
        lambda x: (x * 2)[(x > 0)[:-1]],
    ],
)
def test_other_selections_are_pytorchs(function: Any, selections: list[int]):
    check(function, lambda: (torch.randn(MANY),), calls=6)
    assert not selections


def test_selections_that_need_gradients_are_pytorchs(selections: list[int]):
    def function(x, weight):
        return (x * weight)[x > 0].sum()

    jitted, weight = followed(function), torch.ones(MANY, requires_grad=True)
    for _ in range(6):
        x = torch.randn(MANY)
        result = jitted(x, weight)
        assert result.requires_grad
        torch.testing.assert_close(result, function(x, weight))
    assert not selections


# --- numpy ------------------------------------------------------------------------------------------------------------


def test_memory_that_numpy_has_let_go_of_is_read_later():
    def function(x):
        z = x * 2 + 1
        peak = float(np.max(z.numpy()[:8]))
        return torch.relu(z * peak) + 1

    jitted = check(function, lambda: (torch.randn(64),), calls=8)
    assert any("mul" in text and "relu" in text for text in jitted.inspect("segments").split("\n\n"))


def test_memory_that_numpy_holds_is_read_in_order():
    kept: list[Any] = []

    def function(x):
        z = x * 2 + 1
        array = z.numpy()
        y = z * 3
        array += 1
        w = z * 4
        kept.append(array)
        return y + 1, w + 1, z * 5

    check(function, lambda: (torch.randn(64),), calls=8)


def test_memory_that_is_numpys_is_read_in_order():
    def function(array):
        z = torch.from_numpy(array)
        float(z.numpy()[0])
        y = z * 3
        array += 1
        return y + 1

    check(function, lambda: (np.random.default_rng(0).normal(size=64),), calls=8)


def test_memory_that_becomes_shared_is_read_in_order():
    def function(x):
        z = x * 2 + 1
        float(z.numpy()[0])
        z.share_memory_()
        y = z * 3
        return y + 1, z.is_shared()

    jitted = check(function, lambda: (torch.randn(64),), calls=6)
    assert not any("n0" in text and "n1" in text for text in jitted.inspect("segments").split("\n\n")[1:])


def test_memory_that_numpy_sees_again_is_written_before():
    def function(x):
        z = x * 2 + 1
        float(z.numpy()[0])
        y = z * 3
        seen = y.numpy().copy()
        z.mul_(2)
        return seen, z + y, z.numpy().copy()

    check(function, lambda: (torch.randn(64),), calls=8)


def test_calls_on_memory_that_was_shown_to_numpy_add_no_native_steps():
    def function(x):
        z = x * 2 + 1
        float(z.numpy()[0])
        return torch.relu(z * 3).exp() + 1

    jitted = followed(function)
    for _ in range(8):
        jitted(torch.randn(64))
    tree = jitted._compiled.follower._tree
    steps = len(tree)
    for _ in range(20):
        jitted(torch.randn(64))
    assert len(tree) == steps
