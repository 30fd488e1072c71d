"""What all tests share: those marked `cuda` need an NVIDIA GPU that torch can use, and are skipped where there is none.
Tests of what must hold on every device take `device` and run once on each. With `no_eager_comparison` compiled
functions do not take turns with eager ones and are not audited: the second call runs what was compiled. With `--audits`
every call that a recording would answer is audited, and one that differs from it fails its test, for IngotWarning is an
error. Tests that look at what native code has answered fail under that option.

All processes of a run share one cache on disk, which is made for the run and goes with it: nothing is read from the
developer's own or written there. Code is found there by its text, so a test sees the same code with it and without;
recordings that other tests have kept are not looked for.

Threads of OpenMP sleep while they have nothing to do. By default they spin, in every process of a run that has more
processes than the machine has processors to spare; that takes most of the time of tests that call PyTorch often.

torch is asked rather than ingot, so that where ingot alone fails to find a GPU, tests fail instead of being skipped.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is imported; other processes inherit it

import torch


def _remove(directory: str, process: int) -> None:
    if os.getpid() == process:  # not in a child that a test has forked
        shutil.rmtree(directory, ignore_errors=True)


if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit it
    os.environ["INGOT_CACHE_DIR"] = tempfile.mkdtemp(prefix="ingot-tests-")
    atexit.register(_remove, os.environ["INGOT_CACHE_DIR"], os.getpid())


_gpus: tuple[Any, ...] = (torch.cuda, torch.xpu, torch.mtia)
for _kind in _gpus:
    if not _kind.is_available():  # torch.manual_seed would keep each seed for it, with the text of the stack
        _kind.manual_seed_all = lambda seed: None


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request) -> torch.device:
    return torch.device("cpu") if request.param == "cpu" else torch.device(request.param, 0)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--audits", action="store_true", help="audit every call that a recording would answer")


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.config.getoption("--audits"):
        monkeypatch.setattr("ingot.frontend.jit.cache.audits.next_due", lambda number: number + 1)
        monkeypatch.setattr("ingot.frontend.jit.cache.audits.PAUSE", 0)


@pytest.fixture(autouse=True)
def no_faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A mistake of the compiler's fails the test that meets it, even where warnings are ignored."""
    met: list[str] = []
    monkeypatch.setattr("ingot.frontend.jit.lowering.faults.warn", lambda text, _: met.append(text))
    yield
    assert not met, "\n".join(met)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What recordings may cost does not depend on how busy the machine is that tests run on."""
    monkeypatch.setattr("ingot.frontend.jit.cache.settling._MOST_SECONDS", 1e9)


@pytest.fixture(autouse=True)
def measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test has measured, perhaps with a clock of its own, decides nothing in another."""
    measuring = ("product_strategies", "attention_strategy", "weight_packing", "padded_products", "gpu_convolutions")
    for module in measuring:
        name = f"ingot.frontend.jit.rewrites.{module}.remembered"
        monkeypatch.setattr(name, lambda subject, what, measure: measure())


@pytest.fixture(autouse=True)
def recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test has recorded answers no call of another."""
    monkeypatch.setattr("ingot.frontend.jit.kept.recordings.find_recording", lambda what: None)


@pytest.fixture
def no_eager_comparison(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.frontend.jit.autotune.eager_comparison.ROUNDS", 0)
    if not request.config.getoption("--audits"):
        monkeypatch.setattr("ingot.frontend.jit.cache.audits.FIRST", 2**62)


def pytest_collection_finish() -> None:
    """All tests and what they have imported stay until the end: garbage collections need not look at them."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked or torch.cuda.is_available():
        return
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
