"""Which values of a row are kept between passes over it, where there is room, and which are computed again.

    pass 1: %3 = exp(in0 - %1); sum += %3
    pass 2: %3 / %5                             %3 is kept: computing it again costs more than reading it back

A value that takes one read and little arithmetic is computed again: the read hits the cache, as scratch memory would.
"""

from __future__ import annotations

from ingot.fusion.groups import Level
from ingot.loops.program import Input, Operand, Program, Result
from ingot.ops.samples import EXACT

FEW_OPERATIONS = 4


def kept_statements(program: Program) -> frozenset[int]:
    """Element values that one pass computes and a later one needs, and that are expensive."""
    needed = [_needed_in(program, stage) for stage in range(program.stages)]
    found: set[int] = set()
    for index, statement in enumerate(program.statements):
        if statement.level is not Level.ELEMENT or index not in needed[statement.stage]:
            continue
        later = any(index in needed[stage] for stage in range(statement.stage + 1, program.stages))
        if later and _is_boundary(program, index) and _is_expensive(program, index):
            found.add(index)
    return frozenset(found)


def _needed_in(program: Program, stage: int) -> set[int]:
    """The element statements that a pass needs if nothing is kept."""
    found: set[int] = set()
    waiting = purposes_of(program, stage)
    while waiting:
        operand = waiting.pop()
        if not isinstance(operand, Result) or program.level_of(operand) is not Level.ELEMENT or operand.index in found:
            continue
        found.add(operand.index)
        waiting.extend(program.statements[operand.index].operands)
    return found


def purposes_of(program: Program, stage: int) -> list[Operand]:
    """What a pass is there for: elements that it accumulates, and results that it computes."""
    accumulated = [s for s in program.statements if s.is_reduction and s.level is Level.ROW and s.stage == stage]
    results = [result for result in program.outputs if program.statements[result.index].stage == stage]
    return [*(operand for statement in accumulated for operand in statement.operands), *results]


def _is_boundary(program: Program, index: int) -> bool:
    """Whether something of a later pass reads a value directly."""
    stage = program.statements[index].stage
    return any(
        Result(index, program.statements[index].dtype) in statement.operands and statement.stage > stage
        for statement in program.statements
    )


def _is_expensive(program: Program, index: int) -> bool:
    """Whether a value takes a function, a division, several reads or many operations."""
    reads: set[int] = set()
    seen: set[int] = set()
    waiting: list[Operand] = [Result(index, program.statements[index].dtype)]
    while waiting:
        operand = waiting.pop()
        if isinstance(operand, Input) and operand.level is Level.ELEMENT:
            reads.add(operand.index)
        if not isinstance(operand, Result) or program.level_of(operand) is not Level.ELEMENT or operand.index in seen:
            continue
        statement = program.statements[operand.index]
        if statement.op.tolerance != EXACT or statement.op.name in ("div", "reciprocal"):
            return True
        seen.add(operand.index)
        waiting.extend(statement.operands)
    return len(reads) > 1 or len(seen) > FEW_OPERATIONS
