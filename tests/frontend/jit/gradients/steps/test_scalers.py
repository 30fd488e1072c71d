"""Gradient scalers within a step: the scale, its growth, and steps that are left out are what eager leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ingot
from tests.frontend.jit.gradients.comparing_gradients import is_compiled, same
from tests.frontend.jit.gradients.step_pairs import Pair, Step, adamw, learning_model

Write = Callable[[Any, Any, Any], Step]
"""Writes the step of a model, its optimizer and their scaler."""
OVERFLOWING = 1e38
"""A factor of targets that makes gradients infinite."""


class _Scaled:
    """Steps with a scaler each, whose state can be compared. Every so many calls gradients overflow."""

    def __init__(self, write: Write, every: int = 0, scale: float = 256.0, **given: Any):
        self.scalers: list[Any] = []
        self.skipped, self.every = 0, every
        self.pair = Pair(write=lambda model, optimizer: self._write(write, model, optimizer, scale), **given)

    def _write(self, write: Write, model: Any, optimizer: Any, scale: float) -> Step:
        self.scalers.append(torch.amp.GradScaler("cpu", scale, growth_interval=3))
        return write(model, optimizer, self.scalers[-1])

    def run(self, calls: int = 12) -> Pair:
        for _ in range(calls):
            is_too_large = self.every and self.pair.number % self.every == self.every - 1
            self.pair.factor = OVERFLOWING if is_too_large else 1.0
            versions, before = self._versions(), self.scalers[1].get_scale()
            self.pair.run(1)
            pairs = zip(self._versions(), versions, strict=True)
            moved = [[now - old for now, old in zip(*each, strict=True)] for each in pairs]
            assert moved[0] == moved[1] or self.every == 1
            self.skipped += self.scalers[1].get_scale() < before
            self.compare()
        return self.pair

    def _versions(self) -> list[list[int]]:
        return [[one._version for one in model.parameters()] for model in self.pair.models]

    def compare(self) -> None:
        first, second = self.scalers
        same(first.state_dict(), second.state_dict())
        assert not first._per_optimizer_states and not second._per_optimizer_states


def _unscaling(model: Any, optimizer: Any, scaler: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def _plainly(model: Any, optimizer: Any, scaler: Any) -> Step:
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _keeping_gradients(model: Any, optimizer: Any, scaler: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


_OPTIMIZERS: dict[str, Callable[[nn.Module], Any]] = {
    "AdamW": adamw,
    "fused": lambda model: torch.optim.AdamW(model.parameters(), 1e-2, fused=True),
    "SGD, fused": lambda model: torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, fused=True),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9),
    "RMSprop": lambda model: torch.optim.RMSprop(model.parameters(), 1e-2),
    "Adagrad, fused": lambda model: torch.optim.Adagrad(model.parameters(), 1e-2, fused=True),
}


_PAIRS = [(name, _plainly) for name in _OPTIMIZERS]
_PAIRS += [("AdamW", _unscaling), ("fused", _unscaling), ("SGD", _keeping_gradients), ("fused", _keeping_gradients)]


@pytest.mark.parametrize(("name", "write"), _PAIRS)
def test_scaled_steps(name: str, write: Write):
    scaled = _Scaled(write, every=5, optimize=_OPTIMIZERS[name])
    pair = scaled.run(11)
    assert pair.is_compiled and pair.compiled.recordings <= 3 and scaled.skipped == 2


def test_a_scaler_that_is_switched_off_does_nothing():
    def write(model: Any, optimizer: Any) -> Step:
        return _unscaling(model, optimizer, torch.amp.GradScaler("cpu", enabled=False))

    pair = Pair(write=write)
    pair.run(5)
    assert pair.is_compiled


def test_the_first_steps_overflow():
    scaled = _Scaled(_unscaling, every=1, make=learning_model)
    scaled.run(4)
    assert scaled.skipped == 4
    scaled.every = 0
    assert scaled.run(6).is_compiled


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast(dtype: torch.dtype):
    def write(model: Any, optimizer: Any, scaler: Any) -> Step:
        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype):
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        return step

    roughly = lambda found, expected: torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02, equal_nan=True)
    optimize = lambda model: torch.optim.SGD(model.parameters(), 1e-4)
    pair = _Scaled(write, every=5, optimize=optimize, compare_values=roughly).run(12)
    assert pair.is_compiled


def test_two_optimizers_of_one_scaler():
    def write(model: Any, optimizer: Any, scaler: Any) -> Step:
        second = torch.optim.SGD([model[0].weight], 1e-2)

        def step(x, y):
            optimizer.zero_grad()
            second.zero_grad()
            loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.unscale_(second)
            scaler.step(second)
            scaler.update()
            return loss.detach()

        return step

    optimize = lambda model: torch.optim.AdamW(list(model.parameters())[1:], 1e-2)
    pair = _Scaled(write, every=6, optimize=optimize).run(14)
    assert pair.is_compiled


def _without_update(model: Any, optimizer: Any, scaler: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        return loss.detach()

    return step


def test_what_is_left_to_be_updated_outside_is_eagers():
    scaled = _Scaled(_without_update)
    for _ in range(6):
        scaled.pair.run(1)
        for one in scaled.scalers:
            one.update()
        scaled.compare()
    assert not scaled.pair.is_compiled


def _asking(model: Any, optimizer: Any, scaler: Any) -> Step:
    inner = _unscaling(model, optimizer, scaler)

    def step(x, y):
        loss = inner(x, y)
        return loss, scaler.get_scale()

    return step


def _deciding(model: Any, optimizer: Any, scaler: Any) -> Step:
    inner = _unscaling(model, optimizer, scaler)

    def step(x, y):
        before = scaler.get_scale()
        loss = inner(x, y)
        return loss if before <= scaler.get_scale() else loss * 0

    return step


@pytest.mark.parametrize("write", [_asking, _deciding])
def test_scales_that_are_asked_for(write: Write):
    _Scaled(write, every=5).run(14)


# --- state that changes between calls ---------------------------------------------------------------------------------


def _load(scaler: Any) -> None:
    scaler.load_state_dict(copy.deepcopy(scaler.state_dict()) | {"scale": 8.0, "_growth_tracker": 1})


def _grow(scaler: Any) -> None:
    scaler.set_growth_factor(4.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(2)


def _replace_scale(scaler: Any) -> None:
    scaler._scale = torch.tensor(16.0)


def _set_scale(scaler: Any) -> None:
    scaler.update(32.0)


def _switch_off(scaler: Any) -> None:
    scaler._enabled = False


def _replace_method(scaler: Any) -> None:
    scaler._unscale_grads_ = lambda *args: {torch.device("cpu"): torch.ones(())}


class _NeverStepping(torch.amp.GradScaler):
    def _maybe_opt_step(self, optimizer: Any, optimizer_state: Any, *args: Any, **kwargs: Any) -> None:
        return None


def _replace_class(scaler: Any) -> None:
    scaler.__class__ = _NeverStepping


@pytest.mark.parametrize(
    "change", [_load, _grow, _replace_scale, _set_scale, _switch_off, _replace_method, _replace_class]
)
def test_changes_of_scalers_are_seen(change: Callable[[Any], None]):
    scaled = _Scaled(_unscaling)
    assert scaled.run(7).is_compiled
    for one in scaled.scalers:
        change(one)
    scaled.every = 3
    scaled.run(7)


def test_gradients_that_were_unscaled_outside():
    scaled = _Scaled(_plainly)
    scaled.run(6)
    for (model, optimizer), scaler in zip(
        zip(scaled.pair.models, scaled.pair.optimizers, strict=True), scaled.scalers, strict=True
    ):
        scaler.scale(model(torch.ones(2, 6)).sum()).backward()
        scaler.unscale_(optimizer)
    scaled.run(4)


# --- around compiled models -------------------------------------------------------------------------------------------


def test_around_a_compiled_model():
    def write(model: Any, optimizer: Any, scaler: Any) -> Step:
        called = ingot.jit(model) if not compiled else model
        compiled.append(called)
        return _unscaling(called, optimizer, scaler)

    compiled: list[Any] = []
    scaled = _Scaled(write, every=5)
    scaled.pair._steps = (scaled.pair.compiled.__wrapped__, scaled.pair._steps[1])
    scaled.run(14)
    assert is_compiled(compiled[0]) and scaled.skipped == 2
