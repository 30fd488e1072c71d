"""Which values of a row stay in registers between passes over it: everything that more than one pass needs.

pass 0: %0 = in0 * scalar0; largest %0       in0 is kept: it is read once, and %0 is cheap to compute again
pass 1: %3 = exp(%0 - %1); sum %3            %3 is kept: computing it again costs more than a register
pass 2: %3 / %5
"""

from __future__ import annotations

from functools import lru_cache

from ingot.fusion.groups import Level
from ingot.loops.keeping import kept_statements, purposes_of
from ingot.loops.program import Input, Program, Result


@lru_cache(maxsize=1024)
def kept_values(program: Program) -> frozenset[Input | Result]:
    """Inputs that several passes read, and results of earlier passes that are expensive."""
    statements = kept_statements(program)
    reads = [_inputs_of(program, stage, statements) for stage in range(program.stages)]
    counts = [sum(given in read for read in reads) for given in program.inputs]
    inputs = {given for given, count in zip(program.inputs, counts, strict=True) if count > 1}
    return frozenset(inputs | {Result(index, program.statements[index].dtype) for index in statements})


def _inputs_of(program: Program, stage: int, kept: frozenset[int]) -> set[Input]:
    """Inputs per element that a pass reads, given what earlier ones have kept."""
    found: set[Input] = set()
    seen: set[int] = set()
    waiting = purposes_of(program, stage)
    while waiting:
        operand = waiting.pop()
        if isinstance(operand, Input) and operand.level is Level.ELEMENT:
            found.add(operand)
        if not isinstance(operand, Result) or operand.index in seen:
            continue
        statement = program.statements[operand.index]
        if statement.level is not Level.ELEMENT or (operand.index in kept and statement.stage < stage):
            continue
        seen.add(operand.index)
        waiting.extend(statement.operands)
    return found
