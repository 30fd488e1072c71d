"""Compiled functions do not take turns with eager ones here: the second call runs what was compiled."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def without_trials(no_trials: None) -> None:
    pass
