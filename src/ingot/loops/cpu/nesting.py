"""From a program and a schedule to a nest of loops.

    program: amax, exp, sum, div            parallel for i0 in 0..n0 {
    schedule: rows                            begin acc0: amax            vector for i1 { ... acc0 <- %0 }
                                        ->    begin acc1: sum             vector for i1 { ... keep, acc1 <- %4 }
                                              vector for i1 { ... store out0 }
                                            }

The forms of nests for processors; what they share is in `building`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.base.dtypes import DataType
from ingot.fusion.groups import Level
from ingot.loops.building import NestBuilder, Scope, loop
from ingot.loops.cpu.schedule import Form, Schedule
from ingot.loops.keeping import kept_statements
from ingot.loops.nest import (
    Compute,
    Instruction,
    Keep,
    Load,
    Loop,
    LoopKind,
    Nest,
    Prefetch,
    Recall,
    Register,
    Value,
)
from ingot.loops.one_pass import in_one_pass
from ingot.loops.program import Input, Program, Result
from ingot.ops.samples import EXACT


def build_nest(program: Program, schedule: Schedule) -> Nest:
    """The loops of a program under a schedule."""
    if schedule.one_pass:
        program = in_one_pass(program)
    others = {Form.COLUMNS: _CpuColumnsBuilder, Form.SHORT: _CpuShortRowsBuilder, Form.TILED: _CpuTilesBuilder}
    return others.get(schedule.form, _CpuRowsBuilder)(program, schedule).build()


TRANSPOSED_AT_ONCE = 8
"""How many rows of a square are transposed together, in registers."""


class _CpuBuilder(NestBuilder):
    def __init__(self, program: Program, schedule: Schedule):
        keeps = schedule.keeps and schedule.form is Form.ROWS
        kept = kept_statements(program) if keeps else ()
        super().__init__(program, schedule, (Result(index, program.statements[index].dtype) for index in kept))
        self.schedule = schedule

    def divided(self, body: Iterable[Instruction]) -> Loop:
        """The loop that threads divide among each other."""
        schedule = self.schedule
        return loop(LoopKind.PARALLEL, schedule.divided_axes, body, blocked=schedule.blocked_axes)


class _CpuRowsBuilder(_CpuBuilder):
    """Flat, rows and split: elements of a row lie along the axis that goes in vectors."""

    def write_loops(self) -> None:
        form = self.schedule.form
        if form is Form.FLAT:
            elements = Scope()
            self.write_pass(0, elements)
            vector = loop(LoopKind.VECTOR, self.row_axes[-1:], elements.body)
            if self.schedule.groups_rows:
                vector = loop(LoopKind.SERIAL, self.schedule.blocked_axes, [vector])
            self.top.body.append(self.divided([vector]))
            return
        if self.outer_axes:
            self.row = Scope()
        self._read_first: list[int] = []
        for stage in self.passes():
            self._write_stage(stage)
        self.finish_row(self.row)
        if self.outer_axes:
            is_serial = form is Form.SPLIT
            body = self.row.body
            rows = loop(LoopKind.SERIAL, self.outer_axes, body) if is_serial else self.divided(body)
            self.top.body.append(rows)

    def _write_stage(self, stage: int) -> None:
        elements = Scope()
        for index in self.reductions_of(stage):
            self.begin(index, self.row)
        self.write_pass(stage, elements)
        if self.schedule.prefetches and self.outer_axes and stage == self._busiest_stage():
            elements.body += [Prefetch(buffer, self.outer_axes[-1]) for buffer in self._read_first]
        elif stage == 0:
            self._read_first = [i.buffer for i in elements.body if isinstance(i, Load)]
        *outside, last = self.row_axes
        nested = loop(LoopKind.VECTOR, (last,), elements.body)
        if outside:
            nested = loop(LoopKind.SERIAL, tuple(outside), [nested])
        if self.schedule.form is Form.SPLIT:
            nested = self.divided([nested])
        self.row.body.append(nested)

    def _busiest_stage(self) -> int:
        """The pass during which the next row is prefetched: one that computes functions, or else the last; never the
        first, which waits for memory itself."""
        functions = [
            statement.stage
            for statement in self.program.statements
            if statement.level is Level.ELEMENT and statement.op.tolerance != EXACT and statement.stage > 0
        ]
        return functions[0] if functions else max(self.program.stages - 1, 1)


class _CpuColumnsBuilder(_CpuBuilder):
    """Rows are strided: those of a block go side by side, values once per row in scratch memory."""

    def write_loops(self) -> None:
        self.block = Scope()
        self.axis = self.schedule.vector_axis
        for stage in self.passes():
            self._write_stage(stage)
        last = Scope()
        self.finish_row(last)
        if last.body:
            self.block.body.append(loop(LoopKind.VECTOR, (self.axis,), last.body))
        self.top.body.append(self.divided(self.block.body))

    def _write_stage(self, stage: int) -> None:
        self.before, elements = Scope(), Scope()
        for index in self.reductions_of(stage):
            self.begin(index, self.block, self.axis)
        self.write_pass(stage, elements)
        if self.before.body:
            self.block.body.append(loop(LoopKind.VECTOR, (self.axis,), self.before.body))
        across = loop(LoopKind.VECTOR, (self.axis,), elements.body)
        at_once = self.schedule.side_by_side if self.reductions_of(stage) and _is_cheap(elements.body) else 1
        self.block.body.append(loop(LoopKind.SERIAL, self.row_axes, [across], at_once=at_once))

    def is_per_row(self, operand: Input | Result) -> bool:
        """Inputs are read where they are needed: along a block they lie as dense as scratch memory would."""
        return isinstance(operand, Result) and super().is_per_row(operand)

    def from_elsewhere(self, operand: Input | Result, scope: Scope) -> Value:
        """A value per row, computed before the pass for all rows of the block."""
        assert isinstance(operand, Result)
        if operand not in self._kept_at:
            value = self.evaluate(operand, self.before, None)
            self._kept_at[operand] = self.scratch(operand.dtype, (self.axis,))
            self.before.body.append(Keep(self._kept_at[operand], value))
        register = scope.registers[operand] = self.register(operand.dtype)
        scope.body.append(Recall(register, self._kept_at[operand]))
        return register


class _CpuShortRowsBuilder(_CpuBuilder):
    """Rows of a few elements: those of a block go side by side, and each pass over their elements is unrolled."""

    def write_loops(self) -> None:
        self.row = Scope()
        axis = self.schedule.vector_axis
        for stage in self.passes():
            elements = Scope()
            for index in self.reductions_of(stage):
                self.begin(index, self.row, axis)
            self.write_pass(stage, elements)
            self.row.body.append(loop(LoopKind.SERIAL, self.row_axes, elements.body))
        self.finish_row(self.row)
        vector = loop(LoopKind.VECTOR, (axis,), self.row.body)
        self.top.body.append(self.divided([vector]))


class _CpuTilesBuilder(_CpuBuilder):
    """Squares of the last axis and the one along which transposed buffers are dense; those are transposed in scratch
    memory."""

    def write_loops(self) -> None:
        tile = Scope()
        across, along = self.schedule.axes - 2, self.schedule.axes - 1
        self._transposed = {
            buffer: self.scratch(self._dtype(buffer), (across, along)) for buffer in self.schedule.transposed
        }
        for buffer, scratch in self._transposed.items():
            register = self.register(self._dtype(buffer))
            read = loop(LoopKind.VECTOR, (across,), [Load(register, buffer), Keep(scratch, register)])
            tile.body.append(loop(LoopKind.SERIAL, (along,), [read], at_once=TRANSPOSED_AT_ONCE))
        elements = Scope()
        self.write_pass(0, elements)
        vector = loop(LoopKind.VECTOR, (along,), elements.body)
        tile.body.append(loop(LoopKind.SERIAL, (across,), [vector]))
        self.top.body.append(self.divided(tile.body))

    def _dtype(self, buffer: int) -> DataType:
        return self.program.buffers[buffer]

    def load(self, register: Register, operand: Input) -> Instruction:
        buffer = len(self.program.outputs) + operand.index
        return Recall(register, self._transposed[buffer]) if buffer in self._transposed else Load(register, buffer)


def _is_cheap(body: Iterable[Instruction]) -> bool:
    """Whether a loop's arithmetic takes less time than its accesses to memory."""
    return all(i.op.tolerance == EXACT for i in body if isinstance(i, Compute))
