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
from ingot.loops.gpu.keeping import kept_values
from ingot.loops.gpu.lines import Unit, is_enough, share_of_elements
from ingot.loops.gpu.schedule import WARP, Columns, GpuSchedule, Grid, Teams, Tiles
from ingot.loops.gpu.sharing import (
    column_block,
    columns_go_in_parts,
    most_down,
    part_of,
    power_of_two,
    turns_of_part,
)
from ingot.loops.gpu.tiling import tile_for, turned_buffers
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
    """Blocks of threads: for one part of each row where they go in parts, for one line where each has some."""
    alignments: tuple[int, ...]
    """What the address of each buffer must be a multiple of."""
    part: int = 0
    """Elements of a row that go together, where rows go in parts."""

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    @property
    def lines(self) -> int:
        """Along the last axis, where each has blocks of its own."""
        has_lines = isinstance(self.schedule, Grid) and self.schedule.has_lines
        return math.prod(self.sizes[:-1]) if has_lines else 1

    @property
    def parts(self) -> int:
        """Of each row."""
        length = math.prod(self.sizes[self.schedule.outer :])
        return -(-length // self.part) if self.part else 1

    @property
    def blocks(self) -> tuple[int, ...]:
        """Of the axes that go in blocks: the sides of squares, or what goes together of all axes of a row."""
        found = [0] * len(self.sizes)
        if isinstance(self.schedule, Tiles):
            found[-2:] = self.schedule.tile, self.schedule.tile
        elif self.part:
            found[self.schedule.outer] = self.part
        return tuple(found)


def schedule_gpu_call(
    program: Program,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    reduced: frozenset[int],
    counted: Sequence[int],
    addresses: Sequence[int],
    tuning: CudaTuning,
) -> GpuCall:
    """The schedule for buffers (outputs first) with these strides, in bytes, along the axes of a space.

    Of the addresses only the last bits count; for what is not there yet 0 stands for new memory.
    """
    return _Choice(program, sizes, strides, reduced, counted, addresses, tuning).call()


class _Common(TypedDict):
    """Fields that schedules of all forms have."""

    outer: int
    inner: int
    motions: tuple[Motion, ...]
    lanes: int
    threads: int
    is_even: bool
    is_wide: bool
    counted: tuple[int, ...]


class _Choice(LoopOrder):
    def __init__(
        self,
        program: Program,
        sizes: Sequence[int],
        strides: Sequence[Sequence[int]],
        reduced: frozenset[int],
        counted: Sequence[int],
        addresses: Sequence[int],
        tuning: CudaTuning,
    ):
        super().__init__(in_halves(program), sizes, strides, reduced, counted)
        self.addresses, self.tuning = addresses, tuning
        self.vector = self.inner[-1]

    def call(self) -> GpuCall:
        if self.program.has_rows:
            return self._columns() if self.rows_lie_across else self._rows()
        turned = turned_buffers(self, self.tuning)
        return self._tiles(*turned) if turned else self._grid()

    # --- forms --------------------------------------------------------------------------------------------------------

    def _grid(self) -> GpuCall:
        lanes = self._lanes(may_leave_rest=len(self.loops) == 1)
        per_element = [b for b in self.inputs if self.vector.strides[b]]
        unit = Unit(
            widest=lanes * max(self.widths[b] for b in (*self.outputs, *self.inputs)),
            read=lanes * sum(self.widths[b] for b in per_element),
            has_line_values=len(per_element) < len(self.inputs),
        )
        line, lines = self.vector.size // lanes, math.prod(self.sizes[:-1])
        share = share_of_elements(line, lines, unit, self.tuning)
        in_turn = False
        if lines == 1 and lanes > 1:
            computes_much = self._computes_much(lanes)
            if computes_much or (unit.read >= self.tuning.much_read and self.program.is_arithmetic):
                lanes, line = lanes // 2, self.vector.size // (lanes // 2)
            in_turn = computes_much and is_enough(line, self.tuning.function_turns, self.tuning)
        if in_turn:
            share = replace(share, turns=self.tuning.function_turns)
        units, together = line if share.has_lines else line * lines, share.threads * share.turns
        schedule = Grid(
            **self._common(lanes, share.threads, is_even=units % together == 0),
            at_once=share.turns,
            in_turn=in_turn,
            has_rest=self.vector.size % lanes != 0,
            has_lines=share.has_lines,
            alike=tuple(map(self.strides.index, self.strides)),
        )
        return self._call(schedule, -(-units // together))

    def _tiles(self, number: int, turned: list[int]) -> GpuCall:
        self.outer.append(self.outer.pop(number))
        lanes = self._lanes(may_leave_rest=False, turned=turned)
        tile = tile_for(lanes, [self.widths[b] for b in turned], self.tuning)
        *others, across, along = self.sizes
        is_even = across % tile.side == along % tile.side == 0
        common = self._common(tile.lanes, tile.threads, is_even)
        schedule = Tiles(**common, tile=tile.side, turned=tuple(turned))
        return self._call(schedule, math.prod(others) * -(-across // tile.side) * -(-along // tile.side))

    def _rows(self) -> GpuCall:
        lanes = self._lanes(may_leave_rest=False)
        rows = math.prod(loop.size for loop in self.outer)
        units = math.prod(loop.size for loop in self.inner) // lanes
        most = self._most_steps(lanes)
        team = self._team(units, min(self._few_units(lanes, units), most), most)
        steps = -(-units // team)
        if steps > most:
            steps = 0
        if not steps and rows <= self.tuning.few_rows and units > self.tuning.part_threads:
            return self._parts(lanes, rows, units)
        threads = team if team > WARP else 4 * WARP
        teams = threads // team
        grid = -(-rows // teams)
        schedule = Teams(
            **self._common(lanes, threads, is_even=steps * team == units and rows % teams == 0),
            team=team,
            steps=steps,
            at_once=self.tuning.turns_at_once,
            one_pass=steps == 0 and self._has_one_pass,
            counts_blocks=self._counts_blocks(grid),
            total_threads=self.tuning.total_threads,
        )
        return self._call(schedule, grid)

    def _team(self, units: int, few: int, most: int) -> int:
        """Threads for a row of so many units, of which each can take a few, or more: part of a warp, or some warps."""
        team = 1
        while team < WARP and team * few < units:
            team *= 2
        if units <= team * most:
            return team
        while team < self.tuning.most_threads and team * few < units:
            team *= 2
        return team

    def _few_units(self, lanes: int, units: int) -> int:
        """How many units of a row each thread of a team is meant to take, if there are enough threads."""
        few = self.tuning.few_units
        team = units // few
        comes_out_even = WARP < team <= self.tuning.most_threads and team == power_of_two(team) and few * team == units
        is_light = lanes > 2 and self.program.is_arithmetic
        return few if comes_out_even and is_light else max(self.tuning.few_elements // lanes, 1)

    def _parts(self, lanes: int, rows: int, units: int) -> GpuCall:
        """Few long rows: each over several blocks."""
        tuning = self.tuning
        threads, parts = tuning.part_threads, tuning.parts
        if not self.program.is_arithmetic:
            threads, parts = tuning.function_part_threads, tuning.function_parts
        read = lanes * sum(self.widths[b] for b in self.inputs if self.vector.strides[b])
        at_once = turns_of_part(read, lanes, self._makes_doubles, tuning)
        turn = threads * at_once
        part = part_of(rows, units, turn, parts) * lanes
        schedule = Teams(
            **self._common(lanes, threads, is_even=units % turn == 0, part=part),
            team=threads,
            at_once=at_once,
            one_pass=self._has_one_pass,
            is_split=True,
            counts_blocks=self._counts_blocks(rows, part),
            total_threads=self.tuning.total_threads,
        )
        return self._call(schedule, rows, part)

    def _columns(self) -> GpuCall:
        """Rows that lie across memory, whole or in parts."""
        self.vector, tuning = self.outer[-1], self.tuning
        reductions = self._most_reductions
        lanes = min(self._lanes(may_leave_rest=False), tuning.column_lanes, max(tuning.most_gathered // reductions, 1))
        rows = math.prod(loop.size for loop in self.outer) // lanes
        length = math.prod(loop.size for loop in self.inner)
        unit_bytes = lanes * max((self.widths[b] for b in (*self.outputs, *self.inputs)), default=1)
        across, down = column_block(rows, length, max(tuning.column_bytes // unit_bytes, 1), lanes, tuning)
        most = self._most_steps(lanes)
        if length <= most_down(across, lanes, tuning) * most:  # they can stay in registers
            down = max(down, power_of_two(-(-length // most)))
        steps = -(-length // down)
        if steps > most:
            steps = 0
        part = 0
        if not steps and columns_go_in_parts(rows, length, across, down, unit_bytes, tuning):
            down = tuning.column_part_threads // across
            part = part_of(-(-rows // across), length, down * tuning.turns_at_once, tuning.column_parts)
        are_half = lanes == tuning.column_lanes and unit_bytes < tuning.access and reductions == 1
        turns = tuning.turns_at_once * (2 if are_half and not (steps or part) else 1)
        is_full = steps * down == length if steps else length % (down * turns) == 0
        grid = -(-rows // across)
        schedule = Columns(
            **self._common(lanes, across * down, is_even=is_full and rows % across == 0, part=part),
            team=down,
            steps=steps,
            at_once=turns,
            one_pass=steps == 0 and self._has_one_pass,
            is_split=part > 0,
            counts_blocks=self._counts_blocks(grid, part),
            total_threads=self.tuning.total_threads,
        )
        return self._call(schedule, grid, part)

    def _computes_much(self, elements: int) -> bool:
        """Whether a thread computes many functions of so many elements; those of 16-bit programs are half as long."""
        return self.program.functions * elements >= self.tuning.many_functions * (2 if self.program.is_of_halves else 1)

    def _counts_blocks(self, grid: int, part: int = 0) -> bool:
        """Whether blocks leave each other something, and are few enough to count: for each group of rows that goes in
        parts, or all of them for a total."""
        if part:
            return grid <= self.tuning.most_counters
        has_totals = any(s.is_reduction and s.level is Level.TOTAL for s in self.program.statements)
        return has_totals and grid <= self.tuning.most_counted

    @property
    def _most_reductions(self) -> int:
        """Of one pass, up to the next power of two."""
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

    def _most_steps(self, lanes: int) -> int:
        """How often a thread may take elements that stay in its registers."""
        kept = sum(max(value.dtype.bytes, 1) for value in kept_values(self.program))
        return max(min(self.tuning.most_elements, self.tuning.kept_words * 4 // max(kept, 1)) // lanes, 1)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _lanes(self, may_leave_rest: bool, turned: Sequence[int] = ()) -> int:
        """How many neighbours a thread takes: as many as one access of the widest buffer holds, if all lie well."""
        dense = {b: self.vector for b, width in enumerate(self.widths) if _is_dense(self.vector, b, width)}
        dense.update((b, self.outer[-1]) for b in turned)
        per_element = {*self.outputs, *self.inputs}
        access = self.tuning.access
        lanes = access // max((self.widths[b] for b in dense if b in per_element), default=access)
        while lanes > 1 and not self._fits(lanes, dense, may_leave_rest):
            lanes //= 2
        return lanes

    def _fits(self, lanes: int, dense: Mapping[int, LoopAxis], may_leave_rest: bool) -> bool:
        """Whether so many neighbours lie well, given the loop along which each dense buffer is."""
        if any(
            loop.size < lanes or (loop.size % lanes and not may_leave_rest) for loop in (self.vector, *dense.values())
        ):
            return False
        return all(
            number % min(lanes * self.widths[b], self.tuning.access) == 0
            for b, along in dense.items()
            for number in (self.addresses[b], *(loop.strides[b] for loop in self.loops if loop is not along))
        )

    def _farthest(self, buffer: int) -> int:
        return sum(abs(loop.strides[buffer]) * (loop.size - 1) for loop in self.loops) + self.widths[buffer]

    def _common(self, lanes: int, threads: int, is_even: bool, part: int = 0) -> _Common:
        """What schedules of all forms have."""
        is_wide = (
            max(map(self._farthest, range(len(self.widths))), default=0) >= 1 << 31
            or math.prod(self.sizes) + self.tuning.most_threads * self.tuning.most_elements + part >= 1 << 31
        )
        return _Common(
            outer=len(self.outer),
            inner=len(self.inner),
            motions=tuple(motion_of(self.vector.strides[b], width) for b, width in enumerate(self.widths)),
            lanes=lanes,
            threads=threads,
            is_even=is_even,
            is_wide=is_wide,
            counted=self.counted,
        )

    def _call(self, schedule: GpuSchedule, grid: int, part: int = 0) -> GpuCall:
        turned = schedule.turned if isinstance(schedule, Tiles) else ()
        alignments = tuple(
            min(schedule.lanes * width, self.tuning.access)
            if b in turned or _is_dense(self.vector, b, width)
            else width
            for b, width in enumerate(self.widths)
        )
        return GpuCall(schedule, tuple(self.sizes), self.strides, grid, alignments, part)


def _is_dense(loop: LoopAxis, buffer: int, width: int) -> bool:
    return loop.strides[buffer] == width
