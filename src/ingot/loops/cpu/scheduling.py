"""Choosing a schedule for one call: from sizes and strides to loops, blocks and the form of the nest.

In: a program, the sizes of its space, the strides of its buffers. Out: a schedule, and the numbers that go with it. The
loops are as few as the strides allow; what depends on sizes alone is an argument, so that few kernels serve all shapes.
Nothing here depends on the number of threads: results must not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ingot.fusion.groups import Level
from ingot.loops.cpu.schedule import MOST_LANES, Form, Schedule
from ingot.loops.cpu.tuning import CpuTuning
from ingot.loops.keeping import kept_statements
from ingot.loops.motion import Motion, motion_of
from ingot.loops.one_pass import in_one_pass
from ingot.loops.ordering import FEWEST_SIDE_BY_SIDE, LoopAxis, LoopOrder
from ingot.loops.program import Program

ALIGNED = 64
"""Bytes that streamed rows must be apart by a multiple of."""


@dataclass(frozen=True, slots=True)
class CpuCall:
    """A schedule and the numbers it is called with."""

    schedule: Schedule
    sizes: tuple[int, ...]
    blocks: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    """In bytes: per buffer, outputs first, and per loop."""
    grain: int

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)


def schedule_call(
    program: Program,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    reduced: frozenset[int],
    index_axes: Sequence[int],
    is_aligned: bool,
    tuning: CpuTuning,
) -> CpuCall:
    """The schedule for buffers (outputs first) with these strides, in bytes, along the axes of a space.

    `is_aligned` says whether all outputs begin at a multiple of 64 bytes.
    """
    return _CpuChoice(program, sizes, strides, reduced, index_axes, is_aligned, tuning).call()


class _CpuChoice(LoopOrder):
    def __init__(
        self,
        program: Program,
        sizes: Sequence[int],
        strides: Sequence[Sequence[int]],
        reduced: frozenset[int],
        index_axes: Sequence[int],
        is_aligned: bool,
        tuning: CpuTuning,
    ):
        super().__init__(program, sizes, strides, reduced, index_axes)
        self.is_aligned, self.tuning = is_aligned, tuning

    # --- the form -----------------------------------------------------------------------------------------------------

    def call(self) -> CpuCall:
        if self._has_short_rows():
            return self._short()
        if not self.program.has_rows:
            transposed = self._transposed()
            return self._tiled(*transposed) if transposed else self._flat()
        if self.rows_are_strided:
            return self._columns()
        length = math.prod(loop.size for loop in self.inner)
        if math.prod(loop.size for loop in self.outer) < self.tuning.few_rows and length >= self.tuning.long_row:
            return self._split()
        return self._rows(length)

    def _flat(self) -> CpuCall:
        blocks = self.sizes
        groups_rows = bool(self.outer) and blocks[-1] <= self.tuning.grouped_row
        if groups_rows:
            blocks[-2] = max(self.tuning.flat_block // blocks[-1], 1)
        blocks[-1] = min(self.tuning.flat_block, self._rounded(blocks[-1]))
        return self._made(Form.FLAT, self.inner[-1], blocks, 1, streams=self._streams(), groups_rows=groups_rows)

    def _rows(self, length: int) -> CpuCall:
        rows = math.prod(loop.size for loop in self.outer)
        kept = sum(self.program.statements[index].dtype.bytes for index in kept_statements(self.program))
        keeps = 0 < kept * length <= self.tuning.kept_bytes
        grain = -(-rows // self.tuning.most_partials) if self._has_totals else 1
        row_bytes = length * max(self.widths)
        return self._made(
            Form.ROWS,
            self.inner[-1],
            self.sizes,
            grain,
            streams=self._streams(),
            keeps=keeps,
            one_pass=row_bytes > self.tuning.cached_row_bytes and in_one_pass(self.program) is not self.program,
            prefetches=self._gains_by_prefetching(rows, row_bytes),
        )

    def _gains_by_prefetching(self, rows: int, row_bytes: int) -> bool:
        """Whether rows come from memory, and there is something to do while the next one comes."""
        is_long = self.tuning.short_row_bytes <= row_bytes <= self.tuning.cached_row_bytes
        return self.program.stages > 1 and is_long and rows * row_bytes > self.tuning.prefetched_bytes

    def _split(self) -> CpuCall:
        blocks = self.sizes
        first, inside = self.inner[0].size, math.prod(loop.size for loop in self.inner[1:])
        wanted = max(-(-self.tuning.split_block // inside), -(-first // self.tuning.most_partials))
        blocks[len(self.outer)] = self._rounded(wanted) if len(self.inner) == 1 else wanted
        return self._made(Form.SPLIT, self.inner[-1], blocks, 1, streams=self._streams(), one_pass=True)

    def _columns(self) -> CpuCall:
        blocks, fewest = self.sizes, self.tuning.fewest_column_blocks
        last, others = self.outer[-1].size, math.prod(loop.size for loop in self.outer[:-1])
        block = min(
            self.tuning.column_block,
            self._rounded(-(-last * min(others, fewest) // fewest)),
            self._rounded(last),
        )
        blocks[len(self.outer) - 1] = block
        units = others * -(-last // block)
        grain = -(-units // self.tuning.most_partials) if self._has_totals else 1
        return self._made(Form.COLUMNS, self.outer[-1], blocks, grain)

    def _has_short_rows(self) -> bool:
        """Whether rows have so few elements, and so little is done with them, that each fits a vector's lane."""
        tuning, size = self.tuning, self.inner[-1].size
        functions = self.program.functions
        operations = len(self.program.statements) + functions * (tuning.function_operations - 1)
        return (
            self.may_be_short
            and 1 < size <= tuning.short_row
            and self.outer[-1].size >= FEWEST_SIDE_BY_SIDE
            and size * operations <= tuning.unrolled_operations
        )

    @property
    def may_be_short(self) -> bool:
        """Whether rows can go side by side with all their elements in registers: they lie along one axis, and neither
        are they combined nor is one element of each picked."""
        picks = any(statement.is_row_gather for statement in self.program.statements)
        return bool(self.outer) and len(self.inner) == 1 and not picks and not self._has_totals

    def _short(self) -> CpuCall:
        row, rows = self.inner[-1], self.outer[-1]
        blocks = self.sizes
        blocks[-2] = self._rounded(min(max(self.tuning.flat_block // row.size, 1), rows.size))
        return self._made(Form.SHORT, rows, blocks, 1, streams=self._streams_rows(blocks[-2]), row=row)

    def _streams_rows(self, block: int) -> bool:
        """The same as `_streams`, of rows that follow each other without a gap."""
        size = self.inner[-1].size
        return self._is_streamed() and all(
            self._row_motion(buffer) is Motion.NEXT
            and block * size * self.widths[buffer] % ALIGNED == 0
            and all(loop.strides[buffer] % ALIGNED == 0 for loop in self.outer[:-1])
            for buffer in self.outputs
        )

    def _row_motion(self, buffer: int) -> Motion:
        """How a buffer moves inside a short row; to the next element only if the last one is followed by a row."""
        near, far, width = self.inner[-1], self.outer[-1], self.widths[buffer]
        found = motion_of(near.strides[buffer], width)
        has_gap = far.strides[buffer] != near.size * width
        return Motion.STRIDED if found is Motion.NEXT and has_gap else found

    def _transposed(self) -> tuple[int, list[int]] | None:
        """The loop along which some inputs are dense while the last loop strides through them, and those inputs."""
        last = self.inner[-1]
        found: dict[int, list[int]] = {}
        for buffer in self.inputs:
            if last.strides[buffer] in (0, self.widths[buffer]) or last.size < self.tuning.tile // 8:
                continue
            for number, loop in enumerate(self.outer):
                if loop.strides[buffer] == self.widths[buffer] and loop.size >= self.tuning.tile // 8:
                    found.setdefault(number, []).append(buffer)
        return max(found.items(), key=lambda item: len(item[1])) if found else None

    def _tiled(self, number: int, transposed: list[int]) -> CpuCall:
        self.outer.append(self.outer.pop(number))
        blocks = self.sizes
        blocks[-2:] = self.tuning.tile, self.tuning.tile
        return self._made(
            Form.TILED,
            self.inner[-1],
            blocks,
            1,
            streams=self._streams() and self.tuning.tile % ALIGNED == 0,
            transposed=transposed,
        )

    def _rounded(self, count: int) -> int:
        """The next size that a block may have, upwards."""
        multiple = self.tuning.block_multiple
        return max(-(-count // multiple) * multiple, multiple)

    # --- the parts of a call ------------------------------------------------------------------------------------------

    @property
    def _has_totals(self) -> bool:
        return any(s.is_reduction and s.level is Level.TOTAL for s in self.program.statements)

    def _streams(self) -> bool:
        """Whether results are too large for the caches, and their rows begin where a vector may be streamed to."""
        loops = self.loops
        return self._is_streamed() and all(
            loops[-1].strides[b] == self.widths[b] and all(loop.strides[b] % ALIGNED == 0 for loop in loops[:-1])
            for b in self.outputs
        )

    def _is_streamed(self) -> bool:
        """Whether results do not fit the caches, and they and all blocks begin where vectors may be streamed to."""
        total = sum(math.prod(loop.size for loop in self.loops) * self.widths[b] for b in self.outputs)
        return self.is_aligned and self.tuning.has_whole_blocks and total > self.tuning.streaming_bytes

    def _comes_out_even(self, form: Form, blocks: list[int]) -> bool:
        """Whether every loop that takes several elements at once has some, with none left over."""
        sizes, last = self.sizes, len(blocks) - 1
        across = (len(self.outer) - 1,)
        axes = {Form.COLUMNS: across, Form.SHORT: across, Form.TILED: (last - 1, last)}.get(form, (last,))
        beside = math.prod(loop.size for loop in self.inner) if form is Form.COLUMNS else 0
        is_multiple = all(sizes[axis] % MOST_LANES == blocks[axis] % MOST_LANES == 0 < sizes[axis] for axis in axes)
        return is_multiple and beside % self.tuning.side_by_side == 0

    def _made(
        self,
        form: Form,
        vector: LoopAxis,
        blocks: list[int],
        grain: int,
        streams: bool = False,
        keeps: bool = False,
        one_pass: bool = False,
        prefetches: bool = False,
        transposed: Sequence[int] = (),
        row: LoopAxis | None = None,
        groups_rows: bool = False,
    ) -> CpuCall:
        schedule = Schedule(
            form,
            len(self.outer),
            len(self.inner),
            tuple(motion_of(vector.strides[b], width) for b, width in enumerate(self.widths)),
            streams,
            keeps,
            one_pass,
            prefetches,
            self.index_axes,
            tuple(transposed),
            0 if row is None else row.size,
            () if row is None else tuple(map(self._row_motion, range(len(self.widths)))),
            groups_rows,
            self._comes_out_even(form, blocks),
            self.tuning.vector_bytes,
            self.tuning.side_by_side,
        )
        return CpuCall(schedule, tuple(self.sizes), tuple(blocks), self.strides, grain)
