"""Functions that write in place, with tensors over the same memory that have storages of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import ingot
from tests.runtime.test_overlaps import KINDS, Pair

pytestmark = pytest.mark.usefixtures("no_eager_comparison")


def write_then_read(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2.0).add_(1.0)
    return torch.sqrt(y + 3.0) * 2.0


def read_write_read(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    before = torch.exp(y / 1000.0) + 1.0
    x.copy_(y * 0.5)
    y.add_(x)
    return before, y * 3.0


def write_both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    y.add_(x)
    return x.sum() + y.sum()


def write_a_part(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[10:20] = y[:10] * 2.0
    return y * 2.0 + 1.0


FUNCTIONS = [write_then_read, read_write_read, write_both, write_a_part]


def outcome(function: Callable[..., Any], *given: torch.Tensor) -> Any:
    """What a function returns, or the error that it raises: eager refuses some operations on overlapping views."""
    try:
        return function(*given)
    except RuntimeError as error:
        return str(error)


def assert_like_eager(function: Callable[..., Any], compiled: Callable[..., Any], make: Callable[[], Pair]) -> None:
    (x, y), (eager_x, eager_y) = make(), make()
    result, expected = outcome(compiled, x, y), outcome(function, eager_x, eager_y)
    if isinstance(expected, str):
        assert result == expected
    else:
        torch.testing.assert_close(result, expected)
    torch.testing.assert_close(x, eager_x)
    torch.testing.assert_close(y, eager_y)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("make", KINDS)
def test_tensors_overlap_from_the_first_call_on(function: Callable[..., Any], make: Callable[[int, int], Pair]):
    compiled = ingot.jit(function)
    for distance in (1, 37, 1, 1, 1, 0, 1):
        assert_like_eager(function, compiled, lambda: make(distance, 100))  # noqa: B023


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("make", KINDS)
def test_tensors_overlap_at_a_later_call(function: Callable[..., Any], make: Callable[[int, int], Pair]):
    compiled = ingot.jit(function)
    for distance in (100, 100, 100, 100, 1, 99, 100, 5):
        assert_like_eager(function, compiled, lambda: make(distance, 100))  # noqa: B023


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 1, 0)])
def test_a_tensor_that_joins_two_others(order: tuple[int, int, int]):
    """The first and the last lie apart, the one between overlaps both."""

    def function(*tensors: torch.Tensor) -> torch.Tensor:
        first, between, last = (tensors[order.index(number)] for number in range(3))
        first.add_(1.0)
        last.mul_(2.0)
        return between * 3.0 + 1.0

    def make() -> list[torch.Tensor]:
        array = numpy.arange(30, dtype=numpy.float32)
        pieces = [torch.from_numpy(array[start : start + 12]) for start in (0, 9, 18)]
        return [pieces[number] for number in order]

    compiled = ingot.jit(function)
    for _ in range(5):
        given, eager = make(), make()
        torch.testing.assert_close(compiled(*given), function(*eager))
        torch.testing.assert_close(given, eager)


def test_a_tensor_around_the_function_overlaps_an_argument():
    array = numpy.zeros(40, dtype=numpy.float32)
    around = torch.from_numpy(array[10:30])

    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1.0)
        return around * 2.0 + 1.0

    compiled = ingot.jit(function)
    apart = torch.zeros(20)
    for x in [apart] * 4 + [torch.from_numpy(array[:20])] * 4:
        before = around.clone()
        written = torch.cat([before[:10] + 1.0, before[10:]]) if x is not apart else before
        torch.testing.assert_close(compiled(x), written * 2.0 + 1.0)


def test_functions_that_write_nothing_stay_compiled():
    compiled: Any = ingot.jit(lambda x, y: torch.tanh(x * y + 1.0))
    for make in KINDS:
        for _ in range(3):
            x, y = make(3, 100)
            torch.testing.assert_close(compiled(x, y), torch.tanh(x * y + 1.0))
    assert "runs eagerly" not in compiled.explain() and "kernel" in compiled.explain()
