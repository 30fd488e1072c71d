"""Training steps that decide by the values of tensors leave what eager leaves, whatever is decided, and whenever it is
decided for the first time: nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.frontend.jit.gradients.step_pairs import (
    OPTIMIZERS,
    Pair,
    Step,
    Write,
    adamw,
    learning_model,
    plain_step,
    small_model,
)


def _by_argument(model: Any, optimizer: Any) -> Step:
    """Statistics are updated and random numbers drawn before the question, whose answer does not depend on them."""

    def step(x, y):
        optimizer.zero_grad()
        found = model(x)
        loss = F.mse_loss(found, y) if x.sum() > 0 else F.l1_loss(found, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("make", [small_model, learning_model])
@pytest.mark.parametrize("name", ["AdamW", "SGD with everything", "groups"])
def test_decisions_by_arguments(name: str, make: Callable[[], nn.Module]):
    pair = Pair(make, OPTIMIZERS[name], _by_argument)
    pair.run(24)
    assert pair.is_compiled and pair.compiled.recordings == 3


def test_the_program_asks_before_anything_else():
    pair = Pair(learning_model, write=_by_argument)
    pair.run(12)
    first = pair.compiled.inspect("program").split("def program_")[1]
    assert "batch_norm" not in first and "bernoulli" not in first and "linear" not in first
    assert "2 paths by the values of tensors" in pair.compiled.explain()


class _Switched:
    """Steps that decide by a tensor around them."""

    def __init__(self):
        self.switch = torch.zeros(())

    def write(self, model: Any, optimizer: Any) -> Step:
        switch = self.switch

        def step(x, y):
            optimizer.zero_grad()
            found = model(x)
            if switch == 1:
                loss = F.l1_loss(found, y)
            elif switch == 2:
                loss = F.mse_loss(found * 2, y)
            else:
                loss = F.mse_loss(found, y)
            loss.backward()
            optimizer.step()
            return loss

        return step


@pytest.mark.parametrize("name", ["AdamW", "SGD with everything"])
def test_an_answer_that_comes_late_begins_the_call_again(name: str):
    """Counts, averages, statistics and random numbers are eager's: the pair compares all of them after each call."""
    switched = _Switched()
    pair = Pair(learning_model, OPTIMIZERS[name], switched.write)
    pair.run(10)
    switched.switch.fill_(1)
    pair.run(10)
    recorded = pair.compiled.recordings
    switched.switch.fill_(2)
    pair.run(1)
    assert pair.compiled.recordings == recorded + 1
    for answer in (0, 2, 1, 1, 2, 0) * 3:
        switched.switch.fill_(answer)
        pair.run(1)
    assert pair.is_compiled and pair.compiled.recordings == recorded + 1


def test_state_and_parameters_stay_the_same_objects():
    switched = _Switched()
    pair = Pair(write=switched.write)
    pair.run(3)
    held = [one for state in pair.optimizers[0].state.values() for one in state.values()]
    pointers = [one.data_ptr() for one in (*held, *pair.models[0].parameters())]
    for answer in (0, 1, 0, 2, 1, 2):
        switched.switch.fill_(answer)
        pair.run(1)
    now = [one for state in pair.optimizers[0].state.values() for one in state.values()]
    assert all(one is other for one, other in zip(held, now, strict=True))
    assert pointers == [one.data_ptr() for one in (*now, *pair.models[0].parameters())]


def test_gradients_accumulate_in_place_on_every_path():
    def accumulate(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            found = model(x)
            loss = (F.mse_loss(found, y) if x.sum() > 0 else F.l1_loss(found, y)) / 3
            loss.backward()
            return loss

        return step

    pair = Pair(write=accumulate)
    pair.run(2)
    gradients = [one.grad for one in pair.models[0].parameters()]
    pair.run(14)
    assert all(one.grad is before for one, before in zip(pair.models[0].parameters(), gradients, strict=True))
    assert pair.is_compiled


def test_zeros_in_place_before_a_decision():
    def write(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            optimizer.zero_grad(set_to_none=False)
            found = model(x)
            (F.mse_loss(found, y) if x.sum() > 0 else F.l1_loss(found, y)).backward()
            optimizer.step()

        return step

    pair = Pair(write=write)
    pair.run(16)
    assert pair.is_compiled


def test_parameters_that_only_one_path_uses():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(2))

        def forward(self, x):
            return self.experts[0](x) if x.sum() > 0 else self.experts[1](x)

    pair = Pair(Experts, write=plain_step)
    pair.run(24)
    assert pair.is_compiled


# --- questions that come late -----------------------------------------------------------------------------------------


def _if_finite(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()
        return loss.detach()

    return step


def _if_norm_is_finite(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if norm.isfinite():
            optimizer.step()
        return loss, norm

    return step


@pytest.mark.parametrize("write", [_if_finite, _if_norm_is_finite])
def test_questions_about_what_a_step_computes(write: Write):
    pair = Pair(write=write)
    pair.run(8)
    assert pair.is_compiled
    given = torch.full((5, 6), float("nan")), torch.zeros(5, 3)
    for _ in range(4):
        for step in (pair.compiled, write(pair.models[1], pair.optimizers[1])):
            step(*given)
        pair.compare()
        pair.run(2)


@pytest.mark.parametrize("write", [_if_finite, _if_norm_is_finite])
def test_answers_that_depend_on_random_numbers_are_left_to_Python(write: Write):
    pair = Pair(learning_model, write=write)
    pair.run(8)
    assert not pair.is_compiled
    assert "before it decides by a tensor's value" in pair.compiled.explain()


def test_answers_that_depend_on_what_a_step_has_written_are_left_to_Python():
    def write(model: Any, optimizer: Any) -> Step:
        weight = next(iter(model.parameters()))

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss * 2 if weight.detach().sum() > 0 else loss * 3

        return step

    pair = Pair(write=lambda model, optimizer: lambda x, y: write(model, optimizer)(x, y).detach())
    pair.run(8)
    assert not pair.is_compiled
    assert "before it decides by a tensor's value" in pair.compiled.explain()


def test_answers_that_depend_on_gradients_from_before_are_read_at_every_call():
    def write(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            if norm > 1:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
            return loss.detach()

        return step

    pair = Pair(write=write)
    for model in pair.models:
        for one in model.parameters():
            one.grad = torch.zeros_like(one)
    pair.run(24)
    assert pair.is_compiled


def test_memory_that_a_question_overwrites_is_read_before():
    def write(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            optimizer.zero_grad()
            work = x * 1
            doubled = F.dropout(work * 2)
            work.abs_()
            found = model(doubled)
            loss = F.mse_loss(found, y) if work.sum() > 24 else F.l1_loss(found, y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    pair = Pair(write=write)
    pair.run(16)
    assert pair.is_compiled


def test_too_many_paths_are_left_to_Python():
    def write(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            optimizer.zero_grad()
            weight = 0.0
            for row in x:
                for one in row:
                    if one > 0:
                        weight += 1.0
            loss = F.mse_loss(model(x), y) * weight
            loss.backward()
            optimizer.step()
            return loss

        return step

    Pair(optimize=lambda model: torch.optim.SGD(model.parameters(), 1e-4), write=write).run(24)


def test_hooks_are_seen_at_every_call():
    pair = Pair(write=_by_argument)
    pair.run(12)
    seen: list[Any] = []
    handles = [next(iter(model.parameters())).register_hook(seen.append) for model in pair.models]
    pair.run(2)
    assert len(seen) == 4
    for handle in handles:
        handle.remove()
    pair.run(6)
    assert pair.is_compiled


def test_an_optimizer_that_makes_its_state_while_another_path_is_known():
    pair = Pair(optimize=adamw, write=_by_argument)
    pair.run(12)
    pair.both(lambda model, optimizer: optimizer.state.clear())
    pair.run(12)
    assert pair.is_compiled
