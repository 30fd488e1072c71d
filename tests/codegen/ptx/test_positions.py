"""Positions along several axes, found from one number by generated code for a GPU that is run on this processor."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ingot.codegen.ptx.kernels import compile_gpu_kernel
from ingot.codegen.ptx.target import gpu
from ingot.loops.gpu.schedule import Columns, Grid, ThreadGroups, Tiles
from ingot.runtime.cuda.kernels import scheduled
from tests.codegen.ptx.on_this_processor import kernel_for, numbers, run_on_this_processor

SHAPES = [(2, 3, 5, 7), (1, 2, 13, 3), (4, 8, 2, 16), (3, 1, 1, 20), (7, 2, 4, 12), (2, 2, 3, 3, 8), (3, 2, 5, 1, 11)]


def every_other(shape: tuple[int, ...]) -> list[int]:
    """A shape that is spread along every other axis, so that no two axes can be one."""
    return [1 if axis % 2 else size for axis, size in enumerate(shape)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elements_along_several_axes(shape: tuple[int, ...]):
    x, y = numbers(torch.float32, *shape), numbers(torch.float32, *every_other(shape))
    kernel, tensors = kernel_for(lambda ops, x, y: x * y, x, y)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors)
    assert isinstance(schedule, Grid) and torch.equal(result, x * y)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors, is_wide=True)
    assert schedule.is_wide and torch.equal(result, x * y)


@pytest.mark.parametrize("shape", [(2, 3, 5, 20), (1, 7, 4, 16), (3, 2, 2, 33)], ids=str)
def test_rows_along_several_axes_and_of_several(shape: tuple[int, ...]):
    x = numbers(torch.float32, *(size + 1 for size in shape))[tuple(slice(size) for size in shape)]
    for axes in ([3], [2, 3], [1, 3], [1, 2, 3]):
        kernel, tensors = kernel_for(lambda ops, x, axes=axes: ops.sum(x, axes), x)
        (result,), schedule, _ = run_on_this_processor(kernel, tensors)
        assert isinstance(schedule, ThreadGroups) and torch.equal(result, x.sum(axes))
        (result,), _, _ = run_on_this_processor(kernel, tensors, is_wide=True)
        assert torch.equal(result, x.sum(axes))


@pytest.mark.parametrize("shape", [(5, 3, 6, 16), (9, 2, 4, 35)], ids=str)
def test_columns_along_several_axes_and_of_several(shape: tuple[int, ...]):
    x = numbers(torch.float32, *shape)
    kernel, tensors = kernel_for(lambda ops, x: ops.amax(x, [0, 2]), x)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors)
    assert (type(schedule), schedule.outer, schedule.inner) == (Columns, 2, 2)
    assert torch.equal(result, x.amax([0, 2]))


@pytest.mark.parametrize("shape", [(2, 33, 2, 17), (3, 16, 2, 64)], ids=str)
def test_squares_along_several_axes(shape: tuple[int, ...]):
    x = numbers(torch.float32, *shape).permute(0, 3, 2, 1)
    kernel, tensors = kernel_for(lambda ops, x: -x, x)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors)
    assert isinstance(schedule, Tiles) and torch.equal(result, -x)
    (result,), _, _ = run_on_this_processor(kernel, tensors, is_wide=True)
    assert torch.equal(result, -x)


def test_buffers_that_lie_alike_share_distances():
    x, y = numbers(torch.float32, 2, 3, 5, 6, 16)[:, :, :4, :5, :12]
    z = numbers(torch.float32, 3, 1, 5, 1)
    kernel, tensors = kernel_for(lambda ops, x, y, z: x * y + z, x, y, z)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors)
    assert isinstance(schedule, Grid) and schedule.alike == (0, 1, 1, 3)
    assert torch.equal(result, x * y + z)
    apart = replace(schedule, alike=())
    shared, single = (compile_gpu_kernel(kernel.program, each, gpu((9, 0))).ptx for each in (schedule, apart))
    assert shared.count("mul.lo.s32") + 3 == single.count("mul.lo.s32")


def test_only_numbers_of_64_bits_are_divided():
    shape = 4, 6, 5, 16
    kernel, tensors = kernel_for(lambda ops, x, y: x * y, torch.empty(shape), torch.empty(every_other(shape)))
    call, _ = scheduled(kernel, tensors, {})
    for is_wide, count in ((False, 0), (True, 3)):
        ptx = compile_gpu_kernel(kernel.program, replace(call.schedule, is_wide=is_wide), gpu((9, 0))).ptx
        assert "rem." not in ptx and ptx.count("div.u64") == count and "div.u32" not in ptx
        assert ptx.count("mul.hi.u32") == 3 - count
