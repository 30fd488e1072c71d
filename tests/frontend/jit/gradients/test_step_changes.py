"""Optimizers, gradients, hooks and settings that change between calls of a compiled step: all of it is seen."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.frontend.jit.gradients.step_pairs import ORDERS, Pair, Step, Write, plain_step, small_model, zero_in_place

# --- state that changes -----------------------------------------------------------------------------------------------


def _set_rate(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] *= 0.3
    optimizer.param_groups[0]["betas"] = (0.5, 0.9)
    optimizer.param_groups[0]["weight_decay"] = 0.2


def _load(model: Any, optimizer: Any) -> None:
    saved = copy.deepcopy(optimizer.state_dict())
    for state in saved["state"].values():
        state["exp_avg"].mul_(0.5)
    optimizer.load_state_dict(saved)


def _replace_state(model: Any, optimizer: Any) -> None:
    for state in filter(None, optimizer.state.values()):
        state["exp_avg"] = torch.zeros_like(state["exp_avg"])


def _forget_state(model: Any, optimizer: Any) -> None:
    optimizer.state.clear()


def _freeze(model: Any, optimizer: Any) -> None:
    model[0].requires_grad_(False)


def _add_group(model: Any, optimizer: Any) -> None:
    model[3].extra = nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [model[3].extra]})


def _drop_parameter(model: Any, optimizer: Any) -> None:
    optimizer.state.pop(optimizer.param_groups[0]["params"].pop(), None)


def _replace_parameter(model: Any, optimizer: Any) -> None:
    model[0].bias = nn.Parameter(torch.zeros(12))


def _switch(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["maximize"] = True


def _amsgrad(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["amsgrad"] = True
    for state in filter(None, optimizer.state.values()):
        state["max_exp_avg_sq"] = torch.zeros_like(state["exp_avg_sq"])


def _tensor_rate(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1)


def _hook_parameter(model: Any, optimizer: Any) -> None:
    model[0].weight.register_hook(lambda gradient: gradient * 2)


def _hook_accumulated(model: Any, optimizer: Any) -> None:
    def halve(parameter):
        parameter.grad *= 0.5

    model[0].weight.register_post_accumulate_grad_hook(halve)


def _hook_step(model: Any, optimizer: Any) -> None:
    def scale(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(0.1)

    optimizer.register_step_pre_hook(scale)


def _hook_module(model: Any, optimizer: Any) -> None:
    model[2].register_forward_hook(lambda module, given, result: result * 0.5)


def _replace_step(model: Any, optimizer: Any) -> None:
    optimizer.step = lambda: [one.data.mul_(0.9) for one in model.parameters()]


def _evaluate(model: Any, optimizer: Any) -> None:
    model.eval()


def _replace_data(model: Any, optimizer: Any) -> None:
    model[0].weight.data = torch.linspace(-1, 1, 72).reshape(12, 6)


def _give_gradient(model: Any, optimizer: Any) -> None:
    model[0].weight.grad = torch.ones(12, 6)


_CHANGES = [
    *(_set_rate, _load, _replace_state, _forget_state, _freeze, _add_group, _drop_parameter, _replace_parameter),
    *(_switch, _amsgrad, _tensor_rate, _hook_parameter, _hook_accumulated, _hook_step, _hook_module, _replace_step),
    *(_evaluate, _replace_data, _give_gradient),
]


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("write", [plain_step, zero_in_place])
@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: change.__name__)
def test_changes_are_seen(change: Callable[[Any, Any], None], write: Write):
    pair = Pair(write=write)
    pair.run(5)
    assert pair.is_compiled
    pair.both(change)
    pair.run(4)


def test_decay_that_ends_and_begins():
    """Steps write once more into each weight that decays, which audits see as well."""
    pair = Pair()
    for decay in (0.1, 0, 0.2, 0.0):
        pair.both(lambda model, optimizer: optimizer.param_groups[0].update(weight_decay=decay))  # noqa: B023
        before = [[parameter._version for parameter in model.parameters()] for model in pair.models]
        pair.run(9)
        after = [[parameter._version for parameter in model.parameters()] for model in pair.models]
        ours, theirs = (torch.tensor(after) - torch.tensor(before)).tolist()
        assert ours == theirs
    assert pair.is_compiled


@pytest.mark.parametrize("write", [plain_step, zero_in_place])
def test_gradients_that_were_one_tensor(write: Write):
    """What was one gradient when a call was recorded may be two later, and the other way round."""

    def join(model: Any, optimizer: Any) -> None:
        model[0].bias.grad = torch.full((12,), 0.1)
        model[0].weight.grad = torch.ones(12, 6)
        model[1].bias.grad = model[0].bias.grad

    def part(model: Any, optimizer: Any) -> None:
        model[1].bias.grad = torch.full((12,), 0.3)

    pair = Pair(write=write)
    for change in (join, part, join, part):
        pair.both(change)
        pair.run(6)


def test_rates_change_without_new_recordings():
    pair = Pair()
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(one, 0.1, total_steps=100, cycle_momentum=True) for one in pair.optimizers
    ]
    for _ in range(12):
        pair.run(1)
        for schedule in schedules:
            schedule.step()
    assert pair.is_compiled and pair.compiled.recordings <= 3


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
def test_gradients_are_looked_for_at_every_call():
    """A call that adds to gradients does so where there are some, and makes new ones where there are none."""

    def only_backward(model: Any, optimizer: Any) -> Step:
        return lambda x, y: F.mse_loss(model(x), y).backward()

    pair = Pair(write=only_backward)
    pair.run(4)
    for _ in range(3):
        pair.both(lambda model, optimizer: optimizer.zero_grad())
        pair.run(2)
        pair.both(_give_gradient)
        pair.run(2)
        pair.both(lambda model, optimizer: setattr(model[0].weight, "grad", torch.ones(6, 12).t()))
        pair.run(2)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_random_histories():
    """Steps of all kinds, with changes of all kinds between calls."""
    for seed in range(int(os.environ.get("INGOT_TEST_EXAMPLES", "8"))):
        choose = random.Random(seed)
        write = choose.choice([plain_step, *ORDERS])
        pair = Pair(choose.choice([small_model, _drifting]), write=write)
        pair.run(choose.randint(1, 4))
        for change in choose.sample([*_CHANGES, *_OTHER_CHANGES], choose.randint(1, 4)):
            if "_hook" in change.__name__ and not pair.models[0][0].weight.requires_grad:
                continue  # PyTorch refuses hooks of tensors that need no gradients
            pair.both(change)
            try:
                pair.run(choose.randint(1, 4))
            except AssertionError as error:
                error.add_note(f"seed {seed}: {write.__name__}, after {change.__name__}")
                raise


def _drifting() -> nn.Module:
    """Random numbers, and statistics behind the first layer's own."""
    return nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.3), nn.Tanh(), nn.Linear(12, 3))


def _clear(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()


def _train(model: Any, optimizer: Any) -> None:
    model.train()


def _thaw(model: Any, optimizer: Any) -> None:
    model.requires_grad_(True)


def _step_outside(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()


def _reinitialize(model: Any, optimizer: Any) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)


_OTHER_CHANGES = [_clear, _train, _thaw, _step_outside, _reinitialize]
