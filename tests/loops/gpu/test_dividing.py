"""Quotients by multiplying and shifting, and which axes of a nest they are needed for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ingot.loops.gpu.dividing import divided_axes, divisor_along, divisor_word
from ingot.loops.gpu.launches import gpu_layout
from ingot.loops.gpu.nesting import build_gpu_nest
from ingot.loops.gpu.schedule import Columns, Grid, ThreadGroups, Tiles
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.nest import Nest
from ingot.runtime.cuda.kernels import gpu_words, scheduled
from tests.codegen.ptx.on_this_processor import kernel_for

LAST = (1 << 31) - 1
"""The largest number that is divided."""


def quotients(numbers: Any, word: int) -> Any:
    """What a thread makes of numbers: products of 32 bits by 32, of which the upper half counts."""
    factor, bits = word & 0xFFFFFFFF, word >> 32
    assert bits < 32, "shifts by more bits than there are give 0"
    doubled = numbers.astype(numpy.uint64) << numpy.uint64(1)
    assert (doubled < 1 << 32).all()
    return (doubled * numpy.uint64(factor) >> numpy.uint64(32)) >> numpy.uint64(bits)


def hardest(divisor: int) -> Any:
    """Numbers around multiples of a divisor, the last ones above all: the error grows with the number."""
    last = LAST // divisor
    counts = numpy.unique(numpy.clip([0, 1, 2, last // 2, last - 1, last], 0, None).astype(numpy.uint64))
    multiples = counts * numpy.uint64(divisor)
    around = numpy.concatenate([multiples, multiples[multiples > 0] - numpy.uint64(1), [numpy.uint64(LAST)]])
    return numpy.minimum(around, numpy.uint64(LAST))


def test_quotients_by_all_small_divisors_are_right():
    for divisor in range(1, 1 << 14):
        numbers = hardest(divisor)
        assert (quotients(numbers, divisor_word(divisor)) == numbers // numpy.uint64(divisor)).all(), divisor


def test_quotients_by_divisors_around_powers_of_two_are_right():
    for bits in range(14, 32):
        for divisor in {(1 << bits) + apart for apart in range(-40, 41) if (1 << bits) + apart <= 1 << 31}:
            numbers = hardest(divisor)
            assert (quotients(numbers, divisor_word(divisor)) == numbers // numpy.uint64(divisor)).all(), divisor


@given(st.integers(1, 1 << 31), st.lists(st.integers(0, LAST)))
def test_any_quotient_is_right(divisor: int, some: list[int]):
    numbers = numpy.concatenate([numpy.array(some, numpy.uint64), hardest(divisor)])
    assert (quotients(numbers, divisor_word(divisor)) == numbers // numpy.uint64(divisor)).all()


def planned(body: Any, *tensors: torch.Tensor) -> tuple[GpuCall, Nest]:
    kernel, read = kernel_for(body, *tensors)
    call, _ = scheduled(kernel, read, {})
    return call, build_gpu_nest(kernel.program, call.schedule)


def product(_: Any, x: Any, y: Any) -> Any:
    return x * y


def transposed(_: Any, x: Any) -> Any:
    return -x


def summed(axes: list[int]) -> Any:
    return lambda ops, x: ops.sum(x, axes)


CUBE = torch.empty(6, 10, 8, 16)
LONG = torch.empty(3, 5, 1 << 12)
CASES = {
    "elements one after the other": (Grid, (), product, (torch.empty(64, 64), torch.empty(64, 64))),
    "a line for each block": (Grid, (), product, (torch.empty(9, 1 << 12), torch.empty(9, 1))),
    "lines along two axes": (Grid, (1,), product, (LONG, LONG[:, :1])),
    "short lines": (Grid, (1, 2), product, (torch.empty(9, 5, 16), torch.empty(9, 1, 16))),
    "squares": (Tiles, (1,), transposed, (torch.empty(64, 96).T,)),
    "squares along more axes": (Tiles, (1, 2, 3), transposed, (torch.empty(3, 20, 2, 36).permute(0, 3, 2, 1),)),
    "rows": (ThreadGroups, (), summed([1]), (torch.empty(64, 1024),)),
    "rows along two axes": (ThreadGroups, (1,), summed([2]), (torch.empty(9, 8, 128)[:, :5],)),
    "rows of two axes": (ThreadGroups, (2,), summed([1, 2]), (torch.empty(6, 8, 128)[:, ::2],)),
    "columns": (Columns, (), summed([0]), (torch.empty(64, 1024),)),
    "columns along two axes": (Columns, (1, 3), summed([0, 2]), (CUBE,)),
}


@pytest.mark.parametrize("name", CASES)
def test_words_are_there_for_the_axes_that_are_divided_by(name: str):
    form, axes, body, tensors = CASES[name]
    call, nest = planned(body, *tensors)
    assert type(call.schedule) is form
    assert divided_axes(nest, call.schedule) == axes
    layout = gpu_layout(nest, call.schedule)
    words = gpu_words(call, layout, len(nest.buffers))
    assert len(words) == layout.count
    for axis in axes:
        extent = divisor_along(axis, call.sizes[axis], call.schedule)
        assert words[layout.divisor(axis)] == divisor_word(extent)
    assert layout.count == replace(layout, divided=()).count + len(axes)


def test_divisors_count_what_goes_together():
    call, _ = planned(product, torch.empty(9, 5, 16), torch.empty(9, 1, 16))
    assert [divisor_along(axis, size, call.schedule) for axis, size in enumerate(call.sizes)] == [9, 5, 4]
    call, _ = planned(transposed, torch.empty(100, 3, 70).permute(2, 1, 0))
    assert isinstance(call.schedule, Tiles) and call.schedule.tile == 32
    assert [divisor_along(axis, size, call.schedule) for axis, size in enumerate(call.sizes)] == [3, 3, 4]


def test_numbers_of_64_bits_are_divided():
    call, nest = planned(product, torch.empty(9, 5, 16), torch.empty(9, 1, 16))
    assert divided_axes(nest, replace(call.schedule, is_wide=True)) == ()
