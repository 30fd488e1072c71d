"""Garbage collection while something is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import ingot
from ingot.base import collecting
from ingot.base.collecting import collecting_later, importing
from ingot.frontend.jit.cache import specialisation


@pytest.fixture(autouse=True)
def nothing_is_frozen() -> Iterator[None]:
    """As in a program of its own; the run of the tests has frozen what it has imported."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_it_is_as_before_afterwards(is_enabled: bool):
    was_enabled = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        with collecting_later():
            assert not gc.isenabled()
            with collecting_later():
                pass
            assert not gc.isenabled()
        assert gc.isenabled() == is_enabled
        with pytest.raises(ZeroDivisionError), collecting_later():
            _ = 1 // 0
        assert gc.isenabled() == is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_a_block_that_never_began_leaves_collection_off(monkeypatch: pytest.MonkeyPatch):
    """Interrupted at its first step, after an earlier block had found collection on."""

    def interrupted(token: object) -> None:
        raise KeyboardInterrupt

    was_enabled = gc.isenabled()
    try:
        gc.enable()
        with collecting_later():
            pass
        gc.disable()
        monkeypatch.setattr(collecting, "_begin", interrupted)
        with pytest.raises(KeyboardInterrupt), collecting_later():
            pass
        assert not gc.isenabled()
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_what_importing_makes_is_old_afterwards():
    kept: list[object] = []
    with importing():
        kept.append([kept])
    assert any(one is kept[0] for one in gc.get_objects(generation=2))
    assert gc.get_freeze_count() == 0


def test_what_is_compiled_first_is_old_afterwards(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(collecting, "_aged", 0)
    kept: list[list[object]] = []
    for _ in range(collecting._MOST_AGED + 1):
        with collecting_later():
            kept.append([kept])
    old = {id(one) for one in gc.get_objects(generation=2)}
    assert [id(one) in old for one in kept] == [True] * collecting._MOST_AGED + [False]
    assert gc.get_freeze_count() == 0


def test_importing_leaves_what_a_program_has_frozen():
    gc.collect()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with importing():
            pass
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()


def test_no_collection_starts_while_a_function_is_compiled(monkeypatch: pytest.MonkeyPatch):
    """With a threshold at which everything else collects."""
    collections: list[str] = []
    during: list[int] = []
    compile_trace = specialisation.compile_trace

    def compile_and_count(*given: Any, **named: Any) -> Any:
        before = len(collections)
        made = compile_trace(*given, **named)
        during.append(len(collections) - before)
        return made

    monkeypatch.setattr(specialisation, "compile_trace", compile_and_count)
    function = ingot.jit(lambda x: torch.softmax(x * 2 + 1, -1).sum(0))
    thresholds = gc.get_threshold()
    note = lambda phase, info: collections.append(phase)
    gc.callbacks.append(note)
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(2):
            function(torch.randn(5, 7))
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*thresholds)
    assert during == [0] and collections
