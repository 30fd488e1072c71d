"""Compiled functions do not take turns with eager ones here: the second call runs what was compiled."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def without_eager_comparison(no_eager_comparison: None) -> None:
    pass
