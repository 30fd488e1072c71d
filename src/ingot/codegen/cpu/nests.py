"""Nests of loops as LLVM: one entry point, and a function of its own for the body of each parallel loop.

    entry(words)                     the instructions outside parallel loops; hands each parallel loop to threads
    region(context, first, last)     grains first to last of a parallel loop

The entry has the program's name. A context is an array of words on its stack: where the arguments are, where partial
results go, and the registers and positions that the region uses from outside. Where there are none of these, the
arguments are the context. A grain is one iteration, except in loops that reductions cross: there a grain has several
iterations and leaves one partial result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.cpu import accumulators
from ingot.codegen.cpu.accumulators import AccumulatorMemory
from ingot.codegen.cpu.common import REGION, declare, provide
from ingot.codegen.cpu.frame import LoopFrame, ScratchMemory, Words, counted, minimum
from ingot.codegen.cpu.lanes import VECTOR_BYTES, lanes_of
from ingot.codegen.cpu.short_rows import ShortRowsLoop
from ingot.codegen.cpu.vector_loops import VectorLoop, allocate, load_single
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, HostModule, new_module
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type
from ingot.codegen.llvm.object_code import CodeStore
from ingot.codegen.llvm.storage import ANY_ADDRESS, BYTE_POINTER, WORD, in_memory, in_register
from ingot.loops.cpu.nesting import build_nest
from ingot.loops.cpu.schedule import MOST_LANES, Form, Schedule
from ingot.loops.kernel_arguments import FAULT, GRAIN, THREADS, WordLayout
from ingot.loops.nest import (
    Accumulate,
    At,
    Begin,
    Compute,
    Finish,
    Instruction,
    Keep,
    Load,
    Loop,
    LoopKind,
    Nest,
    Prefetch,
    Recall,
    Register,
    Store,
    register_made,
    values_read,
    walk,
)
from ingot.loops.program import Program
from ingot.ops import Op

_KIND = "kernel"
"""What a store calls machine code of kernels."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class CompiledKernel:
    program: Program
    schedule: Schedule
    nest: Nest
    code: Compiled
    entry: int
    """Address of the entry."""


def compile_kernel(program: Program, schedule: Schedule, store: CodeStore | None = None) -> CompiledKernel:
    """Machine code for a program under a schedule, which a store may have from an earlier process."""
    provide(store)
    nest = build_nest(program, schedule)

    def write() -> HostModule:
        module = new_module()
        _Emission(module, nest, schedule).emit(program.name)
        return module

    code = Compiled(write, _KIND, program.name, store, _recipe(program, schedule))
    return CompiledKernel(program, schedule, nest, code, code.address(program.name))


def is_kept(program: Program, schedule: Schedule, store: CodeStore) -> bool:
    """Whether a store has machine code for a program under a schedule, as far as it can tell without reading it."""
    recipe = _recipe(program, schedule)
    return recipe is not None and store.knows(_KIND, recipe)


def _recipe(program: Program, schedule: Schedule) -> str | None:
    """All that the text of a kernel is written from; None where that cannot be told."""
    return f"{program.digest} {schedule!r}" if all(_is_own(one.op) for one in program.statements) else None


def _is_own(op: Op) -> bool:
    """Whether an operator is of ingot's own table: what others emit may be something else in another process."""
    return op.emit is None or str(getattr(op.emit, "__module__", "")).startswith("ingot.")


class _Emission:
    def __init__(self, module: ir.Module, nest: Nest, schedule: Schedule):
        self.module = module
        self.nest = nest
        self.schedule = schedule
        self._regions = 0
        self._lanes = _accumulator_lanes(nest, schedule)

    def emit(self, entry: str) -> None:
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [ir.PointerType(WORD)]), entry)
        builder: Any = ir.IRBuilder(function)
        frame = LoopFrame(self.nest, builder, Words(builder, function.arguments[0], WordLayout.of(self.nest)))
        _leave_entry(builder)
        self._provide(frame, self.nest.body)
        self._run(frame, self.nest.body)
        builder.ret_void()

    # --- instructions outside vector loops ----------------------------------------------------------------------------

    def _run(self, frame: LoopFrame, body: Sequence[Instruction]) -> None:
        single = Instructions(frame.builder, 1)
        for instruction in body:
            match instruction:
                case Loop(LoopKind.VECTOR) if self.schedule.form is Form.SHORT:
                    ShortRowsLoop(frame.inner(), instruction, self.schedule).emit()
                case Loop(LoopKind.VECTOR):
                    VectorLoop([frame.inner()], instruction, self.schedule).emit()
                case At():
                    self._at(frame, instruction)
                case Loop(LoopKind.SERIAL):
                    self._serial(frame, instruction)
                case Loop():
                    self._parallel(frame, instruction)
                case Load(register, buffer):
                    frame.registers[register] = load_single(frame, buffer)
                case Compute(register, op, operands, attributes):
                    assert op.emit is not None
                    values = [frame.value(operand, single) for operand in operands]
                    frame.registers[register] = op.emit(single, *values, **dict(attributes))
                case Store(buffer, operand):
                    self._store(frame, buffer, frame.value(operand, single))
                case Begin(accumulator):
                    self._begin(frame, accumulator)
                case Accumulate(accumulator, operand):
                    accumulators.accumulate_single(frame, accumulator, frame.value(operand, single))
                case Finish(register, accumulator):
                    frame.registers[register] = accumulators.finish(frame, accumulator, register.dtype)
                case _:
                    raise AssertionError(f"{instruction} must stand in a vector loop")

    def _store(self, frame: LoopFrame, buffer: int, value: TypedValue) -> None:
        code = in_memory(Instructions(frame.builder, 1), value)
        typed = frame.builder.bitcast(frame.pointer(buffer), ir.PointerType(code.type))
        frame.builder.store(code, typed, align=ANY_ADDRESS)

    def _begin(self, frame: LoopFrame, index: int) -> None:
        axis = self.nest.accumulators[index].axis
        if axis is None:
            accumulators.start(frame, index)
            return
        first, last = frame.range_of(axis)
        with counted(frame.builder, first, last) as position:
            inner = frame.inner()
            inner.positions[axis] = position
            accumulators.start_at_position(inner, index)

    def _at(self, frame: LoopFrame, place: At) -> None:
        """One position; where it lies outside its axis the kernel reports a fault and goes on with the first."""
        builder = frame.builder
        single = Instructions(builder, 1)
        position = single.convert(frame.value(place.position, single), DataType.Int).code
        inside = builder.icmp_unsigned("<", position, frame.words.size(place.axis))
        with builder.if_then(builder.not_(inside), odds=(1, 99)):
            builder.store(WORD(1), builder.gep(frame.words.array, WORD(FAULT)))
        inner = frame.inner()
        inner.move(place.axis, builder.select(inside, position, WORD(0)), _buffers_used(place.body))
        self._run(inner, place.body)
        frame.registers.update(inner.registers)

    def _serial(self, frame: LoopFrame, loop: Loop) -> None:
        first, last = self._iterations(frame, loop)
        if loop.at_once > 1:
            first = self._several_at_once(frame, loop, first, last)
            if self.schedule.is_even:
                return
        with counted(frame.builder, first, last) as number:
            inner = frame.inner()
            self._enter(inner, loop, number)
            self._run(inner, loop.body)

    def _several_at_once(self, frame: LoopFrame, loop: Loop, first: ir.Value, last: ir.Value) -> ir.Value:
        """Iterations side by side in one vector loop, as long as there are enough; the first that is left over."""
        builder = frame.builder
        (vector,) = loop.body
        assert isinstance(vector, Loop)
        turns = builder.udiv(builder.sub(last, first), WORD(loop.at_once))
        with counted(builder, WORD(0), turns) as turn:
            start = builder.add(first, builder.mul(turn, WORD(loop.at_once)))
            frames = [frame.inner() for _ in range(loop.at_once)]
            for place, inner in enumerate(frames):
                self._enter(inner, loop, builder.add(start, WORD(place)))
            VectorLoop(frames, vector, self.schedule).emit()
        return builder.add(first, builder.mul(turns, WORD(loop.at_once)))

    def _iterations(self, frame: LoopFrame, loop: Loop) -> tuple[ir.Value, ir.Value]:
        """First and last number of a loop's iterations: those of the current block where its axis goes in blocks."""
        if len(loop.axes) == 1 and not loop.blocked:
            return frame.range_of(loop.axes[0])
        total: ir.Value = WORD(1)
        for axis in loop.axes:
            total = frame.builder.mul(total, self._extent(frame, loop, axis))
        return WORD(0), total

    def _extent(self, frame: LoopFrame, loop: Loop, axis: int) -> ir.Value:
        size = frame.words.size(axis)
        if axis in loop.blocked:
            block = frame.words.block(axis)
            return frame.builder.udiv(frame.builder.add(size, frame.builder.sub(block, WORD(1))), block)
        if axis in frame.ranges:
            first, last = frame.ranges[axis]
            return frame.builder.sub(last, first)
        return size

    def _enter(self, frame: LoopFrame, loop: Loop, number: ir.Value) -> None:
        """Take the number of an iteration apart into a position or a block per axis."""
        builder = frame.builder
        buffers = _buffers_used(loop.body)
        remaining = number
        is_plain = len(loop.axes) == 1 and not loop.blocked
        for place, axis in reversed(list(enumerate(loop.axes))):
            index = remaining
            if place:
                extent = self._extent(frame, loop, axis)
                index, remaining = builder.urem(remaining, extent), builder.udiv(remaining, extent)
            if axis in loop.blocked:
                block = frame.words.block(axis)
                first = builder.mul(index, block)
                frame.ranges[axis] = (first, minimum(builder, builder.add(first, block), frame.words.size(axis)))
            else:
                if axis in frame.ranges and not is_plain:
                    index = builder.add(index, frame.ranges[axis][0])
                frame.move(axis, index, buffers)

    # --- memory of a function -----------------------------------------------------------------------------------------

    def _provide(self, frame: LoopFrame, body: Sequence[Instruction], crossing: Sequence[int] = ()) -> None:
        """Memory for the accumulators and the scratch that a function uses itself."""
        if self.schedule.form is Form.SHORT:
            return  # all of them are registers
        for instruction in _inside_function(body):
            if isinstance(instruction, Begin):
                self._provide_accumulator(frame, instruction.accumulator, body)
        for index in crossing:
            self._provide_accumulator(frame, index, body)
        used = {i.scratch for i in _inside_function(body) if isinstance(i, Keep | Recall)}
        for scratch in sorted(used):
            frame.scratches[scratch] = self._scratch(frame, scratch)

    def _provide_accumulator(self, frame: LoopFrame, index: int, body: Sequence[Instruction]) -> None:
        accumulator = self.nest.accumulators[index]
        element = memory_type(accumulator.dtype)
        if accumulator.axis is not None:
            room = frame.builder.add(frame.words.block(accumulator.axis), WORD(MOST_LANES))
            frame.accumulators[index] = AccumulatorMemory(allocate(frame.builder, element, room), 1)
            return
        here = any(isinstance(i, Accumulate) and i.accumulator == index for i in _inside_function(body))
        lanes = self._lanes[index] if here else 1
        kind = ir.VectorType(element, lanes) if lanes > 1 else element
        frame.accumulators[index] = AccumulatorMemory(allocate(frame.builder, kind), lanes)

    def _scratch(self, frame: LoopFrame, index: int) -> ScratchMemory:
        scratch, builder = self.nest.scratches[index], frame.builder
        width: ir.Value = WORD(scratch.dtype.bytes)
        strides: dict[int, ir.Value] = {}
        blocked = {axis for i in walk(self.nest.body) if isinstance(i, Loop) for axis in i.blocked}
        for axis in reversed(scratch.axes):
            strides[axis] = width
            extent = frame.words.block(axis) if axis in blocked else frame.words.size(axis)
            # Whole vectors are written, also at the end; where there are several axes each gets room for that.
            if axis in blocked or axis == scratch.axes[0]:
                longest = max(VECTOR_BYTES, self.schedule.vector_bytes or 0)
                extent = builder.add(extent, WORD(longest // scratch.dtype.bytes))
            width = builder.mul(width, extent)
        return ScratchMemory(allocate(builder, ir.IntType(8), width), scratch.axes, strides)

    # --- parallel loops -----------------------------------------------------------------------------------------------

    def _parallel(self, frame: LoopFrame, loop: Loop) -> None:
        builder = frame.builder
        crossing = _accumulated_across(loop)
        captured = sorted(_used_from_outside(loop) & set(frame.registers), key=lambda register: register.index)
        positions = sorted(frame.positions)
        _, grains = self._iterations(frame, loop)
        if crossing:
            grain = frame.words.word(GRAIN)
            grains = builder.udiv(builder.add(grains, builder.sub(grain, WORD(1))), grain)
        partials = [self._partials(frame, index, grains) for index in crossing]
        context = frame.words.array
        if partials or captured or positions:
            context = self._context(frame, partials, captured, positions)
        region = self._region(loop, crossing, captured, positions)
        share = declare(self.module, "share")
        builder.call(share, [region, builder.bitcast(context, BYTE_POINTER), grains, frame.words.word(THREADS)])
        for index, pointer in zip(crossing, partials, strict=True):
            self._combine(frame, index, pointer, grains)

    def _context(
        self, frame: LoopFrame, partials: list[ir.Value], captured: list[Register], positions: list[int]
    ) -> ir.Value:
        builder = frame.builder
        context = builder.alloca(WORD, WORD(1 + len(partials) + len(captured) + len(positions)))
        slots = [builder.ptrtoint(pointer, WORD) for pointer in (frame.words.array, *partials)]
        for index, word in enumerate(slots):
            builder.store(word, builder.gep(context, WORD(index)))
        single = Instructions(builder, 1)
        for index, register in enumerate(captured, len(slots)):
            code = in_memory(single, frame.registers[register])
            place = builder.gep(context, WORD(index))
            builder.store(code, builder.bitcast(place, ir.PointerType(code.type)))
        for index, axis in enumerate(positions, len(slots) + len(captured)):
            builder.store(frame.positions[axis], builder.gep(context, WORD(index)))
        return context

    def _partials(self, frame: LoopFrame, index: int, grains: ir.Value) -> ir.Value:
        """Room for what each grain of a parallel loop accumulates."""
        return allocate(frame.builder, memory_type(self.nest.accumulators[index].dtype), grains)

    def _combine(self, frame: LoopFrame, index: int, partials: ir.Value, grains: ir.Value) -> None:
        dtype = self.nest.accumulators[index].dtype
        with counted(frame.builder, WORD(0), grains) as number:
            code = frame.builder.load(frame.builder.gep(partials, number))
            accumulators.accumulate_single(frame, index, in_register(frame.builder, code, dtype))

    def _region(self, loop: Loop, crossing: list[int], captured: list[Register], positions: list[int]) -> ir.Function:
        """The function for the iterations of a parallel loop."""
        self._regions += 1
        function = ir.Function(self.module, REGION, f"region{self._regions}")
        function.is_internal = True
        context, first, last = function.arguments
        builder: Any = ir.IRBuilder(function)
        slots = builder.bitcast(context, ir.PointerType(WORD))

        def slot(index: int) -> ir.Value:
            return builder.load(builder.gep(slots, WORD(index)))

        has_context = bool(crossing or captured or positions)
        arguments = builder.inttoptr(slot(0), ir.PointerType(WORD)) if has_context else slots
        frame = LoopFrame(self.nest, builder, Words(builder, arguments, WordLayout.of(self.nest)))
        partials = [
            builder.inttoptr(slot(1 + number), ir.PointerType(memory_type(self.nest.accumulators[index].dtype)))
            for number, index in enumerate(crossing)
        ]
        for index, register in enumerate(captured, 1 + len(partials)):
            place = builder.bitcast(builder.gep(slots, WORD(index)), ir.PointerType(memory_type(register.dtype)))
            frame.registers[register] = in_register(builder, builder.load(place), register.dtype)
        entered = {axis: slot(1 + len(partials) + len(captured) + n) for n, axis in enumerate(positions)}
        _leave_entry(builder)
        for axis, position in entered.items():
            frame.move(axis, position, _buffers_used(loop.body))
        self._provide(frame, loop.body, crossing)
        self._grains(frame, loop, crossing, partials, first, last)
        if self.schedule.streaming:
            builder.fence()  # streamed results must be in memory before the loop is reported as done
        builder.ret_void()
        return function

    def _grains(
        self,
        frame: LoopFrame,
        loop: Loop,
        crossing: list[int],
        partials: list[ir.Value],
        first: ir.Value,
        last: ir.Value,
    ) -> None:
        builder = frame.builder

        def iterate(begin: ir.Value, end: ir.Value) -> None:
            if self._is_one_range(loop):
                (axis,) = loop.axes
                block, inner = frame.words.block(axis), frame.inner()
                size = frame.words.size(axis)
                inner.ranges[axis] = (builder.mul(begin, block), minimum(builder, builder.mul(end, block), size))
                with builder.if_then(builder.icmp_signed("<", begin, end)):
                    self._run(inner, loop.body)
                return
            with counted(builder, begin, end) as number:
                inner = frame.inner()
                self._enter(inner, loop, number)
                self._run(inner, loop.body)

        if not crossing:
            iterate(first, last)
            return
        _, iterations = self._iterations(frame, loop)
        grain = frame.words.word(GRAIN)
        with counted(builder, first, last) as number:
            for index in crossing:
                accumulators.start(frame, index)
            begin = builder.mul(number, grain)
            iterate(begin, minimum(builder, builder.add(begin, grain), iterations))
            for index, pointer in zip(crossing, partials, strict=True):
                code = in_memory(Instructions(builder, 1), accumulators.total(frame, index))
                builder.store(code, builder.gep(pointer, number))

    def _is_one_range(self, loop: Loop) -> bool:
        """Whether blocks of one axis that follow each other can be run through as one: nothing is kept per block."""
        inside = list(walk(loop.body))
        arrays = {index for index, accumulator in enumerate(self.nest.accumulators) if accumulator.axis is not None}
        keeps = any(isinstance(i, Keep | Recall) or getattr(i, "accumulator", None) in arrays for i in inside)
        vectors = all(isinstance(i, Loop) and i.kind is LoopKind.VECTOR for i in loop.body)
        return len(loop.axes) == 1 and loop.blocked == {loop.axes[0]} and vectors and not keeps


# --- what instructions use --------------------------------------------------------------------------------------------


def _leave_entry(builder: Any) -> None:
    """Go on in a block of its own, so that the entry block can still take what is read and allocated once."""
    block = builder.append_block("start")
    builder.branch(block)
    builder.position_at_end(block)


def _inside_function(body: Sequence[Instruction]) -> list[Instruction]:
    """All instructions of a function: parallel loops inside it are functions of their own."""
    found: list[Instruction] = []
    for instruction in body:
        found.append(instruction)
        if isinstance(instruction, At) or (isinstance(instruction, Loop) and instruction.kind is not LoopKind.PARALLEL):
            found += _inside_function(instruction.body)
    return found


def _buffers_used(body: tuple[Instruction, ...]) -> list[int]:
    return sorted({i.buffer for i in walk(body) if isinstance(i, Load | Store | Prefetch)})


def _used_from_outside(loop: Loop) -> set[Register]:
    made = {register_made(instruction) for instruction in walk(loop.body)}
    used = {value for instruction in walk(loop.body) for value in values_read(instruction)}
    return {value for value in used if isinstance(value, Register)} - {r for r in made if r is not None}


def _accumulated_across(loop: Loop) -> list[int]:
    """Accumulators that are begun outside a loop and used inside it."""
    inside = list(walk(loop.body))
    begun = {i.accumulator for i in inside if isinstance(i, Begin)}
    return sorted({i.accumulator for i in inside if isinstance(i, Accumulate)} - begun)


def _accumulator_lanes(nest: Nest, schedule: Schedule) -> dict[int, int]:
    """How many values side by side each accumulator has: as many as the loop that feeds it has lanes."""
    found: dict[int, int] = {}

    def visit(body: Sequence[Instruction], lanes: int) -> None:
        for instruction in body:
            if isinstance(instruction, Loop):
                is_vector = instruction.kind is LoopKind.VECTOR
                visit(instruction.body, lanes_of(nest, instruction, schedule.vector_bytes) if is_vector else 1)
            elif isinstance(instruction, Accumulate):
                found[instruction.accumulator] = lanes

    visit(nest.body, 1)
    return found
