"""Tensors that a function overwrites: records do it natively, where they lie apart and torch can be told."""

from __future__ import annotations

import pytest
import torch

from tests.frontend.jit.comparing import same
from tests.frontend.jit.records import answered, jit, warm

pytestmark = pytest.mark.usefixtures("no_eager_comparison")


def average(averages: list[torch.Tensor], values: list[torch.Tensor], decay: float) -> None:
    for one, value in zip(averages, values, strict=True):
        one.mul_(decay).add_(value, alpha=1 - decay)


def tensors(count: int, *shape: int) -> list[torch.Tensor]:
    return [torch.randn(shape or (16,)) for _ in range(count)]


def check(function, averages, values, is_native=True) -> None:
    """See that a call does what eager does to copies of what it is given, natively or not."""
    expected = [one.detach().clone() for one in averages]
    average(expected, [value.clone() for value in values], 0.9)
    versions = [one._version for one in averages if not one.is_inference()]
    before = answered(function)
    assert function(averages, values, 0.9) is None
    for one, other in zip(averages, expected, strict=True):
        torch.testing.assert_close(one.detach(), other)
    assert (answered(function) > before) == is_native
    assert all(one._version > old for one, old in zip(averages, versions, strict=False))


@pytest.mark.parametrize("count", [1, 4, 40])
def test_lists_are_overwritten_natively(count):
    function = warm(jit(average), tensors(count), tensors(count), 0.9)
    for _ in range(3):
        check(function, tensors(count), tensors(count))


def test_tensors_that_share_memory_go_another_way():
    function = warm(jit(average), tensors(3), tensors(3), 0.9)
    memory, values = torch.randn(64), tensors(3)
    apart = [memory[:16], memory[16:32], memory[32:48]]
    check(function, apart, values)

    for begin in (8, 15):
        expected, given, last = memory.clone(), memory.clone(), torch.randn(16)
        average([expected[:16], expected[begin : begin + 16], last.clone()], values, 0.9)
        before = answered(function)
        function([given[:16], given[begin : begin + 16], last], values, 0.9)
        same(given, expected)
        assert answered(function) == before
    with pytest.raises(RuntimeError, match="single memory location"):
        function([memory[:16], *tensors(2)], [memory[8:24], *tensors(2)], 0.9)
    check(function, tensors(3), tensors(3))


def test_tensors_of_inference_mode_go_another_way():
    function = warm(jit(average), tensors(2), tensors(2), 0.9)
    with torch.inference_mode():
        averages = tensors(2)
    with pytest.raises(RuntimeError, match="inference"):
        function(averages, tensors(2), 0.9)
    with torch.inference_mode():
        expected = [one.clone() for one in averages]
        values = tensors(2)
        average(expected, values, 0.9)
        function(averages, values, 0.9)
        same(averages, expected)


def test_autograd_hears_of_what_was_overwritten():
    function = warm(jit(average), tensors(1), tensors(1), 0.9)
    x, saved = torch.randn(16, requires_grad=True), torch.randn(16)
    result = (x * saved).sum()
    function([saved], tensors(1), 0.9)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_parameters_are_overwritten_under_no_grad():
    parameters = [torch.nn.Parameter(one) for one in tensors(5, 8, 8)]
    with torch.no_grad():
        function = warm(jit(average), parameters, tensors(5, 8, 8), 0.9)
        check(function, parameters, tensors(5, 8, 8))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        function(parameters, tensors(5, 8, 8), 0.9)


def test_large_tensors_are_overwritten():
    function = warm(jit(average), tensors(2, 600, 700), tensors(2, 600, 700), 0.9)
    check(function, tensors(2, 600, 700), tensors(2, 600, 700))
