"""Variance in one pass over the elements, where a second pass would have to read them from memory again.

    %1 = sum(x); %2 = div(%1, n)                 d = x - first element, in float64
    %3 = sub(x, %2); %4 = mul(%3, %3)      ->    %1 = sum(x); s = sum(d); q = sum(d * d)
    %5 = sum(%4)                                 %5 = q - s * s / n

The difference loses digits where the mean is far from the first element, measured in deviations. Gathered in float64
that is no loss a float32 result could show: at worst, where the first element alone makes the variance, one part in
2^52 is multiplied by the number of elements. Sums of float64 keep their two passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ingot.base.dtypes import DataType
from ingot.fusion.groups import Level
from ingot.loops.program import Count, Known, Operand, Position, Program, Result, Statement, first_stage
from ingot.ops import lookup

_DOUBLE = DataType.Double


def in_one_pass(program: Program) -> Program:
    """The program with sums of squared deviations gathered in the same pass as the mean."""
    found = {index: values for index in range(len(program.statements)) if (values := _deviates_from(program, index))}
    return _Rewriting(program, found).run() if found else program


def _deviates_from(program: Program, index: int) -> Operand | None:
    """The values whose squared deviations from their mean a statement adds up; None if it does something else."""
    statement = program.statements[index]
    if statement.op.name != "sum" or statement.level is not Level.ROW or statement.dtype is not DataType.Float:
        return None
    squared = _made_by(program, statement.operands[0], "mul")
    if squared is None or squared.operands[0] != squared.operands[1]:
        return None
    deviation = _made_by(program, squared.operands[0], "sub")
    mean = _made_by(program, deviation.operands[1], "div") if deviation else None
    total = _made_by(program, mean.operands[0], "sum") if mean else None
    if deviation is None or total is None or total.operands[0] != deviation.operands[0]:
        return None
    return None if _asks_for_positions(program, deviation.operands[0]) else deviation.operands[0]


def _made_by(program: Program, operand: Operand, name: str) -> Statement | None:
    statement = program.statements[operand.index] if isinstance(operand, Result) else None
    return statement if statement is not None and statement.op.name == name else None


def _asks_for_positions(program: Program, operand: Operand) -> bool:
    if isinstance(operand, Position):
        return True
    needed = program.statements[operand.index].operands if isinstance(operand, Result) else ()
    return any(_asks_for_positions(program, each) for each in needed)


class _Rewriting:
    """Writes a program again, statement by statement, without what nothing needs any more."""

    def __init__(self, program: Program, squares: Mapping[int, Operand]):
        self._program = program
        self._squares = squares
        self._statements: list[Statement] = []
        self._new: dict[int, Result] = {}

    def run(self) -> Program:
        needed = self._needed()
        for index, statement in enumerate(self._program.statements):
            if index in self._squares:
                self._new[index] = self._squared_deviations(self._renamed(self._squares[index]))
            elif index in needed:
                self._new[index] = self._add(replace(statement, operands=tuple(map(self._renamed, statement.operands))))
        outputs = tuple(self._new[result.index] for result in self._program.outputs)
        return replace(self._program, statements=tuple(self._statements), outputs=outputs)

    def _needed(self) -> set[int]:
        found: set[int] = set()
        waiting: list[Operand] = [*self._program.outputs, *self._squares.values()]
        while waiting:
            operand = waiting.pop()
            if isinstance(operand, Result) and operand.index not in found:
                found.add(operand.index)
                if operand.index not in self._squares:
                    waiting.extend(self._program.statements[operand.index].operands)
        return found

    def _renamed(self, operand: Operand) -> Operand:
        return self._new[operand.index] if isinstance(operand, Result) else operand

    def _squared_deviations(self, values: Operand) -> Result:
        element, row = Level.ELEMENT, Level.ROW
        first = self._write("gather", row, values.dtype, values, Known(0, DataType.Int))
        wide = self._write("cast", element, _DOUBLE, values, dtype=_DOUBLE)
        wide_first = self._write("cast", row, _DOUBLE, first, dtype=_DOUBLE)
        distance = self._write("sub", element, _DOUBLE, wide, wide_first)
        total = self._write("sum", row, _DOUBLE, distance)
        square = self._write("mul", element, _DOUBLE, distance, distance)
        squares = self._write("sum", row, _DOUBLE, square)
        product = self._write("mul", row, _DOUBLE, total, total)
        excess = self._write("div", row, _DOUBLE, product, Count(_DOUBLE))
        difference = self._write("sub", row, _DOUBLE, squares, excess)
        positive = self._write("maximum", row, _DOUBLE, difference, Known(0.0, _DOUBLE))
        return self._write("cast", row, DataType.Float, positive, dtype=DataType.Float)

    def _write(self, name: str, level: Level, kind: DataType, *operands: Operand, **attributes: object) -> Result:
        return self._add(Statement(lookup(name), operands, tuple(attributes.items()), kind, level, 0))

    def _add(self, statement: Statement) -> Result:
        stage = first_stage(self._statements, statement.operands)
        self._statements.append(replace(statement, stage=stage))
        return Result(len(self._statements) - 1, statement.dtype)
