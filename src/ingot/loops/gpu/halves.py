"""Arithmetic of half types by instructions of their own, which take two elements at a time.

    %2 = cast(in0): f32; %3 = cast(in1): f32; %4 = add(%2, %3): f32; %5 = cast(%4): bf16
    becomes
    %5 = add(in0, in1): bf16

Graphs compute half types in float32 and round. For sums, differences and products the result is the same as that of one
instruction that rounds once: float32 has more than twice as many bits, and two more, so rounding twice loses nothing.
Statements that led to the result alone stay where they were, unused.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ingot.base.dtypes import HALVES, DataType
from ingot.base.numbers import convert_number
from ingot.loops.program import ConstantOperand, Operand, Program, Statement, first_stage

_EXACT_AFTER_ROUNDING = {"add", "sub", "mul", "neg"}


@lru_cache(maxsize=1024)
def in_halves(program: Program) -> Program:
    """The program with arithmetic in half types wherever that gives the same results."""
    if HALVES.isdisjoint(program.buffers):
        return program
    statements: list[Statement] = []
    for statement in program.statements:
        narrow = _narrowed(program, statement)
        if narrow is not None:
            narrow = replace(narrow, stage=first_stage(statements, narrow.operands))
        statements.append(narrow or statement)
    return replace(program, statements=tuple(statements))


def _narrowed(program: Program, statement: Statement) -> Statement | None:
    """A rounding cast as the operation that it rounds; None if it has to stay what it is."""
    made = program.maker_of(statement.operands[0]) if statement.op.name == "cast" else None
    if made is None or statement.dtype not in HALVES or made.op.name not in _EXACT_AFTER_ROUNDING:
        return None
    operands = tuple(_before_widening(program, operand, statement.dtype) for operand in made.operands)
    if made.level is not statement.level or None in operands or all(isinstance(o, ConstantOperand) for o in operands):
        return None
    return replace(made, operands=operands, dtype=statement.dtype)


def _before_widening(program: Program, operand: Operand, dtype: DataType) -> Operand | None:
    """What a float32 operand was widened from; None if it was not."""
    if isinstance(operand, ConstantOperand):
        return _exactly(operand, dtype)
    made = program.maker_of(operand)
    if made is None or made.op.name != "cast" or operand.dtype is not DataType.Float:
        return None
    (source,) = made.operands
    return source if source.dtype is dtype else None


def _exactly(constant: ConstantOperand, dtype: DataType) -> ConstantOperand | None:
    narrow = convert_number(constant.value, dtype)
    return ConstantOperand(narrow, dtype) if narrow == constant.value else None
