"""Innermost loops: several elements at once. What is left over goes through the same instructions.

    header: are there enough elements for a vector?
    rest:   no: copy what is left into small arrays, which the body then reads and writes instead
    body:   the instructions of the loop, for all lanes
    spill:  after a rest: copy results from the small arrays to where they belong

One body halves the code to compile where functions make it long; a short one is written twice, which leaves a simpler
loop, and reads and writes what is left over in place where the processor has masks for that. Either way leftovers run
at the speed of a vector. Lanes beyond the end compute on zeros or on what an earlier
rest left; nothing they compute is stored or accumulated. Where the schedule is even nothing is left over, and the loop
is its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.cpu.accumulators import accumulate_vector, read_accumulated, write_accumulated
from ingot.codegen.cpu.common import declare
from ingot.codegen.cpu.frame import LoopFrame, counted
from ingot.codegen.cpu.lane_exchanges import transposed
from ingot.codegen.cpu.lanes import accumulates_along, has_functions, lanes_of
from ingot.codegen.cpu.masks import first_lanes, load_lanes, masks_are_quick, store_lanes
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.combining import combined
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type
from ingot.codegen.llvm.storage import ANY_ADDRESS, BYTE_POINTER, WORD, in_memory, in_register
from ingot.loops.cpu.schedule import Form, Schedule
from ingot.loops.motion import Motion
from ingot.loops.nest import (
    Accumulate,
    AxisPosition,
    Compute,
    Extent,
    Finish,
    Instruction,
    Keep,
    Load,
    Loop,
    Prefetch,
    Recall,
    Store,
    values_read,
)
from ingot.loops.nest import Value as Operand
from ingot.loops.program import Argument, ConstantOperand

SHORT_BODY = 40
"""Instructions of a body that is written twice: for whole vectors, and for what is left over."""
LINE_BYTES = 64
BYTES_AHEAD = 512
"""How far ahead narrow elements of large tensors are prefetched. Vectors of them are less than a line of the cache, and
so many instructions lie between two lines that the processor does not look far enough ahead by itself."""


Place = tuple[int, int]
"""One of the iterations that run side by side, and a buffer."""


class VectorLoop:
    """Writes one vector loop, for one iteration of the loop around it or for several side by side."""

    def __init__(self, frames: Sequence[LoopFrame], loop: Loop, schedule: Schedule):
        self.frames = frames
        self.nest = frames[0].nest
        self.loop = loop
        self.schedule = schedule
        self.builder = frames[0].builder
        (self.axis,) = loop.axes
        self.lanes = lanes_of(self.nest, loop, schedule.vector_bytes)
        self.instructions = Instructions(self.builder, self.lanes, self._splits_pairs())
        self.values: list[dict[Operand, TypedValue]] = [{} for _ in frames]
        self.temporaries: dict[Place, Any] = {}
        self.running: dict[int, TypedValue] = {}
        """Accumulators with a value per position, while several iterations add to them."""
        self.transposed: dict[int, list[Any]] = {}
        """Vectors that go across the rows of a scratch, one per iteration, to be written together."""
        self.mask: Any = None
        """Which lanes hold elements, while what is left over is read and written in place."""
        moving = [i for i in loop.body if isinstance(i, Load) and self._motion(i.buffer) is not Motion.STILL]
        loads = dict.fromkeys(i.buffer for i in moving if isinstance(i, Load))
        stores = [i.buffer for i in loop.body if isinstance(i, Store)]
        self.loads: list[Place] = [(turn, buffer) for turn in range(len(frames)) for buffer in loads]
        self.stores: list[Place] = [(turn, buffer) for turn in range(len(frames)) for buffer in stores]
        self.accumulates = accumulates_along(self.nest, loop)

    def _motion(self, buffer: int) -> Motion:
        return self.schedule.motions[buffer] if self.axis == self.schedule.vector_axis else Motion.NEXT

    def _splits_pairs(self) -> bool:
        """Whether all lanes may be in another order than memory: nothing but bfloat16 comes from there and goes there,
        nothing but casts works on that, and nothing asks where a lane is."""
        return self.lanes % 2 == 0 and all(map(self._takes_any_order, self.loop.body))

    def _takes_any_order(self, instruction: Instruction) -> bool:
        if any(isinstance(operand, AxisPosition) and operand.axis == self.axis for operand in values_read(instruction)):
            return False
        match instruction:
            case Load(_, buffer):
                return self._dtype(buffer) is DataType.BFloat16 or self._motion(buffer) is Motion.STILL
            case Store(buffer, _):
                return self._dtype(buffer) is DataType.BFloat16
            case Compute(register, op, operands, _):
                return op.name == "cast" or DataType.BFloat16 not in {each.dtype for each in (register, *operands)}
            case _:
                return isinstance(instruction, Prefetch)

    def emit(self) -> None:
        begin, end = self.frames[0].range_of(self.axis)
        for turn in range(len(self.frames)):
            self._prepare(turn)
        if self.schedule.is_even:
            self._emit_full(begin, end)
            return
        is_short, places = self._is_short(), (*self.loads, *self.stores)
        is_masked = is_short and masks_are_quick()
        self.temporaries = {p: self._temporary(p) for p in places if self._is_strided(p) or not is_masked}
        (self._emit_twice if is_short else self._emit_once)(begin, end)

    def _is_short(self) -> bool:
        """Whether a second copy of the body is less work for the compiler than the choices one body needs."""
        return not has_functions(self.loop) and len(self.loop.body) * len(self.frames) <= SHORT_BODY

    def _emit_full(self, begin: ir.Value, end: ir.Value) -> None:
        """The loop over full vectors."""
        places = (*self.loads, *self.stores)
        strides = {place: self._stride(place[1]) for place in places if self._is_strided(place)}
        with counted(self.builder, begin, end, self.lanes, runs=self.schedule.is_even) as position:
            pointers = {place: self._pointer(place, position) for place in places}
            self._bodies(position, pointers, strides, None)

    def _emit_twice(self, begin: ir.Value, end: ir.Value) -> None:
        builder = self.builder
        outside = [dict(values) for values in self.values]
        whole = builder.sub(end, builder.urem(builder.sub(end, begin), WORD(self.lanes)))
        self._emit_full(begin, whole)
        self.values = outside
        with builder.if_then(builder.icmp_signed("<", whole, end)):
            left = builder.sub(end, whole)
            places = {place: self._pointer(place, whole) for place in (*self.loads, *self.stores)}
            self._fill(places, left)
            strides = {place: WORD(self._dtype(place[1]).bytes) for place in places if self._is_strided(place)}
            lanes = (ir.IntType(1)(0), first_lanes(self.instructions, left)) if self.accumulates else None
            self.mask = first_lanes(self.instructions, left) if masks_are_quick() else None
            self._bodies(whole, places | self.temporaries, strides, lanes)
            self.mask = None
            self._spill(places, left)

    def _emit_once(self, begin: ir.Value, end: ir.Value) -> None:
        builder = self.builder
        before = builder.block
        header, rest, body, following, spill, after = (
            builder.append_block(name) for name in ("header", "rest", "vector", "following", "spill", "after")
        )
        builder.cbranch(builder.icmp_signed("<", begin, end), header, after)

        builder.position_at_end(header)
        position = builder.phi(WORD)
        position.add_incoming(begin, before)
        left = builder.sub(end, position)
        is_full = builder.icmp_signed(">=", left, WORD(self.lanes))
        places = {place: self._pointer(place, position) for place in self.temporaries}
        builder.cbranch(is_full, body, rest)

        builder.position_at_end(rest)
        self._fill(places, left)
        lanes_left = first_lanes(self.instructions, left) if self.accumulates else None
        builder.branch(body)

        builder.position_at_end(body)
        pointers = {place: self._either(places[place], header, self.temporaries[place], rest) for place in places}
        strides = {
            place: self._either(self._stride(place[1]), header, WORD(self._dtype(place[1]).bytes), rest)
            for place in places
            if self._is_strided(place)
        }
        rest_lanes = None
        if lanes_left is not None:
            rest_lanes = (is_full, self._either(ir.Constant(lanes_left.type, ir.Undefined), header, lanes_left, rest))
        self._bodies(position, pointers, strides, rest_lanes)
        builder.cbranch(is_full, following, spill)

        builder.position_at_end(following)
        advanced = builder.add(position, WORD(self.lanes))
        position.add_incoming(advanced, following)
        builder.cbranch(builder.icmp_signed("<", advanced, end), header, after)

        builder.position_at_end(spill)
        self._spill(places, left)
        builder.branch(after)
        builder.position_at_end(after)

    def _fill(self, places: dict[Place, Any], left: ir.Value) -> None:
        """Copy what is left over into the small arrays."""
        for place, array in self.temporaries.items():
            if place in self.loads:
                self._copy(place, "gather", array, places[place], left)

    def _spill(self, places: dict[Place, Any], left: ir.Value) -> None:
        """Copy results from the small arrays to where they belong."""
        for place, array in self.temporaries.items():
            if place in self.stores:
                self._copy(place, "scatter", array, places[place], left)

    def _bodies(
        self,
        position: ir.Value,
        pointers: dict[Place, Any],
        strides: dict[Place, Any],
        rest_lanes: tuple[ir.Value, ir.Value] | None,
    ) -> None:
        """The body for every iteration that runs side by side, and what they write together."""
        self.running, self.transposed = {}, {}
        for turn in range(len(self.frames)):
            self._body(turn, position, pointers, strides, rest_lanes)
        for accumulator, value in self.running.items():
            write_accumulated(self.frames[0], self.instructions, accumulator, value)
        for scratch, vectors in self.transposed.items():
            self._keep_transposed(scratch, vectors)

    # --- before the loop ----------------------------------------------------------------------------------------------

    def _prepare(self, turn: int) -> None:
        """Put everything that stays the same into all lanes, before the loop begins."""
        frame, values = self.frames[turn], self.values[turn]
        for instruction in self.loop.body:
            if isinstance(instruction, Load) and self._motion(instruction.buffer) is Motion.STILL:
                values[instruction.register] = self._wide(load_single(frame, instruction.buffer))
            for operand in values_read(instruction):
                if operand not in values and self._is_outside(operand, frame):
                    values[operand] = self._wide(frame.value(operand, Instructions(self.builder, 1)))

    def _is_outside(self, operand: Operand, frame: LoopFrame) -> bool:
        if isinstance(operand, ConstantOperand):
            return False  # a constant of all lanes costs nothing
        if isinstance(operand, AxisPosition):
            return operand.axis != self.axis
        return isinstance(operand, Argument | Extent) or operand in frame.registers

    def _wide(self, value: TypedValue) -> TypedValue:
        return TypedValue(self.instructions.splat(value.code), value.dtype)

    def _temporary(self, place: Place) -> ir.Value:
        """A small array that takes the place of a buffer for what is left over. Its lanes are never undefined."""
        # A vector, because zeroing an array takes a store per byte.
        kind = ir.VectorType(ir.IntType(8), self.lanes * self._dtype(place[1]).bytes)
        array = allocate(self.builder, kind)
        with self.builder.at_entry():
            self.builder.store(ir.Constant(kind, None), array)
        return self.builder.bitcast(array, BYTE_POINTER)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _dtype(self, buffer: int) -> DataType:
        return self.nest.buffers[buffer].dtype

    def _is_strided(self, place: Place) -> bool:
        return self._motion(place[1]) is Motion.STRIDED

    def _stride(self, buffer: int) -> ir.Value:
        if self._motion(buffer) is Motion.STRIDED:
            return self.frames[0].words.stride(buffer, self.axis)
        return WORD(self._dtype(buffer).bytes)

    def _pointer(self, place: Place, position: ir.Value) -> ir.Value:
        turn, buffer = place
        pointer = self.frames[turn].pointer(buffer)
        return self.builder.gep(pointer, self.builder.mul(position, self._stride(buffer)))

    def _either(self, value: Any, block: Any, other: ir.Value, other_block: Any) -> ir.Value:
        chosen = self.builder.phi(value.type)
        chosen.add_incoming(value, block)
        chosen.add_incoming(other, other_block)
        return chosen

    def _copy(self, place: Place, direction: str, array: ir.Value, pointer: ir.Value, count: ir.Value) -> None:
        buffer = place[1]
        function = declare(self.builder.module, f"{direction}{self._dtype(buffer).bits}")
        self.builder.call(function, [array, pointer, self._stride(buffer), count])

    def _load(self, buffer: int, pointer: ir.Value, stride: ir.Value | None) -> TypedValue:
        builder, dtype = self.builder, self._dtype(buffer)
        element = memory_type(dtype)
        if stride is None:
            if self.mask is not None:
                kind = self.instructions.wide(element)
                return in_register(builder, load_lanes(builder, pointer, kind, self.mask), dtype)
            width = dtype.bytes * self.lanes
            if self.schedule.streaming and self.schedule.form is Form.FLAT and width < LINE_BYTES:
                self._ask_for(builder.gep(pointer, WORD(BYTES_AHEAD)), width)
            typed = builder.bitcast(pointer, ir.PointerType(self.instructions.wide(element)))
            return in_register(builder, builder.load(typed, align=ANY_ADDRESS), dtype)
        gathered: ir.Value = ir.Constant(self.instructions.wide(element), ir.Undefined)
        for lane in range(self.lanes):
            typed = builder.bitcast(pointer, ir.PointerType(element))
            single = builder.load(typed, align=ANY_ADDRESS)
            gathered = builder.insert_element(gathered, single, lane)
            pointer = builder.gep(pointer, stride)
        return in_register(builder, gathered, dtype)

    def _store(self, pointer: ir.Value, stride: ir.Value | None, value: TypedValue) -> None:
        code = in_memory(self.instructions, value)
        if stride is not None:
            self._scatter(code, pointer, stride)
            return
        if self.mask is not None:
            store_lanes(self.builder, code, pointer, self.mask)
            return
        typed = self.builder.bitcast(pointer, ir.PointerType(code.type))
        streams = self.schedule.streaming
        aligned = min(value.dtype.bytes * self.lanes, LINE_BYTES)  # blocks of streamed results begin at such addresses
        self.builder.store(code, typed, aligned if streams else ANY_ADDRESS, streams)

    def _scatter(self, code: Any, pointer: ir.Value, stride: ir.Value) -> None:
        for lane in range(self.lanes):
            single = self.builder.extract_element(code, lane)
            self.builder.store(single, self.builder.bitcast(pointer, ir.PointerType(single.type)), align=ANY_ADDRESS)
            pointer = self.builder.gep(pointer, stride)

    # --- the body -----------------------------------------------------------------------------------------------------

    def _body(
        self,
        turn: int,
        position: ir.Value,
        pointers: dict[Place, Any],
        strides: dict[Place, Any],
        rest_lanes: tuple[ir.Value, ir.Value] | None,
    ) -> None:
        frame, values = self.frames[turn], self.values[turn]
        frame.positions[self.axis] = position

        def value_of(operand: Operand) -> TypedValue:
            if isinstance(operand, ConstantOperand):
                return self.instructions.literal(operand.value, operand.dtype)
            if isinstance(operand, AxisPosition) and operand.axis == self.axis:
                return self._positions(position, operand.dtype)
            return values[operand]

        for instruction in self.loop.body:
            match instruction:
                case Load(register, buffer):
                    if register not in values:
                        values[register] = self._load(buffer, pointers[turn, buffer], strides.get((turn, buffer)))
                case Compute(register, op, operands, attributes):
                    assert op.emit is not None
                    values[register] = op.emit(self.instructions, *map(value_of, operands), **dict(attributes))
                case Store(buffer, operand):
                    self._store(pointers[turn, buffer], strides.get((turn, buffer)), value_of(operand))
                case Keep(scratch, operand):
                    self._keep(frame, scratch, value_of(operand))
                case Prefetch(buffer, axis):
                    self._prefetch(frame, position, buffer, axis)
                case Recall(register, scratch):
                    values[register] = self._recall(frame, scratch)
                case Accumulate(accumulator, operand):
                    self._accumulate(frame, accumulator, value_of(operand), rest_lanes)
                case Finish(register, accumulator):
                    accumulated = read_accumulated(frame, self.instructions, accumulator)
                    values[register] = self.instructions.convert(accumulated, register.dtype)
                case _:
                    raise AssertionError(f"{instruction} cannot stand in a vector loop")

    def _accumulate(
        self, frame: LoopFrame, index: int, value: TypedValue, rest_lanes: tuple[ir.Value, ir.Value] | None
    ) -> None:
        accumulator = self.nest.accumulators[index]
        if accumulator.axis is None:
            accumulate_vector(frame, self.instructions, index, value, rest_lanes)
            return
        so_far = self.running.get(index) or read_accumulated(frame, self.instructions, index)
        self.running[index] = combined(self.instructions, accumulator, so_far, value)

    def _prefetch(self, frame: LoopFrame, position: ir.Value, buffer: int, axis: int) -> None:
        """Prefetch the lines of a vector one step further along another axis."""
        if self._motion(buffer) is not Motion.NEXT:
            return
        width = self._dtype(buffer).bytes
        distance = self.builder.add(self.builder.mul(position, WORD(width)), frame.words.stride(buffer, axis))
        self._ask_for(self.builder.gep(frame.pointer(buffer), distance), self.lanes * width)

    def _ask_for(self, place: ir.Value, count: int) -> None:
        """Prefetch this many bytes."""
        kind = ir.FunctionType(ir.VoidType(), [BYTE_POINTER, *[ir.IntType(32)] * 3])
        function = self.builder.module.functions.get("llvm.prefetch.p0")
        if function is None:
            function = ir.Function(self.builder.module, kind, "llvm.prefetch.p0")
        for first in range(0, count, LINE_BYTES):
            line = self.builder.gep(place, WORD(first))
            # For reading, soon, as data.
            self.builder.call(function, [line, ir.IntType(32)(0), ir.IntType(32)(2), ir.IntType(32)(1)])

    def _positions(self, position: ir.Value, dtype: DataType) -> TypedValue:
        """Where each lane is along the loop's axis."""
        numbers = ir.Constant(ir.VectorType(WORD, self.lanes), list(range(self.lanes)))
        reached = self.builder.add(self.instructions.splat(position), numbers)
        return self.instructions.convert(TypedValue(reached, DataType.Int), dtype)

    def _keep(self, frame: LoopFrame, scratch: int, value: TypedValue) -> None:
        memory = frame.scratches[scratch]
        place = memory.place(frame)
        code = in_memory(self.instructions, value)
        if self.axis == memory.axes[-1]:
            self.builder.store(code, self.builder.bitcast(place, ir.PointerType(code.type)), align=ANY_ADDRESS)
        elif len(self.frames) == self.lanes:
            self.transposed.setdefault(scratch, []).append(code)
        else:
            self._scatter(code, place, memory.strides[self.axis])

    def _keep_transposed(self, scratch: int, vectors: list[Any]) -> None:
        """As many vectors as they have lanes are columns of as many rows: transposed, each row takes one vector."""
        memory = self.frames[0].scratches[scratch]
        place = memory.place(self.frames[0])
        for row in transposed(self.builder, vectors):
            self.builder.store(row, self.builder.bitcast(place, ir.PointerType(row.type)), align=ANY_ADDRESS)
            place = self.builder.gep(place, memory.strides[self.axis])

    def _recall(self, frame: LoopFrame, scratch: int) -> TypedValue:
        memory = frame.scratches[scratch]
        assert self.axis == memory.axes[-1], "scratch memory is read along its last axis"
        place, dtype = memory.place(frame), self.nest.scratches[scratch].dtype
        typed = self.builder.bitcast(place, ir.PointerType(self.instructions.wide(memory_type(dtype))))
        return in_register(self.builder, self.builder.load(typed, align=ANY_ADDRESS), dtype)


def load_single(frame: LoopFrame, buffer: int) -> TypedValue:
    """One element at the current position."""
    dtype = frame.nest.buffers[buffer].dtype
    typed = frame.builder.bitcast(frame.pointer(buffer), ir.PointerType(memory_type(dtype)))
    return in_register(frame.builder, frame.builder.load(typed, align=ANY_ADDRESS), dtype)


def allocate(builder: Any, kind: ir.Type, count: ir.Value | None = None) -> ir.Value:
    """Memory of the current function; in the entry block where its size is known, so that registers can replace it."""
    if count is not None:
        return builder.alloca(kind, count, align=64)
    with builder.at_entry():
        return builder.alloca(kind, align=64)
