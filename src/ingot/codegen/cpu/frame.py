"""What generated code knows at a place inside a function: arguments, positions, pointers, registers, scratch memory.

A frame belongs to one LLVM function. Loops copy it, so that what a loop's body learns is forgotten after the loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.instructions import Instructions, TypedValue
from ingot.codegen.llvm.storage import BYTE_POINTER, WORD, number_in
from ingot.loops.kernel_arguments import WordLayout
from ingot.loops.nest import AxisPosition, Extent, Nest, Register
from ingot.loops.nest import Value as Operand
from ingot.loops.program import Argument, ConstantOperand


class Words:
    """The words of a call, each read once, where the function begins."""

    def __init__(self, builder: Any, array: ir.Value, layout: WordLayout):
        self._builder = builder
        self.array = array
        self.layout = layout
        self._read: dict[int, ir.Value] = {}

    def word(self, index: int) -> ir.Value:
        if index not in self._read:
            with self._builder.at_entry():
                self._read[index] = self._builder.load(self._builder.gep(self.array, WORD(index)))
        return self._read[index]

    def size(self, axis: int) -> ir.Value:
        return self.word(self.layout.size(axis))

    def block(self, axis: int) -> ir.Value:
        return self.word(self.layout.block(axis))

    def address(self, buffer: int) -> ir.Value:
        return self.word(self.layout.address(buffer))

    def stride(self, buffer: int, axis: int) -> ir.Value:
        return self.word(self.layout.stride(buffer, axis))

    def scalar(self, index: int) -> ir.Value:
        return self.word(self.layout.scalar(index))


@dataclass(frozen=True, slots=True)
class ScratchMemory:
    """Where a scratch lies in the current function: dense along its axes, the last one fastest."""

    pointer: Any
    axes: tuple[int, ...]
    strides: dict[int, ir.Value]
    """Distance in bytes between neighbours along each axis."""

    def place(self, frame: LoopFrame) -> ir.Value:
        """Where the current position lies."""
        distance: ir.Value = WORD(0)
        for axis in self.axes:
            relative = frame.builder.sub(frame.positions[axis], frame.range_of(axis)[0])
            distance = frame.builder.add(distance, frame.builder.mul(relative, self.strides[axis]))
        return frame.builder.gep(self.pointer, distance)


@dataclass
class LoopFrame:
    nest: Nest
    builder: Any
    words: Words
    positions: dict[int, ir.Value] = field(default_factory=dict)
    """Where the loops around are, per axis."""
    ranges: dict[int, tuple[ir.Value, ir.Value]] = field(default_factory=dict)
    """The current block of axes that go in blocks."""
    offsets: dict[int, ir.Value] = field(default_factory=dict)
    """Per buffer, how far from its address the loops around have moved, in bytes."""
    registers: dict[Register, TypedValue] = field(default_factory=dict)
    scratches: dict[int, ScratchMemory] = field(default_factory=dict)
    accumulators: dict[int, Any] = field(default_factory=dict)
    """Where accumulators of this function lie."""

    def inner(self) -> LoopFrame:
        """The same place, one loop further in."""
        return replace(
            self,
            positions=dict(self.positions),
            ranges=dict(self.ranges),
            offsets=dict(self.offsets),
            registers=dict(self.registers),
        )

    def range_of(self, axis: int) -> tuple[ir.Value, ir.Value]:
        return self.ranges.get(axis) or (WORD(0), self.words.size(axis))

    def move(self, axis: int, position: ir.Value, buffers: Iterable[int]) -> None:
        """Enter a position along an axis."""
        self.positions[axis] = position
        for buffer in buffers:
            distance = self.builder.mul(position, self.words.stride(buffer, axis))
            before = self.offsets.get(buffer)
            self.offsets[buffer] = distance if before is None else self.builder.add(before, distance)

    def pointer(self, buffer: int) -> ir.Value:
        base = self.builder.inttoptr(self.words.address(buffer), BYTE_POINTER)
        offset = self.offsets.get(buffer)
        return base if offset is None else self.builder.gep(base, offset)

    def value(self, operand: Operand, instructions: Instructions) -> TypedValue:
        """The code of a scalar operand."""
        if isinstance(operand, ConstantOperand):
            return instructions.literal(operand.value, operand.dtype)
        if isinstance(operand, Argument):
            return self.scalar(operand)
        if isinstance(operand, AxisPosition):
            return instructions.convert(TypedValue(self.positions[operand.axis], DataType.Int), operand.dtype)
        if isinstance(operand, Extent):
            count: ir.Value = WORD(1)
            for axis in operand.axes:
                count = self.builder.mul(count, self.words.size(axis))
            return instructions.convert(TypedValue(count, DataType.Int), operand.dtype)
        return self.registers[operand]

    def scalar(self, argument: Argument) -> TypedValue:
        return number_in(self.builder, self.words.scalar(argument.index), argument.dtype)


def counted(builder: Any, first: ir.Value, last: ir.Value, step: int = 1, runs: bool = False) -> _Counted:
    """`with counted(builder, first, last) as i:` emits a loop; the builder is after it when the block ends.

    `runs` says that there is at least one iteration.
    """
    return _Counted(builder, first, last, step, runs)


class _Counted:
    def __init__(self, builder: Any, first: ir.Value, last: ir.Value, step: int, runs: bool):
        self._builder, self._last, self._step = builder, last, step
        before = builder.block
        self._body = builder.append_block("body")
        self._after = builder.append_block("after")
        if runs:
            builder.branch(self._body)
        else:
            builder.cbranch(builder.icmp_signed("<", first, last), self._body, self._after)
        builder.position_at_end(self._body)
        self._index = builder.phi(WORD)
        self._index.add_incoming(first, before)

    def __enter__(self) -> ir.Value:
        return self._index

    def __exit__(self, *_: object) -> None:
        builder = self._builder
        following = builder.add(self._index, WORD(self._step))
        self._index.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, self._last), self._body, self._after)
        builder.position_at_end(self._after)


def minimum(builder: Any, left: ir.Value, right: ir.Value) -> ir.Value:
    return builder.select(builder.icmp_signed("<", left, right), left, right)
