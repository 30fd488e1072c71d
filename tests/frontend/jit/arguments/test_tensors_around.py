"""A tensor that is passed may be one that the function also finds around itself: recordings tell the two apart."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
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


Held = namedtuple("Held", ["one"])
PAIR, LIST, TABLE = Pair(torch.ones(4), torch.zeros(4)), [torch.ones(4)], {"one": torch.ones(4)}
ORDERED, NAMED = OrderedDict(one=torch.ones(4)), Held(torch.ones(4))
CONTAINERS: dict[str, tuple[Any, Any, Any]] = {
    "dataclass": (lambda x, given: x * given.first + PAIR.first, PAIR, lambda: Pair(torch.randn(4), torch.zeros(4))),
    "list": (lambda x, given: x * given[0] + LIST[0], LIST, lambda: [torch.randn(4)]),
    "dictionary": (lambda x, given: x * given["one"] + TABLE["one"], TABLE, lambda: {"one": torch.randn(4)}),
    "ordered": (lambda x, given: x * given["one"] + ORDERED["one"], ORDERED, lambda: OrderedDict(one=torch.randn(4))),
    "named tuple": (lambda x, given: x * given + NAMED.one, NAMED.one, lambda: torch.randn(4)),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_what_an_argument_holds_is_also_found_around_the_function(name: str) -> None:
    function, around, make = CONTAINERS[name]
    x = torch.randn(4)
    for is_around_first in (True, False):
        compiled = jit(function)
        for is_around in [is_around_first] * 5 + [not is_around_first] * 5 + [is_around_first] * 2:
            given = around if is_around else make()
            torch.testing.assert_close(compiled(x, given), function(x, given))
