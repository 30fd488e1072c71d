"""Training steps that return numbers: values of tensors that are read when everything else is done."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ingot
from ingot.frontend.jit.cache import auditing, audits
from ingot.frontend.jit.trace.comparing import first_difference
from ingot.frontend.jit.trace.trace import Question, Trace, TraceValue, Training
from tests.frontend.jit.gradients.step_pairs import Pair, Step, Write, learning_model, plain_step, small_model


def _item(model: Any, optimizer: Any) -> Step:
    once = plain_step(model, optimizer)
    return lambda x, y: once(x, y).item()


def _computed(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return math.sqrt(float(loss.detach())) / 2 + 1

    return step


def _nested(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        found = model(x)
        loss = F.mse_loss(found, y)
        before = loss.item()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        right = (found.argmax(-1) == y.argmax(-1)).sum()
        return {"loss": before, "size": x.shape[0], "more": [loss.detach(), norm.item(), (int(right), 0.5)]}

    return step


def _decided(model: Any, optimizer: Any) -> Step:
    def step(x, y):
        optimizer.zero_grad()
        found = model(x)
        loss = F.mse_loss(found, y) if x.sum() > 0 else F.l1_loss(found, y)
        loss.backward()
        optimizer.step()
        return loss.item(), 1 if y.sum() > 0 else 2

    return step


@pytest.mark.parametrize("make", [small_model, learning_model])
@pytest.mark.parametrize("write", [_item, _computed, _nested, _decided], ids=lambda write: write.__name__)
def test_numbers_that_are_returned(write: Write, make: Any):
    pair = Pair(make, write=write)
    pair.run(20)
    assert pair.is_compiled, pair.compiled.explain()
    assert pair.compiled.recordings <= 7


def test_results_are_of_the_types_of_Python():
    pair = Pair(write=_nested)
    pair.run(6)
    assert pair.is_compiled
    result = pair.compiled(torch.randn(5, 6), torch.randn(5, 3))
    assert type(result["loss"]) is float and type(result["more"][2][0]) is int and result["size"] == 5


def test_a_value_that_is_overwritten_later_is_read_before():
    def write(model: Any, optimizer: Any) -> Step:
        weight = next(iter(model.parameters()))

        def step(x, y):
            before = weight.detach().sum()
            kept = before.item()
            first = weight.detach()[0, 0].item()
            before.zero_()
            loss = plain_step(model, optimizer)(x, y)
            return kept, first, loss.detach(), before

        return step

    Pair(write=write).run(8)


def test_a_number_that_decides_and_is_returned_is_left_to_Python():
    def write(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            total = x.sum().item()
            loss = plain_step(model, optimizer)(x if total > 0 else -x, y)
            return total, loss.detach()

        return step

    pair = Pair(write=write)
    pair.run(8)
    assert not pair.is_compiled


def test_a_decision_after_a_number_that_is_returned():
    """By a number that was read before the other one."""

    def write(model: Any, optimizer: Any) -> Step:
        def step(x, y):
            optimizer.zero_grad()
            total = x.sum().item()
            loss = F.mse_loss(model(x), y)
            before = loss.item()
            if total > 0:
                loss = loss * 3
            loss.backward()
            optimizer.step()
            return before, loss.detach()

        return step

    pair = Pair(learning_model, write=write)
    pair.run(16)
    assert pair.is_compiled and pair.compiled.recordings == 3


def test_numbers_that_are_kept_elsewhere_are_Pythons_effects():
    losses: list[list[float]] = [[], []]

    def write(model: Any, optimizer: Any) -> Step:
        kept = losses[len(written)]
        written.append(1)
        once = plain_step(model, optimizer)

        def step(x, y):
            kept.append(once(x, y).item())

        return step

    written: list[int] = []
    pair = Pair(write=write)
    pair.run(8)
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)
    assert len(losses[0]) == 8


def test_a_number_that_no_step_returns_is_followed():
    compiled: Any = ingot.jit(lambda x: x.exp().sum().item())
    for number in range(5):
        assert compiled(torch.full((3,), float(number))) == pytest.approx(3 * math.exp(number))
    assert compiled.tier != "skipping"


@pytest.mark.parametrize("write", [_nested, _decided])
def test_audits_compare_what_is_returned(write: Write, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audits, "FIRST", 2)
    monkeypatch.setattr(audits, "PAUSE", 0)
    monkeypatch.setattr(audits, "next_due", lambda number: number + 2)
    found: list[Any] = []
    compare = auditing.first_difference
    monkeypatch.setattr(auditing, "first_difference", lambda *given: found.append(compare(*given)))
    pair = Pair(write=write)
    pair.run(24)
    assert len(found) > 3 and set(found) == {None}
    assert pair.is_compiled


def test_an_audit_sees_that_another_value_is_returned():
    trace = Trace(results=[1.0], training=Training(read=((0, TraceValue(2)),), readings=((0, "r0"),)))
    asked = lambda register: [Question(TraceValue(register), 0, "item", 3.0, "")]
    same_value = Trace(results=[3.0], training=Training(), questions=asked(2))
    assert first_difference(trace, same_value) is None
    different = first_difference(trace, dataclasses.replace(same_value, questions=asked(1)))
    assert different is not None and "values of other tensors" in different.text
