"""Operators on half types whose results jump: rounding where eager rounds decides on which side of a jump they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import ingot

jit: Any = ingot.jit
EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", "1"))
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

JUMPING: dict[str, Function] = {
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div trunc by a number": lambda a, b: torch.div(a, 0.7, rounding_mode="trunc"),
    "div trunc by one element": lambda a, b: torch.div(a, b[:1], rounding_mode="trunc"),
    "div trunc by a tensor without axes": lambda a, b: torch.div(a, b[0].float(), rounding_mode="trunc"),
    "div trunc, broadcast": lambda a, b: torch.div(a[:, None], b[None, :3], rounding_mode="trunc"),
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
    "fmod": torch.fmod,
    "fmod by a number": lambda a, b: torch.fmod(a, 0.7),
    "remainder": torch.remainder,
    "remainder by a number": lambda a, b: torch.remainder(a, 0.7),
    "comparisons with a number": lambda a, b: (a < 0.1) ^ (a >= 0.3) ^ (b != 0.3),
    "comparisons of results": lambda a, b: (a * b + b) > (a + b),
    "rounding of results": lambda a, b: (
        torch.floor(a / b) + torch.ceil(a * b) + torch.round(a - b) + torch.trunc(b / a)
    ),
    "hardshrink": lambda a, b: functional.hardshrink(a, 0.3),
    "softshrink": lambda a, b: functional.softshrink(a, 0.3),
    "threshold": lambda a, b: functional.threshold(a, 0.3, 0.1),
    "add and sub with a factor": lambda a, b: torch.floor(torch.sub(a, b, alpha=0.3) + torch.add(b, a, alpha=1.7)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", JUMPING)
def test_results_are_eagers_bit_for_bit(name: str, dtype: torch.dtype, no_eager_comparison: None):
    function, count = JUMPING[name], 20_000 * EXAMPLES
    torch.manual_seed(0)
    # Quotients of small whole numbers and eighths lie on jumps, others anywhere.
    steps = torch.randint(-64, 64, (2, count)) / 8
    a, b = torch.where(torch.rand(2, count) < 0.3, steps, torch.randn(2, count) * 3).to(dtype)
    b = torch.where(b == 0, torch.ones_like(b), b)
    compiled = jit(lambda a, b: function(a, b), python="skip")
    with torch.no_grad():
        expected, _, found = function(a, b), compiled(a, b), compiled(a, b)
    assert torch.equal(found.nan_to_num(), expected.nan_to_num()) and torch.equal(found.isnan(), expected.isnan())
