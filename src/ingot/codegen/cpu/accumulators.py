"""Reductions in generated code: where partial results lie, how elements join them, how lanes and threads are combined.

A reduction accumulates in as many lanes as its loop has, so that additions need not wait for each other; the lanes are
combined when it is finished. Where a parallel loop lies between, each of its grains leaves one value in an array, and
those are combined in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.cpu.frame import LoopFrame
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.combining import combined, halves, identity
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type
from ingot.codegen.llvm.storage import ANY_ADDRESS, in_memory, in_register


@dataclass(frozen=True, slots=True)
class AccumulatorMemory:
    """Memory of an accumulator in the current function."""

    pointer: Any
    lanes: int
    """Values side by side: lanes of a vector loop, or 1 where elements come one by one."""


def start(frame: LoopFrame, index: int) -> None:
    """Set an accumulator to what it has before the first element."""
    accumulator = frame.nest.accumulators[index]
    storage = frame.accumulators[index]
    instructions = Instructions(frame.builder, storage.lanes)
    _write(instructions, storage.pointer, identity(instructions, accumulator))


def start_at_position(frame: LoopFrame, index: int) -> None:
    """The same for one position of an accumulator that has a value for each."""
    instructions = Instructions(frame.builder, 1)
    _write(instructions, _at_position(frame, index), identity(instructions, frame.nest.accumulators[index]))


def accumulate_vector(
    frame: LoopFrame, instructions: Instructions, index: int, value: TypedValue, rest: tuple[ir.Value, ir.Value] | None
) -> None:
    """Add the elements of all lanes to those of the accumulator.

    `rest` says whether the vector is full and, where it is not, which lanes hold elements.
    """
    accumulator, pointer = frame.nest.accumulators[index], frame.accumulators[index].pointer
    so_far = _read(instructions, pointer, accumulator.dtype)
    total = combined(instructions, accumulator, so_far, value)
    if rest is None:
        _write(instructions, pointer, total)
        return
    is_full, mask = rest
    # A branch, because choosing lanes would cost every full vector a few instructions.
    _write(instructions, pointer, total)
    with frame.builder.if_then(frame.builder.not_(is_full), odds=(1, 99)):
        chosen = frame.builder.select(mask, total.code, so_far.code)
        _write(instructions, pointer, TypedValue(chosen, total.dtype))


def accumulate_single(frame: LoopFrame, index: int, value: TypedValue) -> None:
    """Add one element."""
    accumulator = frame.nest.accumulators[index]
    instructions = Instructions(frame.builder, 1)
    pointer = frame.accumulators[index].pointer
    so_far = _read(instructions, pointer, accumulator.dtype)
    _write(instructions, pointer, combined(instructions, accumulator, so_far, value))


def read_accumulated(frame: LoopFrame, instructions: Instructions, index: int) -> TypedValue:
    """The values of an accumulator that has one per position, for all lanes."""
    return _read(instructions, _at_position(frame, index), frame.nest.accumulators[index].dtype)


def write_accumulated(frame: LoopFrame, instructions: Instructions, index: int, value: TypedValue) -> None:
    _write(instructions, _at_position(frame, index), value)


def total(frame: LoopFrame, index: int) -> TypedValue:
    """The lanes of an accumulator combined, in its own type."""
    accumulator = frame.nest.accumulators[index]
    storage = frame.accumulators[index]
    lanes = storage.lanes
    value = _read(Instructions(frame.builder, lanes), storage.pointer, accumulator.dtype)
    while lanes > 1:
        lanes //= 2
        low, high = halves(frame.builder, value, lanes)
        value = combined(Instructions(frame.builder, lanes), accumulator, low, high)
    return value


def finish(frame: LoopFrame, index: int, dtype: DataType) -> TypedValue:
    """The accumulated value in the type of the result."""
    return Instructions(frame.builder, 1).convert(total(frame, index), dtype)


def _at_position(frame: LoopFrame, index: int) -> ir.Value:
    """The place of the current position in an accumulator with one value per position of a block."""
    axis = frame.nest.accumulators[index].axis
    assert axis is not None
    relative = frame.builder.sub(frame.positions[axis], frame.range_of(axis)[0])
    return frame.builder.gep(frame.accumulators[index].pointer, relative)


def _read(instructions: Instructions, pointer: Any, dtype: DataType) -> TypedValue:
    builder = instructions.builder
    typed = builder.bitcast(pointer, ir.PointerType(instructions.wide(memory_type(dtype))))
    return in_register(builder, builder.load(typed, align=ANY_ADDRESS), dtype)


def _write(instructions: Instructions, pointer: Any, value: TypedValue) -> None:
    builder = instructions.builder
    code = in_memory(instructions, value)
    builder.store(code, builder.bitcast(pointer, ir.PointerType(code.type)), align=ANY_ADDRESS)
