"""Squares that blocks of threads transpose: when they are chosen, and how large they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import ingot
from ingot import DataType, GraphBuilder
from ingot.base.numbers import Number
from ingot.ir.torch_types import to_torch
from ingot.loops.gpu.schedule import SHARED_BYTES, Grid, Tiles
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.gpu.tiling import tile_for
from ingot.loops.gpu.tuning import CudaTuning
from ingot.loops.motion import Motion
from ingot.runtime.backends.interface import Bound, Targets, Tensors
from ingot.runtime.cuda.kernels import scheduled
from ingot.runtime.kernels import Kernel
from ingot.runtime.plan import Plan
from tests.loops.running import GpuInterpreted, launched_by


def call_of(dtype: DataType, *tensors: torch.Tensor) -> GpuCall:
    builder = GraphBuilder()
    first, *others = (builder.input(tuple(tensor.shape), dtype) for tensor in tensors)
    total = first
    for other in others:
        total = total + other
    builder.output(total)
    (kernel,) = Plan(builder.build()).kernels()
    return scheduled(kernel, list(tensors), {})[0]


def matrices(dtype: DataType, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One that is row-major, and one that is not."""
    return torch.empty(rows, columns, dtype=to_torch(dtype)), torch.empty(columns, rows, dtype=to_torch(dtype)).T


@pytest.mark.parametrize(
    ("dtype", "vector_width", "side", "threads"),
    [
        (DataType.Double, 2, 32, 256),
        (DataType.Float, 4, 64, 256),
        (DataType.BFloat16, 4, 64, 256),
        (DataType.Int8, 8, 64, 64),
    ],
    ids=str,
)
def test_threads_take_small_squares_of_at_most_16_bytes_a_side(
    dtype: DataType, vector_width: int, side: int, threads: int
):
    call = call_of(dtype, *matrices(dtype, 128, 256))
    schedule = call.schedule
    assert isinstance(schedule, Tiles)
    assert (schedule.vector_width, schedule.tile, schedule.threads) == (vector_width, side, threads)
    assert schedule.transposed == (2,)
    assert schedule.motions == (Motion.NEXT, Motion.NEXT, Motion.STRIDED)
    assert schedule.is_even
    assert call.grid == (128 // side) * (256 // side)
    assert call.blocks == (side, side)
    assert call.alignments == (vector_width * dtype.bytes,) * 3


@pytest.mark.parametrize(
    ("rows", "columns", "vector_width"), [(130, 256, 2), (128, 250, 2), (128, 255, 1), (127, 256, 1)]
)
def test_sizes_decide_how_many_neighbours_go_together(rows: int, columns: int, vector_width: int):
    schedule = call_of(DataType.Float, *matrices(DataType.Float, rows, columns)).schedule
    assert schedule.vector_width == vector_width
    assert not schedule.is_even


def test_a_transposed_tensor_that_begins_in_the_middle_is_read_in_smaller_pieces():
    whole = torch.empty(256 * 128 + 1)
    call = call_of(DataType.Float, torch.empty(128, 256), whole[1:].view(256, 128).T)
    assert call.schedule.vector_width == 1
    assert call.alignments == (4, 4, 4)


def test_few_elements_across_are_not_worth_a_square():
    assert isinstance(call_of(DataType.Float, *matrices(DataType.Float, 1000, 15)).schedule, Grid)
    assert isinstance(call_of(DataType.Float, *matrices(DataType.Float, 15, 1000)).schedule, Grid)
    assert isinstance(call_of(DataType.Float, *matrices(DataType.Float, 16, 1000)).schedule, Tiles)


def test_tensors_that_all_lie_alike_are_no_case_for_squares():
    _, transposed = matrices(DataType.Float, 128, 256)
    assert isinstance(call_of(DataType.Float, transposed, transposed).schedule, Tiles)  # the result is row-major
    straight, _ = matrices(DataType.Float, 128, 256)
    assert isinstance(call_of(DataType.Float, straight, straight).schedule, Grid)


@pytest.mark.parametrize("buffers", range(1, 20))
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_squares_fit_shared_memory(width: int, buffers: int):
    tile = tile_for(16 // width, [width] * buffers, CudaTuning())
    assert tile.side**2 * width * buffers <= SHARED_BYTES
    assert tile.side % (8 * tile.vector_width) == 0
    assert (tile.side // tile.vector_width) ** 2 % tile.threads == 0


def test_transposed_results_are_transposed_on_their_way_out():
    x, seen = torch.arange(40.0 * 72).view(40, 72), []

    def launch(
        kernel: Kernel, tensors: Tensors, scalars: Sequence[Number], bound: Bound, targets: Targets, _: Any
    ) -> list[torch.Tensor]:
        seen.append(scheduled(kernel, tensors, bound, targets)[0].schedule)
        return GpuInterpreted()(kernel, tensors, scalars, bound, targets)

    @ingot.jit
    def twice(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        doubled = y * 2
        return doubled.T.contiguous(), doubled + 1

    expected = twice(x)
    with launched_by(launch):
        found = twice(x)
    assert [schedule.transposed for schedule in seen] == [(0,)]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
