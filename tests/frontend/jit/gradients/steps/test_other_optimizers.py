"""Steps that PyTorch's own functions compute within a compiled step: other optimizers, other options, averages."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.optim import swa_utils
from torch.optim.swa_utils import AveragedModel

from tests.frontend.jit.gradients.comparing_gradients import same
from tests.frontend.jit.gradients.step_pairs import Pair, Step, learning_model, plain_step, small_model, zero_in_place

Make = Callable[[nn.Module], Any]
_OPTIMIZERS: dict[str, Make] = {
    "Adam, amsgrad": lambda model: optim.Adam(model.parameters(), 1e-2, amsgrad=True, weight_decay=0.1),
    "AdamW, amsgrad": lambda model: optim.AdamW(model.parameters(), 1e-2, amsgrad=True, maximize=True, fused=True),
    "RMSprop": lambda model: optim.RMSprop(model.parameters(), 1e-2),
    # Maximising an error makes rounding grow from step to step: with larger steps eager itself is 2e-4 off what it
    # computes in double precision.
    "RMSprop, centered": lambda model: optim.RMSprop(
        model.parameters(), 1e-3, momentum=0.9, eps=1e-4, centered=True, weight_decay=0.1, maximize=True
    ),
    "Adagrad": lambda model: optim.Adagrad(
        model.parameters(), 1e-2, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.2
    ),
    "NAdam": lambda model: optim.NAdam(model.parameters(), 1e-2, weight_decay=0.1, decoupled_weight_decay=True),
    "RAdam": lambda model: optim.RAdam(model.parameters(), 1e-2, weight_decay=0.1, maximize=True),
    "Adamax": lambda model: optim.Adamax(model.parameters(), 1e-2, weight_decay=0.1),
    "Adadelta": lambda model: optim.Adadelta(model.parameters(), 0.5, weight_decay=0.1, maximize=True),
    "ASGD": lambda model: optim.ASGD(model.parameters(), 1e-2, weight_decay=0.1),
    "AdamW, rate in a tensor": lambda model: optim.AdamW(model.parameters(), torch.tensor(1e-2)),
    "SGD, rate in a tensor": lambda model: optim.SGD(model.parameters(), torch.tensor(1e-2), momentum=0.9),
}


@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_steps_of_other_optimizers(name: str):
    pair = Pair(optimize=_OPTIMIZERS[name], write=zero_in_place if "RM" in name else plain_step)
    pair.run(5)
    before = [[one._version for one in model.parameters()] for model in pair.models]
    pair.run(4)
    after = [[one._version for one in model.parameters()] for model in pair.models]
    moved = [[new - old for new, old in zip(*each, strict=True)] for each in zip(after, before, strict=True)]
    assert pair.is_compiled and pair.compiled.recordings <= 2
    assert moved[0] == moved[1] or "SGD" in name


@pytest.mark.parametrize("optimizer", [optim.Rprop, optim.Adafactor])
def test_optimizers_that_are_left_to_python(optimizer: Any):
    pair = Pair(optimize=lambda model: optimizer(model.parameters(), lr=1e-2))
    pair.run(5)
    assert not pair.is_compiled


# --- what changes between calls ---------------------------------------------------------------------------------------


def _set(key: str, value: Any) -> Callable[[Any, Any], None]:
    def change(model: Any, optimizer: Any) -> None:
        optimizer.param_groups[0][key] = value

    change.__name__ = f"{key}={value}"
    return change


def _begin_momentum(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["momentum"] = 0.9
    for state in optimizer.state.values():
        state["momentum_buffer"] = torch.ones_like(state["square_avg"])


def _load(model: Any, optimizer: Any) -> None:
    saved = copy.deepcopy(optimizer.state_dict())
    for state in saved["state"].values():
        state["step"].add_(3)
    optimizer.load_state_dict(saved)


def _replace_count(model: Any, optimizer: Any) -> None:
    for state in optimizer.state.values():
        state["step"] = torch.tensor(7.0, dtype=torch.float64)


def _replace_method(model: Any, optimizer: Any) -> None:
    optimizer._init_group = lambda group, *lists: False  # nothing is updated any more


class _Still(optim.RMSprop):
    def step(self, closure: Any = None) -> None:
        return None


def _replace_class(model: Any, optimizer: Any) -> None:
    optimizer.__class__ = _Still


_CHANGES = [_set("alpha", 0.5), _set("eps", 0.1), _set("centered", False), _set("maximize", True), _begin_momentum]
_CHANGES += [_load, _replace_count, _replace_method, _replace_class]


@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: change.__name__)
def test_changes_are_seen(change: Callable[[Any, Any], None]):
    pair = Pair(optimize=lambda model: optim.RMSprop(model.parameters(), 1e-2, centered=True))
    pair.run(4)
    assert pair.is_compiled
    pair.both(change)
    pair.run(3)


def test_the_function_that_computes_a_step_is_replaced(monkeypatch: pytest.MonkeyPatch):
    pair = Pair(optimize=_OPTIMIZERS["RMSprop"])
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules[optim.RMSprop.__module__], "rmsprop", lambda *args, **kwargs: None)
        pair.run(4)
        assert not pair.is_compiled
    pair.run(4)
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules[optim.RMSprop.__module__], "rmsprop", lambda *args, **kwargs: None)
        pair.run(2)


def test_rates_in_tensors_are_read_at_every_call():
    pair = Pair(optimize=_OPTIMIZERS["AdamW, rate in a tensor"])
    pair.run(4)
    for number in range(4):
        pair.both(lambda model, optimizer: optimizer.param_groups[0]["lr"].mul_(0.5))
        if number == 2:
            pair.both(_set("lr", torch.tensor(0.03, dtype=torch.float64)))
        pair.run(1)
    assert pair.is_compiled and pair.compiled.recordings == 2


def test_rates_in_tensors_that_a_step_changes_are_eagers():
    def write(model: Any, optimizer: Any) -> Step:
        once = plain_step(model, optimizer)
        rate = optimizer.param_groups[0]["lr"]

        def step(x, y):
            rate.mul_(0.5)
            return once(x, y)

        return step

    pair = Pair(optimize=_OPTIMIZERS["AdamW, rate in a tensor"], write=write)
    pair.run(5)
    assert not pair.is_compiled


# --- averages of weights ----------------------------------------------------------------------------------------------

_AVERAGES: dict[str, Make] = {
    "equal": AveragedModel,
    "moving": lambda model: AveragedModel(model, avg_fn=swa_utils.get_ema_avg_fn(0.9)),
    "moving, with buffers": lambda model: AveragedModel(
        model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    ),
}


class _Averaged:
    """Steps that update an average of the weights."""

    def __init__(self, make: Make):
        self.make, self.averages = make, []

    def write(self, model: Any, optimizer: Any) -> Step:
        once, average = plain_step(model, optimizer), self.make(model)
        self.averages.append(average)

        def step(x, y):
            loss = once(x, y)
            average.update_parameters(model)
            return loss

        return step

    def run(self, pair: Pair, calls: int) -> None:
        for _ in range(calls):
            pair.run(1)
            same(*(list(one.state_dict().values()) for one in self.averages))


@pytest.mark.parametrize("name", _AVERAGES)
def test_averages_of_weights(name: str):
    averaged = _Averaged(_AVERAGES[name])
    pair = Pair(learning_model if "buffers" in name else small_model, write=averaged.write)
    averaged.run(pair, 6)
    assert pair.is_compiled
    for one in averaged.averages:
        one.n_averaged.zero_()  # the next update copies
    averaged.run(pair, 3)


def test_averages_by_other_functions_are_eagers():
    averaged = _Averaged(lambda model: AveragedModel(model, avg_fn=lambda mean, new, count: mean * 0.5 + new * 0.5))
    pair = Pair(write=averaged.write)
    averaged.run(pair, 5)
    assert not pair.is_compiled


def test_the_function_of_an_average_is_replaced():
    averaged = _Averaged(_AVERAGES["moving"])
    pair = Pair(write=averaged.write)
    averaged.run(pair, 4)
    for one in averaged.averages:
        one.avg_fn = swa_utils.get_ema_avg_fn(0.1)
    averaged.run(pair, 3)
