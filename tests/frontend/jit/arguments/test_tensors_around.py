"""A tensor that is passed may be one that the function also finds around itself: recordings tell the two apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import ingot

jit: Any = ingot.jit
AROUND = torch.arange(4.0)
HELD: dict[str, Any] = {"one": torch.ones(4)}


@dataclass
class Pair:
    first: torch.Tensor
    second: torch.Tensor


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight * 2


MODEL = Model()
CASES = {
    "global": (lambda x: x + AROUND * 2, AROUND),
    "entry": (lambda x: x + HELD["one"] * 2, HELD["one"]),
    "parameter": (MODEL.forward, MODEL.weight),
    "module among the arguments": (lambda x, model=MODEL: model(x), MODEL.weight),
    "default": (lambda x, around=AROUND: x + around * 2, AROUND),
    "returned": (lambda x: (x + 1, AROUND), AROUND),
}


@pytest.mark.parametrize("python", ["auto", "skip"])
@pytest.mark.parametrize("name", CASES)
def test_a_tensor_from_around_the_function_is_passed(name: str, python: Any) -> None:
    function, around = CASES[name]
    compiled = jit(function, python=python)
    for given in (*[around] * 6, *(torch.randn(4) for _ in range(12)), around, torch.randn(4)):
        torch.testing.assert_close(compiled(given), function(given))
    fresh = jit(function, python=python)
    for given in (*(torch.randn(4) for _ in range(6)), *[around] * 3, torch.randn(4)):
        torch.testing.assert_close(fresh(given), function(given))
    if type(around) is torch.Tensor:  # a parameter is another kind of argument, and that kind was the latest
        assert fresh.tier == "skipping"


def test_what_arguments_hold_is_not_around_the_function() -> None:
    compiled = jit(lambda pair: pair.first * 2 + pair.second)
    for _ in range(4):
        pair = Pair(torch.randn(4), torch.randn(4))
        torch.testing.assert_close(compiled(pair), pair.first * 2 + pair.second)
    assert compiled.tier == "skipping"
