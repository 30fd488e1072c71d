"""Shorter forms of functions, for programs that need less than full accuracy.

    %2 = exp(%0 - %1); %4 = div(%2, %3)     becomes    %4 = rough_div(%2, %3), where %1 is amax(%0) and %3 is sum(%2)

Softmax divides what is right to 2 ulp by a sum of thousands of such numbers. Its quotient is as good if it is right to
2 ulp as well, and takes a quarter of the instructions. The largest element's is exact: 1 is divided there.

    %1 = erf(%0); %2 = add(1, %1)           becomes    %2 = one_and_erf(%0)
    %1 = erf(%0); %2 = cast(%1): bf16       becomes    %1 = erf_to_8_bits(%0); %2 = cast(%1): bf16

This is for programs that may be computed roughly, as those of 16-bit numbers may. gelu and others like it add 1 to erf
or tanh. The sum takes fewer instructions than the function does, as nothing near zero has to be exact, and is better
where the two nearly cancel. And what is rounded to bfloat16 at once may be off by an eighth of a unit in its last place
before. No statement is removed: those that led to a sum alone stay, unused.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from ingot.base.dtypes import DataType
from ingot.codegen.llvm.host import Host
from ingot.codegen.llvm.math import SUMS_WITH_ONE, TO_8_BITS
from ingot.loops.program import ConstantOperand, Operand, Program, Result, Statement
from ingot.ops import lookup


def with_fused_approximations(program: Program, host: Host) -> Program:
    """The same program for a GPU."""
    statements: Sequence[Statement] = program.statements
    if not host.may_approximate:
        return program
    if not host.approximates:
        shorter = tuple(_share_of_row(program, statement) for statement in statements)
        return program if shorter == statements else replace(program, statements=shorter)
    if host.packs_bfloat16:
        only_rounded = _only_rounded(program)
        statements = [_rounded(each) if index in only_rounded else each for index, each in enumerate(statements)]
    return replace(program, statements=tuple(_sum_with_one(program, statement) for statement in statements))


def _share_of_row(program: Program, statement: Statement) -> Statement:
    """A statement, replaced by `rough_div` where it is the quotient of a softmax."""
    if statement.op.name != "div" or statement.dtype is not DataType.Float:
        return statement
    dividend, divisor = statement.operands
    powers, total = _made_by(program, dividend, {"exp"}), _made_by(program, divisor, {"sum"})
    difference = powers and _made_by(program, powers.operands[0], {"sub"})
    largest = difference and _made_by(program, difference.operands[1], {"amax"})
    if largest is None or total is None or total.operands != (dividend,):
        return statement
    return replace(statement, op=lookup("rough_div"))


def _only_rounded(program: Program) -> set[int]:
    """Statements whose results are only cast to bfloat16."""
    rounded, otherwise = set(), {output.index for output in program.outputs}
    for statement in program.statements:
        is_rounding = statement.op.name == "cast" and statement.dtype is DataType.BFloat16
        used = {operand.index for operand in statement.operands if isinstance(operand, Result)}
        (rounded if is_rounding else otherwise).update(used)
    return rounded - otherwise


def _rounded(statement: Statement) -> Statement:
    is_known = statement.op.name in TO_8_BITS and statement.dtype is DataType.Float
    return replace(statement, op=lookup(f"{statement.op.name}_to_8_bits")) if is_known else statement


def _sum_with_one(program: Program, statement: Statement) -> Statement:
    if statement.op.name != "add" or statement.dtype is not DataType.Float:
        return statement
    first, second = statement.operands
    function = _made_by(program, second if _is_one(first) else first, SUMS_WITH_ONE)
    if function is None or not (_is_one(first) or _is_one(second)) or function.level is not statement.level:
        return statement
    return replace(statement, op=lookup(f"one_and_{function.op.name}"), operands=function.operands)


def _is_one(operand: Operand) -> bool:
    return isinstance(operand, ConstantOperand) and operand.value == 1


def _made_by(program: Program, operand: Operand, names: Container[str]) -> Statement | None:
    """The statement that an operand is the result of, if it is one of these operators."""
    made = program.maker_of(operand)
    return made if made is not None and made.op.name in names else None
