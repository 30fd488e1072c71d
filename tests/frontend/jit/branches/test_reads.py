"""Numbers that are read from tensors: they may decide, and nothing else may be done with them without Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.frontend.jit.guards.environment import environment_of
from ingot.frontend.jit.proof import Proof, Refusal, prove
from ingot.frontend.jit.trace.recorder import Recording
from tests.frontend.jit.branches.test_branches import compare, flipping

LIMIT = 0.5


def _item(x: Tensor) -> Tensor:
    return x * 2 if x.sum().item() > LIMIT else x - 1


def _float(x: Tensor) -> Tensor:
    norm = float(x.norm())
    if norm > 11:
        return x / 11
    if norm < 10.5 or norm == 11.0:
        return x * 3
    return x


def _int(x: Tensor) -> tuple[Tensor, str]:
    count = int((x > 0).sum())
    return (x, "none") if count % 2 == 0 else (x * 2, "some")


def _arithmetic(x: Tensor) -> Tensor:
    low, high = x.min().item(), x.max().item()
    spread = max(abs(low), abs(high)) - min(low, high, 0.25)
    return x * 2 if spread / 2 > 2.5 and not math.isnan(spread) else -x


def _loop(x: Tensor) -> Tensor:
    error, before = 10.0, 20.0
    while abs(before - error) > 0.5:
        x = x * 0.7
        before, error = error, x.abs().max().item()
    return x


def _sum_of_reads(x: Tensor) -> Tensor:
    total = sum([x[0].sum().item(), x[1].sum().item()])
    total += 1
    return x if -total < 0 else x * 2


def _unused(x: Tensor) -> Tensor:
    x.sum().item()
    return x * 2


@pytest.mark.parametrize("function", [_item, _float, _int, _arithmetic, _loop, _sum_of_reads, _unused])
def test_deciding_by_numbers(function: Callable[..., Any]):
    assert compare(function, flipping(60)).tier == "skipping"


def test_a_division_by_zero_is_raised_as_ever():
    def function(x: Tensor) -> Tensor:
        return x * 2 if 1 / x.sum().item() > 0.1 else x - 1

    calls = [(torch.full((2,), float(number % 4)),) for number in range(40)]
    assert compare(function, calls).tier == "skipping"


def test_a_limit_that_changes():
    def function(x: Tensor, limit: float) -> Tensor:
        return x * 2 if x.sum().item() > limit else x - 1

    compare(function, [(x, float(number // 20)) for number, (x,) in enumerate(flipping(60))])


# --- what is left to Python -------------------------------------------------------------------------------------------


def _returned(x: Tensor) -> Any:
    return x * 2, x.max().item()


def _returned_inside(x: Tensor) -> Any:
    found = {"total": [x.max().item()]}
    return x * 2, found


def _handed_to_torch(x: Tensor) -> Any:
    return x * x.max().item()


def _handed_to_torch_by_name(x: Tensor) -> Any:
    return torch.add(x, x, alpha=x.max().item())


def _made_into_a_tensor(x: Tensor) -> Any:
    return x + torch.tensor([x.max().item()])


def _stored(x: Tensor) -> Any:
    y = x * 1
    y[0] = x.max().item()
    return y


def _a_size(x: Tensor) -> Any:
    return x[: int((x > 0).sum()) % 4]


def _an_index(x: Tensor) -> Any:
    return x[int((x > 0).sum()) % 4]


def _a_text(x: Tensor) -> Any:
    return x * len(f"{x.max().item():.3f}")


def _a_text_in_other_ways(x: Tensor) -> Any:
    return x * len(str(x.max().item())) + len(str(round(x.max().item(), 1))) + len(f"{x.max().item()}")


def _a_count(x: Tensor) -> Any:
    for _ in range(int((x > 0).sum()) % 3):
        x = x * 2
    return x


def _a_key(x: Tensor) -> Any:
    return x * {0: 1.0, 1: 2.0}.get(int((x > 0).sum()) % 2, 5.0)


def _its_class(x: Tensor) -> Any:
    number = x.max().item()
    return x * 2 if isinstance(number, int) else x


def _its_method(x: Tensor) -> Any:
    return x * 2 if float(x.max()).is_integer() else x


def _a_list(x: Tensor) -> Any:
    return x * 2 if x[0].tolist()[0] > 0 else x


def _in_a_generator(x: Tensor) -> Any:
    return x * 2 if any(row.sum().item() > 1 for row in x) else x


def _by_another_function(x: Tensor) -> Any:
    return x * 2 if torch.equal(x, x * 1) and torch.allclose(x, x) else x


def _a_constant_too(x: Tensor) -> Any:
    one = torch.ones(())
    return x * 2 if one > 0 and x.sum() > 0 else x


LEFT = [value for name, value in list(globals().items()) if name in (
    "_returned", "_returned_inside", "_handed_to_torch", "_handed_to_torch_by_name", "_made_into_a_tensor", "_stored",
    "_a_size", "_an_index", "_a_text", "_a_text_in_other_ways", "_a_count", "_a_key", "_its_class", "_its_method",
    "_a_list", "_in_a_generator", "_by_another_function", "_a_constant_too",
)]  # fmt: skip


@pytest.mark.parametrize("function", LEFT)
def test_numbers_that_do_more_than_decide(function: Callable[..., Any]):
    compiled = compare(function, flipping(40))
    assert compiled.tier != "skipping"
    assert compiled.explain().splitlines()[1].strip().startswith("not ")


@pytest.mark.parametrize("function", LEFT)
def test_a_promise_to_skip_Python_does_not_freeze_numbers(function: Callable[..., Any]):
    compare(function, flipping(40), python="skip")


# --- the proof --------------------------------------------------------------------------------------------------------


def _recorded(function: Callable[..., Any], x: Tensor) -> Recording:
    recording = Recording([x], environment_of(function, []), allows_questions=True)
    recording.run(function, (x,), {})
    return recording


def test_a_proof_names_what_was_decided():
    x = torch.ones(4)
    questions = _recorded(_float, x).trace.questions
    proof = prove(_float, (x,), {}, questions)
    assert isinstance(proof, Proof)
    assert proof.decisions == [[("(float(r0) > 11)", False), ("(float(r0) < 10.5)", True)]]


def test_questions_that_the_walk_does_not_meet_are_refused():
    x = torch.ones(4)
    questions = _recorded(_float, x).trace.questions
    assert isinstance(prove(_float, (x,), {}, [*questions, *questions]), Refusal)
    assert isinstance(prove(_float, (x,), {}), Refusal)
    assert isinstance(prove(_item, (x,), {}, questions), Refusal)


def test_paths_are_not_tried_for_ever():
    compiled = compare(_handed_to_torch, [(torch.ones(size),) for size in range(2, 20)])
    assert not compiled._compiled.allows_questions
