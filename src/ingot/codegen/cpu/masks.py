"""Vectors of which only the first lanes are read or written: what is left over at the end of a loop.

In: how many elements are left. Out: which lanes hold them; loads that give zero in all others, and stores that leave
alone what lies there. Always holds: nothing beyond the elements that are left is touched.
"""

from __future__ import annotations

from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import host
from ingot.codegen.llvm.instructions import Instructions
from ingot.codegen.llvm.storage import BYTE_POINTER, WORD

_LETTERS = {ir.HalfType(): "f16", ir.FloatType(): "f32", ir.DoubleType(): "f64"}


def masks_are_quick() -> bool:
    """Whether the processor has instructions for this that take elements of all sizes."""
    return host().vector_bits >= 512


def first_lanes(instructions: Instructions, count: ir.Value) -> Any:
    """Which lanes hold elements where only some are left."""
    numbers = ir.VectorType(WORD, instructions.lanes)
    every = ir.Constant(numbers, list(range(instructions.lanes)))
    return instructions.builder.icmp_signed("<", every, instructions.splat(count))


def load_lanes(builder: Any, pointer: Any, kind: Any, mask: Any) -> Any:
    parameters = [BYTE_POINTER, mask.type, kind]
    return builder.call(_intrinsic(builder, "load", kind, kind, parameters), [pointer, mask, ir.Constant(kind, None)])


def store_lanes(builder: Any, code: Any, pointer: Any, mask: Any) -> None:
    parameters = [code.type, BYTE_POINTER, mask.type]
    builder.call(_intrinsic(builder, "store", code.type, ir.VoidType(), parameters), [code, pointer, mask])


def _intrinsic(builder: Any, verb: str, kind: Any, result: ir.Type, parameters: list[ir.Type]) -> ir.Function:
    name = f"llvm.masked.{verb}.v{kind.count}{_LETTERS.get(kind.element) or kind.element.text}.p0"
    found = builder.module.functions.get(name)
    return found if found is not None else ir.Function(builder.module, ir.FunctionType(result, parameters), name)
