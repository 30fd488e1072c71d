"""Paths are compared with eager calls, path by path, and left to Python where eager is quicker on the whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.frontend.jit.api.forms import jit
from ingot.frontend.jit.autotune import eager_comparison
from ingot.frontend.jit.cache.paths import Paths


def _decides(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x - 1


def _paths(compiled: Any) -> Paths:
    (found,) = compiled._compiled.specialisations.values()
    assert isinstance(found, Paths)
    return found


@pytest.fixture
def with_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_comparison, "ROUNDS", 5)


def _call(compiled: Any, calls: int) -> None:
    for number in range(calls):
        x = torch.full((4,), 1.0 if number % 2 else -1.0)
        torch.testing.assert_close(compiled(x), _decides(x))


@pytest.mark.usefixtures("with_rounds")
def test_both_paths_are_measured_though_they_take_turns():
    compiled: Any = jit(_decides)
    _call(compiled, 7)
    assert all(path.eager_comparison.eager for path in _paths(compiled).paths)


@pytest.mark.usefixtures("with_rounds")
@pytest.mark.parametrize(("eager", "tier"), [(1.0, "skipping"), (1e-9, "following")])
def test_the_verdict_is_over_all_paths(eager: float, tier: str):
    compiled: Any = jit(_decides)
    _call(compiled, 4)
    for path in _paths(compiled).paths:
        path.calls, path.eager_comparison.is_warm = 3, True
        path.eager_comparison.program, path.eager_comparison.eager = [1e-3] * 5, [eager] * 5
    _call(compiled, 2)
    assert compiled.tier in ((tier,) if tier == "skipping" else ("following", "eager"))
    if tier != "skipping":
        assert "eager PyTorch is quicker than the recorded paths" in compiled.explain()
    _call(compiled, 10)


@pytest.mark.usefixtures("with_rounds")
def test_effects_happen_once_while_paths_are_compared():
    def function(x: Tensor, total: Tensor) -> Tensor:
        if x.sum() > 0:
            total.add_(1)
        else:
            total.add_(torch.randint(2, 3, ()))
        return x * 2

    compiled, total, wanted = jit(function), torch.zeros(()), 0
    for number in range(40):
        compiled(torch.full((3,), 1.0 if number % 3 else -1.0), total)
        wanted += 1 if number % 3 else 2
        assert total.item() == wanted


def test_a_path_that_is_seldom_does_not_keep_native_code_waiting():
    compiled: Any = jit(_decides)
    _call(compiled, 4)
    x = torch.ones(4)
    for _ in range(40):
        compiled(x)
    assert compiled._compiled.native.total > 10
