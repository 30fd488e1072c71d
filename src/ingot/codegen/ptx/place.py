"""Where a thread is, while its code is written: positions along the axes, and what lies there in memory.

Positions and distances are 32 bits wide where a schedule says that they fit, else 64. The arguments of a kernel are
one array of words, passed by value, which a GPU keeps where all threads read it at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type
from ingot.codegen.llvm.storage import WORD, in_memory, in_register, number_in
from ingot.loops.gpu.schedule import GpuSchedule, Grid
from ingot.loops.kernel_arguments import ACCESS, WordLayout
from ingot.loops.motion import Motion
from ingot.loops.nest import AxisPosition, Extent, Register
from ingot.loops.nest import Value as Operand
from ingot.loops.program import Argument, ConstantOperand

TENSORS, SHARED = 1, 3
"""LLVM's numbers for the memory that tensors lie in and for that of a block of threads."""
BYTE = ir.IntType(8)
INDEX = ir.IntType(32)


class KernelArguments:
    """The words of a call, each read once, where the function begins."""

    def __init__(self, builder: Any, array: ir.Value, layout: WordLayout, schedule: GpuSchedule):
        self._builder = builder
        self._array = array
        self.layout = layout
        self.index = WORD if schedule.is_wide else INDEX
        self._read: dict[int, ir.Value] = {}
        self._read_in_halves: dict[int, list[ir.Value]] = {}

    def word(self, index: int) -> ir.Value:
        if index not in self._read:
            with self._builder.at_entry():
                self._read[index] = self._builder.load(self._builder.gep(self._array, WORD(index)), align=8)
        return self._read[index]

    def _halves(self, index: int) -> list[ir.Value]:
        """The lower and the upper 32 bits of a word."""
        builder = self._builder
        if index not in self._read_in_halves:
            with builder.at_entry():
                halves = builder.bitcast(builder.gep(self._array, WORD(index)), ir.PointerType(INDEX))
                read = [builder.load(builder.gep(halves, WORD(half)), align=4) for half in range(2)]
            self._read_in_halves[index] = read
        return self._read_in_halves[index]

    def _narrow(self, index: int) -> ir.Value:
        word = self.word(index)
        if self.index is WORD:
            return word
        with self._builder.at_entry():
            return self._builder.trunc(word, self.index)

    def size(self, axis: int) -> ir.Value:
        return self._narrow(self.layout.size(axis))

    def block(self, axis: int) -> ir.Value:
        return self._narrow(self.layout.block(axis))

    def quotient(self, number: ir.Value, axis: int, together: int) -> ir.Value:
        """A number divided by the extent of an axis, counted in so many elements together: `loops.gpu.dividing`."""
        builder = self._builder
        if self.index is WORD:
            rounded = builder.add(self.size(axis), WORD(together - 1))
            return builder.udiv(number, builder.udiv(rounded, WORD(together)))
        factor, shift = self._halves(self.layout.divisor(axis))
        doubled = builder.shl(number, INDEX(1))
        product = builder.mul(builder.zext(doubled, WORD), builder.zext(factor, WORD))
        return builder.lshr(builder.trunc(builder.lshr(product, WORD(32)), INDEX), shift)

    def stride(self, buffer: int, axis: int) -> ir.Value:
        return self._narrow(self.layout.stride(buffer, axis))

    def address(self, buffer: int) -> ir.Value:
        """Where a tensor begins."""
        with self._builder.at_entry():
            word = self.word(self.layout.address(buffer))
            return self._builder.inttoptr(word, ir.PointerType(BYTE, TENSORS))

    def scalar(self, argument: Argument) -> TypedValue:
        return number_in(self._builder, self.word(self.layout.scalar(argument.index)), argument.dtype)


@dataclass
class ThreadPlace:
    """One thread at one place of the loops: `vector_width` neighbouring elements along the last axis, or a single
    one."""

    builder: Any
    arguments: KernelArguments
    schedule: GpuSchedule
    vector_width: int = 1
    positions: dict[int, ir.Value] = field(default_factory=dict)
    registers: dict[Register, TypedValue] = field(default_factory=dict)
    is_inside: ir.Value | None = None
    """Whether the thread has elements here; None where it always has. A thread without elements is at others, which it
    may read, and its results are dropped."""
    is_transposed: bool = False
    """Whether the lanes lie along the axis before the last, along which all buffers accessed here are dense."""
    before: ThreadPlace | None = None
    """The place that the thread was at before, if this one is a known number of elements ahead of it along one axis."""
    along: int = 0
    ahead: int = 0

    def inner(self, vector_width: int, is_inside: ir.Value | None) -> ThreadPlace:
        """The same place, one loop further in."""
        return replace(
            self,
            vector_width=vector_width,
            positions=dict(self.positions),
            registers=dict(self.registers),
            is_inside=self._both(self.is_inside, is_inside),
            before=None,
        )

    def _both(self, first: ir.Value | None, second: ir.Value | None) -> ir.Value | None:
        if first is None or second is None:
            return second if first is None else first
        return self.builder.and_(first, second)

    @property
    def instructions(self) -> Instructions:
        return Instructions(self.builder, self.vector_width)

    def enter(self, axes: Iterable[int], number: ir.Value, vector_width: int) -> None:
        """Take a number apart into positions; along the last axis it counts groups of so many elements, which come out
        even where there are several axes."""
        builder, arguments = self.builder, self.arguments
        axes = list(axes)
        remaining = number
        for place, axis in reversed(list(enumerate(axes))):
            width = vector_width if axis == axes[-1] else 1
            self.positions[axis] = builder.mul(remaining, arguments.index(width))
            if place:
                remaining = arguments.quotient(remaining, axis, width)
                before = builder.mul(remaining, arguments.size(axis))
                self.positions[axis] = builder.sub(self.positions[axis], before)

    # --- memory -------------------------------------------------------------------------------------------------------

    def load(self, buffer: int, dtype: DataType) -> TypedValue:
        element, motion = memory_type(dtype), self._motion(buffer)
        if self.vector_width == 1 or motion is Motion.STILL:
            code = self.builder.load(self._pointer(buffer, element, dtype.bytes), align=dtype.bytes)
            return in_register(self.builder, self.instructions.splat(code), dtype)
        if motion is Motion.NEXT:
            kind = self.instructions.wide(element)
            align = min(self.vector_width * dtype.bytes, ACCESS)
            pointer = self._pointer(buffer, kind, dtype.bytes)
            return in_register(self.builder, self.builder.load(pointer, align=align), dtype)
        code = ir.Constant(self.instructions.wide(element), ir.Undefined)
        for lane, pointer in enumerate(self._pointers(buffer, element, dtype.bytes)):
            code = self.builder.insert_element(code, self.builder.load(pointer, align=dtype.bytes), lane)
        return in_register(self.builder, code, dtype)

    def store(self, buffer: int, value: TypedValue) -> None:
        builder, width, motion = self.builder, value.dtype.bytes, self._motion(buffer)
        code = in_memory(self.instructions, value)
        if self.vector_width == 1 or motion is Motion.NEXT:
            align = min(self.vector_width * width, ACCESS)
            builder.store(code, self._pointer(buffer, code.type, width), align=align)
            return
        for lane, pointer in enumerate(self._pointers(buffer, memory_type(value.dtype), width)):
            builder.store(builder.extract_element(code, lane), pointer, align=width)

    def _motion(self, buffer: int) -> Motion:
        return Motion.NEXT if self.is_transposed else self.schedule.motions[buffer]

    def _pointer(self, buffer: int, kind: ir.Type, width: int) -> ir.Value:
        """Where the first lane lies."""
        if self.before is not None:
            pointer = self.before._pointer(buffer, BYTE, width)
            distance = self._distance_ahead(buffer, width)
            pointer = pointer if distance is None else self.builder.gep(pointer, distance)
            return self.builder.bitcast(pointer, ir.PointerType(kind, TENSORS))
        distance = None
        for axis, position in sorted(self.positions.items()):
            stride = self._stride(buffer, axis, width)
            if stride is None:
                continue
            step = self.builder.mul(position, stride)
            distance = step if distance is None else self.builder.add(distance, step)
        base = self.arguments.address(buffer)
        pointer = base if distance is None else self.builder.gep(base, distance)
        return self.builder.bitcast(pointer, ir.PointerType(kind, TENSORS))

    def _distance_ahead(self, buffer: int, width: int) -> ir.Value | None:
        """Bytes from the place before; None for no bytes. From positions the assembler computes each address
        separately, and where registers are short it waits for one load before it computes the address of the next."""
        stride = self._stride(buffer, self.along, width)
        if stride is None:
            return None
        if isinstance(stride, ir.Constant):
            return self.arguments.index(self.ahead * width)
        with self.builder.at_entry():
            return self.builder.mul(stride, self.arguments.index(self.ahead))

    def _stride(self, buffer: int, axis: int, width: int) -> ir.Value | None:
        """Bytes from one position to the next, known where the schedule says how a buffer moves; None for no bytes."""
        motion = self.schedule.motions[buffer] if axis == self.schedule.vector_axis else Motion.STRIDED
        if motion is Motion.STILL:
            return None
        return self.arguments.index(width) if motion is Motion.NEXT else self.arguments.stride(self._like(buffer), axis)

    def _like(self, buffer: int) -> int:
        """The first buffer with the same strides, as far as it is known."""
        alike = self.schedule.alike if isinstance(self.schedule, Grid) else ()
        return alike[buffer] if alike else buffer

    def _pointers(self, buffer: int, kind: ir.Type, width: int) -> list[ir.Value]:
        """Where each lane lies."""
        stride = self.arguments.stride(self._like(buffer), self.schedule.vector_axis)
        first = self._pointer(buffer, BYTE, width)
        index = self.arguments.index
        places = [self.builder.gep(first, self.builder.mul(stride, index(lane))) for lane in range(self.vector_width)]
        return [self.builder.bitcast(place, ir.PointerType(kind, TENSORS)) for place in places]

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, operand: Operand) -> TypedValue:
        """The code of an operand, in every lane."""
        instructions = self.instructions
        if isinstance(operand, ConstantOperand):
            return instructions.literal(operand.value, operand.dtype)
        if isinstance(operand, Argument):
            return self._spread(self.arguments.scalar(operand))
        if isinstance(operand, AxisPosition):
            return instructions.convert(TypedValue(self._positions_of_lanes(operand.axis), DataType.Int), operand.dtype)
        if isinstance(operand, Extent):
            count: ir.Value = WORD(1)
            for axis in operand.axes:
                count = self.builder.mul(count, self.arguments.word(self.arguments.layout.size(axis)))
            single = Instructions(self.builder, 1)
            return self._spread(single.convert(TypedValue(count, DataType.Int), operand.dtype))
        return self._spread(self.registers[operand])

    def _spread(self, value: TypedValue) -> TypedValue:
        """A value that may be the same for all lanes, in every one of them."""
        is_single = self.vector_width > 1 and not isinstance(value.code.type, ir.VectorType)
        return TypedValue(self.instructions.splat(value.code), value.dtype) if is_single else value

    def _positions_of_lanes(self, axis: int) -> ir.Value:
        position = self.positions[axis]
        if self.arguments.index is not WORD:
            position = self.builder.zext(position, WORD)
        positions = self.instructions.splat(position)
        if self.vector_width > 1 and axis == self.schedule.vector_axis:
            positions = self.builder.add(positions, ir.Constant(positions.type, list(range(self.vector_width))))
        return positions
