"""From a program and a schedule for a GPU to a nest of loops.

program: amax, exp, sum, div            blocks for i0 {
schedule: thread groups                   begin acc0: amax            threads for i1 by 4 { ... keep, acc0 <- %0 }
                                    ->    %1 = finish acc0
                                          begin acc1: sum             threads for i1 by 4 { ... keep, acc1 <- %4 }
                                          threads for i1 by 4 { recall ... store out0 }
                                        }
"""

from __future__ import annotations

from ingot.base.dtypes import DataType
from ingot.fusion.groups import Level
from ingot.loops.building import NestBuilder, Scope, loop
from ingot.loops.gpu.halves import in_halves
from ingot.loops.gpu.register_keeping import kept_values
from ingot.loops.gpu.schedule import GpuSchedule, Grid, RowSchedule, ThreadGroups, Tiles
from ingot.loops.gpu.tiles import TilesBuilder
from ingot.loops.nest import LoopKind, Nest, Place
from ingot.loops.one_pass import in_one_pass
from ingot.loops.program import Program, Statement


def build_gpu_nest(program: Program, schedule: GpuSchedule) -> Nest:
    """The loops of a program under a schedule for a GPU."""
    program = in_halves(program)
    match schedule:
        case Grid():
            return _GridBuilder(program, schedule).build()
        case Tiles():
            return TilesBuilder(program, schedule).build()
        case _:
            if schedule.one_pass:
                program = in_one_pass(program, in_singles=isinstance(schedule, ThreadGroups))
            return (_SplitRowsBuilder if schedule.is_split else _RowsBuilder)(program, schedule).build()


class _GridBuilder(NestBuilder):
    """Elements spread over all threads."""

    def __init__(self, program: Program, schedule: Grid):
        super().__init__(program, schedule)
        self.schedule = schedule

    def write_loops(self) -> None:
        elements = Scope()
        self.write_pass(0, elements)
        axes = tuple(range(self.schedule.axes))
        vector_width, at_once = self.schedule.vector_width, self.schedule.at_once
        self.top.body.append(loop(LoopKind.GRID, axes, elements.body, at_once=at_once, vector_width=vector_width))


class _RowsBuilder(NestBuilder):
    """A thread group for each row, or for some neighbouring strided rows."""

    def __init__(self, program: Program, schedule: RowSchedule):
        super().__init__(program, schedule, kept_values(program) if schedule.iterations else ())
        self.schedule = schedule

    def scratch(self, dtype: DataType, axes: tuple[int, ...], place: Place = Place.REGISTERS) -> int:
        return super().scratch(dtype, axes, place)

    def accumulator_type(self, statement: Statement) -> DataType:
        """Rows that stay in registers are added up in float32: every thread has few elements, and their sums are added
        in pairs, so little is lost; float64 takes twice as long to exchange."""
        (operand,) = statement.operands
        is_short = self.schedule.iterations > 0 and statement.level is Level.ROW
        if is_short and statement.op.name == "sum" and operand.dtype is DataType.Float:
            return DataType.Float
        return super().accumulator_type(statement)

    def write_loops(self) -> None:
        self.row = Scope()
        for stage in self.passes():
            for index in self.reductions_of(stage):
                self.begin(index, self.row)
            self.write_elements(stage)
        self.finish_row(self.row)
        self.write_rows()

    def write_elements(self, stage: int) -> None:
        """One pass over a row."""
        elements, vector_width = Scope(), self.schedule.vector_width // self.schedule.rows_together
        self.write_pass(stage, elements)
        self.row.body.append(loop(LoopKind.THREADS, self.row_axes, elements.body, vector_width=vector_width))

    def write_rows(self, split_axes: tuple[int, ...] = ()) -> None:
        """What was written for a row, for all of them, or for all parts of them, along these axes."""
        together = self.schedule.rows_together
        self.top.body.append(
            loop(
                LoopKind.BLOCKS,
                (*self.outer_axes, *split_axes),
                self.row.body,
                blocked=split_axes,
                vector_width=together,
            )
        )


class _SplitRowsBuilder(_RowsBuilder):
    """Rows that are split: every pass is a launch, which leaves a value per part for those after it."""

    def write_loops(self) -> None:
        for stage in self.passes():
            self.row = Scope()
            for index in self.reductions_of(stage):
                self.begin(index, self.top)
            self.write_elements(stage)
            self.write_rows(self.row_axes)
        self.row = Scope()
        self.finish_row(self.row)
        if self.row.body:
            self.write_rows()
