"""Values where they are kept: in memory, where a bool is a byte, and in words of a call, where a float is a double."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type

WORD = ir.IntType(64)
BYTE_POINTER = ir.PointerType(ir.IntType(8))
ANY_ADDRESS = 1
"""Alignment of what is read: a tensor may begin at any byte. Claiming more would be undefined behaviour."""


def number_in(builder: Any, word: ir.Value, dtype: DataType) -> TypedValue:
    """A number from its word: floats lie there as doubles, whole numbers as 64 bits."""
    single = Instructions(builder, 1)
    if dtype.is_float:
        return single.convert(TypedValue(builder.bitcast(word, ir.DoubleType()), DataType.Double), dtype)
    if dtype is DataType.Bool:
        return TypedValue(builder.icmp_unsigned("!=", word, WORD(0)), dtype)
    return single.convert(TypedValue(word, DataType.Int), dtype)


def in_register(builder: Any, code: Any, dtype: DataType) -> TypedValue:
    """What was read from memory: a byte becomes a bool."""
    if dtype is DataType.Bool:
        return TypedValue(builder.icmp_unsigned("!=", code, ir.Constant(code.type, None)), dtype)
    return TypedValue(code, dtype)


def in_memory(instructions: Instructions, value: TypedValue) -> Any:
    """What is written to memory: a bool becomes a byte."""
    if value.dtype is DataType.Bool:
        return instructions.builder.zext(value.code, instructions.wide(memory_type(value.dtype)))
    return value.code
