"""Sizes stay open in recordings that decide by values: paths on which the same was decided are generalised."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ingot

jit: Any = ingot.jit


def decide(x: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(x) * x.shape[0]
    if x.sum() > 0:
        return hidden + 1
    return hidden.sum(0) * 2


def holds(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if 0 in x else torch.cat([x, x])


def writes(x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        given.add_(x.sum(0))
        return x * 2
    given.mul_(2)
    return x.sum(0)


def ones(rows: int) -> torch.Tensor:
    return torch.ones(rows, 4)


def check(compiled: Any, function: Any, *given: Any) -> None:
    mine = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
    its = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
    torch.testing.assert_close(compiled(*its), function(*mine))
    torch.testing.assert_close(its, mine)


@pytest.mark.parametrize("function", [decide, holds])
def test_other_sizes_need_no_recording(function: Any) -> None:
    compiled = jit(function)
    for rows in range(2, 30):
        check(compiled, function, ones(rows))
    assert (compiled.tier, compiled.recordings) == ("skipping", 3)


@pytest.mark.parametrize("function", [decide, holds])
def test_other_answers_lead_to_other_recordings(function: Any) -> None:
    compiled = jit(function)
    for rows in (2, 3, 4, 5, 6):
        check(compiled, function, ones(rows))
    for rows in (7, 8, 9, 10, 11, 12):
        check(compiled, function, ones(rows) * 0)
    before = compiled.recordings
    for rows in (13, 14, 15, 16):
        for factor in (1, 0, 1):
            check(compiled, function, ones(rows) * factor)
    assert (compiled.tier, compiled.recordings, before) == ("skipping", 6, 6)


def test_what_a_path_writes_is_written_once() -> None:
    compiled = jit(writes)
    for rows in range(2, 20):
        for factor in (1, 1, -1):
            check(compiled, writes, ones(rows) * factor, torch.ones(4))
    assert compiled.tier == "skipping"


def test_numbers_vary_beside_decisions() -> None:
    function = lambda x, scale: x * scale + 1 if x.sum() > 0 else x * scale
    compiled = jit(function)
    for rows in (4, 4, 5, 6, 7, 8):
        for factor in (1, 1, -1, 1):
            for scale in (0.5, 1.5, 2.5):
                check(compiled, function, ones(rows) * factor, scale)
    steady = jit(function)
    for rows in (4, 5, 6, 7):
        for scale in (0.5, 1.5):
            for _ in range(10):
                check(steady, function, ones(rows), scale)
    assert steady.tier == "skipping" and steady.recordings <= 6
