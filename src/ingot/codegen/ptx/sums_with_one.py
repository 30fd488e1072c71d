"""Sums with 1 that are functions of their own, in programs that may be computed roughly.

    %1 = erf(%0); %2 = add(1, %1)    becomes    %2 = one_and_erf(%0)

gelu and others like it add 1 to erf or tanh. The sum takes fewer instructions than the function does, as nothing near
zero has to be exact, and is better where the two nearly cancel. What only led to it is left where it was; nobody asks
for it any more.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.base.dtypes import DataType
from ingot.codegen.llvm.math import SUMS_WITH_ONE
from ingot.loops.program import Known, Operand, Program, Result, Statement
from ingot.ops.record import Op


def with_sums_as_functions(program: Program) -> Program:
    """The program in which 1 + erf(x) and 1 + tanh(x) are single statements."""
    return replace(program, statements=tuple(_joined(program, statement) for statement in program.statements))


def _joined(program: Program, statement: Statement) -> Statement:
    if statement.op.name != "add" or statement.dtype is not DataType.Float:
        return statement
    first, second = statement.operands
    function = _function(program, second if _is_one(first) else first)
    if function is None or not (_is_one(first) or _is_one(second)) or function.level is not statement.level:
        return statement
    return replace(statement, op=_and_one(function.op), operands=function.operands)


def _is_one(operand: Operand) -> bool:
    return isinstance(operand, Known) and operand.value == 1


def _function(program: Program, operand: Operand) -> Statement | None:
    made = program.statements[operand.index] if isinstance(operand, Result) else None
    return made if made is not None and made.op.name in SUMS_WITH_ONE else None


def _and_one(op: Op) -> Op:
    name = f"one_and_{op.name}"
    return replace(op, name=name, emit=lambda emitter, x: emitter.function(name, x))
