"""Whole training steps of models on a GPU: what they leave is what eager leaves, and they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ingot
from tests.frontend.jit.gradients.step_pairs import (
    OPTIMIZERS,
    ORDERS,
    Pair,
    Step,
    Write,
    adamw,
    learning_model,
    plain_step,
    small_model,
    zero_last,
)

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def without_trials(no_eager_comparison: None):
    """Small models are compiled even where eager is quicker."""


OnGpu = partial(Pair, device="cuda")
MORE: dict[str, Callable[[nn.Module], Any]] = {
    "fused SGD": lambda model: torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, fused=True),
    "one by one": lambda model: torch.optim.AdamW(model.parameters(), 1e-2, foreach=False),
    "amsgrad, fused": lambda model: torch.optim.AdamW(model.parameters(), 1e-2, amsgrad=True, fused=True),
    "RMSprop": lambda model: torch.optim.RMSprop(model.parameters(), 1e-2, momentum=0.5),
    "NAdam": lambda model: torch.optim.NAdam(model.parameters(), 1e-2),
    "Adagrad": lambda model: torch.optim.Adagrad(model.parameters(), 1e-2),
}


@pytest.mark.parametrize("make", [small_model, learning_model])
@pytest.mark.parametrize("name", [*OPTIMIZERS, *MORE])
def test_optimizers(name: str, make: Callable[[], nn.Module]):
    pair = OnGpu(make, {**OPTIMIZERS, **MORE}[name])
    pair.run(8)
    assert pair.is_compiled and pair.compiled.recordings <= 2, pair.compiled.explain()


@pytest.mark.parametrize(
    "optimize",
    [
        lambda model: torch.optim.AdamW(model.parameters(), 1e-2, amsgrad=True),
        lambda model: torch.optim.AdamW(model.parameters(), 1e-2, capturable=True),
    ],
)
def test_steps_that_stay_eager(optimize: Callable[[nn.Module], Any]):
    pair = OnGpu(optimize=optimize)
    pair.run(5)
    assert not pair.is_compiled


@pytest.mark.parametrize("write", ORDERS)
def test_orders_of_calls(write: Write):
    pair = OnGpu(learning_model if write is zero_last else small_model, write=write)
    pair.run(8)
    assert pair.is_compiled and pair.compiled.recordings <= 3


@pytest.mark.parametrize("make", [small_model, learning_model])
@pytest.mark.parametrize("name", [*OPTIMIZERS, "fused SGD", "one by one"])
def test_replayed_steps(name: str, make: Callable[[], nn.Module]):
    pair = OnGpu(make, {**OPTIMIZERS, **MORE}[name], mode="reduce-overhead")
    pair.run(6)
    for _ in range(4):
        before = [pair.versions(number) for number in range(2)]
        pair.run(1)
        after = [pair.versions(number) for number in range(2)]
        moved = [[new - old for new, old in zip(*each, strict=True)] for each in zip(after, before, strict=True)]
        assert moved[0] == moved[1]
    assert pair.is_compiled and "replayed as 1 CUDA graph" in pair.compiled.explain()


def test_replayed_steps_see_what_the_host_changes():
    """A rate that a schedule changes, counts of steps that are set back, and weights that are replaced."""
    pair = OnGpu(mode="reduce-overhead")
    pair.run(6)

    def slow(model: Any, optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] *= 0.5

    def begin_again(model: Any, optimizer: Any) -> None:
        for state in optimizer.state.values():
            state["step"].fill_(1.0)

    def one_apart(model: Any, optimizer: Any) -> None:
        next(iter(optimizer.state.values()))["step"].data.fill_(40.0)

    def shrink(model: Any, optimizer: Any) -> None:
        with torch.no_grad():
            model[0].weight.mul_(0.5)

    def move(model: Any, optimizer: Any) -> None:
        model[0].weight.data = model[0].weight.data.clone()

    for change in (slow, begin_again, one_apart, shrink, slow, move, slow):
        pair.both(change)
        pair.run(4)
    assert pair.is_compiled and "CUDA graph" in pair.compiled.explain()


def test_gradients_of_replayed_steps_can_be_kept():
    pair = OnGpu(mode="reduce-overhead")
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(10):
        pair.run(1)
        gradient = pair.models[0][0].weight.grad
        kept.append((gradient, gradient.clone()))
    for gradient, copy in kept:
        torch.testing.assert_close(gradient, copy, rtol=0, atol=0)


def test_replayed_dropout_draws_what_eager_draws():
    pair = OnGpu(lambda: nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 3)), mode="reduce-overhead")
    pair.run(10)
    assert pair.is_compiled and "replayed as 1 CUDA graph" in pair.compiled.explain()


@pytest.mark.parametrize("write", ORDERS)
def test_orders_of_replayed_calls(write: Write):
    pair = OnGpu(learning_model if write is zero_last else small_model, write=write, mode="reduce-overhead")
    pair.run(10)
    assert pair.is_compiled


def test_double():
    def cast(model: Any, optimizer: Any) -> Step:
        inner = plain_step(model, optimizer)
        return lambda x, y: inner(x.double(), y.double())

    pair = OnGpu(lambda: small_model().double(), write=cast)
    pair.run(6)
    assert pair.is_compiled


def test_steps_that_parameters_have_taken_differ():
    """One parameter has no gradient at first, so that its count of steps stays behind."""

    def write(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            if pair_number[0] < 3:
                model[0].bias.grad = None
            optimizer.step()
            return loss

        return step

    pair_number = [0]
    pair = OnGpu(write=write)
    for _ in range(8):
        pair.run(1)
        pair_number[0] += 1
    alone = OnGpu(write=lambda model, optimizer: optimizer.step)
    for number in range(8):
        for model, optimizer, step in zip(
            alone.models, alone.optimizers, (alone.compiled, alone.optimizers[1].step), strict=True
        ):
            torch.manual_seed(number)
            optimizer.zero_grad()
            F.mse_loss(model(torch.randn(5, 6).cuda()), torch.randn(5, 3).cuda()).backward()
            if number < 3:
                model[0].bias.grad = None
            step()
        alone.compare()
    assert alone.is_compiled


def test_dropout_draws_what_eager_draws():
    pair = OnGpu(lambda: nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 3)))
    pair.run(8)
    assert pair.is_compiled


def test_autocast_with_a_scaler():
    def write(model: Any, optimizer: Any) -> Step:
        scaler = torch.amp.GradScaler("cuda", init_scale=256.0, growth_interval=3)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss

        return step

    def close(one: Any, other: Any) -> None:
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-3)

    pair = OnGpu(write=write, compare_values=close)
    pair.run(8)
    assert pair.is_compiled


def test_python_in_backward_is_seen():
    """Hooks and functions of the user's run in a thread of PyTorch's own in eager."""
    seen: list[int] = []

    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, *tangents: Any) -> Any:
            seen.append(len(seen))
            return -tangents[0]

    def write(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(Reversed.apply(model(x)), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    pair = OnGpu(write=write)
    pair.run(6)
    assert not pair.is_compiled and len(seen) == 12
    assert torch._C._is_multithreading_enabled()


def test_hooks_of_tensors_within():
    def write(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            optimizer.zero_grad()
            hidden = model(x)
            hidden.register_hook(lambda gradient: gradient * 2)
            loss = F.mse_loss(hidden, y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    OnGpu(write=write).run(6)


def test_a_transformer_layer_with_autocast():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(6, 32)
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
            self.last = nn.Linear(32, 3)

        def forward(self, x):
            with torch.autocast("cuda", torch.bfloat16):
                return self.last(self.layer(self.first(x)[None])[0]).float()

    def close(one: Any, other: Any) -> None:
        torch.testing.assert_close(one, other, rtol=5e-2, atol=2e-2)

    pair = OnGpu(Model, adamw, compare_values=close)
    pair.run(6)
    assert pair.is_compiled, pair.compiled.explain()


def test_optimizers_alone_over_many_parameters():
    def make() -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        torch.manual_seed(1)
        parameters = [nn.Parameter(torch.randn(size, device="cuda")) for size in (1, 7, 1000, 65537)]
        return parameters, torch.optim.AdamW(parameters, 1e-3)

    (ours, compiled_optimizer), (theirs, optimizer) = make(), make()
    compiled: Any = ingot.jit(compiled_optimizer.step)
    for number in range(6):
        torch.manual_seed(number)
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        compiled()
        optimizer.step()
        torch.testing.assert_close(ours, theirs)
    assert compiled.tier == "skipping"
