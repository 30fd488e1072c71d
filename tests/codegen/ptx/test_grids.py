"""Generated code for elements without rows, run on this processor: lines, several iterations, odd sizes, all
motions."""

from __future__ import annotations

import pytest
import torch

from ingot.loops.gpu.schedule import Grid
from ingot.loops.gpu.tuning import CudaTuning
from tests.codegen.ptx.on_this_processor import kernel_for, numbers, run_on_this_processor


@pytest.mark.parametrize("length", [1024, 1020, 511])
def test_elements_meet_the_values_of_their_lines(length: int):
    images, means = numbers(torch.uint8, 2, 3, length), numbers(torch.float32, 3, 1)
    kernel, tensors = kernel_for(lambda ops, x, mean: x - mean, images, means)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors, tuning=CudaTuning(enough_threads=1))
    assert isinstance(schedule, Grid) and schedule.has_lines
    assert schedule.at_once == (2 if length % 4 == 0 else 4)
    assert schedule.is_even == (length == 1024)
    assert torch.equal(result, images - means)


@pytest.mark.parametrize("size", [1024, 1023, 3])
def test_elements_one_after_the_other(size: int):
    x, y = numbers(torch.float32, size), numbers(torch.float32, size).flip(0)
    (result,), schedule, _ = run_on_this_processor(*kernel_for(lambda ops, x, y: x * y, x, y))
    assert isinstance(schedule, Grid) and (schedule.has_lines, schedule.at_once) == (False, 1)
    assert torch.equal(result, x * y)


@pytest.mark.parametrize("size", [4096, 4095, 2050, 700])
def test_elements_that_take_long_are_taken_in_turn(size: int):
    x, y = numbers(torch.float32, size), numbers(torch.float32, size).flip(0)
    kernel, tensors = kernel_for(lambda ops, x, y: x * y + 3.0, x, y)
    tuning = CudaTuning(enough_threads=64, many_functions=0)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors, tuning=tuning)
    assert isinstance(schedule, Grid)
    assert (schedule.in_turn, schedule.at_once, schedule.vector_width) == (True, tuning.function_iterations, 2)
    assert schedule.is_even == (size == 4096) and schedule.has_rest == (size % 2 == 1)
    assert torch.equal(result, x * y + 3.0)


def test_elements_that_are_apart_are_taken_one_by_one():
    x = numbers(torch.float32, 7, 96, 10)[..., ::2]
    kernel, tensors = kernel_for(lambda ops, x: -x, x)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors, tuning=CudaTuning(enough_threads=1))
    assert isinstance(schedule, Grid) and torch.equal(result, -x)


def test_short_lines_share_blocks():
    x, angles = numbers(torch.float32, 9, 5, 16), numbers(torch.float32, 9, 1, 16)
    (result,), schedule, _ = run_on_this_processor(*kernel_for(lambda ops, x, y: x * y, x, angles))
    assert isinstance(schedule, Grid) and (schedule.has_lines, schedule.outer) == (False, 2)
    assert torch.equal(result, x * angles)
