"""Who shares which rows: threads across and down strided rows, and parts of few long rows."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from ingot import DataType, GraphBuilder
from ingot.fusion.rules import FusionRules
from ingot.ir.torch_types import to_torch
from ingot.loops.gpu.launches import launches_of, left_by_launches, workspace_share
from ingot.loops.gpu.nesting import build_gpu_nest
from ingot.loops.gpu.schedule import Columns, ThreadGroups
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.gpu.sharing import column_block, most_down, split_length_of
from ingot.loops.gpu.tuning import CudaTuning
from ingot.loops.nest import Nest
from ingot.runtime.cuda.kernels import scheduled
from ingot.runtime.plan import Plan

TUNING = CudaTuning()


def planned(body: Any, shape: tuple[int, ...], dtype: DataType = DataType.Float) -> tuple[GpuCall, Nest]:
    """How a fusion of one tensor is called on a GPU, and its loops."""
    builder = GraphBuilder()
    builder.output(body(builder.ops, builder.input(shape, dtype)))
    (kernel,) = Plan(builder.build(), FusionRules(strategy="aggressive")).kernels()
    call, _ = scheduled(kernel, [torch.empty(shape, dtype=to_torch(dtype), device="meta")], {})
    return call, build_gpu_nest(kernel.program, call.schedule)


def grids(call: GpuCall, nest: Nest) -> list[tuple[int, int]]:
    """Blocks of each launch, and threads of a block."""
    return [
        (launch.blocks(call) * launch.lines(call), launch.schedule(call.schedule).threads)
        for launch in launches_of(nest, call.schedule)
    ]


@pytest.mark.parametrize("vector_width", [1, 4, 8])
def test_blocks_of_columns_fit_a_block_and_its_shared_memory(vector_width: int):
    for rows, length, narrowest in product((1, 3, 64, 1024, 100_000), (1, 9, 100, 8192, 1 << 20), (1, 8, 32)):
        across, down = column_block(rows, length, narrowest, vector_width, TUNING)
        assert 32 <= across * down <= TUNING.most_threads
        assert down <= max(most_down(across, vector_width, TUNING), 32 // across)
        assert across & (across - 1) == down & (down - 1) == 0, "powers of two can be halved until one is left"


def test_there_are_enough_threads_for_wide_matrices_without_parts():
    for columns, dtype in ((8192, DataType.BFloat16), (8192, DataType.Float), (1 << 16, DataType.Float)):
        call, nest = planned(lambda ops, x: ops.sum(x, [0]), (8192, columns), dtype)
        assert isinstance(call.schedule, Columns) and not call.schedule.is_split
        ((blocks, threads),) = grids(call, nest)
        assert blocks * threads >= TUNING.enough_threads
        assert call.schedule.thread_groups * call.schedule.vector_width * dtype.bytes >= 128, (
            "narrow blocks read too little at once"
        )
        assert call.schedule.at_once * call.schedule.vector_width * dtype.bytes == 64, "what a thread has under way"


def test_few_long_columns_are_split_and_the_last_block_combines_them():
    call, nest = planned(lambda ops, x: ops.sum(x, [0]), (1 << 20, 32))
    assert isinstance(call.schedule, Columns) and call.schedule.is_split
    (launch,) = launches_of(nest, call.schedule)
    assert launch.blocks(call) * launch.lines(call) * call.schedule.threads >= TUNING.enough_threads
    assert launch.counters(call) == call.grid and launch.counted(call) == call.splits
    assert workspace_share(call) >= call.splits * 32 * 8


def test_a_thread_that_combines_parts_of_columns_has_few_of_them():
    for shape, dtype in (
        ((8192, 512), DataType.BFloat16),
        ((100_000, 64), DataType.Float),
        ((1 << 20, 32), DataType.Float),
    ):
        call, _ = planned(lambda ops, x: ops.sum(x, [0]), shape, dtype)
        assert isinstance(call.schedule, Columns) and call.schedule.is_split
        assert call.splits <= 4 * call.schedule.thread_group_size, "threads wait for one after another"
        assert call.schedule.thread_groups * call.schedule.vector_width * dtype.bytes >= 128, (
            "narrow blocks read too little at once"
        )


def test_small_matrices_are_not_worth_a_second_launch():
    for shape in ((4096, 64), (512, 512), (30, 30)):
        call, nest = planned(lambda ops, x: ops.sum(x, [0]), shape)
        assert len(launches_of(nest, call.schedule)) == 1 and not call.split_length


def test_a_variance_of_everything_reads_it_once():
    call, nest = planned(lambda ops, x: ops.var(x, [0, 1]), (8192, 8192), DataType.BFloat16)
    assert isinstance(call.schedule, ThreadGroups) and call.schedule.is_split and call.schedule.one_pass
    (launch,) = launches_of(nest, call.schedule)
    assert launch.blocks(call) == 1 and launch.lines(call) == launch.counted(call) == call.splits
    assert launch.counters(call) == 1
    assert 200 < call.splits <= 264, "they all have room at once"
    assert len(left_by_launches(nest)) == 3, "a sum, and two of squares"


def test_every_pass_over_split_rows_is_a_launch():
    call, nest = planned(lambda ops, x: ops.softmax(x, -1), (4, 1 << 20))
    assert isinstance(call.schedule, ThreadGroups) and call.schedule.is_split
    assert [blocks for blocks, _ in grids(call, nest)] == [4 * call.splits] * 3


def test_many_or_short_rows_stay_whole():
    for shape in ((1000, 1 << 20), (4, 1000)):
        call, nest = planned(lambda ops, x: ops.softmax(x, -1), shape)
        assert not call.split_length and len(launches_of(nest, call.schedule)) == 1


def test_columns_stay_in_registers_between_passes_where_threads_can_hold_them():
    call, _ = planned(lambda ops, x: ops.softmax(x, 0), (30, 1024))
    assert isinstance(call.schedule, Columns) and call.schedule.iterations
    call, _ = planned(lambda ops, x: ops.softmax(x, 0), (8192, 1024))
    assert isinstance(call.schedule, Columns) and not call.schedule.iterations


def test_a_total_is_put_together_by_the_last_block_of_all():
    for axes in ([1], [0]):
        call, nest = planned(lambda ops, x, axes=axes: ops.sum(ops.sqrt(ops.sum(x * x, axes)), [0]), (4096, 1024))
        (launch,) = launches_of(nest, call.schedule)
        assert launch.blocks(call) == launch.counted(call) == call.grid and launch.counters(call) == 1
        assert workspace_share(call) >= 8 * call.grid


def test_a_total_of_too_many_blocks_takes_a_last_launch():
    call, nest = planned(lambda ops, x: ops.sum(ops.sqrt(ops.sum(x * x, [1])), [0]), (1 << 22, 32))
    assert isinstance(call.schedule, ThreadGroups) and not call.schedule.last_block_combines
    assert [blocks for blocks, _ in grids(call, nest)] == [call.grid, 1]


def test_parts_are_whole_iterations_and_cover_their_row():
    for rows, length, multiple in product((1, 7, 200), (1025, 99_999, 1 << 20, (1 << 26) + 1), (64, 1024)):
        split_length = split_length_of(rows, length, multiple, 528)
        assert split_length % multiple == 0 and -(-length // split_length) * rows <= 528


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16, DataType.Double])
@pytest.mark.parametrize("columns", [8, 32, 64, 96, 128, 1000])
def test_threads_of_short_rows_read_whole_transactions_together(columns: int, dtype: DataType):
    call, _ = planned(lambda ops, x: ops.softmax(x, -1), (1 << 20, columns), dtype)
    schedule = call.schedule
    assert isinstance(schedule, ThreadGroups)
    together = schedule.thread_group_size * schedule.vector_width
    assert together * dtype.bytes >= TUNING.row_bytes or 2 * together > columns
    assert together < 2 * columns, "no thread of a short row is without elements if half of them would do"


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16, DataType.Double])
def test_more_threads_lie_side_by_side_where_columns_begin_anywhere(dtype: DataType):
    for columns, times in ((1000, 2), (1024, 1)):
        call, _ = planned(lambda ops, x: ops.sum(x, [0]), (1 << 16, columns), dtype)
        assert isinstance(call.schedule, Columns)
        together = call.schedule.thread_groups * call.schedule.vector_width * dtype.bytes
        assert together == times * TUNING.column_bytes


def test_rows_of_which_no_element_lies_in_memory_are_shared():
    def body(ops: Any, index: Any) -> Any:
        return ops.gather(ops.expand(ops.iota(7), [5, 7]), index, 1)

    call, _ = planned(body, (5, 1), DataType.Int)
    assert isinstance(call.schedule, ThreadGroups) and call.schedule.thread_group_size <= 8
