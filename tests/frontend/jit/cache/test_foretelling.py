"""What one recording tells of calls with other numbers is what would be recorded for them, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.capture.slow_cases import adamw
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ingot
from ingot.frontend.jit.arguments.call_key import describe
from ingot.frontend.jit.arguments.variable_numbers import MarkedArguments
from ingot.frontend.jit.cache.foretelling import foretold
from ingot.frontend.jit.cache.specialisation import record
from ingot.frontend.jit.guards.environment import Environment
from ingot.frontend.jit.trace.trace import Trace

Number = int | float
STEPS: list[Callable[[Tensor, Number], Any]] = [
    lambda x, n: x * n,
    lambda x, n: n / x,
    lambda x, n: n - x,
    lambda x, n: x**n,
    lambda x, n: x.add_(n),
    lambda x, n: x.add_(1, alpha=n),
    lambda x, n: x.sub(n, alpha=2),
    lambda x, n: torch.rsub(x, n),
    lambda x, n: torch.rsub(x, x, alpha=n),
    lambda x, n: x.addcmul_(x, x, value=n),
    lambda x, n: torch.addcdiv(x, x, x, value=n),
    lambda x, n: torch.lerp(x, x, n),
    lambda x, n: torch.clamp(x, -1, n),
    lambda x, n: x.clamp_(n, 0.5),
    lambda x, n: x.masked_fill(x > 0, n),
    lambda x, n: torch.full_like(x, n),
    lambda x, n: F.celu(x, n),
    lambda x, n: F.elu(x, n),
    lambda x, n: F.leaky_relu(x, n),
    lambda x, n: F.hardtanh(x, -3.0, n),
    lambda x, n: F.threshold(x, n, 2.0),
    lambda x, n: F.softplus(x, n),
    lambda x, n: F.normalize(x, eps=n),
    lambda x, n: torch.cosine_similarity(x, x, eps=n),
    lambda x, n: torch.addr(x, x[:, 0], x[0], alpha=n),
    lambda x, n: torch.narrow(x, 0, 0, n) if type(n) is int and 0 < n < 3 else x,
    lambda x, n: torch.roll(x, n) if type(n) is int else x,
    lambda x, n: torch.diagonal(x, n) if type(n) is int and -3 < n < 3 else x,
]
NUMBERS: Any = st.sampled_from([0, 1, 2, 3, -1, 0.0, -0.0, 0.5, 1.0, 2.0, 2.5, -1.5, 1e-3, 1e-6])


def _recorded(steps: Sequence[int], numbers: Sequence[Number]) -> Trace | None:
    """What is recorded of a call that takes these steps, each with a number of its own; None if numbers matter."""

    def function(x: Tensor, *numbers: Number) -> list[Tensor]:
        return [STEPS[step](x, number) for step, number in zip(steps, numbers, strict=True)]

    arguments = (torch.rand(3, 3) + 0.5, *numbers)
    given = MarkedArguments({leaf: leaf for leaf in range(1, len(arguments))}, arguments, {})
    try:
        _, made = record(function, given.args, {}, describe(arguments, {}), None, False, Environment())
    except (RuntimeError, ValueError):
        return None  # some functions refuse some numbers
    return None if given.looked_at else made.trace


@settings(deadline=None, max_examples=int(os.environ.get("INGOT_TEST_EXAMPLES", "40")))
@given(
    st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=4),
    st.lists(NUMBERS, min_size=4, max_size=4),
    st.lists(NUMBERS, min_size=4, max_size=4),
)
def test_what_is_foretold_is_what_would_be_recorded(steps: list[int], first: list[Number], second: list[Number]):
    first = first[: len(steps)]
    second = [type(one)(other) for one, other in zip(first, second, strict=False)]
    trace, expected = _recorded(steps, first), _recorded(steps, second)
    if trace is None or expected is None:
        return
    pairs = enumerate(zip(first, second, strict=True), 1)
    found = foretold(trace, {leaf: pair for leaf, pair in pairs if repr(pair[0]) != repr(pair[1])})
    assert found is None or _spelled(found) == _spelled(expected)


def _spelled(trace: Trace) -> str:
    """A trace without keywords that have the value they have when they are left out, as PyTorch leaves them out."""
    events = []
    for event in trace.events:
        defaults = {one.name: one.default_value for one in event.target._schema.arguments if one.has_default_value()}
        kept = {name: value for name, value in event.keywords.items() if value != defaults.get(name, event)}
        events.append(replace(event, keywords=kept))
    return replace(trace, events=events).text


def test_numbers_that_operators_take_as_they_are_passed_are_told_from_one_recording():
    for step in (0, 4, 5, 7, 9, 10, 12, 14):
        trace = _recorded([step], [2.5])
        assert trace is not None and foretold(trace, {1: (2.5, 0.25)}) is not None, step


def test_a_number_that_stands_in_two_places_needs_a_second_recording():
    trace = _recorded([6], [2])  # x.sub(2, alpha=2)
    assert trace is not None and foretold(trace, {1: (2, 3)}) is None


def test_a_number_that_pytorch_may_have_left_out_needs_a_second_recording():
    trace = _recorded([5], [1])  # x.add_(1, alpha=1)
    assert trace is not None and foretold(trace, {1: (1, 0)}) is None


def test_an_optimizer_by_hand_is_not_recorded_after_its_third_call():
    function: Any = ingot.jit(adamw)
    mine = tuple([torch.rand(8, 8) for _ in range(6)] for _ in range(4))
    its = tuple([tensor.clone() for tensor in tensors] for tensors in mine)
    recordings = []
    for step in range(1, 20):
        function(*mine, step)
        adamw(its[0], its[1], its[2], its[3], step)
        recordings.append(function.recordings)
    torch.testing.assert_close(mine, its)
    assert recordings[2:] == recordings[2:3] * 17
