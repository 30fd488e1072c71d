"""Choosing a schedule for one call on a GPU: from sizes, strides and addresses to threads, blocks and lanes.

In: a program, the sizes of its space, the strides and the alignment of its buffers. Out: a schedule and the numbers
that go with it. Threads take 16 bytes at a time where neighbouring elements lie so that they can; distances are 32 bits
wide where they fit. Nothing depends on the device's size, so results are the same on all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from ingot.base.dtypes import DataType
from ingot.fusion.groups import Level
from ingot.loops.gpu.halves import in_halves
from ingot.loops.gpu.lines import Unit, is_enough, share_of_elements
from ingot.loops.gpu.register_keeping import kept_values
from ingot.loops.gpu.schedule import WARP, Columns, GpuSchedule, Grid, ThreadGroups, Tiles
from ingot.loops.gpu.sharing import (
    column_block,
    iterations_of_split,
    most_down,
    power_of_two,
    split_length_of,
    splits_columns,
)
from ingot.loops.gpu.tiling import tile_for, transposed_buffers
from ingot.loops.gpu.tuning import CudaTuning
from ingot.loops.motion import Motion, motion_of
from ingot.loops.one_pass import in_one_pass
from ingot.loops.ordering import LoopAxis, LoopOrder
from ingot.loops.program import Program


@dataclass(frozen=True, slots=True)
class GpuCall:
    """A schedule and the numbers it is called with."""

    schedule: GpuSchedule
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    """In bytes: per buffer, outputs first, and per loop."""
    grid: int
    """How many blocks of threads there are: for one part of each row where rows are split, for one line where each
    line has blocks of its own."""
    alignments: tuple[int, ...]
    """What the address of each buffer must be a multiple of."""
    split_length: int = 0
    """Elements of a row that go together, where rows are split."""

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    @property
    def lines(self) -> int:
        """How many lines there are along the last axis, where each has blocks of its own."""
        has_lines = isinstance(self.schedule, Grid) and self.schedule.has_lines
        return math.prod(self.sizes[:-1]) if has_lines else 1

    @property
    def splits(self) -> int:
        """How many parts each row has, if this is a split reduction; else 1."""
        length = math.prod(self.sizes[self.schedule.outer :])
        return -(-length // self.split_length) if self.split_length else 1

    @property
    def blocks(self) -> tuple[int, ...]:
        """The block of each axis that goes in blocks: the side of a square, or the elements of a part of a row."""
        found = [0] * len(self.sizes)
        if isinstance(self.schedule, Tiles):
            found[-2:] = self.schedule.tile, self.schedule.tile
        elif self.split_length:
            found[self.schedule.outer] = self.split_length
        return tuple(found)


def schedule_gpu_call(
    program: Program,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    reduced: frozenset[int],
    index_axes: Sequence[int],
    addresses: Sequence[int],
    tuning: CudaTuning,
) -> GpuCall:
    """The schedule for buffers (outputs first) with these strides, in bytes, along the axes of a space.

    Of the addresses only the last bits count; 0 stands for a buffer that is yet to be allocated.
    """
    return _GpuChoice(program, sizes, strides, reduced, index_axes, addresses, tuning).call()


class _Common(TypedDict):
    """Fields that schedules of all forms have."""

    outer: int
    inner: int
    motions: tuple[Motion, ...]
    vector_width: int
    threads: int
    is_even: bool
    is_wide: bool
    index_axes: tuple[int, ...]


class _GpuChoice(LoopOrder):
    def __init__(
        self,
        program: Program,
        sizes: Sequence[int],
        strides: Sequence[Sequence[int]],
        reduced: frozenset[int],
        index_axes: Sequence[int],
        addresses: Sequence[int],
        tuning: CudaTuning,
    ):
        super().__init__(in_halves(program), sizes, strides, reduced, index_axes)
        self.addresses, self.tuning = addresses, tuning
        self.vector = self.inner[-1]

    def call(self) -> GpuCall:
        if self.program.has_rows:
            return self._columns() if self.rows_are_strided else self._rows()
        transposed = transposed_buffers(self, self.tuning)
        return self._tiles(*transposed) if transposed else self._grid()

    # --- forms --------------------------------------------------------------------------------------------------------

    def _grid(self) -> GpuCall:
        vector_width = self._vector_width(may_leave_rest=len(self.loops) == 1)
        per_element = [b for b in self.inputs if self.vector.strides[b]]
        unit = Unit(
            widest=self._unit_bytes(vector_width),
            read=vector_width * sum(self.widths[b] for b in per_element),
            has_line_values=len(per_element) < len(self.inputs),
        )
        line, lines = self.vector.size // vector_width, math.prod(self.sizes[:-1])
        share = share_of_elements(line, lines, unit, self.tuning)
        in_turn = False
        if lines == 1 and vector_width > 1:
            computes_much = self._computes_much(vector_width)
            if computes_much or (unit.read >= self.tuning.much_read and self.program.is_arithmetic):
                vector_width, line = vector_width // 2, self.vector.size // (vector_width // 2)
            in_turn = computes_much and is_enough(line, self.tuning.function_iterations, self.tuning)
        if in_turn:
            share = replace(share, iterations=self.tuning.function_iterations)
        units, together = line if share.has_lines else line * lines, share.threads * share.iterations
        schedule = Grid(
            **self._common(vector_width, share.threads, is_even=units % together == 0),
            at_once=share.iterations,
            in_turn=in_turn,
            has_rest=self.vector.size % vector_width != 0,
            has_lines=share.has_lines,
            alike=tuple(map(self.strides.index, self.strides)),
        )
        return self._call(schedule, -(-units // together))

    def _tiles(self, number: int, transposed: list[int]) -> GpuCall:
        self.outer.append(self.outer.pop(number))
        vector_width = self._vector_width(may_leave_rest=False, transposed=transposed)
        tile = tile_for(vector_width, [self.widths[b] for b in transposed], self.tuning)
        *others, across, along = self.sizes
        is_even = across % tile.side == along % tile.side == 0
        common = self._common(tile.vector_width, tile.threads, is_even)
        schedule = Tiles(**common, tile=tile.side, transposed=tuple(transposed))
        return self._call(schedule, math.prod(others) * -(-across // tile.side) * -(-along // tile.side))

    def _rows(self) -> GpuCall:
        vector_width = self._vector_width(may_leave_rest=False)
        rows = math.prod(loop.size for loop in self.outer)
        units = math.prod(loop.size for loop in self.inner) // vector_width
        most = self._most_iterations(vector_width)
        few = min(self._few_units(vector_width, units), most)
        group_size = self._thread_group_size(units, few, most, self._side_by_side(vector_width))
        iterations = -(-units // group_size)
        if iterations > most:
            iterations = 0
        if not iterations and rows <= self.tuning.few_rows and units > self.tuning.split_threads:
            return self._split_rows(vector_width, rows, units)
        threads = group_size if group_size > WARP else self.tuning.row_threads
        thread_groups = threads // group_size
        grid = -(-rows // thread_groups)
        schedule = ThreadGroups(
            **self._common(
                vector_width, threads, is_even=iterations * group_size == units and rows % thread_groups == 0
            ),
            thread_group_size=group_size,
            iterations=iterations,
            at_once=self.tuning.iterations_at_once,
            one_pass=iterations == 0 and self._has_one_pass,
            last_block_combines=self._last_block_combines(grid),
            total_threads=self.tuning.total_threads,
        )
        return self._call(schedule, grid)

    def _side_by_side(self, vector_width: int) -> int:
        """How many threads of a row read as much of it together as memory is read at a time."""
        return max(self.tuning.row_bytes // self._unit_bytes(vector_width), 1)

    def _unit_bytes(self, vector_width: int) -> int:
        """What a unit takes in the widest buffer that is read or written an element at a time; there may be none."""
        return vector_width * max((self.widths[b] for b in (*self.outputs, *self.inputs)), default=1)

    def _thread_group_size(self, units: int, few: int, most: int, side_by_side: int) -> int:
        """Threads for a row of this many units, each of which takes some units: part of a warp, or some warps."""
        group_size = 1
        while group_size < WARP and (group_size * few < units or 2 * group_size <= min(units, side_by_side)):
            group_size *= 2
        if units <= group_size * most:
            return group_size
        while group_size < self.tuning.most_threads and group_size * few < units:
            group_size *= 2
        return group_size

    def _few_units(self, vector_width: int, units: int) -> int:
        """How many units of a row each thread of a group is meant to take, if there are enough threads."""
        few = self.tuning.few_units
        group_size = units // few
        comes_out_even = (
            WARP < group_size <= self.tuning.most_threads
            and group_size == power_of_two(group_size)
            and few * group_size == units
        )
        is_light = vector_width > 2 and self.program.is_arithmetic
        return few if comes_out_even and is_light else max(self.tuning.few_elements // vector_width, 1)

    def _split_rows(self, vector_width: int, rows: int, units: int) -> GpuCall:
        """Few long rows: each over several blocks."""
        tuning = self.tuning
        threads, splits = tuning.split_threads, tuning.splits
        if not self.program.is_arithmetic:
            threads, splits = tuning.function_split_threads, tuning.function_splits
        read = vector_width * sum(self.widths[b] for b in self.inputs if self.vector.strides[b])
        at_once = iterations_of_split(read, vector_width, self._makes_doubles, tuning)
        units_at_once = threads * at_once
        split_length = split_length_of(rows, units, units_at_once, splits) * vector_width
        schedule = ThreadGroups(
            **self._common(vector_width, threads, is_even=units % units_at_once == 0, split_length=split_length),
            thread_group_size=threads,
            at_once=at_once,
            one_pass=self._has_one_pass,
            is_split=True,
            last_block_combines=self._last_block_combines(rows, split_length),
            total_threads=self.tuning.total_threads,
        )
        return self._call(schedule, rows, split_length)

    def _columns(self) -> GpuCall:
        """Strided rows, whole or split."""
        self.vector, tuning = self.outer[-1], self.tuning
        reductions = self._most_reductions
        vector_width = min(
            self._vector_width(may_leave_rest=False),
            tuning.column_vector_width,
            max(tuning.most_accumulated // reductions, 1),
        )
        rows = math.prod(loop.size for loop in self.outer) // vector_width
        length = math.prod(loop.size for loop in self.inner)
        unit_bytes = self._unit_bytes(vector_width)
        column_bytes = tuning.column_bytes * (2 if self._columns_begin_anywhere else 1)
        across, down = column_block(rows, length, max(column_bytes // unit_bytes, 1), vector_width, tuning)
        most = self._most_iterations(vector_width)
        if length <= most_down(across, vector_width, tuning) * most:  # they can stay in registers
            down = max(down, power_of_two(-(-length // most)))
        iterations = -(-length // down)
        if iterations > most:
            iterations = 0
        split_length = 0
        if not iterations and splits_columns(rows, length, across, down, unit_bytes, tuning):
            down = tuning.column_split_threads // across
            split_length = split_length_of(
                -(-rows // across), length, down * tuning.iterations_at_once, tuning.column_splits
            )
        are_half = vector_width == tuning.column_vector_width and unit_bytes < tuning.access and reductions == 1
        at_once = tuning.iterations_at_once * (2 if are_half and not (iterations or split_length) else 1)
        is_full = iterations * down == length if iterations else length % (down * at_once) == 0
        grid = -(-rows // across)
        schedule = Columns(
            **self._common(
                vector_width, across * down, is_even=is_full and rows % across == 0, split_length=split_length
            ),
            thread_group_size=down,
            iterations=iterations,
            at_once=at_once,
            one_pass=iterations == 0 and self._has_one_pass,
            is_split=split_length > 0,
            last_block_combines=self._last_block_combines(grid, split_length),
            total_threads=self.tuning.total_threads,
        )
        return self._call(schedule, grid, split_length)

    def _computes_much(self, elements: int) -> bool:
        """Whether a thread computes many functions of so many elements; those of 16-bit programs are half as long."""
        return self.program.functions * elements >= self.tuning.many_functions * (2 if self.program.is_of_halves else 1)

    def _last_block_combines(self, grid: int, split_length: int = 0) -> bool:
        """Whether blocks have values to combine, and are few enough to count: those of each group of rows that goes in
        parts, or all of them for a total."""
        if split_length:
            return grid <= self.tuning.most_counters
        has_totals = any(s.is_reduction and s.level is Level.TOTAL for s in self.program.statements)
        return has_totals and grid <= self.tuning.most_counted

    @property
    def _columns_begin_anywhere(self) -> bool:
        """Whether neighbouring elements of strided rows lie across transactions of memory."""
        read = (loop.strides[b] for b in self.inputs if self.vector.strides[b] for loop in self.inner)
        return any(stride % self.tuning.column_bytes for stride in read)

    @property
    def _most_reductions(self) -> int:
        """The largest number of reductions in one pass, rounded up to a power of two."""
        statements = in_one_pass(self.program).statements
        stages = [s.stage for s in statements if s.is_reduction and s.level is Level.ROW]
        return power_of_two(max(map(stages.count, stages)))

    @property
    def _makes_doubles(self) -> bool:
        """Whether a row that is read once has a float64 made of each of its elements."""
        statements = in_one_pass(self.program, in_singles=True).statements
        return any(s.level is Level.ELEMENT and s.dtype is DataType.Double for s in statements)

    @property
    def _has_one_pass(self) -> bool:
        return in_one_pass(self.program) is not self.program

    def _most_iterations(self, vector_width: int) -> int:
        """How many iterations of a thread may stay in its registers."""
        kept = sum(max(value.dtype.bytes, 1) for value in kept_values(self.program))
        return max(min(self.tuning.most_elements, self.tuning.kept_words * 4 // max(kept, 1)) // vector_width, 1)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _vector_width(self, may_leave_rest: bool, transposed: Sequence[int] = ()) -> int:
        """How many neighbours a thread takes: as many as one access of the widest buffer holds, if all buffers are
        dense and aligned."""
        dense = {b: self.vector for b, width in enumerate(self.widths) if _is_dense(self.vector, b, width)}
        dense.update((b, self.outer[-1]) for b in transposed)
        per_element = {*self.outputs, *self.inputs}
        access = self.tuning.access
        widest = max((self.widths[b] for b in dense if b in per_element), default=access)
        vector_width = max(access // widest, 1)
        while vector_width > 1 and not self._fits(vector_width, dense, may_leave_rest):
            vector_width //= 2
        return vector_width

    def _fits(self, vector_width: int, dense: Mapping[int, LoopAxis], may_leave_rest: bool) -> bool:
        """Whether this many neighbours lie in one aligned access, given the loop along which each dense buffer is
        dense."""
        if any(
            loop.size < vector_width or (loop.size % vector_width and not may_leave_rest)
            for loop in (self.vector, *dense.values())
        ):
            return False
        return all(
            number % min(vector_width * self.widths[b], self.tuning.access) == 0
            for b, along in dense.items()
            for number in (self.addresses[b], *(loop.strides[b] for loop in self.loops if loop is not along))
        )

    def _farthest(self, buffer: int) -> int:
        return sum(abs(loop.strides[buffer]) * (loop.size - 1) for loop in self.loops) + self.widths[buffer]

    def _common(self, vector_width: int, threads: int, is_even: bool, split_length: int = 0) -> _Common:
        """What schedules of all forms have."""
        is_wide = (
            max(map(self._farthest, range(len(self.widths))), default=0) >= 1 << 31
            or math.prod(self.sizes) + self.tuning.most_threads * self.tuning.most_elements + split_length >= 1 << 31
        )
        return _Common(
            outer=len(self.outer),
            inner=len(self.inner),
            motions=tuple(motion_of(self.vector.strides[b], width) for b, width in enumerate(self.widths)),
            vector_width=vector_width,
            threads=threads,
            is_even=is_even,
            is_wide=is_wide,
            index_axes=self.index_axes,
        )

    def _call(self, schedule: GpuSchedule, grid: int, split_length: int = 0) -> GpuCall:
        transposed = schedule.transposed if isinstance(schedule, Tiles) else ()
        alignments = tuple(
            min(schedule.vector_width * width, self.tuning.access)
            if b in transposed or _is_dense(self.vector, b, width)
            else width
            for b, width in enumerate(self.widths)
        )
        return GpuCall(schedule, tuple(self.sizes), self.strides, grid, alignments, split_length)


def _is_dense(loop: LoopAxis, buffer: int, width: int) -> bool:
    return loop.strides[buffer] == width
