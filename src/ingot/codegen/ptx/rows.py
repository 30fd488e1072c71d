"""Launches over rows: the number of the block, and of the thread group in it, says which row, or which part of one.

What a thread accumulates is combined by its thread group when an accumulator is finished. What begins outside the
launch is left in the workspace at its end, one value for each part of a row or for each block, and combined where it is
finished: another launch, or the last block to be done, by the same instructions that combine the values of its threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import HostModule
from ingot.codegen.llvm.instructions import TypedValue
from ingot.codegen.llvm.storage import WORD
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.columns import ColumnThreadGroup
from ingot.codegen.ptx.place import ThreadPlace
from ingot.codegen.ptx.thread_emission import Emission
from ingot.codegen.ptx.thread_groups import ThreadAccumulator, ThreadGroup
from ingot.codegen.ptx.workspace import Workspace
from ingot.loops.gpu.launches import GpuLaunch
from ingot.loops.gpu.schedule import MOST_SPLITS, Columns, RowSchedule
from ingot.loops.kernel_arguments import SPLITS
from ingot.loops.nest import Accumulate, At, Begin, Finish, Instruction, Loop, Nest, Store, walk

_INDEX = ir.IntType(32)


class RowEmission(Emission):
    def __init__(self, module: HostModule, entry: str, nest: Nest, schedule: RowSchedule, launch: GpuLaunch):
        own = launch.schedule(schedule)
        super().__init__(module, entry, nest, own)
        self.own = own
        """The threads that take part in this launch."""
        self._launch, self._all = launch, schedule
        self.workspace = Workspace(self.builder, self.arguments, nest)
        self.thread_group = (
            ColumnThreadGroup(self.builder, own)
            if isinstance(own, Columns)
            else ThreadGroup(self.builder, own.thread_group_size)
        )
        self._block = self.wide(intrinsics.block_number(self.builder)) if schedule.outer else self.arguments.index(0)
        """Which one this is, of those that have the same part of all rows: of a single row, the first."""
        self._split: ir.Value | None = None
        """Which part of its row the block has, where rows are split."""
        self._row: ir.Value | None = None
        """Which row the thread group has, or which group of neighbouring ones; None where there are none any more."""
        self._finished_here: Mapping[int, TypedValue] = {}
        """What the last block to be done has combined."""

    def emit(self) -> None:
        loop = self._launch.loop
        if loop is None:
            self._run_row(self.outside.inner(1, None), self._launch.body)
        else:
            totals = {instruction.accumulator for instruction in loop.body if isinstance(instruction, Accumulate)}
            left = self._left(loop.body)
            for index in left:
                self._begin(index, 1 if index in totals else self.own.rows_together)
            place = self._entered_row(loop)
            self._run_row(place, loop.body)
            if self._launch.last:
                self._put_together(place, left)
            else:
                for index in left:
                    self._leave(place, {index: self._combined(index, index in totals)}, index in totals)
        self.builder.ret_void()

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _entered_row(self, loop: Loop) -> ThreadPlace:
        builder, schedule, index = self.builder, self.own, self.arguments.index
        rows, number = self._groups, self._block
        if schedule.is_split and loop.blocked:
            self._split = self.wide(intrinsics.line_number(builder))
        if schedule.thread_groups > 1:
            number = builder.add(
                builder.mul(number, index(schedule.thread_groups)), self.wide(self.thread_group.number)
            )
        is_inside = None
        if schedule.thread_groups > 1 and not schedule.is_even:
            is_inside = builder.icmp_unsigned("<", number, rows)
            number = builder.select(is_inside, number, builder.sub(rows, index(1)))
        self._row = number
        place = self.outside.inner(loop.vector_width, is_inside)
        place.enter([axis for axis in loop.axes if axis not in loop.blocked], number, loop.vector_width)
        return place

    @property
    def _groups(self) -> ir.Value:
        """Rows, or groups of neighbouring ones, of which a thread group has one at a time."""
        return self.units(range(self._all.outer), self._all.rows_together)

    @property
    def _blocks_of_rows(self) -> ir.Value:
        """Blocks of threads that all rows take, or one part of each."""
        index, thread_groups = self.arguments.index, self._all.thread_groups
        return self.builder.udiv(self.builder.add(self._groups, index(thread_groups - 1)), index(thread_groups))

    def _run_row(self, place: ThreadPlace, body: Sequence[Instruction]) -> None:
        """What is done once per row, by all threads of its thread group alike; one of them stores."""
        for number, instruction in enumerate(body):
            for_all = any(isinstance(later, Loop) for later in body[number:])
            match instruction:
                case Loop():
                    self._threads(place, instruction)
                case Begin(accumulator):
                    self._begin(accumulator, place.vector_width)
                case Finish(register, accumulator):
                    value = self._finished(place, accumulator, for_all)
                    place.registers[register] = place.instructions.convert(value, register.dtype)
                case Store(buffer, operand):
                    self.store(self._first(place), buffer, place.value(operand))
                case Accumulate(accumulator, operand):
                    self.accumulated[accumulator].add(self._first(place), place.value(operand))
                    self.accumulated[accumulator].join()
                case At():
                    self.at(place, instruction)
                case _:
                    self.run_one(place, instruction, 0)

    def _first(self, place: ThreadPlace) -> ThreadPlace:
        """The same place for the first of a thread group, and none for the others."""
        return place.inner(place.vector_width, self.builder.icmp_unsigned("==", self.thread_group.member, _INDEX(0)))

    # --- elements of a row --------------------------------------------------------------------------------------------

    def _threads(self, outside: ThreadPlace, loop: Loop) -> None:
        builder, schedule, index = self.builder, self.own, self.arguments.index
        units = self.units(loop.axes, loop.vector_width)
        member = self.wide(self.thread_group.member)
        if schedule.iterations:
            # Only the last can lack elements: there are no more iterations than needed.
            surely = [True] * (schedule.iterations - 1) + [schedule.is_even]
            self.run_side_by_side(
                self.entered(outside, loop, member, schedule.thread_group_size, units, surely), loop.body
            )
            return
        first, last = self._bounds(loop, units)
        units_at_once = index(schedule.thread_group_size * schedule.at_once)
        whole = builder.mul(builder.udiv(builder.sub(last, first), units_at_once), units_at_once)
        middle = builder.add(first, whole)
        self._iterations(outside, loop, first, middle, schedule.at_once, is_full=True)
        if not schedule.is_even:
            self._iterations(outside, loop, middle, last, 1, is_full=False)

    def _bounds(self, loop: Loop, units: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What the block has of its row."""
        builder, index = self.builder, self.arguments.index
        if self._split is None:
            return index(0), units
        share = builder.udiv(self.arguments.block(loop.axes[0]), index(loop.vector_width))
        first = builder.mul(self._split, share)
        last = builder.add(first, share)
        return first, builder.select(builder.icmp_unsigned("<", last, units), last, units)

    def _iterations(
        self, outside: ThreadPlace, loop: Loop, first: ir.Value, last: ir.Value, at_once: int, is_full: bool
    ) -> None:
        """Iterations of a long row: several side by side as long as all threads have that many, or one by one."""
        builder, schedule, index = self.builder, self.own, self.arguments.index
        before = builder.block
        body, after = builder.append_block("iteration"), builder.append_block("iterated")
        builder.cbranch(builder.icmp_unsigned("<", first, last), body, after)
        builder.position_at_end(body)
        start = builder.phi(index)
        start.add_incoming(first, before)
        unit = builder.add(start, self.wide(self.thread_group.member))
        places = self.entered(outside, loop, unit, schedule.thread_group_size, last, [is_full] * at_once)
        self.run_side_by_side(places, loop.body)
        following = builder.add(start, index(at_once * schedule.thread_group_size))
        start.add_incoming(following, builder.block)
        builder.repeat(builder.icmp_unsigned("<", following, last), body, after)
        builder.position_at_end(after)

    # --- reductions ---------------------------------------------------------------------------------------------------

    def _begin(self, index: int, rows: int) -> None:
        self.accumulated[index] = ThreadAccumulator(self.builder, self.nest.accumulators[index], rows)

    def _left(self, body: tuple[Instruction, ...]) -> list[int]:
        """Accumulators that this launch adds to and another one finishes."""
        found = dict.fromkeys(i.accumulator for i in walk(body) if isinstance(i, Accumulate))
        return [index for index in found if index in self.workspace]

    def _combined(self, index: int, is_total: bool) -> TypedValue:
        """What the threads of a row, or all of them, have accumulated, at least for the first."""
        thread_group = ThreadGroup(self.builder, self.own.threads) if is_total else self.thread_group
        return thread_group.combined(self.accumulated[index], index, for_all=False)

    def _leave(self, place: ThreadPlace, values: Mapping[int, TypedValue], is_total: bool) -> None:
        builder = self.builder
        if is_total:
            position, vector_width = self._block, 1
            is_inside = builder.icmp_unsigned("==", self.thread_group.thread, _INDEX(0))
        else:
            assert self._split is not None
            position = builder.add(builder.mul(self._as_word(self._split), self._rows), self._first_row)
            is_inside, vector_width = self._first(place).is_inside, place.vector_width
            assert is_inside is not None
        with builder.if_then(is_inside):
            for index, value in values.items():
                self.workspace.leave(index, self._as_word(position), value, vector_width)

    def _put_together(self, place: ThreadPlace, left: Sequence[int]) -> None:
        """Combine what threads have accumulated and leave it. The last block then accumulates what all blocks have
        left, combines that in the same way, and finishes it."""
        builder, loop = self.builder, self._launch.last_loop
        is_total = loop is None
        before, combining = builder.block, builder.append_block("combining")
        builder.branch(combining)
        builder.position_at_end(combining)
        is_last = builder.phi(_INDEX)
        is_last.add_incoming(_INDEX(0), before)
        thread_group = ThreadGroup(builder, self.own.threads) if is_total else self.thread_group
        values = thread_group.all_combined({index: self.accumulated[index] for index in left})
        leaving, again, finishing, done = map(builder.append_block, ("leaving", "again", "finishing", "done"))
        builder.cbranch(builder.icmp_unsigned("==", is_last, _INDEX(0)), leaving, finishing)
        builder.position_at_end(leaving)
        self._leave(place, values, is_total)
        found = self.workspace.is_last(*self._counter_and_count(is_total))
        builder.cbranch(builder.icmp_unsigned("==", found, _INDEX(0)), done, again)
        builder.position_at_end(again)
        inside = self.outside.inner(1, None) if is_total else place.inner(place.vector_width, None)
        self._accumulate_left({index: self.accumulated[index] for index in left}, inside, is_total)
        is_last.add_incoming(found, builder.block)
        builder.branch(combining)
        builder.position_at_end(finishing)
        self._finished_here, self.thread_group = values, thread_group
        self._run_row(inside, self._launch.last if loop is None else loop.body)
        builder.branch(done)
        builder.position_at_end(done)

    def _counter_and_count(self, is_total: bool) -> tuple[ir.Value, ir.Value]:
        """Which number this block is counted by, and how many are."""
        if is_total:
            return _INDEX(0), self._as_index(self._blocks_of_rows)
        return self._as_index(self._block), self._as_index(self.arguments.word(SPLITS))

    def _accumulate_left(
        self, accumulated: Mapping[int, ThreadAccumulator], place: ThreadPlace, is_total: bool
    ) -> None:
        """Each thread's share of what launches, or other blocks of this one, have left."""
        for each in accumulated.values():
            each.clear()
        if is_total:
            all_threads = ThreadGroup(self.builder, self.own.threads)
            count = self._as_word(self._blocks_of_rows)
            self.workspace.accumulate(accumulated, place, all_threads, WORD(0), WORD(1), count)
            return
        # The parts are counted by the host: dividing numbers of 64 bits takes a GPU a hundred instructions.
        splits = self.arguments.word(SPLITS)
        self.workspace.accumulate(
            accumulated, place, self.thread_group, self._first_row, self._rows, splits, MOST_SPLITS
        )

    def _finished(self, place: ThreadPlace, index: int, for_all: bool) -> TypedValue:
        if index in self._finished_here:
            return self._finished_here[index]
        if index not in self.workspace:
            return self.thread_group.combined(self.accumulated[index], index, for_all)
        accumulated = ThreadAccumulator(self.builder, self.nest.accumulators[index], place.vector_width)
        self._accumulate_left({index: accumulated}, place, self._row is None)
        return self.thread_group.combined(accumulated, index, for_all)

    @property
    def _rows(self) -> ir.Value:
        """How many there are, in 64 bits."""
        rows: ir.Value = WORD(1)
        for axis in range(self._all.outer):
            rows = self.builder.mul(rows, self.arguments.word(self.arguments.layout.size(axis)))
        return rows

    @property
    def _first_row(self) -> ir.Value:
        """The first of the thread group's rows, in 64 bits."""
        assert self._row is not None
        return self.builder.mul(self._as_word(self._row), WORD(self._all.rows_together))

    def _as_index(self, number: ir.Value) -> ir.Value:
        return number if number.type is _INDEX else self.builder.trunc(number, _INDEX)

    def _as_word(self, number: ir.Value) -> ir.Value:
        return number if number.type is WORD else self.builder.zext(number, WORD)
