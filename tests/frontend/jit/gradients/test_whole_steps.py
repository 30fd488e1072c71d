"""Whole training steps as one program: what they leave in parameters, gradients and optimizers is what eager leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import ingot
from ingot.frontend.jit.cache import audits
from tests.frontend.jit.gradients.comparing_gradients import same
from tests.frontend.jit.gradients.step_pairs import (
    OPTIMIZERS,
    ORDERS,
    Pair,
    Step,
    Write,
    learning_model,
    plain_step,
    small_model,
    zero_last,
)


@pytest.mark.parametrize("make", [small_model, learning_model])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, make: Callable[[], nn.Module]):
    pair = Pair(make, OPTIMIZERS[name])
    pair.run(8)
    assert pair.is_compiled and pair.compiled.recordings <= 2


def test_other_types():
    pair = Pair(lambda: small_model().double(), write=lambda model, optimizer: _cast(model, optimizer))
    pair.run(6)
    assert pair.is_compiled


def _cast(model: Any, optimizer: Any) -> Step:
    inner = plain_step(model, optimizer)
    return lambda x, y: inner(x.double(), y.double())


@pytest.mark.parametrize("write", ORDERS)
def test_orders_of_calls(write: Write):
    pair = Pair(learning_model if write is zero_last else small_model, write=write)
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
    for step in (pair.compiled, plain_step(pair.models[1], pair.optimizers[1])):
        loss = step(torch.randn(5, 6), torch.randn(5, 3))
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_gradients_that_nothing_keeps_are_no_results():
    pair = Pair(write=zero_last)
    pair.run(4)
    returned = pair.compiled.inspect("program").rpartition("return [")[2].split("]")[0]
    assert len(returned.split(",")) == 1


def test_explain_tells_what_a_step_does():
    pair = Pair()
    pair.run(4)
    text = pair.compiled.explain()
    assert "trains within the call: leaves 6 gradients, 588 bytes, reads 5 settings of optimizers" in text
    assert "1 optimizer step by generated code" in text


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_counters_of_writes_move(name: str):
    pair = Pair(optimize=OPTIMIZERS[name])
    pair.run(5)
    before = [pair.versions(number) for number in range(2)]
    pair.run(1)
    after = [pair.versions(number) for number in range(2)]
    moved = [[new - old for new, old in zip(*each, strict=True)] for each in zip(after, before, strict=True)]
    assert moved[0] == moved[1] and (max(moved[0]) > 0 or name == "fused")


def test_audits_find_parameters_in_groups_of_any_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audits, "FIRST", 4)
    monkeypatch.setattr(audits, "next_due", lambda number: number + 1)
    monkeypatch.setattr(audits, "PAUSE", 0)
    pair = Pair(optimize=OPTIMIZERS["groups"])
    pair.run(8)
    assert pair.is_compiled


def test_stale_graph_is_refused_after_a_compiled_step():
    pair = Pair()
    pair.run(5)
    x = torch.randn(5, 6)
    loss = pair.models[0](x).sum()
    pair.compiled(torch.randn(5, 6), torch.randn(5, 3))
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


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
    return lambda x, y: plain_step(model, optimizer)(x, y).item()


_OTHERS = [_with_function, _with_hook_inside, _retaining, _checkpointed, _differentiable_result, _reading]


@pytest.mark.parametrize("write", _OTHERS, ids=lambda write: write.__name__)
def test_other_steps(write: Write):
    Pair(write=write).run(7)


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
    pair = Pair(small_model, lambda model: torch.optim.SGD(model.parameters(), 1e-4), compare_values=roughly)
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


class _Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.inner = nn.Embedding(11, 6), nn.Linear(36, 3)

    def forward(self, x):
        return self.inner(self.embedding(x.abs().long()).flatten(1))


def test_gradients_are_given_up_before_anything_is_computed():
    """A call that fails in its forward pass leaves none, as in eager, where the step begins with zero_grad."""
    pair = Pair(_Embedded)
    pair.run(4)
    assert pair.is_compiled
    for step in pair._steps:
        with pytest.raises(IndexError):
            step(torch.full((5, 6), 50.0), torch.zeros(5, 3))
    pair.compare()
    assert all(one.grad is None for one in pair.models[0].parameters())
    pair.run(2)


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
        once = plain_step(model, optimizer)

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


def test_what_torch_compile_puts_around_optimizers_is_no_change():
    """It wraps functions of torch.optim when it is first used in a process, and computes nothing else by that."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert hasattr(torch.optim.AdamW._init_group, "_torchdynamo_orig_callable")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled: Any = ingot.jit(step)
    for _ in range(4):
        compiled(torch.ones(3, 4))
    assert compiled.tier == "skipping", compiled.explain()
