"""Segments whose results are views or copies: kernels write them where they belong, and no run of them takes Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from ingot.runtime.compiler import CompiledModule
from tests.frontend.jit.follow.following_checks import check


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def regions(jitted: Any) -> dict[int, CompiledModule]:
    """The regions of all segments, by their identity: equal ones are compiled once."""
    segments = jitted._compiled.follower.summary().segments
    programs = [one.program for segment in segments for one in segment.recorded.specialisations.values()]
    return {id(module): module for program in programs if program is not None for module in program.modules}


def runs(jitted: Any) -> tuple[int, int]:
    """How often regions ran in Python, and natively."""
    runners = [module._runner for module in regions(jitted).values()]
    return sum(one._executions for one in runners), sum(one._native.executions for one in runners)


def check_natively(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> None:
    """Compare calls with eager, and see that the last ones run no region in Python."""
    jitted = check(function, make, calls=8)
    in_python, natively = runs(jitted)
    for _ in range(3):
        jitted(*make())
    assert runs(jitted)[0] == in_python, jitted.inspect("segments")
    assert runs(jitted)[1] >= natively + 3, jitted.inspect("segments")


def computed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Something that is computed in every dtype."""
    return torch.where(x == y, y, x)


def transposed(x, y):
    z = computed(x, y)
    return z, z.t().contiguous()


def expanded(x, y):
    z = computed(x, y)
    return z[None].expand(3, *z.shape).clone(), z[:, None].expand(-1, 2, -1).contiguous()


def sliced(x, y):
    z = computed(x, y)
    return z[1:].clone(), z[:, ::2].clone(), z[:, 2:].contiguous()


def repeated(x, y):
    z = computed(x, y)
    return z, z.clone(), z.clone()


def given(x, y):
    return x.clone(), computed(x, y), y.t().contiguous()


def joined(x, y):
    return torch.cat([x, y, computed(x, y)], -1), torch.stack([y, x])


def reshaped(x, y):
    return computed(x, y).t().reshape(-1), x.t().reshape(2, -1)


def constants(x, y):
    return torch.zeros_like(x), torch.full_like(y, 1), computed(x, torch.ones_like(x))


def in_other_strides(x, y):
    z = computed(x.t(), y.t())
    return z, z.clone(), torch.where(z == x.t(), x.t(), z), x.t().clone()


FUNCTIONS = [transposed, expanded, sliced, repeated, given, joined, reshaped, constants, in_other_strides]
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool]


def drawn(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randint(0, 2 if dtype is torch.bool else 5, shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_results_that_are_views_are_written_natively(function, dtype):
    check_natively(function, lambda: (drawn(dtype, 4, 6), drawn(dtype, 4, 6)))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_arguments_may_lie_in_part_of_other_memory(function):
    check_natively(function, lambda: (drawn(torch.float32, 9, 8).t()[::2, 1:7], drawn(torch.float32, 8, 12)[::2, ::2]))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_results_without_elements_take_no_python(function):
    check_natively(function, lambda: (drawn(torch.float32, 4, 0), drawn(torch.float32, 4, 0)))


def test_numbers_among_tensors_are_copied_natively():
    def function(x, y):
        total = computed(x, y).sum()
        return total, total.clone(), total.expand(2, 3).contiguous(), torch.stack([total, x[0, 0]])

    check_natively(function, lambda: (drawn(torch.float32, 4, 6), drawn(torch.float32, 4, 6)))


def test_tensors_written_in_place_get_what_was_read_before():
    def function(x, y):
        x, y = x.clone(), y.clone()
        old = x.t().contiguous()
        x.copy_(y)
        y.copy_(old.t())
        x.mul_(2)
        return x, y, old

    check_natively(function, lambda: (drawn(torch.float32, 4, 6), drawn(torch.float32, 4, 6)))
