"""Generated transposes for a GPU, run on this processor: squares of every width, even and odd."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot.loops.gpu.schedule import Tiles
from tests.codegen.ptx.on_this_processor import kernel_for, numbers, run_on_this_processor

TYPES = [torch.float64, torch.float32, torch.int16, torch.int8, torch.bool]


def joined(ops: Any, x: Any, y: Any) -> Any:
    return ops.maximum(x, y)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (72, 136), (33, 70)], ids=str)
def test_what_lies_across_the_others_is_turned(shape: tuple[int, int], dtype: torch.dtype):
    straight, turned = numbers(dtype, *shape), numbers(dtype, *reversed(shape)).T.logical_not().to(dtype)
    if dtype is not torch.bool:
        turned = turned + numbers(dtype, *reversed(shape)).T
    assert turned.stride() == (1, shape[0])
    (result,), schedule, _ = run_on_this_processor(*kernel_for(joined, straight, turned))
    assert isinstance(schedule, Tiles)
    assert torch.equal(result, torch.maximum(straight, turned))


def test_an_input_of_several_axes_is_turned_where_it_is_dense():
    x = numbers(torch.float32, 3, 20, 2, 36)
    turned = x.permute(0, 3, 2, 1)
    kernel, tensors = kernel_for(lambda ops, y: -y, turned)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors)
    assert isinstance(schedule, Tiles)
    assert torch.equal(result, -turned)


def test_types_of_different_widths_share_a_square():
    wide, narrow = numbers(torch.float32, 40, 72), numbers(torch.int8, 72, 40).T
    kernel, tensors = kernel_for(lambda ops, x, y: x + y, wide, narrow)
    (result,), schedule, _ = run_on_this_processor(kernel, tensors)
    assert (type(schedule), schedule.vector_width) == (Tiles, 4)
    assert torch.equal(result, wide + narrow)
