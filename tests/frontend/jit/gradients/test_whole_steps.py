"""Whole training steps as one program: what they leave in parameters, gradients and optimizers is what eager leaves,
also when optimizers, gradients, hooks or settings change between calls."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import ingot
from tests.frontend.jit.gradients.comparing_gradients import same

Step = Callable[[torch.Tensor, torch.Tensor], Any]
Write = Callable[[Any, Any], Step]
"""Writes the step of a model and its optimizer."""


def _small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 3))


def _learning() -> nn.Module:
    """Statistics and random numbers. A bias before the statistics would have gradients of nothing but rounding."""
    return nn.Sequential(
        nn.Linear(6, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.25), nn.Linear(12, 3)
    )


def _plain(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


@dataclass
class Pair:
    """A model that is trained by a compiled step, and an equal one that is trained eagerly."""

    make: Callable[[], nn.Module] = _small
    optimize: Callable[[nn.Module], Any] = _adam
    write: Write = _plain
    models: list[nn.Module] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    number: int = 0
    compare_values: Callable[[Any, Any], None] = same

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        model = self.make()
        self.models = [model, copy.deepcopy(model)]
        self.optimizers = [self.optimize(one) for one in self.models]
        steps = [self.write(*each) for each in zip(self.models, self.optimizers, strict=True)]
        self.compiled: Any = ingot.jit(steps[0])
        self._steps = self.compiled, steps[1]

    def run(self, calls: int = 4) -> None:
        """Train both, and compare all that can be seen afterwards."""
        for _ in range(calls):
            self.number += 1
            torch.manual_seed(self.number)
            given = torch.randn(5, 6), torch.randn(5, 3)
            results = []
            for step in self._steps:
                torch.manual_seed(1000 + self.number)
                results.append(step(*given))
                results.append(torch.rand(()))  # the generator is left as eager leaves it
            self.compare_values(results[:2], results[2:])
            self.compare()

    def compare(self) -> None:
        for one, other in zip(self.models[0].parameters(), self.models[1].parameters(), strict=True):
            self.compare_values(one, other)
            assert (one.grad is None) == (other.grad is None)
            self.compare_values(one.grad, other.grad)
        self.compare_values(list(self.models[0].buffers()), list(self.models[1].buffers()))
        states = [one.state_dict()["state"] for one in self.optimizers]
        self.compare_values(states[0], states[1])

    def both(self, change: Callable[[Any, Any], Any]) -> None:
        """Change something of both models and optimizers."""
        for each in zip(self.models, self.optimizers, strict=True):
            change(*each)

    @property
    def is_compiled(self) -> bool:
        return self.compiled.tier == "skipping"


_OPTIMIZERS: dict[str, Callable[[nn.Module], Any]] = {
    "AdamW": _adam,
    "Adam with decay": lambda model: torch.optim.Adam(model.parameters(), 1e-2, (0.8, 0.99), 1e-6, 0.1),
    "fused": lambda model: torch.optim.AdamW(model.parameters(), 1e-2, fused=True),
    "foreach, maximized": lambda model: torch.optim.AdamW(model.parameters(), 1e-2, foreach=True, maximize=True),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), 1e-2),
    "SGD with everything": lambda model: torch.optim.SGD(
        model.parameters(), 1e-2, momentum=0.9, weight_decay=0.1, nesterov=True
    ),
    "SGD, damped": lambda model: torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, dampening=0.3, maximize=True),
    "groups": lambda model: torch.optim.AdamW(
        [
            {"params": [one for one in model.parameters() if one.dim() > 1], "weight_decay": 0.1},
            {"params": [one for one in model.parameters() if one.dim() < 2], "lr": 1e-3},
        ],
        lr=1e-2,
    ),
}


@pytest.mark.parametrize("make", [_small, _learning])
@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_optimizers(name: str, make: Callable[[], nn.Module]):
    pair = Pair(make, _OPTIMIZERS[name])
    pair.run(8)
    assert pair.is_compiled and pair.compiled.recordings <= 2


def test_other_types():
    pair = Pair(lambda: _small().double(), write=lambda model, optimizer: _cast(model, optimizer))
    pair.run(6)
    assert pair.is_compiled


def _cast(model: Any, optimizer: Any) -> Step:
    inner = _plain(model, optimizer)
    return lambda x, y: inner(x.double(), y.double())


# --- orders of the calls ----------------------------------------------------------------------------------------------


def _zero_last(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _zero_in_place(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    return step


def _of_the_module(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "size": x.shape[0]}

    return step


def _twice(model: Any, optimizer: Any) -> Step:
    """Two backward passes, whose gradients add up."""

    def step(x, y):
        optimizer.zero_grad()
        first = F.mse_loss(model(x), y)
        first.backward()
        second = F.l1_loss(model(y.repeat(1, 2)), y)
        second.backward()
        optimizer.step()
        return first, second

    return step


def _two_steps(model: Any, optimizer: Any) -> Step:
    once = _plain(model, optimizer)

    def step(x, y):
        once(x, y)
        return once(x + 1, y)

    return step


def _step_first(model: Any, optimizer: Any) -> Step:
    """With the gradients of the call before."""

    def step(x, y):
        optimizer.step()
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()

    return step


def _clipped(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss, norm

    return step


_ORDERS = [_zero_last, _zero_in_place, _of_the_module, _twice, _two_steps, _step_first, _clipped]


@pytest.mark.parametrize("write", _ORDERS)
def test_orders_of_calls(write: Write):
    pair = Pair(_learning if write is _zero_last else _small, write=write)
    pair.run(8)
    assert pair.is_compiled and pair.compiled.recordings <= 3


def test_gradients_accumulate_over_calls():
    def accumulate(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            loss = F.mse_loss(model(x), y) / 3
            loss.backward()
            return loss

        return step

    pair = Pair(write=accumulate)
    for _ in range(5):
        pair.run(3)
        gradients = [one.grad for one in pair.models[0].parameters()]
        pair.run(1)
        assert all(one.grad is before for one, before in zip(pair.models[0].parameters(), gradients, strict=True))
        pair.both(lambda model, optimizer: (optimizer.step(), optimizer.zero_grad()))
    assert pair.is_compiled and pair.compiled.recordings <= 3


def test_step_alone():
    pair = Pair(write=lambda model, optimizer: optimizer.step)
    compiled, eager = pair.compiled, pair.optimizers[1].step
    for number in range(8):
        torch.manual_seed(number)
        x, y = torch.randn(5, 6), torch.randn(5, 3)
        for model, optimizer, step in zip(pair.models, pair.optimizers, (compiled, eager), strict=True):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            if number == 5:
                next(iter(model.parameters())).grad = None
            step()
        pair.compare()
    assert pair.is_compiled


def test_gradients_that_share_memory_are_seen_each_time():
    pair = Pair(write=lambda model, optimizer: optimizer.step)
    model: Any = pair.models[0]
    for _ in range(5):
        F.mse_loss(model(torch.ones(5, 6)), torch.ones(5, 3)).backward()
        pair.compiled()
    (found,) = [one for one in pair.compiled._compiled.specialisations.values() if one.trace is not None]
    before = model[0].bias.grad
    for gradient in (model[1].weight.data, model[1].bias.grad):
        assert not found.shares_memory_anew([]) and not found.shares_memory_anew([])
        model[0].bias.grad = gradient
        assert found.shares_memory_anew([]) and found.shares_memory_anew([])
        model[0].bias.grad = before


# --- what the program shows -------------------------------------------------------------------------------------------


def test_results_can_not_be_differentiated_again():
    pair = Pair()
    pair.run(4)
    for step in (pair.compiled, _plain(pair.models[1], pair.optimizers[1])):
        loss = step(torch.randn(5, 6), torch.randn(5, 3))
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_gradients_that_nothing_keeps_are_no_results():
    pair = Pair(write=_zero_last)
    pair.run(4)
    returned = pair.compiled.inspect("program").rpartition("return [")[2].split("]")[0]
    assert len(returned.split(",")) == 1


def test_counters_of_writes_move():
    pair = Pair()
    pair.run(5)
    before = [[one._version for one in model.parameters()] for model in pair.models]
    pair.run(1)
    after = [[one._version for one in model.parameters()] for model in pair.models]
    moved = [[new - old for new, old in zip(*each, strict=True)] for each in zip(after, before, strict=True)]
    assert moved[0] == moved[1] and min(moved[0]) > 0


def test_stale_graph_is_refused_after_a_compiled_step():
    pair = Pair()
    pair.run(5)
    x = torch.randn(5, 6)
    loss = pair.models[0](x).sum()
    pair.compiled(torch.randn(5, 6), torch.randn(5, 3))
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


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
    for state in optimizer.state.values():
        state["exp_avg"] = torch.zeros_like(state["exp_avg"])


def _forget_state(model: Any, optimizer: Any) -> None:
    optimizer.state.clear()


def _freeze(model: Any, optimizer: Any) -> None:
    model[0].requires_grad_(False)


def _add_group(model: Any, optimizer: Any) -> None:
    model[3].extra = nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [model[3].extra]})


def _drop_parameter(model: Any, optimizer: Any) -> None:
    optimizer.state.pop(optimizer.param_groups[0]["params"].pop())


def _replace_parameter(model: Any, optimizer: Any) -> None:
    model[0].bias = nn.Parameter(torch.zeros(12))


def _switch(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["maximize"] = True


def _amsgrad(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["amsgrad"] = True
    for state in optimizer.state.values():
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
                parameter.grad.mul_(0.1)

    optimizer.register_step_pre_hook(scale)


def _hook_module(model: Any, optimizer: Any) -> None:
    model[1].register_forward_hook(lambda module, given, result: result * 0.5)


def _replace_step(model: Any, optimizer: Any) -> None:
    optimizer.step = lambda: [one.data.mul_(0.9) for one in model.parameters()]


def _evaluate(model: Any, optimizer: Any) -> None:
    model.eval()


def _replace_data(model: Any, optimizer: Any) -> None:
    model[0].weight.data = torch.ones(12, 6)


def _give_gradient(model: Any, optimizer: Any) -> None:
    model[0].weight.grad = torch.ones(12, 6)


_CHANGES = [
    *(_set_rate, _load, _replace_state, _forget_state, _freeze, _add_group, _drop_parameter, _replace_parameter),
    *(_switch, _amsgrad, _tensor_rate, _hook_parameter, _hook_accumulated, _hook_step, _hook_module, _replace_step),
    *(_evaluate, _replace_data, _give_gradient),
]


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("write", [_plain, _zero_in_place])
@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: change.__name__)
def test_changes_are_seen(change: Callable[[Any, Any], None], write: Write):
    pair = Pair(write=write)
    pair.run(5)
    assert pair.is_compiled
    pair.both(change)
    pair.run(4)


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


# --- what is not compiled is right all the same -----------------------------------------------------------------------


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *gradients):
        return -gradients[0]


def _with_function(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(_Reversed.apply(model(x)), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _with_hook_inside(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        hidden = model[0](x)
        hidden.register_hook(lambda gradient: gradient * 2)
        loss = F.mse_loss(model[3](hidden), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _retaining(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _checkpointed(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(checkpoint(model, x, use_reentrant=False), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _differentiable_result(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach(), model(x).sum()

    return step


def _reading(model: Any, optimizer: Any) -> Step:
    return lambda x, y: _plain(model, optimizer)(x, y).item()


_OTHERS = [_with_function, _with_hook_inside, _retaining, _checkpointed, _differentiable_result, _reading]


@pytest.mark.parametrize("write", _OTHERS, ids=lambda write: write.__name__)
def test_other_steps(write: Write):
    Pair(write=write).run(7)


@pytest.mark.parametrize("optimizer", [torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.NAdam])
def test_other_optimizers(optimizer: Any):
    pair = Pair(optimize=lambda model: optimizer(model.parameters(), lr=1e-2))
    pair.run(6)
    assert not pair.is_compiled


def test_hooks_and_anomalies_are_left_to_eager():
    pair = Pair()
    pair.run(5)
    packed: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: packed.append(one) or one, lambda one: one):
        pair.run(1)
    assert packed
    pair.run(2)
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        pair.run(1)
    pair.run(1)
    assert pair.is_compiled


def test_under_autocast():
    roughly = lambda found, expected: torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)
    pair = Pair(_small, lambda model: torch.optim.SGD(model.parameters(), 1e-4), compare_values=roughly)
    with torch.autocast("cpu", torch.bfloat16):
        pair.run(6)
    assert pair.is_compiled


def test_weights_that_are_shared():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.inner = nn.Embedding(11, 6), nn.Linear(6, 6)

        def forward(self, x):
            return self.inner(self.embedding(x.long().abs() % 11)).mean(1) @ self.embedding.weight.t()

    pair = Pair(
        Tied,
        write=lambda model, optimizer: _to_classes(model, optimizer),
    )
    pair.run(6)
    assert pair.is_compiled


def _to_classes(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y.argmax(-1), label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_moving_averages_of_weights():
    pair = Pair()
    averages = [copy.deepcopy(one).requires_grad_(False) for one in pair.models]

    def write(model: Any, optimizer: Any, average: Any) -> Step:
        once = _plain(model, optimizer)

        def step(x, y):
            loss = once(x, y)
            with torch.no_grad():
                for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                    kept.lerp_(now, 0.1)
            return loss

        return step

    steps = [write(*each) for each in zip(pair.models, pair.optimizers, averages, strict=True)]
    pair.compiled = ingot.jit(steps[0])
    pair._steps = pair.compiled, steps[1]
    pair.run(7)
    same(list(averages[0].parameters()), list(averages[1].parameters()))
    assert pair.is_compiled
