"""How accurate a program's functions have to be on a GPU: as accurate as ever, or as suits results of 16 bits.

Eager PyTorch rounds what every operation of such a program gives to 16 bits. Here all of it is computed in float32, and
even quotients, roots and functions that are right to 18 bits leave the results better than eager's. But where a value
decides (compared, rounded to a whole number, made an index), the last bit may count: three is 6 / 2, and floor would
make two of a quotient a little below. Programs in which something rough decides anything stay accurate.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.base.dtypes import HALVES, DataType
from ingot.codegen.llvm.host import Host
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.fusion.groups import Level
from ingot.loops.program import Input, Program, Result, Statement

_ROUGH = {"div", "sqrt", *FUNCTIONS}
_BYTES_FOR_DOUBLES = 10
"""What has to be moved for each exact quotient or root of an element."""
_STEPS = {"ceil", "floor", "round", "trunc", "fmod", "remainder"}


def suited(host: Host, program: Program) -> Host:
    """The GPU, asked for no more than a program's results can hold.

    Where no tensor holds float64, only what is gathered is computed in it: products may join sums unrounded.
    """
    return replace(
        host,
        approximates=_is_of_halves(program) and not _decides_by_rough_values(program),
        contracts_doubles=DataType.Double not in program.buffers,
        has_quick_doubles=host.has_quick_doubles and _has_time_for_doubles(program),
    )


def _has_time_for_doubles(program: Program) -> bool:
    """Whether exact quotients and roots may go through float64. Each takes four turns of the unit that converts and
    approximates, of which an H200 has 16 lanes, while its memory moves 19 bytes: Black-Scholes, with three of them and
    20 bytes an element, took a sixth longer, and AdamW, with two and 28, did not."""
    exact = [statement for statement in program.statements if _is_exact_for_every_element(program, statement)]
    elements = [given.dtype.bytes for given in program.inputs if given.level is Level.ELEMENT]
    results = (program.statements[output.index] for output in program.outputs)
    elements += [result.dtype.bytes for result in results if result.level is Level.ELEMENT]
    return sum(elements) >= _BYTES_FOR_DOUBLES * len(exact)


def _is_exact_for_every_element(program: Program, statement: Statement) -> bool:
    if statement.level is not Level.ELEMENT or statement.dtype is not DataType.Float:
        return False
    if statement.op.name != "div":
        return statement.op.name == "sqrt"
    divisor = statement.operands[1]
    made = program.statements[divisor.index] if isinstance(divisor, Result) else divisor
    return isinstance(made, Statement | Input) and made.level is Level.ELEMENT


def _is_of_halves(program: Program) -> bool:
    """Whether all floating-point numbers in memory have 16 bits, and there are such."""
    floats = {dtype for dtype in program.buffers if dtype.is_float}
    return bool(floats) and floats <= HALVES


def _decides_by_rough_values(program: Program) -> bool:
    rough: set[int] = set()
    for index, statement in enumerate(program.statements):
        if any(isinstance(operand, Result) and operand.index in rough for operand in statement.operands):
            if not statement.dtype.is_float or statement.op.name in _STEPS:
                return True
            rough.add(index)
        elif statement.op.name in _ROUGH and statement.dtype.is_float:
            rough.add(index)
    return False
