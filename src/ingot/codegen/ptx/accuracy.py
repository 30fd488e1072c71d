"""How accurate a program's functions have to be on a GPU: as accurate as ever, or as suits results of 16 bits.

Eager PyTorch rounds what every operation of such a program gives to 16 bits. Here all of it is computed in float32, and
even quotients, roots and functions that are right to 18 bits leave the results better than eager's. But where a value
decides (compared, rounded to a whole number, made an index), the last bit may count: 6 / 2 is 3, but the floor of a
quotient slightly below 3 is 2. Programs in which an approximate value decides anything stay accurate.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.base.dtypes import DataType, part_type
from ingot.codegen.llvm.host import Host
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.loops.program import Program, Result

_ROUGH = {"div", "sqrt", *FUNCTIONS}
_STEPS = {"ceil", "floor", "round", "trunc", "fmod", "remainder"}


def suited(host: Host, program: Program) -> Host:
    """The GPU, asked for no more than a program's results can hold.

    Where no tensor holds float64, only what is accumulated is computed in it: products may join sums unrounded. Exact
    roots without a branch take more registers and instructions than the assembler's. Arithmetic waits for memory
    anyway, functions of elements do not: Black-Scholes takes 314 us with the assembler's roots, and 341 without.
    """
    return replace(
        host,
        approximates=host.may_approximate and program.is_of_halves and not _decides_by_rough_values(program),
        contracts_doubles=DataType.Double not in map(part_type, program.buffers),
        leaves_roots=not program.is_arithmetic,
    )


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
