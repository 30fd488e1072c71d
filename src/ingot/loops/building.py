"""What nests of all forms have in common: how values are written in the loop they belong to, and when.

In: a program and how many axes there are. Out: a nest, once a form has said which loops there are (`write_loops`).
Always holds: every statement that something needs is computed in the outermost loop that its level allows, each pass
over a row computes what its reductions and results need, and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol

from ingot.base.dtypes import DataType
from ingot.fusion.groups import Level
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
    Place,
    Recall,
    Register,
    Scratch,
    Store,
    Value,
)
from ingot.loops.program import (
    Argument,
    ConstantOperand,
    Input,
    Operand,
    Position,
    Program,
    Result,
    RowLength,
    Statement,
)
from ingot.ops import lookup


class Axes(Protocol):
    """What a builder needs to know of a schedule."""

    @property
    def outer(self) -> int:
        """Axes that rows are counted along, numbered from 0; those inside a row follow."""
        ...

    @property
    def axes(self) -> int: ...

    @property
    def index_axes(self) -> tuple[int, ...]:
        """The axis of each position the program asks for."""
        ...


_NO_STAGE = -1
"""The pass number outside all passes, where nothing is kept or recalled."""


class Scope:
    """The body of a loop that is being written, and the registers assigned in it."""

    def __init__(self) -> None:
        self.body: list[Instruction] = []
        self.registers: dict[Operand, Register] = {}


class NestBuilder(ABC):
    """What all forms have in common."""

    def __init__(self, program: Program, schedule: Axes, kept: Iterable[Input | Result] = ()):
        self.program = program
        self.axes = schedule
        self.kept = frozenset(kept)
        """Values per element that are written to scratch memory by the first pass that has them, for those after it."""
        self.top = self.row = Scope()
        """The scope outside all loops, and the scope where values are computed once per row. A form may set the
        second."""
        self._registers = 0
        self._scratches: list[Scratch] = []
        self._accumulators: list[Accumulator] = []
        self._kept_at: dict[Input | Result, int] = {}
        """Value to scratch."""
        self._accumulator_of: dict[int, int] = {}
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
            self.axes.axes,
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

    def scratch(self, dtype: DataType, axes: tuple[int, ...], place: Place = Place.MEMORY) -> int:
        self._scratches.append(Scratch(f"scratch{len(self._scratches)}", dtype, axes, place))
        return len(self._scratches) - 1

    def begin(self, index: int, scope: Scope, axis: int | None = None) -> None:
        """Start accumulating for a reduction."""
        statement = self.program.statements[index]
        dtype = self.accumulator_type(statement)
        self._accumulator_of[index] = len(self._accumulators)
        self._accumulators.append(Accumulator(f"acc{len(self._accumulators)}", statement.op, dtype, axis))
        scope.body.append(Begin(self._accumulator_of[index]))

    def accumulator_type(self, statement: Statement) -> DataType:
        """The type in which a reduction accumulates."""
        assert statement.op.combination is not None
        return statement.op.combination.accumulator(statement.operands[0].dtype)

    def accumulate(self, index: int, value: Value, scope: Scope) -> None:
        scope.body.append(Accumulate(self._accumulator_of[index], value))

    def evaluate(self, operand: Operand, scope: Scope, stage: int | None) -> Value:
        """The value of an operand in a scope; what it needs is written there first, once."""
        if isinstance(operand, ConstantOperand | Argument):
            return operand
        if isinstance(operand, Position):
            return AxisPosition(self.axes.index_axes[operand.index], operand.dtype)
        if isinstance(operand, RowLength):
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

    def from_elsewhere(self, operand: Input | Result, scope: Scope) -> Value:
        """Row values that a loop over the row's elements needs."""
        return self.evaluate(operand, self.row, None)

    def _written(self, operand: Input | Result, scope: Scope, stage: int | None) -> Register:
        if operand not in self.kept or stage in (None, _NO_STAGE):
            return self._computed(operand, scope, stage)
        if operand in self._kept_at:
            register = self.register(operand.dtype)
            scope.body.append(Recall(register, self._kept_at[operand]))
            return register
        register = self._computed(operand, scope, stage)
        self._kept_at[operand] = self.scratch(operand.dtype, self.row_axes)
        scope.body.append(Keep(self._kept_at[operand], register))
        return register

    def _computed(self, operand: Input | Result, scope: Scope, stage: int | None) -> Register:
        if isinstance(operand, Input):
            register = self.register(operand.dtype)
            scope.body.append(self.load(register, operand))
            return register
        statement = self.program.statements[operand.index]
        if statement.is_row_gather:
            return self._picked(operand, scope)
        if statement.is_reduction:
            register = self.register(operand.dtype)
            scope.body.append(Finish(register, self._accumulator_of[operand.index]))
            return register
        operands = tuple(self.evaluate(needed, scope, stage) for needed in statement.operands)
        register = self.register(operand.dtype)
        scope.body.append(Compute(register, statement.op, operands, statement.attributes))
        return register

    def _picked(self, operand: Result, scope: Scope) -> Register:
        """The element of a row that an index names: everything it takes is computed for that position alone."""
        values, index = self.program.statements[operand.index].operands
        place = self.evaluate(index, scope, None)
        inside = Scope()
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
        return tuple(range(self.axes.outer))

    @property
    def row_axes(self) -> tuple[int, ...]:
        return tuple(range(self.axes.outer, self.axes.axes))

    def reductions_of(self, stage: int) -> list[int]:
        """Reductions of element values that a pass accumulates."""
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
        """Stages that accumulate or store something for every element."""
        return [stage for stage in range(self.program.stages) if self.reductions_of(stage) or self.results_of(stage)]

    def write_pass(self, stage: int, scope: Scope) -> None:
        """What one pass does with each element."""
        for index in self.reductions_of(stage):
            (operand,) = self.program.statements[index].operands
            self.accumulate(index, self.evaluate(operand, scope, stage), scope)
        outputs = self.results_of(stage)
        values = [self.evaluate(self.program.outputs[output], scope, stage) for output in outputs]
        # After all loads: a result may be written over an input that another result still needs.
        scope.body += [Store(output, value) for output, value in zip(outputs, values, strict=True)]

    def finish_row(self, scope: Scope) -> None:
        """Store what there is once per row, and add rows to the totals."""
        for output, result in enumerate(self.program.outputs):
            if self.program.level_of(result) is Level.ROW:
                scope.body.append(Store(output, self.evaluate(result, scope, None)))
        for index, statement in enumerate(self.program.statements):
            if statement.is_reduction and statement.level is Level.TOTAL:
                self.accumulate(index, self.evaluate(statement.operands[0], scope, None), scope)


def loop(
    kind: LoopKind,
    axes: tuple[int, ...],
    body: Iterable[Instruction],
    blocked: Iterable[int] = (),
    at_once: int = 1,
    vector_width: int = 1,
) -> Loop:
    return Loop(kind, axes, frozenset(blocked), tuple(body), at_once, vector_width)
