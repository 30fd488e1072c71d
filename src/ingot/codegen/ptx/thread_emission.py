"""What one thread does in one launch: the beginning of its function, and instructions at its places.

Threads beyond the end execute the same instructions on the last elements, so that there is nothing to branch around;
they store nothing and add nothing. All loads of a loop are written before anything else, so that they are under way
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import HostModule
from ingot.codegen.llvm.instructions import Instructions, TypedValue
from ingot.codegen.llvm.storage import WORD
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.place import KernelArguments, ThreadPlace
from ingot.codegen.ptx.thread_groups import ThreadAccumulator
from ingot.loops.gpu.launches import gpu_layout
from ingot.loops.gpu.schedule import MOST_THREADS, Columns, GpuSchedule, Grid
from ingot.loops.motion import Motion
from ingot.loops.nest import Accumulate, At, Compute, Instruction, Keep, Load, Loop, Nest, Recall, Store
from ingot.loops.program import ConstantOperand


class Emission:
    """A function that is being written, and what its thread holds."""

    def __init__(self, module: HostModule, entry: str, nest: Nest, schedule: GpuSchedule):
        self.nest, self.schedule = nest, schedule
        layout = gpu_layout(nest, schedule)
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType(WORD)]), entry)
        fills_processor = isinstance(schedule, Columns) and schedule.threads == MOST_THREADS
        function.make_kernel(f"[{layout.count} x i64]", schedule.threads, fills_processor)
        self.builder: Any = ir.IRBuilder(function)
        self.arguments = KernelArguments(self.builder, function.arguments[0], layout, schedule)
        start = self.builder.append_block("start")
        self.builder.branch(start)
        self.builder.position_at_end(start)
        if module.host.overlaps_launches:
            intrinsics.follow_launch(self.builder)
        self.outside = ThreadPlace(self.builder, self.arguments, schedule)
        self.accumulated: dict[int, ThreadAccumulator] = {}
        self._kept: dict[tuple[int, int], TypedValue] = {}
        """What threads hold in registers, by scratch and iteration."""

    # --- places -------------------------------------------------------------------------------------------------------

    def units(self, axes: Sequence[int], vector_width: int) -> ir.Value:
        """How many iterations threads need along some axes."""
        builder, index = self.builder, self.arguments.index
        if not axes:
            return index(1)
        units: ir.Value = builder.udiv(self.arguments.size(axes[-1]), index(vector_width))
        for axis in axes[:-1]:
            units = builder.mul(units, self.arguments.size(axis))
        return units

    def entered(
        self, outside: ThreadPlace, loop: Loop, first: ir.Value, apart: int, units: ir.Value, surely: Sequence[bool]
    ) -> list[ThreadPlace]:
        """Places of a thread, so many units apart from each other, and for each whether it surely has elements."""
        places: list[ThreadPlace] = []
        for iteration, is_full in enumerate(surely):
            unit = self.builder.add(first, self.arguments.index(iteration * apart))
            place = self.entered_one(outside, loop, unit, units, is_full)
            if iteration and is_full and surely[0] and len(loop.axes) == 1:
                place.before, place.along, place.ahead = places[-1], loop.axes[0], apart * loop.vector_width
            places.append(place)
        return places

    def entered_one(
        self, outside: ThreadPlace, loop: Loop, unit: ir.Value, units: ir.Value, is_full: bool
    ) -> ThreadPlace:
        """The place of a unit; threads that have none there get the place of the last one."""
        builder, index = self.builder, self.arguments.index
        is_inside = None
        if not is_full:
            is_inside = builder.icmp_unsigned("<", unit, units)
            unit = builder.select(is_inside, unit, builder.sub(units, index(1)))
        place = outside.inner(outside.vector_width * loop.vector_width, is_inside)
        place.enter(loop.axes, unit, loop.vector_width)
        return place

    def wide(self, number: ir.Value) -> ir.Value:
        """A number of 32 bits as wide as positions are."""
        return number if self.arguments.index is not WORD else self.builder.zext(number, WORD)

    # --- instructions -------------------------------------------------------------------------------------------------

    def run_side_by_side(self, places: Sequence[ThreadPlace], body: Sequence[Instruction]) -> None:
        """Loads of all places first, stores of all places last."""
        loads = [instruction for instruction in body if isinstance(instruction, Load)]
        stores = [instruction for instruction in body if isinstance(instruction, Store)]
        others = [instruction for instruction in body if not isinstance(instruction, Load | Store)]
        for iteration, place in enumerate(places):
            for instruction in loads:
                if iteration and self._is_one_for_all(instruction):
                    place.registers[instruction.register] = places[0].registers[instruction.register]
                else:
                    self.run_one(place, instruction, iteration)
        for iteration, place in enumerate(places):
            for instruction in (*others, *stores):
                self.run_one(place, instruction, iteration)
        for instruction in others:
            if isinstance(instruction, Accumulate):
                self.accumulated[instruction.accumulator].join()

    def _is_one_for_all(self, load: Load) -> bool:
        """Whether all places of a thread read the same element, because it is that of their line."""
        has_lines = isinstance(self.schedule, Grid) and self.schedule.has_lines
        return has_lines and self.schedule.motions[load.buffer] is Motion.STILL

    def run_one(self, place: ThreadPlace, instruction: Instruction, iteration: int) -> None:
        match instruction:
            case Load(register, buffer):
                place.registers[register] = place.load(buffer, self.nest.buffers[buffer].dtype)
            case Compute(register, op, operands, attributes):
                assert op.emit is not None
                values = [place.value(operand) for operand in operands]
                place.registers[register] = op.emit(place.instructions, *values, **dict(attributes))
            case Store(buffer, operand):
                self.store(place, buffer, place.value(operand))
            case Keep(scratch, operand):
                self._kept[scratch, iteration] = place.value(operand)
            case Recall(register, scratch):
                place.registers[register] = self._kept[scratch, iteration]
            case Accumulate(accumulator, operand):
                self.accumulated[accumulator].add(place, place.value(operand))
            case _:
                raise AssertionError(f"{instruction} cannot stand here")

    def store(self, place: ThreadPlace, buffer: int, value: TypedValue) -> None:
        if place.is_inside is None:
            place.store(buffer, value)
            return
        with self.builder.if_then(place.is_inside):
            place.store(buffer, value)

    def at(self, place: ThreadPlace, at: At) -> None:
        """One position; where it lies outside its axis the kernel ends."""
        inner = place.inner(place.vector_width, None)
        inner.positions[at.axis] = self._position(place, at)
        for instruction in at.body:
            self.run_one(inner, instruction, 0)
        place.registers.update(inner.registers)

    def _position(self, place: ThreadPlace, at: At) -> ir.Value:
        builder, index = self.builder, self.arguments.index
        if isinstance(at.position, ConstantOperand) and at.position.value == 0:  # there always is a first
            return index(0)
        assert place.vector_width == 1, "neighbouring rows have different positions"
        position = Instructions(builder, 1).convert(place.value(at.position), DataType.Int).code
        size = self.arguments.word(self.arguments.layout.size(at.axis))
        inside = builder.icmp_unsigned("<", position, size)
        with builder.if_then(builder.not_(inside), odds=(1, 99)):
            intrinsics.trap(builder)
        return position if index is WORD else builder.trunc(position, index)
