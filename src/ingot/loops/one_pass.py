"""Variance in one pass over the elements, where a second pass would have to read them from memory again.

    %1 = sum(x); %2 = div(%1, n)                 d = x - first element, in float64
    %3 = sub(x, %2); %4 = mul(%3, %3)      ->    %1 = sum(x); s = sum(d); q = sum(d * d)
    %5 = sum(%4)                                 %5 = q - s * s / n

The difference loses digits where the mean is far from the first element, measured in deviations. Accumulated in float64
that is no loss a float32 result could show: at worst, where the first element alone makes the variance, one part in
2^52 is multiplied by the number of elements. Sums of float64 keep their two passes.

Making a float64 of every element takes a GPU longer than reading bfloat16. But those have 8 digits:

    y = x / 2^68                                 %1 = sum(x); t = sum(y); q = sum(x * x); r = sum(y * y)
                                                 %5 = (q if it is finite else 2^136 r) - 2^136 t * t / n

Where a few are added up in float32 before they join float64, that is exact if they differ by less than a factor of 4:
the squares of 32 of them have 24 digits. So nothing is lost where the mean is subtracted, however large it is. Where
they differ by more, they deviate themselves, and the rounding of their sum, 2^-21 of it, is small beside that: 2^-17 of
the result, which has 8 digits, at worst. Elements whose squares float32 cannot hold are in r.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ingot.base.dtypes import DataType
from ingot.fusion.groups import Level
from ingot.loops.program import ConstantOperand, Operand, Position, Program, Result, RowLength, Statement, first_stage
from ingot.ops import lookup

_SINGLE, _DOUBLE = DataType.Float, DataType.Double
_FAR = 2.0**68
"""A number smaller than the largest one by this factor has squares of which float32 can hold the sum of many."""
_ROUNDING = 2.0**-50
"""Share of the sum of squares that may be left by rounding where all elements are alike. If one of them is not, more is
left, unless there are 2^34 of them."""


def in_one_pass(program: Program, in_singles: bool = False) -> Program:
    """The program with sums of squared deviations accumulated in the same pass as the mean. `in_singles` says that what
    accumulates float32 adds up a few of them before they join others in float64."""
    found = {index: values for index in range(len(program.statements)) if (values := _deviates_from(program, index))}
    return _Rewriting(program, found, in_singles).run() if found else program


def _deviates_from(program: Program, index: int) -> Operand | None:
    """The values whose squared deviations from their mean a statement adds up; None if it does something else."""
    statement = program.statements[index]
    if statement.op.name != "sum" or statement.level is not Level.ROW or statement.dtype is not _SINGLE:
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
    statement = program.maker_of(operand)
    return statement if statement is not None and statement.op.name == name else None


def _asks_for_positions(program: Program, operand: Operand) -> bool:
    if isinstance(operand, Position):
        return True
    needed = program.statements[operand.index].operands if isinstance(operand, Result) else ()
    return any(_asks_for_positions(program, each) for each in needed)


class _Rewriting:
    """Writes a program again, statement by statement, without what nothing needs any more."""

    def __init__(self, program: Program, squares: Mapping[int, Operand], in_singles: bool):
        self._program = program
        self._squares = squares
        self._in_singles = in_singles
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
        is_short = self._in_singles and self._are_short(values)
        squares, product = (self._accumulated_in_singles if is_short else self._accumulated_in_doubles)(values)
        row = Level.ROW
        excess = self._write("div", row, _DOUBLE, product, RowLength(_DOUBLE))
        difference = self._write("sub", row, _DOUBLE, squares, excess)
        if is_short:
            rounding = self._write("mul", row, _DOUBLE, squares, ConstantOperand(_ROUNDING, _DOUBLE))
            is_nothing = self._write("le", row, DataType.Bool, difference, rounding)
            positive = self._write("where", row, _DOUBLE, is_nothing, ConstantOperand(0.0, _DOUBLE), difference)
        else:
            positive = self._write("maximum", row, _DOUBLE, difference, ConstantOperand(0.0, _DOUBLE))
        return self._write("cast", row, _SINGLE, positive, dtype=_SINGLE)

    def _accumulated_in_doubles(self, values: Operand) -> tuple[Result, Result]:
        """The sum of the squares of distances from the first element, and the square of their sum."""
        element, row = Level.ELEMENT, Level.ROW
        first = self._write("gather", row, values.dtype, values, ConstantOperand(0, DataType.Int))
        wide = self._write("cast", element, _DOUBLE, values, dtype=_DOUBLE)
        wide_first = self._write("cast", row, _DOUBLE, first, dtype=_DOUBLE)
        distance = self._write("sub", element, _DOUBLE, wide, wide_first)
        total = self._write("sum", row, _DOUBLE, distance)
        square = self._write("mul", element, _DOUBLE, distance, distance)
        squares = self._write("sum", row, _DOUBLE, square)
        return squares, self._write("mul", row, _DOUBLE, total, total)

    def _accumulated_in_singles(self, values: Operand) -> tuple[Result, Result]:
        """The sum of squares, and the square of the sum."""
        element, row = Level.ELEMENT, Level.ROW
        near = self._write("mul", element, _SINGLE, values, ConstantOperand(1 / _FAR, _SINGLE))
        total = self._write("sum", row, _DOUBLE, near)
        squares, others = (self._write("mul", element, _SINGLE, each, each) for each in (values, near))
        squares, others = (self._write("sum", row, _DOUBLE, each) for each in (squares, others))
        moved = self._write("mul", row, _DOUBLE, others, ConstantOperand(_FAR * _FAR, _DOUBLE))
        is_finite = self._write("lt", row, DataType.Bool, squares, ConstantOperand(math.inf, _DOUBLE))
        whole = self._write("mul", row, _DOUBLE, total, ConstantOperand(_FAR, _DOUBLE))
        return (
            self._write("where", row, _DOUBLE, is_finite, squares, moved),
            self._write("mul", row, _DOUBLE, whole, whole),
        )

    def _are_short(self, values: Operand) -> bool:
        """Whether they were bfloat16, as all that is read and written."""
        made = self._statements[values.index] if isinstance(values, Result) else None
        floats = {dtype for dtype in self._program.buffers if dtype.is_float or dtype.is_complex}
        is_widened = made is not None and made.op.name == "cast" and made.operands[0].dtype is DataType.BFloat16
        return is_widened and floats == {DataType.BFloat16}

    def _write(self, name: str, level: Level, kind: DataType, *operands: Operand, **attributes: object) -> Result:
        return self._add(Statement(lookup(name), operands, tuple(attributes.items()), kind, level, 0))

    def _add(self, statement: Statement) -> Result:
        stage = first_stage(self._statements, statement.operands)
        self._statements.append(replace(statement, stage=stage))
        return Result(len(self._statements) - 1, statement.dtype)
