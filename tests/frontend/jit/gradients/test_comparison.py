"""Compiled calls and calls with PyTorch's graph inside take turns, and the quicker way is kept."""

from __future__ import annotations

from typing import Any

import pytest

import ingot
from ingot.frontend.jit.autotune import eager_comparison
from tests.frontend.jit.gradients.comparing_gradients import calls_of, gated, is_compiled, leaf, same


@pytest.mark.parametrize("clearly", [0.0, 1e9])
def test_the_quicker_way_is_kept(monkeypatch: pytest.MonkeyPatch, clearly: float):
    monkeypatch.setattr(eager_comparison, "ROUNDS", 2)
    monkeypatch.setattr(eager_comparison, "CLEARLY", clearly)
    monkeypatch.setattr(eager_comparison, "_FAR_AHEAD", 1e9)
    compiled: Any = ingot.jit(gated)
    for _ in range(12):
        x, y = leaf(4, 8), leaf(4, 8)
        compiled(x, y).sum().backward()
        twin = x.detach().clone().requires_grad_()
        gated(twin, y).sum().backward()
        same(x.grad, twin.grad)
    (calls,) = calls_of(compiled)
    times = calls.eager_comparison
    assert len(times.eager) == len(times.program) == 2 and all(isinstance(one, float) for one in times.eager)
    assert is_compiled(compiled) == (clearly == 0.0)
    assert (compiled.tier == "eager") == (clearly == 1e9)
    if clearly:
        assert "eager PyTorch is quicker here" in compiled.explain()
