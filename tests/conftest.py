"""What all tests share: those marked `cuda` need an NVIDIA GPU that torch can use, and are skipped where there is none.
Tests of what must hold on every device take `device` and run once on each. With `no_trials` compiled functions do not
take turns with eager ones: the second call runs what was compiled.

torch is asked rather than ingot, so that where ingot alone fails to find a GPU, tests fail instead of being skipped.
"""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request) -> torch.device:
    return torch.device("cpu") if request.param == "cpu" else torch.device(request.param, 0)


@pytest.fixture
def no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.frontend.jit.autotune.eager_comparison.ROUNDS", 0)


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked or torch.cuda.is_available():
        return
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
