"""What has effects around a decision happens once, and in Python's order."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from ingot.frontend.jit.api.forms import Jitted, jit
from tests.frontend.jit.branches.deciding import asserted
from tests.frontend.jit.branches.test_branches import compare, flipping


def test_an_argument_that_is_written_before_a_decision():
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2 if x.sum() > 96 else x - 1

    compiled = compare(function, flipping())
    assert compiled.tier != "skipping"
    assert "writes into a tensor from before the call before it decides" in compiled.explain()


def test_an_argument_that_is_written_through_a_view_before_a_decision():
    def function(x: Tensor) -> Tensor:
        row = x[0]
        row.mul_(2)
        return x * 2 if x.sum() > 0 else x - 1

    assert compare(function, flipping()).tier != "skipping"


def test_an_argument_that_is_written_after_the_last_decision():
    def function(x: Tensor) -> Tensor:
        y = x.exp()
        if y.mean() > 1.5:
            x.add_(y)
        else:
            x[0].zero_()
        return y

    assert compare(function, flipping()).tier == "skipping"


def test_memory_that_is_shared_only_sometimes():
    def function(x: Tensor, y: Tensor) -> Tensor:
        if x.sum() > 0:
            x.add_(y)
        return x * y  # y is written, too, where it shares the memory of x

    compiled: Any = jit(function)
    for number in range(60):
        x, other = (torch.arange(8.0) + 1 for _ in range(2))
        y, another = (x[:], other[:]) if number % 5 == 4 else (torch.ones(8), torch.ones(8))
        torch.testing.assert_close(compiled(x, y), function(other, another))
        torch.testing.assert_close((x, y), (other, another))
    assert compiled.tier == "skipping"


def test_random_numbers_before_a_decision():
    def function(x: Tensor) -> Tensor:
        x = x + torch.rand(())
        return x * 2 if x.sum() > 0 else x - 1

    compiled: Any = jit(function)
    for number, (x,) in enumerate(flipping()):
        torch.manual_seed(number)
        wanted = function(x), torch.rand(())
        torch.manual_seed(number)
        torch.testing.assert_close((compiled(x), torch.rand(())), wanted)
    assert compiled.tier != "skipping"


def test_random_numbers_after_the_last_decision():
    def function(x: Tensor) -> Tensor:
        return x + torch.rand(()) if x.sum() > 0 else x - 1

    compiled: Any = jit(function)
    for number, (x,) in enumerate(flipping()):
        torch.manual_seed(number)
        wanted = function(x), torch.rand(())
        torch.manual_seed(number)
        torch.testing.assert_close((compiled(x), torch.rand(())), wanted)
    assert compiled.tier == "skipping"


def test_an_assertion_that_fails_now_and_then():
    raised, compiled = 0, jit(asserted)
    assert isinstance(compiled, Jitted)
    for number in range(80):
        x = torch.full((3,), float("inf") if number % 7 == 3 else 1.0)
        try:
            torch.testing.assert_close(compiled(x), x * 2)
        except AssertionError as error:
            assert str(error) == "not finite"
            raised += 1
    assert raised == len([number for number in range(80) if number % 7 == 3])
    assert compiled.tier == "skipping"


def test_a_decision_inside_a_try():
    def function(x: Tensor) -> Tensor:
        try:
            if x.sum() > 0:
                raise ValueError
            y = x * 3
        except ValueError:
            y = x * 2
        return y

    compare(function, flipping())


_SCALE: dict[str, Any] = {"positive": 2.0, "negative": 3.0}


def test_a_global_that_changes_in_either_branch():
    def function(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * _SCALE["positive"]
        return x * _SCALE["negative"]

    compiled: Any = jit(function)
    for number, (x,) in enumerate(flipping(120)):
        if number % 20 == 19:
            _SCALE["positive" if number % 40 == 19 else "negative"] += 1.0
        torch.testing.assert_close(compiled(x), function(x))


def test_a_global_that_decides_which_path_there_is():
    def function(x: Tensor) -> Tensor:
        if x.sum() > 0 and _SCALE["positive"] > 0:
            return x * 2
        return x - 1

    compiled: Any = jit(function)
    for number, (x,) in enumerate(flipping(100)):
        if number % 25 == 24:
            _SCALE["positive"] = -_SCALE["positive"]
        torch.testing.assert_close(compiled(x), function(x))


def test_an_operation_of_another_package_before_a_decision():
    calls: list[int] = []
    with contextlib.suppress(AttributeError):
        library = torch.library.Library("ingot_branches", "DEF")
        library.define("noted(Tensor x) -> Tensor")
        library.impl("noted", lambda x: (calls.append(1), x.clone())[1], "CompositeExplicitAutograd")

    def function(x: Tensor) -> Tensor:
        y = torch.ops.ingot_branches.noted(x)
        return y * 2 if y.sum() > 0 else y - 1

    compiled: Any = jit(function)
    for (x,) in flipping(30):
        before = len(calls)
        compiled(x)
        assert len(calls) == before + 1
