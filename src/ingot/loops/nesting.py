"""From a program and a schedule to a nest of loops.

    program: amax, exp, sum, div            parallel for i0 in 0..n0 {
    schedule: rows                            begin acc0: amax            vector for i1 { ... acc0 <- %0 }
                                        ->    begin acc1: sum             vector for i1 { ... keep, acc1 <- %4 }
                                              vector for i1 { ... store out0 }
                                            }

Always holds: every statement that something needs is computed in the outermost loop that its level allows, each pass
over a row computes what its reductions and results need, and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from ingot.base.dtypes import DataType
from ingot.fusion.groups import Level
from ingot.loops.keeping import kept_statements
from ingot.loops.nest import (
    Accumulate,
    Accumulator,
    At,
    AxisPosition,
    Begin,
    Buffer,
    Compute,
    Extent,
    Finish,
    Instruction,
    Keep,
    Load,
    Loop,
    LoopKind,
    Nest,
    Prefetch,
    Recall,
    Register,
    Scratch,
    Store,
    Value,
)
from ingot.loops.one_pass import in_one_pass
from ingot.loops.program import Argument, Count, Input, Known, Operand, Position, Program, Result
from ingot.loops.schedule import Form, Schedule
from ingot.ops import lookup
from ingot.ops.samples import EXACT


def build_nest(program: Program, schedule: Schedule) -> Nest:
    """The loops of a program under a schedule."""
    if schedule.one_pass:
        program = in_one_pass(program)
    builder = {Form.COLUMNS: _Columns, Form.TILED: _Tiles}.get(schedule.form, _Rows)(program, schedule)
    return builder.build()


SIDE_BY_SIDE = 4
"""Rows across memory that are added up together: the sums are then read and written once for all of them."""
TURNED_AT_ONCE = 8
"""Rows of a square that are turned together, in registers."""
_NO_STAGE = -1
"""Outside all passes: nothing is kept or recalled."""


class _Scope:
    """The body of a loop that is being written, and the registers assigned in it."""

    def __init__(self) -> None:
        self.body: list[Instruction] = []
        self.registers: dict[Operand, Register] = {}


class _Builder(ABC):
    """What all forms have in common."""

    def __init__(self, program: Program, schedule: Schedule):
        self.program = program
        self.schedule = schedule
        self.kept = kept_statements(program) if schedule.keeps and schedule.form is Form.ROWS else frozenset()
        self.top = self.row = _Scope()
        """Outside all loops; and where values are computed once per row, which is the same unless a form says else."""
        self._registers = 0
        self._scratches: list[Scratch] = []
        self._accumulators: list[Accumulator] = []
        self._kept_at: dict[int, int] = {}
        """Statement to scratch."""
        self._gathered_in: dict[int, int] = {}
        """Reduction to accumulator."""

    def build(self) -> Nest:
        program = self.program
        totals = [i for i, s in enumerate(program.statements) if s.is_reduction and s.level is Level.TOTAL]
        for index in totals:
            self.begin(index, self.top)
        self.write_loops()
        for output, result in enumerate(program.outputs):
            if program.level_of(result) is Level.TOTAL:
                self.top.body.append(Store(output, self.evaluate(result, self.top, None)))
        outputs = [Buffer(f"out{i}", result.dtype, True) for i, result in enumerate(program.outputs)]
        inputs = [Buffer(str(given), given.dtype, False) for given in program.inputs]
        return Nest(
            self.schedule.axes,
            (*outputs, *inputs),
            program.scalars,
            tuple(self._scratches),
            tuple(self._accumulators),
            tuple(self.top.body),
        )

    @abstractmethod
    def write_loops(self) -> None:
        """Write the loops, and everything inside them, at the top."""

    # --- parts --------------------------------------------------------------------------------------------------------

    def register(self, dtype: DataType) -> Register:
        self._registers += 1
        return Register(self._registers - 1, dtype)

    def scratch(self, dtype: DataType, axes: tuple[int, ...]) -> int:
        self._scratches.append(Scratch(f"scratch{len(self._scratches)}", dtype, axes))
        return len(self._scratches) - 1

    def begin(self, index: int, scope: _Scope, axis: int | None = None) -> None:
        """Start gathering for a reduction."""
        statement = self.program.statements[index]
        assert statement.op.combination is not None
        dtype = statement.op.combination.accumulator(statement.operands[0].dtype)
        self._gathered_in[index] = len(self._accumulators)
        self._accumulators.append(Accumulator(f"acc{len(self._accumulators)}", statement.op, dtype, axis))
        scope.body.append(Begin(self._gathered_in[index]))

    def accumulate(self, index: int, value: Value, scope: _Scope) -> None:
        scope.body.append(Accumulate(self._gathered_in[index], value))

    def evaluate(self, operand: Operand, scope: _Scope, stage: int | None) -> Value:
        """The value of an operand in a scope; what it needs is written there first, once."""
        if isinstance(operand, Known | Argument):
            return operand
        if isinstance(operand, Position):
            return AxisPosition(self.schedule.counted[operand.index], operand.dtype)
        if isinstance(operand, Count):
            return Extent(self.row_axes, operand.dtype)
        found = scope.registers.get(operand)
        if found is None:
            if stage is not None and self.is_per_row(operand):
                return self.from_elsewhere(operand, scope)
            found = scope.registers[operand] = self._written(operand, scope, stage)
        return found

    def is_per_row(self, operand: Input | Result) -> bool:
        """Whether an operand is computed outside the loop over a row's elements."""
        return self.program.level_of(operand) is not Level.ELEMENT

    def from_elsewhere(self, operand: Input | Result, scope: _Scope) -> Value:
        """What a loop over a row's elements needs of the row."""
        return self.evaluate(operand, self.row, None)

    def _written(self, operand: Input | Result, scope: _Scope, stage: int | None) -> Register:
        if isinstance(operand, Input):
            register = self.register(operand.dtype)
            scope.body.append(self.load(register, operand))
            return register
        statement = self.program.statements[operand.index]
        if statement.is_pick:
            return self._picked(operand, scope)
        if statement.is_reduction:
            register = self.register(operand.dtype)
            scope.body.append(Finish(register, self._gathered_in[operand.index]))
            return register
        if stage is not None and operand.index in self.kept and statement.stage < stage:
            register = self.register(operand.dtype)
            scope.body.append(Recall(register, self._kept_at[operand.index]))
            return register
        operands = tuple(self.evaluate(needed, scope, stage) for needed in statement.operands)
        register = self.register(operand.dtype)
        scope.body.append(Compute(register, statement.op, operands, statement.attributes))
        if stage is not None and operand.index in self.kept and statement.stage == stage:
            self._kept_at[operand.index] = self.scratch(operand.dtype, self.row_axes)
            scope.body.append(Keep(self._kept_at[operand.index], register))
        return register

    def _picked(self, operand: Result, scope: _Scope) -> Register:
        """The element of a row that an index names: everything it takes is computed for that position alone."""
        values, index = self.program.statements[operand.index].operands
        place = self.evaluate(index, scope, None)
        inside = _Scope()
        picked = self.evaluate(values, inside, _NO_STAGE)
        if not isinstance(picked, Register):  # a position, which is another one outside
            place_itself, picked = picked, self.register(operand.dtype)
            inside.body.append(Compute(picked, lookup("cast"), (place_itself,), (("dtype", operand.dtype),)))
        scope.body.append(At(self.row_axes[-1], place, tuple(inside.body)))
        return picked

    def load(self, register: Register, operand: Input) -> Instruction:
        return Load(register, len(self.program.outputs) + operand.index)

    @property
    def outer_axes(self) -> tuple[int, ...]:
        return tuple(range(self.schedule.outer))

    @property
    def row_axes(self) -> tuple[int, ...]:
        return tuple(range(self.schedule.outer, self.schedule.axes))

    def reductions_of(self, stage: int) -> list[int]:
        """Reductions of element values that a pass gathers."""
        return [
            index
            for index, statement in enumerate(self.program.statements)
            if statement.is_reduction and statement.level is Level.ROW and statement.stage == stage
        ]

    def results_of(self, stage: int) -> list[int]:
        """Outputs with a value per element that a pass computes."""
        return [
            output
            for output, result in enumerate(self.program.outputs)
            if self.program.level_of(result) is Level.ELEMENT and self.program.statements[result.index].stage == stage
        ]

    def passes(self) -> list[int]:
        """Stages that gather or store something for every element."""
        return [stage for stage in range(self.program.stages) if self.reductions_of(stage) or self.results_of(stage)]

    def write_pass(self, stage: int, scope: _Scope) -> None:
        """What one pass does with each element."""
        for index in self.reductions_of(stage):
            (operand,) = self.program.statements[index].operands
            self.accumulate(index, self.evaluate(operand, scope, stage), scope)
        outputs = self.results_of(stage)
        values = [self.evaluate(self.program.outputs[output], scope, stage) for output in outputs]
        # After all loads: a result may be written over an input that another result still needs.
        scope.body += [Store(output, value) for output, value in zip(outputs, values, strict=True)]

    def finish_row(self, scope: _Scope) -> None:
        """Store what there is once per row, and add rows to the totals."""
        for output, result in enumerate(self.program.outputs):
            if self.program.level_of(result) is Level.ROW:
                scope.body.append(Store(output, self.evaluate(result, scope, None)))
        for index, statement in enumerate(self.program.statements):
            if statement.is_reduction and statement.level is Level.TOTAL:
                self.accumulate(index, self.evaluate(statement.operands[0], scope, None), scope)


class _Rows(_Builder):
    """Flat, rows and split: elements of a row lie along the axis that goes in vectors."""

    def write_loops(self) -> None:
        form = self.schedule.form
        if form is Form.FLAT:
            elements = _Scope()
            self.write_pass(0, elements)
            vector = loop(LoopKind.VECTOR, self.row_axes[-1:], elements.body)
            axes = (*self.outer_axes, *self.row_axes)
            self.top.body.append(loop(LoopKind.PARALLEL, axes, [vector], blocked=self.row_axes))
            return
        if self.outer_axes:
            self.row = _Scope()
        self._read_first: list[int] = []
        for stage in self.passes():
            self._write_stage(stage)
        self.finish_row(self.row)
        if self.outer_axes:
            kind = LoopKind.SERIAL if form is Form.SPLIT else LoopKind.PARALLEL
            self.top.body.append(loop(kind, self.outer_axes, self.row.body))

    def _write_stage(self, stage: int) -> None:
        elements = _Scope()
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
            nested = loop(LoopKind.PARALLEL, self.row_axes[:1], [nested], blocked=self.row_axes[:1])
        self.row.body.append(nested)

    def _busiest_stage(self) -> int:
        """The pass during which the next row is asked for: one that computes functions, or else the last; never the
        first, which waits for memory itself."""
        functions = [
            statement.stage
            for statement in self.program.statements
            if statement.level is Level.ELEMENT and statement.op.tolerance != EXACT and statement.stage > 0
        ]
        return functions[0] if functions else max(self.program.stages - 1, 1)


class _Columns(_Builder):
    """Rows lie across memory: those of a block side by side, values once per row in scratch memory."""

    def write_loops(self) -> None:
        self.block = _Scope()
        self.axis = self.schedule.vector_axis
        for stage in self.passes():
            self._write_stage(stage)
        last = _Scope()
        self.finish_row(last)
        if last.body:
            self.block.body.append(loop(LoopKind.VECTOR, (self.axis,), last.body))
        self.top.body.append(loop(LoopKind.PARALLEL, self.outer_axes, self.block.body, blocked=(self.axis,)))

    def _write_stage(self, stage: int) -> None:
        self.before, elements = _Scope(), _Scope()
        for index in self.reductions_of(stage):
            self.begin(index, self.block, self.axis)
        self.write_pass(stage, elements)
        if self.before.body:
            self.block.body.append(loop(LoopKind.VECTOR, (self.axis,), self.before.body))
        across = loop(LoopKind.VECTOR, (self.axis,), elements.body)
        at_once = SIDE_BY_SIDE if self.reductions_of(stage) and _is_cheap(elements.body) else 1
        self.block.body.append(loop(LoopKind.SERIAL, self.row_axes, [across], at_once=at_once))

    def is_per_row(self, operand: Input | Result) -> bool:
        """Inputs are read where they are needed: along a block they lie as dense as scratch memory would."""
        return isinstance(operand, Result) and super().is_per_row(operand)

    def from_elsewhere(self, operand: Input | Result, scope: _Scope) -> Value:
        """A value per row, computed before the pass for all rows of the block."""
        assert isinstance(operand, Result)
        if operand.index not in self._kept_at:
            value = self.evaluate(operand, self.before, None)
            self._kept_at[operand.index] = self.scratch(operand.dtype, (self.axis,))
            self.before.body.append(Keep(self._kept_at[operand.index], value))
        register = scope.registers[operand] = self.register(operand.dtype)
        scope.body.append(Recall(register, self._kept_at[operand.index]))
        return register


class _Tiles(_Builder):
    """Squares of the last axis and the one along which turned buffers are dense; those are turned in scratch memory."""

    def write_loops(self) -> None:
        tile = _Scope()
        across, along = self.schedule.axes - 2, self.schedule.axes - 1
        self._turned = {buffer: self.scratch(self._dtype(buffer), (across, along)) for buffer in self.schedule.turned}
        for buffer, scratch in self._turned.items():
            register = self.register(self._dtype(buffer))
            read = loop(LoopKind.VECTOR, (across,), [Load(register, buffer), Keep(scratch, register)])
            tile.body.append(loop(LoopKind.SERIAL, (along,), [read], at_once=TURNED_AT_ONCE))
        elements = _Scope()
        self.write_pass(0, elements)
        vector = loop(LoopKind.VECTOR, (along,), elements.body)
        tile.body.append(loop(LoopKind.SERIAL, (across,), [vector]))
        axes = tuple(range(self.schedule.axes))
        self.top.body.append(loop(LoopKind.PARALLEL, axes, tile.body, blocked=(across, along)))

    def _dtype(self, buffer: int) -> DataType:
        return self.program.buffers[buffer]

    def load(self, register: Register, operand: Input) -> Instruction:
        buffer = len(self.program.outputs) + operand.index
        return Recall(register, self._turned[buffer]) if buffer in self._turned else Load(register, buffer)


def loop(
    kind: LoopKind,
    axes: tuple[int, ...],
    body: Iterable[Instruction],
    blocked: Iterable[int] = (),
    at_once: int = 1,
) -> Loop:
    return Loop(kind, axes, frozenset(blocked), tuple(body), at_once)


def _is_cheap(body: Iterable[Instruction]) -> bool:
    """Whether a loop's arithmetic takes less time than its accesses to memory."""
    return all(i.op.tolerance == EXACT for i in body if isinstance(i, Compute))
