"""What reductions combine, on any target: the value before the first element, two values, and the lanes of a vector."""

from __future__ import annotations

from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.instructions import Instructions, TypedValue
from ingot.loops.nest import Accumulator


def identity(instructions: Instructions, accumulator: Accumulator) -> TypedValue:
    assert accumulator.op.combination is not None
    return instructions.literal(accumulator.op.combination.identity(accumulator.dtype), accumulator.dtype)


def combined(instructions: Instructions, accumulator: Accumulator, so_far: TypedValue, value: TypedValue) -> TypedValue:
    assert accumulator.op.combination is not None
    return accumulator.op.combination.combine(instructions, so_far, instructions.convert(value, accumulator.dtype))


def halves(builder: Any, value: TypedValue, lanes: int) -> tuple[TypedValue, TypedValue]:
    """The first so many lanes of a value, and as many after them."""
    low, high = (_lanes(builder, value.code, range(first, first + lanes)) for first in (0, lanes))
    return TypedValue(low, value.dtype), TypedValue(high, value.dtype)


def _lanes(builder: Any, code: Any, lanes: range) -> ir.Value:
    if len(lanes) == 1:
        return builder.extract_element(code, lanes[0])
    return builder.shuffle_vector(code, ir.Constant(code.type, ir.Undefined), lanes)
