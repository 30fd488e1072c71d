"""Innermost loops: several elements at once, by one body that serves whole vectors and what is left over.

    header: are there enough elements for a vector?
    rest:   no: copy what is left into small arrays, which the body then reads and writes instead
    body:   the instructions of the loop, for all lanes
    spill:  after a rest: copy results from the small arrays to where they belong

One body halves the code to compile, and leftovers run at the speed of a vector. Lanes beyond the end compute on zeros
or on what an earlier rest left; nothing they compute is stored or gathered.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ingot.base.dtypes import DataType
from ingot.codegen.llvm.accumulation import accumulate_vector, recall_gathered
from ingot.codegen.llvm.common import declare
from ingot.codegen.llvm.frame import ANY_ADDRESS, BYTE_POINTER, WORD, Frame, in_memory, in_register
from ingot.codegen.llvm.host import host
from ingot.codegen.llvm.instructions import Instructions, Value, memory_type
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.loops.nest import (
    Accumulate,
    AxisPosition,
    Compute,
    Finish,
    Keep,
    Load,
    Loop,
    Nest,
    Recall,
    Store,
    register_made,
    values_read,
)
from ingot.loops.nest import Value as Operand
from ingot.loops.program import Argument, Known
from ingot.loops.schedule import Motion, Schedule

VECTOR_BYTES = 64
"""Bytes a vector of the widest type takes: one AVX-512 register, two of AVX2, four of SSE or NEON."""
ACCUMULATOR_BYTES = 128
"""Bytes the accumulators of one reduction may take: as many additions in flight as hide their latency."""
MOST_LANES = 64


def lanes_of(nest: Nest, loop: Loop) -> int:
    """How many elements a vector loop takes at once."""
    widest, gathered, functions = 1, 1, False
    for instruction in loop.body:
        register = register_made(instruction)
        if register is not None:
            widest = max(widest, register.dtype.widened.bytes)
        if isinstance(instruction, Store):
            widest = max(widest, nest.buffers[instruction.buffer].dtype.widened.bytes)
        if isinstance(instruction, Accumulate) and nest.accumulators[instruction.accumulator].axis is None:
            gathered = max(gathered, nest.accumulators[instruction.accumulator].dtype.bytes)
        functions |= isinstance(instruction, Compute) and instruction.op.name in FUNCTIONS
    # Polynomials need registers for their terms: half as many elements at once then.
    budget = VECTOR_BYTES // 2 if functions and host().vector_bits < 512 else VECTOR_BYTES
    return max(min(budget // widest, ACCUMULATOR_BYTES // gathered, MOST_LANES), 2)


class VectorLoop:
    """Writes one vector loop at a frame's place."""

    def __init__(self, frame: Frame, loop: Loop, schedule: Schedule):
        self.frame = frame
        self.loop = loop
        self.schedule = schedule
        self.builder = frame.builder
        (self.axis,) = loop.axes
        self.lanes = lanes_of(frame.nest, loop)
        self.instructions = Instructions(self.builder, self.lanes)
        self.values: dict[Operand, Value] = {}
        moving = [i for i in loop.body if isinstance(i, Load) and self._motion(i.buffer) is not Motion.STILL]
        self.loads = list(dict.fromkeys(i.buffer for i in moving if isinstance(i, Load)))
        self.stores = [i.buffer for i in loop.body if isinstance(i, Store)]
        self.gathers = any(isinstance(i, Accumulate) for i in loop.body)

    def _motion(self, buffer: int) -> Motion:
        return self.schedule.motions[buffer] if self.axis == self.schedule.vector_axis else Motion.NEXT

    def emit(self) -> None:
        builder = self.builder
        begin, end = self.frame.range_of(self.axis)
        self._prepare()
        temporaries = {buffer: self._temporary(buffer) for buffer in (*self.loads, *self.stores)}
        before = builder.block
        header, rest, body, following, spill, after = (
            builder.append_basic_block(name) for name in ("header", "rest", "vector", "following", "spill", "after")
        )
        builder.cbranch(builder.icmp_signed("<", begin, end), header, after)

        builder.position_at_end(header)
        position = builder.phi(WORD)
        position.add_incoming(begin, before)
        left = builder.sub(end, position)
        is_full = builder.icmp_signed(">=", left, WORD(self.lanes))
        places = {buffer: self._place(buffer, position) for buffer in temporaries}
        builder.cbranch(is_full, body, rest)

        builder.position_at_end(rest)
        for buffer in self.loads:
            self._copy(buffer, "gather", temporaries[buffer], places[buffer], left)
        lanes_left = self._first_lanes(left) if self.gathers else None
        builder.branch(body)

        builder.position_at_end(body)
        pointers = {buffer: self._either(places[buffer], header, temporaries[buffer], rest) for buffer in places}
        strides = {
            buffer: self._either(self._stride(buffer), header, WORD(self._dtype(buffer).bytes), rest)
            for buffer in places
            if self._motion(buffer) is Motion.STRIDED
        }
        rest_lanes = None
        if lanes_left is not None:
            rest_lanes = (is_full, self._either(ir.Constant(lanes_left.type, ir.Undefined), header, lanes_left, rest))
        self._body(position, pointers, strides, rest_lanes)
        builder.cbranch(is_full, following, spill)

        builder.position_at_end(following)
        advanced = builder.add(position, WORD(self.lanes))
        position.add_incoming(advanced, following)
        builder.cbranch(builder.icmp_signed("<", advanced, end), header, after)

        builder.position_at_end(spill)
        for buffer in self.stores:
            self._copy(buffer, "scatter", temporaries[buffer], places[buffer], left)
        builder.branch(after)
        builder.position_at_end(after)

    # --- before the loop ----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Put everything that stays the same into all lanes, before the loop begins."""
        for instruction in self.loop.body:
            if isinstance(instruction, Load) and self._motion(instruction.buffer) is Motion.STILL:
                value = load_single(self.frame, instruction.buffer)
                self.values[instruction.register] = self._wide(value)
            for operand in values_read(instruction):
                if operand not in self.values and self._is_outside(operand):
                    self.values[operand] = self._wide(self.frame.value(operand, Instructions(self.builder, 1)))

    def _is_outside(self, operand: Operand) -> bool:
        if isinstance(operand, Known):
            return False  # a constant of all lanes costs nothing
        if isinstance(operand, AxisPosition):
            return operand.axis != self.axis
        return isinstance(operand, Argument) or operand in self.frame.registers

    def _wide(self, value: Value) -> Value:
        return Value(self.instructions.splat(value.code), value.dtype)

    def _temporary(self, buffer: int) -> ir.Value:
        """A small array that takes the place of a buffer for what is left over. Its lanes are never undefined."""
        kind = ir.ArrayType(ir.IntType(8), self.lanes * self._dtype(buffer).bytes)
        array = allocate(self.builder, kind)
        with self.builder.goto_entry_block():
            self.builder.store(ir.Constant(kind, None), array)
        return self.builder.bitcast(array, BYTE_POINTER)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _dtype(self, buffer: int) -> DataType:
        return self.frame.nest.buffers[buffer].dtype

    def _stride(self, buffer: int) -> ir.Value:
        if self._motion(buffer) is Motion.STRIDED:
            return self.frame.words.stride(buffer, self.axis)
        return WORD(self._dtype(buffer).bytes)

    def _place(self, buffer: int, position: ir.Value) -> ir.Value:
        pointer = self.frame.pointer(buffer)
        return self.builder.gep(pointer, [self.builder.mul(position, self._stride(buffer))])

    def _either(self, value: Any, block: Any, other: ir.Value, other_block: Any) -> ir.Value:
        chosen = self.builder.phi(value.type)
        chosen.add_incoming(value, block)
        chosen.add_incoming(other, other_block)
        return chosen

    def _copy(self, buffer: int, direction: str, array: ir.Value, place: ir.Value, count: ir.Value) -> None:
        function = declare(self.builder.module, f"{direction}{self._dtype(buffer).bits}")
        self.builder.call(function, [array, place, self._stride(buffer), count])

    def _first_lanes(self, count: ir.Value) -> Any:
        """Which lanes hold elements where only some are left."""
        numbers = ir.VectorType(WORD, self.lanes)
        return self.builder.icmp_signed(
            "<", ir.Constant(numbers, list(range(self.lanes))), self.instructions.splat(count)
        )

    def _load(self, buffer: int, pointer: ir.Value, stride: ir.Value | None) -> Value:
        builder, dtype = self.builder, self._dtype(buffer)
        element = memory_type(dtype)
        if stride is None:
            typed = builder.bitcast(pointer, ir.PointerType(self.instructions.wide(element)))
            return in_register(builder, builder.load(typed, align=ANY_ADDRESS), dtype)
        gathered: ir.Value = ir.Constant(self.instructions.wide(element), ir.Undefined)
        for lane in range(self.lanes):
            typed = builder.bitcast(pointer, ir.PointerType(element))
            single = builder.load(typed, align=ANY_ADDRESS)
            gathered = builder.insert_element(gathered, single, ir.IntType(32)(lane))
            pointer = builder.gep(pointer, [stride])
        return in_register(builder, gathered, dtype)

    def _store(self, pointer: ir.Value, stride: ir.Value | None, value: Value) -> None:
        code = in_memory(self.instructions, value)
        if stride is not None:
            self._scatter(code, pointer, stride)
            return
        typed = self.builder.bitcast(pointer, ir.PointerType(code.type))
        streams = self.schedule.streaming
        store = self.builder.store(code, typed, align=value.dtype.bytes * self.lanes if streams else ANY_ADDRESS)
        if streams:
            store.set_metadata("nontemporal", self.builder.module.add_metadata([ir.IntType(32)(1)]))

    def _scatter(self, code: Any, pointer: ir.Value, stride: ir.Value) -> None:
        for lane in range(self.lanes):
            single = self.builder.extract_element(code, ir.IntType(32)(lane))
            self.builder.store(single, self.builder.bitcast(pointer, ir.PointerType(single.type)), align=ANY_ADDRESS)
            pointer = self.builder.gep(pointer, [stride])

    # --- the body -----------------------------------------------------------------------------------------------------

    def _body(
        self, position: ir.Value, pointers: dict, strides: dict, rest_lanes: tuple[ir.Value, ir.Value] | None
    ) -> None:
        self.frame.positions[self.axis] = position
        for instruction in self.loop.body:
            match instruction:
                case Load(register, buffer):
                    if register not in self.values:
                        self.values[register] = self._load(buffer, pointers[buffer], strides.get(buffer))
                case Compute(register, op, operands, attributes):
                    assert op.emit is not None
                    values = [self._value(operand, position) for operand in operands]
                    self.values[register] = op.emit(self.instructions, *values, **dict(attributes))
                case Store(buffer, operand):
                    self._store(pointers[buffer], strides.get(buffer), self._value(operand, position))
                case Keep(scratch, operand):
                    self._keep(scratch, self._value(operand, position))
                case Recall(register, scratch):
                    self.values[register] = self._recall(scratch)
                case Accumulate(accumulator, operand):
                    value = self._value(operand, position)
                    accumulate_vector(self.frame, self.instructions, accumulator, value, rest_lanes)
                case Finish(register, accumulator):
                    self.values[register] = recall_gathered(self.frame, self.instructions, accumulator, register.dtype)
                case _:
                    raise AssertionError(f"{instruction} cannot stand in a vector loop")

    def _value(self, operand: Operand, position: ir.Value) -> Value:
        if isinstance(operand, Known):
            return self.instructions.literal(operand.value, operand.dtype)
        if isinstance(operand, AxisPosition) and operand.axis == self.axis:
            numbers = ir.Constant(ir.VectorType(WORD, self.lanes), list(range(self.lanes)))
            counted = self.builder.add(self.instructions.splat(position), numbers)
            return self.instructions.convert(Value(counted, DataType.Int), operand.dtype)
        return self.values[operand]

    def _keep(self, scratch: int, value: Value) -> None:
        memory = self.frame.scratches[scratch]
        place = memory.place(self.frame)
        code = in_memory(self.instructions, value)
        if self.axis == memory.axes[-1]:
            self.builder.store(code, self.builder.bitcast(place, ir.PointerType(code.type)), align=ANY_ADDRESS)
        else:
            self._scatter(code, place, memory.strides[self.axis])

    def _recall(self, scratch: int) -> Value:
        memory = self.frame.scratches[scratch]
        assert self.axis == memory.axes[-1], "scratch memory is read along its last axis"
        place, dtype = memory.place(self.frame), self.frame.nest.scratches[scratch].dtype
        typed = self.builder.bitcast(place, ir.PointerType(self.instructions.wide(memory_type(dtype))))
        return in_register(self.builder, self.builder.load(typed, align=ANY_ADDRESS), dtype)


def load_single(frame: Frame, buffer: int) -> Value:
    """One element at the current position."""
    dtype = frame.nest.buffers[buffer].dtype
    typed = frame.builder.bitcast(frame.pointer(buffer), ir.PointerType(memory_type(dtype)))
    return in_register(frame.builder, frame.builder.load(typed, align=ANY_ADDRESS), dtype)


def allocate(builder: Any, kind: ir.Type, count: ir.Value | None = None) -> ir.Value:
    """Memory of the current function; in the entry block where its size is known, so that registers can replace it."""
    if count is not None:
        memory = builder.alloca(kind, size=count)
    else:
        with builder.goto_entry_block():
            memory = builder.alloca(kind)
    memory.align = 64
    return memory
