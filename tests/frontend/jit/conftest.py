"""Compiled functions do not take turns with eager ones here: the second call runs what was compiled."""

from __future__ import annotations

import pytest

from ingot.frontend.jit import trial


@pytest.fixture(autouse=True)
def no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "ROUNDS", 0)
