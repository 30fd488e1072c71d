"""Rows of a few elements: as many rows at once as a vector has lanes, each element of a row in a register of its own.

    memory     x0 y0 z0 x1 y1 z1 x2 y2 z2 ...      one vector after another
    registers  x0 x1 x2 ..., y0 y1 y2 ..., z0 z1 z2 ...

Where rows follow each other without a gap, whole vectors are read and written, and lanes change places in between. What
belongs to a row is one vector, what is the same in all rows is read before the loop. The loops over a row's elements
are fully unrolled; what they store is written after the last of them, when all elements are there. Rows that are left
over go through the same instructions, fewer at a time and at last one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.cpu.frame import LoopFrame, counted
from ingot.codegen.cpu.lane_exchanges import rows_apart, rows_together
from ingot.codegen.cpu.lanes import lanes_of
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.combining import combined, identity
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type
from ingot.codegen.llvm.storage import ANY_ADDRESS, WORD, in_memory, in_register
from ingot.loops.cpu.schedule import Schedule
from ingot.loops.motion import Motion
from ingot.loops.nest import (
    Accumulate,
    AxisPosition,
    Begin,
    Compute,
    Finish,
    Instruction,
    Load,
    Loop,
    Store,
    Value,
    walk,
)
from ingot.loops.program import ConstantOperand

LINE_BYTES = 64
NARROWER = 4
"""How many times fewer rows go at once where not enough are left for whole vectors."""


class ShortRowsLoop:
    """Writes one vector loop over rows, with the loops over their elements inside it."""

    def __init__(self, frame: LoopFrame, loop: Loop, schedule: Schedule):
        self.frame, self.loop, self.schedule = frame, loop, schedule
        self.builder = frame.builder
        (self.axis,) = loop.axes
        self.elements = schedule.axes - 1
        """The axis of a row's elements."""
        self.widest = lanes_of(frame.nest, loop, schedule.vector_bytes)
        loads = dict.fromkeys(i.buffer for i in walk(loop.body) if isinstance(i, Load))
        self.same_in_all = {buffer: self._single_row(buffer) for buffer in loads if self._is_same_in_all(buffer)}

    def emit(self) -> None:
        begin, end = self.frame.range_of(self.axis)
        for lanes in self._lanes():
            whole = self.builder.sub(end, self.builder.urem(self.builder.sub(end, begin), WORD(lanes)))
            with counted(self.builder, begin, whole, lanes) as position:
                _Rows(self, position, lanes).emit()
            begin = whole

    def _lanes(self) -> list[int]:
        """How many rows go at once: first as many as fit vectors, then, where any are left over, fewer."""
        narrower = () if self.schedule.is_even else (self.widest // NARROWER, 1)
        return sorted({self.widest, *(max(lanes, 1) for lanes in narrower)}, reverse=True)

    # --- where elements lie -------------------------------------------------------------------------------------------

    def motion(self, buffer: int) -> Motion:
        """From row to row."""
        return self.schedule.motions[buffer]

    def row_motion(self, buffer: int) -> Motion:
        return self.schedule.row_motions[buffer]

    def pointer(self, buffer: int, row: ir.Value, element: int) -> Any:
        words = self.frame.words
        distance = self.builder.mul(row, words.stride(buffer, self.axis))
        if element and self.row_motion(buffer) is not Motion.STILL:
            inside = self.builder.mul(WORD(element), words.stride(buffer, self.elements))
            distance = self.builder.add(distance, inside)
        return self.builder.gep(self.frame.pointer(buffer), distance)

    def dtype(self, buffer: int) -> DataType:
        return self.frame.nest.buffers[buffer].dtype

    def _is_same_in_all(self, buffer: int) -> bool:
        return self.motion(buffer) is Motion.STILL

    def _single_row(self, buffer: int) -> list[Any]:
        """The elements of the only row there is of a buffer, one by one."""
        distinct = 1 if self.row_motion(buffer) is Motion.STILL else self.schedule.row_size
        kind = ir.PointerType(memory_type(self.dtype(buffer)))
        return [
            self.builder.load(self.builder.bitcast(self.pointer(buffer, WORD(0), element), kind), align=ANY_ADDRESS)
            for element in range(distinct)
        ]


class _Rows:
    """As many rows as there are lanes."""

    def __init__(self, loop: ShortRowsLoop, position: ir.Value, lanes: int):
        self.around, self.position, self.lanes = loop, position, lanes
        self.builder = loop.builder
        self.streams = loop.schedule.streaming and lanes == loop.widest
        self.instructions = Instructions(self.builder, lanes)
        self.values: dict[Value, TypedValue] = {}
        self.accumulated: dict[int, TypedValue] = {}
        self.loaded: dict[int, list[TypedValue]] = {}
        """Per buffer the elements of all rows: one vector for each element of a row, or only one for all of them."""

    def emit(self) -> None:
        for instruction in self.around.loop.body:
            if isinstance(instruction, Loop):
                self._unrolled(instruction)
            elif isinstance(instruction, Store):
                self._store(instruction.buffer, [self._value(instruction.value, self.values, 0)])
            else:
                self._run(instruction, self.values, 0)

    def _unrolled(self, loop: Loop) -> None:
        stored: dict[int, list[TypedValue]] = {}
        for element in range(self.around.schedule.row_size):
            values = dict(self.values)
            for instruction in loop.body:
                if isinstance(instruction, Store):
                    stored.setdefault(instruction.buffer, []).append(self._value(instruction.value, values, element))
                else:
                    self._run(instruction, values, element)
        for buffer, elements in stored.items():
            self._store(buffer, elements)

    def _run(self, instruction: Instruction, values: dict[Value, TypedValue], element: int) -> None:
        accumulators = self.around.frame.nest.accumulators
        match instruction:
            case Load(register, buffer):
                elements = self._load(buffer)
                values[register] = elements[min(element, len(elements) - 1)]
            case Compute(register, op, operands, attributes):
                assert op.emit is not None
                given = [self._value(operand, values, element) for operand in operands]
                values[register] = op.emit(self.instructions, *given, **dict(attributes))
            case Begin(accumulator):
                self.accumulated[accumulator] = identity(self.instructions, accumulators[accumulator])
            case Accumulate(accumulator, operand):
                so_far, value = self.accumulated[accumulator], self._value(operand, values, element)
                self.accumulated[accumulator] = combined(self.instructions, accumulators[accumulator], so_far, value)
            case Finish(register, accumulator):
                values[register] = self.instructions.convert(self.accumulated[accumulator], register.dtype)
            case _:
                raise AssertionError(f"{instruction} cannot stand in a loop over short rows")

    def _value(self, operand: Value, values: dict[Value, TypedValue], element: int) -> TypedValue:
        if isinstance(operand, ConstantOperand):
            return self.instructions.literal(operand.value, operand.dtype)
        if isinstance(operand, AxisPosition) and operand.axis in (self.around.axis, self.around.elements):
            return self._position(operand, element)
        found = values.get(operand)
        if found is None:
            single = self.around.frame.value(operand, Instructions(self.builder, 1))
            found = TypedValue(self.instructions.splat(single.code), single.dtype)
        return found

    def _position(self, operand: AxisPosition, element: int) -> TypedValue:
        if operand.axis == self.around.elements:
            return self.instructions.convert(self.instructions.literal(element, DataType.Int), operand.dtype)
        code = self.instructions.splat(self.position)
        if self.lanes > 1:
            code = self.builder.add(code, ir.Constant(ir.VectorType(WORD, self.lanes), list(range(self.lanes))))
        return self.instructions.convert(TypedValue(code, DataType.Int), operand.dtype)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _load(self, buffer: int) -> list[TypedValue]:
        if buffer not in self.loaded:
            dtype = self.around.dtype(buffer)
            self.loaded[buffer] = [in_register(self.builder, code, dtype) for code in self._read(buffer)]
        return self.loaded[buffer]

    def _read(self, buffer: int) -> list[Any]:
        around, size = self.around, self.around.schedule.row_size
        if buffer in around.same_in_all:
            return [self.instructions.splat(code) for code in around.same_in_all[buffer]]
        if around.row_motion(buffer) is Motion.NEXT and self.lanes > 1:
            first = around.pointer(buffer, self.position, 0)
            return rows_apart(self.builder, [self._vector(buffer, first, number) for number in range(size)])
        distinct = 1 if around.row_motion(buffer) is Motion.STILL else size
        return [self._across(buffer, element) for element in range(distinct)]

    def _vector(self, buffer: int, first: Any, number: int) -> Any:
        """One of the vectors that follow a place in memory."""
        width = self.around.dtype(buffer).bytes * self.lanes
        kind = ir.PointerType(self.instructions.wide(memory_type(self.around.dtype(buffer))))
        place = self.builder.gep(first, WORD(number * width))
        return self.builder.load(self.builder.bitcast(place, kind), align=ANY_ADDRESS)

    def _across(self, buffer: int, element: int) -> Any:
        """One element of every row."""
        place = self.around.pointer(buffer, self.position, element)
        if self.lanes == 1 or self.around.motion(buffer) is Motion.NEXT:
            return self._vector(buffer, place, 0)
        kind = memory_type(self.around.dtype(buffer))
        stride = self.around.frame.words.stride(buffer, self.around.axis)
        gathered: Any = ir.Constant(self.instructions.wide(kind), ir.Undefined)
        for lane in range(self.lanes):
            single = self.builder.load(self.builder.bitcast(place, ir.PointerType(kind)), align=ANY_ADDRESS)
            gathered = self.builder.insert_element(gathered, single, lane)
            place = self.builder.gep(place, stride)
        return gathered

    # --- writing ------------------------------------------------------------------------------------------------------

    def _store(self, buffer: int, elements: Sequence[TypedValue]) -> None:
        """Write a value per element, or the only one there is of each row."""
        codes = [in_memory(self.instructions, value) for value in elements]
        if len(codes) > 1 and self.around.row_motion(buffer) is Motion.NEXT and self.lanes > 1:
            first, width = self.around.pointer(buffer, self.position, 0), self.around.dtype(buffer).bytes * self.lanes
            aligned = min(width, LINE_BYTES) if self.streams else None
            for number, code in enumerate(rows_together(self.builder, codes)):
                self._write(code, self.builder.gep(first, WORD(number * width)), aligned)
            return
        for element, code in enumerate(codes):
            place = self.around.pointer(buffer, self.position, element)
            if self.lanes == 1 or self.around.motion(buffer) is Motion.NEXT:
                self._write(code, place)
                continue
            stride = self.around.frame.words.stride(buffer, self.around.axis)
            for lane in range(self.lanes):
                self._write(self.builder.extract_element(code, lane), place)
                place = self.builder.gep(place, stride)

    def _write(self, code: Any, place: Any, streamed: int | None = None) -> None:
        """`streamed` is what the place is a multiple of where a whole vector goes past the caches."""
        typed = self.builder.bitcast(place, ir.PointerType(code.type))
        self.builder.store(code, typed, streamed or ANY_ADDRESS, streamed is not None)
