"""Schedules of learning rates that take a step within a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.optim import lr_scheduler

from ingot.frontend import optimizers
from tests.frontend.jit.gradients.step_pairs import OPTIMIZERS, Pair, Step, learning_model, plain_step

_SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda number: min(1.0, (number + 1) / 10)),
    "MultiplicativeLR": lambda optimizer: lr_scheduler.MultiplicativeLR(optimizer, lambda number: 0.9),
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 3),
    "MultiStepLR": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 7]),
    "ConstantLR": lambda optimizer: lr_scheduler.ConstantLR(optimizer, 0.5, 6),
    "LinearLR": lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 8),
    "ExponentialLR": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9),
    "PolynomialLR": lambda optimizer: lr_scheduler.PolynomialLR(optimizer, 9),
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 8),
    "CosineAnnealingWarmRestarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.02, 40),
}


class _Scheduled:
    """Steps with a schedule at their end, whose schedules can be compared."""

    def __init__(self, make: Callable[[Any], Any], after: Callable[[Any, Any], Any] = lambda schedule, loss: loss):
        self._make, self._after = make, after
        self.schedules: list[Any] = []

    def write(self, model: Any, optimizer: Any) -> Step:
        schedule, once, after = self._make(optimizer), plain_step(model, optimizer), self._after
        self.schedules.append(schedule)

        def step(x, y):
            loss = once(x, y)
            schedule.step()
            return after(schedule, loss)

        return step

    def compare(self) -> None:
        first, second = self.schedules
        assert first.get_last_lr() == second.get_last_lr() and first.last_epoch == second.last_epoch
        assert getattr(first, "_step_count", 0) == getattr(second, "_step_count", 0)
        settings = [
            [group[key] for group in one.optimizer.param_groups for key in ("lr", "betas")] for one in (first, second)
        ]
        assert settings[0] == settings[1]


def _trained(scheduled: _Scheduled, calls: int = 12, **given: Any) -> Pair:
    pair = Pair(write=scheduled.write, **given)
    for _ in range(calls):
        pair.run(1)
        scheduled.compare()
    return pair


def test_all_known_schedules_are_tried():
    assert set(_SCHEDULES) == {cls.__name__ for cls in optimizers.KNOWN_SCHEDULES}


@pytest.mark.parametrize("name", _SCHEDULES)
def test_schedules_within_a_step(name: str):
    pair = _trained(_Scheduled(_SCHEDULES[name]))
    assert pair.is_compiled and pair.compiled.recordings == 2


def test_with_groups_statistics_and_random_numbers():
    pair = _trained(_Scheduled(_SCHEDULES["StepLR"]), make=learning_model, optimize=OPTIMIZERS["groups"])
    assert pair.is_compiled


def test_two_schedules_take_their_steps_in_order():
    def make(optimizer: Any) -> Any:
        first, second = _SCHEDULES["ExponentialLR"](optimizer), _SCHEDULES["LinearLR"](optimizer)
        others.append(second)
        return first

    others: list[Any] = []
    scheduled = _Scheduled(make, lambda schedule, loss: loss)

    def write(model: Any, optimizer: Any) -> Step:
        inner = scheduled.write(model, optimizer)
        second = others[-1]

        def step(x, y):
            loss = inner(x, y)
            second.step()
            return loss

        return step

    pair = Pair(write=write)
    for _ in range(10):
        pair.run(1)
        scheduled.compare()
        assert others[0].get_last_lr() == others[1].get_last_lr()
    assert pair.is_compiled


def test_a_step_that_decides_takes_its_schedule_along():
    def write(model: Any, optimizer: Any) -> Step:
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
        schedules.append(schedule)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y) if x.sum() > 0 else F.l1_loss(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.item()

        return step

    schedules: list[Any] = []
    pair = Pair(write=write)
    for _ in range(16):
        pair.run(1)
        assert schedules[0].get_last_lr() == schedules[1].get_last_lr()
    assert pair.is_compiled


def test_a_schedule_that_ends_raises_as_ever():
    scheduled = _Scheduled(lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.02, 8))
    pair = _trained(scheduled, 8)
    assert pair.is_compiled
    given = torch.ones(5, 6), torch.ones(5, 3)
    for _ in range(2):
        for step in pair._steps:
            with pytest.raises(ValueError, match="total steps"):
                step(*given)
        pair.compare()


# --- what a schedule changes is not read in the same call -------------------------------------------------------------


def _last_rate(schedule: Any, loss: Any) -> Any:
    return loss.detach(), schedule.get_last_lr()[0]


def _rate_of_group(schedule: Any, loss: Any) -> Any:
    return loss.detach(), schedule.optimizer.param_groups[0]["lr"]


def _epoch(schedule: Any, loss: Any) -> Any:
    return loss.detach() * schedule.last_epoch


def _whole_group(schedule: Any, loss: Any) -> Any:
    return loss.detach(), {**schedule.optimizer.param_groups[0]}["lr"]


@pytest.mark.parametrize("after", [_last_rate, _rate_of_group, _epoch, _whole_group])
def test_what_the_schedule_changes_is_eagers(after: Callable[[Any, Any], Any]):
    pair = _trained(_Scheduled(_SCHEDULES["ExponentialLR"], after))
    assert not pair.is_compiled


def test_the_rate_before_the_schedules_step_is_eagers():
    def write(model: Any, optimizer: Any) -> Step:
        schedule, once = lr_scheduler.ExponentialLR(optimizer, 0.9), plain_step(model, optimizer)

        def step(x, y):
            rate = optimizer.param_groups[0]["lr"]
            loss = once(x, y)
            schedule.step()
            return loss.detach(), rate

        return step

    Pair(write=write).run(8)


def test_random_numbers_after_a_schedules_step_are_eagers():
    scheduled = _Scheduled(_SCHEDULES["StepLR"], lambda schedule, loss: loss.detach() + torch.rand(()))
    assert not _trained(scheduled).is_compiled


class _Own(lr_scheduler.StepLR):
    def step(self, epoch: Any = None) -> None:
        super().step(epoch)


_SEEN: list[int] = []


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: _Own(optimizer, 3),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda number: _SEEN.append(number) or 0.9**number),
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer, [lr_scheduler.ConstantLR(optimizer, 0.1), lr_scheduler.StepLR(optimizer, 2)], [4]
        ),
    ],
)
def test_other_schedules_are_left_to_Python(make: Callable[[Any], Any]):
    pair = _trained(_Scheduled(make))
    assert not pair.is_compiled
