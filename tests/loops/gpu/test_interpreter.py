"""The interpreter of nests for GPUs: nests by hand, and what it refuses that a GPU would do without a word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest

from ingot import DataType
from ingot.base.errors import LoopError
from ingot.loops.gpu.interpreter.machine import interpret_on_gpu
from ingot.loops.gpu.launches import launches_of
from ingot.loops.gpu.schedule import GpuSchedule, Grid, ThreadGroups, Tiles
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.motion import Motion
from ingot.loops.nest import (
    Accumulate,
    Accumulator,
    Barrier,
    Begin,
    Buffer,
    Finish,
    Instruction,
    Keep,
    Load,
    Loop,
    LoopKind,
    Nest,
    Place,
    Recall,
    Register,
    Scratch,
    Store,
)
from ingot.ops import lookup

FLOAT = DataType.Float
FIRST, SECOND = Register(0, FLOAT), Register(1, FLOAT)
BUFFERS = (Buffer("out0", FLOAT, True), Buffer("in0", FLOAT, False))
LOADED, STORED = Load(FIRST, 1), Store(0, FIRST)


def loop(kind: LoopKind, axes: tuple[int, ...], *body: Instruction, **parts: Any) -> Loop:
    return Loop(kind, axes, frozenset(parts.pop("blocked", ())), body, **parts)


def nest(*body: Instruction, axes: int = 1, **parts: Any) -> Nest:
    return Nest(axes, BUFFERS, (), parts.get("scratches", ()), parts.get("accumulators", ()), body)


def schedule(
    form: type[GpuSchedule], outer: int, inner: int, vector_width: int, threads: int, **parts: Any
) -> GpuSchedule:
    motions = Motion.NEXT, Motion.NEXT
    return form(outer=outer, inner=inner, motions=motions, vector_width=vector_width, threads=threads, **parts)


def run(tested: Nest, call: GpuCall, given: Any, count: int, seed: int = 0) -> list[float]:
    result = numpy.zeros(count, numpy.float32)
    memory = [result.view(numpy.uint8), numpy.asarray(given, numpy.float32).ravel().view(numpy.uint8)]
    assert interpret_on_gpu(tested, call, memory, (), seed)
    return result.tolist()


# --- grids ------------------------------------------------------------------------------------------------------------


def grid(size: int, vector_width: int, blocks: int, at_once: int = 1, **parts: Any) -> tuple[Nest, GpuCall]:
    copied = nest(loop(LoopKind.GRID, (0,), LOADED, STORED, at_once=at_once, vector_width=vector_width))
    chosen = schedule(Grid, 0, 1, vector_width, 4, at_once=at_once, **parts)
    return copied, GpuCall(chosen, (size,), ((4,), (4,)), blocks, (4, 4))


@pytest.mark.parametrize(("size", "vector_width", "blocks", "at_once"), [(16, 1, 4, 1), (13, 1, 2, 2), (24, 4, 2, 1)])
def test_elements_are_spread_over_all_threads(size: int, vector_width: int, blocks: int, at_once: int):
    assert run(*grid(size, vector_width, blocks, at_once), range(size), size) == list(range(size))


def test_what_is_left_over_goes_to_the_first_threads():
    assert run(*grid(18, 4, 2, has_rest=True), range(18), 18) == list(range(18))
    with pytest.raises(LoopError, match="2 elements are left over"):
        run(*grid(18, 4, 2), range(18), 18)


def test_too_few_blocks_are_found():
    with pytest.raises(LoopError, match="4 elements of out0 are never written"):
        run(*grid(16, 1, 3), range(16), 16)


def test_threads_without_elements_are_refused_where_all_should_have_some():
    with pytest.raises(LoopError, match="a thread has no elements"):
        run(*grid(15, 1, 4, is_even=True), range(15), 15)


def test_neighbours_that_one_access_cannot_reach_are_refused():
    copied = nest(loop(LoopKind.GRID, (0, 1), LOADED, STORED, vector_width=4), axes=2)
    chosen = schedule(Grid, 1, 1, 4, 4)
    assert run(copied, GpuCall(chosen, (2, 4), ((16, 4), (16, 4)), 1, (16, 16)), range(8), 8) == list(range(8))
    with pytest.raises(LoopError, match="load in0: 16 bytes at once, not at a multiple of that"):
        run(copied, GpuCall(chosen, (2, 4), ((16, 4), (20, 4)), 1, (16, 16)), range(9), 8)


def test_buffers_that_do_not_lie_alike_as_they_should_are_refused():
    copied, call = grid(16, 1, 4, alike=(0, 0))
    assert run(copied, call, range(16), 16) == list(range(16))
    with pytest.raises(LoopError, match="buffers 0 and 1 should have the same strides"):
        run(copied, replace(call, strides=((4,), (0,))), range(16), 16)


def test_accesses_outside_a_buffer_are_refused():
    with pytest.raises(LoopError, match=r"load in0: bytes \d+ to 64 of 0 to 60"):
        run(*grid(16, 1, 4), range(15), 16)


def test_results_may_be_written_over_what_the_same_thread_has_read():
    copied, call = grid(16, 1, 4)
    memory = numpy.arange(17, dtype=numpy.float32).view(numpy.uint8)
    assert interpret_on_gpu(copied, call, [memory[:64], memory[:64]], ())
    with pytest.raises(LoopError, match=r"another thread reads what it writes over of in0|it has been written over"):
        interpret_on_gpu(copied, call, [memory[:64], memory[4:]], ())


# --- rows -------------------------------------------------------------------------------------------------------------


def row_sums(
    rows: int, length: int, thread_group: int, iterations: int, op: str = "sum", **parts: Any
) -> tuple[Nest, GpuCall]:
    accumulated = (Accumulator("acc0", lookup(op), DataType.Double if op == "sum" else FLOAT),)
    inside = loop(LoopKind.THREADS, (1,), LOADED, Accumulate(0, FIRST))
    body = loop(LoopKind.BLOCKS, (0,), Begin(0), inside, Finish(SECOND, 0), Store(0, SECOND))
    threads = max(thread_group, 32)
    chosen = schedule(
        ThreadGroups, 1, 1, 1, threads, thread_group_size=thread_group, iterations=iterations, at_once=2, **parts
    )
    blocks = -(-rows * thread_group // threads)
    return nest(body, axes=2, accumulators=accumulated), GpuCall(
        chosen, (rows, length), ((4, 0), (4 * length, 4)), blocks, (4, 4)
    )


@pytest.mark.parametrize("thread_group", [1, 2, 16, 32, 64, 256])
@pytest.mark.parametrize("length", [1, 5, 32, 100])
def test_thread_groups_of_any_size_add_up_their_rows(thread_group: int, length: int):
    for iterations in (0, -(-length // thread_group)):
        given = numpy.arange(3 * length).reshape(3, length) % 7
        assert run(*row_sums(3, length, thread_group, iterations), given, 3) == given.sum(1).tolist()


def test_a_thread_group_needs_as_many_iterations_as_its_row():
    for iterations in (3, 5):
        with pytest.raises(LoopError, match=f"a thread group needs 4 iterations, not {iterations}"):
            run(*row_sums(3, 100, 32, iterations), range(300), 3)


def test_values_of_a_row_are_stored_once_for_the_row():
    tested, call = row_sums(2, 32, 32, 1)
    (blocks,) = tested.body
    assert isinstance(blocks, Loop)
    stored = loop(LoopKind.THREADS, (1,), LOADED, STORED)
    with pytest.raises(LoopError, match="an element is written a second time"):
        run(replace(tested, body=(replace(blocks, body=(stored,)),)), call, range(64), 2)


def test_registers_keep_what_the_same_thread_reads_again():
    scratches = (Scratch("scratch0", FLOAT, (1,), Place.REGISTERS),)
    kept = loop(LoopKind.THREADS, (1,), LOADED, Keep(0, FIRST))
    again = loop(LoopKind.THREADS, (1,), Recall(SECOND, 0), Store(0, SECOND))
    chosen = schedule(ThreadGroups, 1, 1, 1, 32, thread_group_size=32, iterations=2)
    call = GpuCall(chosen, (3, 40), ((160, 4), (160, 4)), 3, (4, 4))
    both = nest(loop(LoopKind.BLOCKS, (0,), kept, again), axes=2, scratches=scratches)
    assert run(both, call, range(120), 120) == list(range(120))
    missing = nest(loop(LoopKind.BLOCKS, (0,), again), axes=2, scratches=scratches)
    with pytest.raises(LoopError, match="recall scratch0: nothing was kept there"):
        run(missing, call, range(120), 120)
    twice = nest(loop(LoopKind.BLOCKS, (0,), kept, kept, again), axes=2, scratches=scratches)
    with pytest.raises(LoopError, match="keep scratch0 = %0: it is written a second time"):
        run(twice, call, range(120), 120)


def test_an_accumulator_that_was_not_begun_is_refused():
    tested, call = row_sums(2, 32, 32, 1)
    (blocks,) = tested.body
    assert isinstance(blocks, Loop)
    with pytest.raises(LoopError, match="acc0 was not begun here"):
        run(replace(tested, body=(replace(blocks, body=blocks.body[1:]),)), call, range(64), 2)


# --- squares ----------------------------------------------------------------------------------------------------------


def transposed(*between: Instruction, height: int = 20, width: int = 24, vector_width: int = 4) -> tuple[Nest, GpuCall]:
    """Transposes a matrix by squares of 16 x 16, with something between writing and reading shared memory."""
    across, along = 0, 1
    read = loop(
        LoopKind.THREADS, (along, across), LOADED, Keep(0, FIRST), at_once=vector_width, vector_width=vector_width
    )
    write = loop(LoopKind.THREADS, (across, along), Recall(SECOND, 0), Store(0, SECOND), vector_width=vector_width)
    scratches = (Scratch("scratch0", FLOAT, (across, along), Place.SHARED),)
    body = loop(LoopKind.BLOCKS, (across, along), read, *between, write, blocked=(across, along))
    chosen = schedule(Tiles, 1, 1, vector_width, 16, tile=16, transposed=(1,))
    strides = ((4 * width, 4), (4, 4 * height))
    blocks = -(-height // 16) * -(-width // 16)
    return nest(body, axes=2, scratches=scratches), GpuCall(chosen, (height, width), strides, blocks, (16, 16))


@pytest.mark.parametrize(("height", "width", "vector_width"), [(16, 32, 4), (20, 24, 4), (18, 34, 2), (19, 5, 1)])
def test_squares_are_transposed_in_shared_memory(height: int, width: int, vector_width: int):
    given = numpy.arange(height * width)
    found = run(*transposed(Barrier(), height=height, width=width, vector_width=vector_width), given, height * width)
    assert found == given.reshape(width, height).T.ravel().tolist()


def test_reading_what_another_thread_wrote_takes_a_barrier():
    with pytest.raises(LoopError, match="another thread wrote it, and no barrier was in between"):
        run(*transposed(), range(480), 480)


def test_shared_memory_is_written_once():
    tested, call = transposed(Barrier())
    (blocks,) = tested.body
    assert isinstance(blocks, Loop)
    again = replace(blocks, body=(blocks.body[0], *blocks.body))
    with pytest.raises(LoopError, match="keep scratch0 = %0: it is written a second time"):
        run(replace(tested, body=(again,)), call, range(480), 480)


def test_what_a_thread_takes_together_ends_with_the_axis():
    with pytest.raises(LoopError, match="crosses the end of i1"):
        run(*transposed(Barrier(), height=20, width=22), range(440), 440)


# --- launches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last_block_combines", [False, True])
def test_totals_are_left_to_the_launch_after_or_to_the_last_block(last_block_combines: bool):
    accumulated = tuple(Accumulator(name, lookup("sum"), DataType.Double) for name in ("acc0", "acc1"))
    inside = loop(LoopKind.THREADS, (1,), LOADED, Accumulate(0, FIRST))
    rows = loop(LoopKind.BLOCKS, (0,), Begin(0), inside, Finish(SECOND, 0), Accumulate(1, SECOND))
    third = Register(2, FLOAT)
    tested = nest(Begin(1), rows, Finish(third, 1), Store(0, third), axes=2, accumulators=accumulated)
    chosen = schedule(
        ThreadGroups, 1, 1, 1, 64, thread_group_size=8, at_once=2, last_block_combines=last_block_combines
    )
    assert len(launches_of(tested, chosen)) == 2 - last_block_combines
    call = GpuCall(chosen, (21, 9), ((0, 0), (36, 4)), 3, (4, 4))
    for seed in range(3):
        assert run(tested, call, range(189), 1, seed) == [sum(range(189))]


@pytest.mark.parametrize("last_block_combines", [False, True])
def test_split_rows_are_put_together_again(last_block_combines: bool):
    accumulated = (Accumulator("acc0", lookup("amax"), FLOAT),)
    inside = loop(LoopKind.THREADS, (1,), LOADED, Accumulate(0, FIRST))
    parts = loop(LoopKind.BLOCKS, (0, 1), inside, blocked=(1,))
    rows = loop(LoopKind.BLOCKS, (0,), Finish(SECOND, 0), Store(0, SECOND))
    tested = nest(Begin(0), parts, rows, axes=2, accumulators=accumulated)
    chosen = schedule(
        ThreadGroups,
        1,
        1,
        1,
        32,
        thread_group_size=32,
        at_once=2,
        is_split=True,
        last_block_combines=last_block_combines,
    )
    assert len(launches_of(tested, chosen)) == 2 - last_block_combines
    call = GpuCall(chosen, (2, 200), ((4, 0), (800, 4)), 2, (4, 4), split_length=64)
    for seed in range(3):
        assert run(tested, call, range(400), 2, seed) == [199, 399]
    with pytest.raises(LoopError, match="nothing was left for acc0"):
        run(replace(tested, body=(tested.body[0], tested.body[2])), call, range(400), 2)


def test_what_other_blocks_have_left_is_there_for_the_last_one_alone():
    accumulated = (Accumulator("acc0", lookup("amax"), FLOAT),)
    inside = loop(LoopKind.THREADS, (1,), LOADED, Accumulate(0, FIRST))
    parts = loop(LoopKind.BLOCKS, (0, 1), inside, Finish(SECOND, 0), Store(0, SECOND), blocked=(1,))
    chosen = schedule(
        ThreadGroups, 1, 1, 1, 32, thread_group_size=32, at_once=2, is_split=True, last_block_combines=True
    )
    call = GpuCall(chosen, (2, 200), ((4, 0), (800, 4)), 2, (4, 4), split_length=64)
    with pytest.raises(LoopError, match="nothing was left for acc0"):
        run(nest(Begin(0), parts, axes=2, accumulators=accumulated), call, range(400), 2)


def test_what_needs_other_rows_or_elements_is_a_launch_of_its_own():
    inside = loop(LoopKind.THREADS, (1,), LOADED, Accumulate(0, FIRST))
    parts = loop(LoopKind.BLOCKS, (0, 1), inside, blocked=(1,))
    ends = (Finish(SECOND, 0), Accumulate(1, SECOND)), (Finish(SECOND, 0), loop(LoopKind.THREADS, (1,), LOADED, STORED))
    chosen = schedule(ThreadGroups, 1, 1, 1, 32, thread_group_size=32, is_split=True, last_block_combines=True)
    for end in ends:
        launches = launches_of(nest(Begin(0), Begin(1), parts, loop(LoopKind.BLOCKS, (0,), *end), axes=2), chosen)
        assert [bool(launch.last) for launch in launches] == [False, False]
