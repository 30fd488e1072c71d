"""Nests of loops as functions for a GPU: what one thread does, told for all of them.

    grid loop      the thread's number in the whole grid says which elements are its own
    blocks loop    the number of the block, and of the team in it, says which row; or which square, see `tiles`
    threads loop   the number in the team says which elements of the row

Threads that have no elements, at the end, go through the same motions on the last ones that there are, so that there
is nothing to branch around; they store nothing and add nothing. All loads of a loop are written before anything else,
so that they are under way together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.frame import WORD
from ingot.codegen.llvm.host import Host, HostModule
from ingot.codegen.llvm.instructions import Instructions, Value
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.place import Arguments, ThreadPlace
from ingot.codegen.ptx.target import optimized, ptx_of
from ingot.codegen.ptx.teams import Gathered, Team
from ingot.codegen.ptx.tiles import run_tiles
from ingot.loops.arguments import WordLayout
from ingot.loops.gpu.nesting import build_gpu_nest
from ingot.loops.gpu.schedule import GpuSchedule
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
    Recall,
    Store,
)
from ingot.loops.program import Program

ENTRY = "entry"


@dataclass(frozen=True)
class GpuKernel:
    """PTX for a program under a schedule."""

    program: Program
    schedule: GpuSchedule
    nest: Nest
    host: Host
    ptx: str
    entries: tuple[str, ...]
    """Functions to launch, one after another."""
    _text: str

    @cached_property
    def llvm(self) -> str:
        """What the PTX was made from, made again when somebody wants to read it."""
        return str(optimized(self._text, self.host))


def compile_gpu_kernel(program: Program, schedule: GpuSchedule, host: Host) -> GpuKernel:
    nest = build_gpu_nest(program, schedule)
    module = HostModule(host)
    _Emission(module, nest, schedule).emit()
    text = str(module)
    return GpuKernel(program, schedule, nest, host, ptx_of(text, host), (ENTRY,), text)


class _Emission:
    def __init__(self, module: HostModule, nest: Nest, schedule: GpuSchedule):
        self.module, self.nest, self.schedule = module, nest, schedule
        self._gathered: dict[int, Gathered] = {}
        self._kept: dict[tuple[int, int], Value] = {}
        """What threads hold in registers, by scratch and step."""

    def emit(self) -> None:
        layout = WordLayout.of(self.nest)
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [ir.PointerType(WORD)]), ENTRY)
        function.make_kernel(f"[{layout.count} x i64]", self.schedule.threads)
        builder: Any = ir.IRBuilder(function)
        arguments = Arguments(builder, function.arguments[0], layout, self.schedule)
        start = builder.append_block("start")
        builder.branch(start)
        builder.position_at_end(start)
        self.builder, self.arguments = builder, arguments
        self.team = Team(builder, self.schedule)
        place = ThreadPlace(builder, arguments, self.schedule)
        for instruction in self.nest.body:
            assert isinstance(instruction, Loop)
            if instruction.kind is LoopKind.GRID:
                self._grid(place, instruction)
            elif self.schedule.tile:
                run_tiles(self.nest, place, instruction, self._run_one)
            else:
                self._blocks(place, instruction)
        builder.ret_void()

    # --- loops --------------------------------------------------------------------------------------------------------

    def _grid(self, outside: ThreadPlace, loop: Loop) -> None:
        builder, schedule, index = self.builder, self.schedule, self.arguments.index
        thread, block = self._wide(intrinsics.thread_number(builder)), self._wide(intrinsics.block_number(builder))
        units = self._units(loop)
        share = index(schedule.threads * loop.at_once)
        first = builder.add(builder.mul(block, share), thread)
        places = []
        for turn in range(loop.at_once):
            unit = builder.add(first, index(turn * schedule.threads))
            places.append(self._entered(outside, loop, unit, units, schedule.is_even))
        self._run_side_by_side(places, loop.body)
        if schedule.has_rest:
            self._rest(outside, loop, builder.add(builder.mul(block, index(schedule.threads)), thread))

    def _rest(self, outside: ThreadPlace, loop: Loop, thread: ir.Value) -> None:
        """The last elements, fewer than a thread takes together, one by one to the first threads."""
        builder, index = self.builder, self.arguments.index
        size, lanes = self.arguments.size(loop.axes[-1]), index(loop.lanes)
        rest = builder.urem(size, lanes)
        with builder.if_then(builder.icmp_unsigned("<", thread, rest), odds=(1, 99)):
            place = outside.inner(1, None)
            place.positions[loop.axes[-1]] = builder.add(builder.sub(size, rest), thread)
            self._run_side_by_side([place], loop.body)

    def _blocks(self, outside: ThreadPlace, loop: Loop) -> None:
        builder, schedule, index = self.builder, self.schedule, self.arguments.index
        row = self._wide(intrinsics.block_number(builder))
        if schedule.teams > 1:
            row = builder.add(builder.mul(row, index(schedule.teams)), self._wide(self.team.number))
        rows: ir.Value = index(1)
        for axis in loop.axes:
            rows = builder.mul(rows, self.arguments.size(axis))
        is_inside = None
        if schedule.teams > 1 and not schedule.is_even:
            is_inside = builder.icmp_unsigned("<", row, rows)
            row = builder.select(is_inside, row, builder.sub(rows, index(1)))
        place = outside.inner(1, is_inside)
        place.enter(loop.axes, row, 1)
        self._run_row(place, loop.body)

    def _run_row(self, place: ThreadPlace, body: Sequence[Instruction]) -> None:
        """What is done once per row, by all threads of its team alike; one of them stores."""
        for instruction in body:
            match instruction:
                case Loop(LoopKind.THREADS):
                    self._threads(place, instruction)
                case Begin(accumulator):
                    self._begin(accumulator)
                case Finish(register, accumulator):
                    place.registers[register] = self._finished(accumulator, register.dtype)
                case Store(buffer, operand):
                    first = self.builder.icmp_unsigned("==", self.team.member, ir.IntType(32)(0))
                    self._store(place.inner(1, first), buffer, place.value(operand))
                case At():
                    self._at(place, instruction)
                case _:
                    self._run_one(place, instruction, 0)

    def _threads(self, outside: ThreadPlace, loop: Loop) -> None:
        builder, schedule, index = self.builder, self.schedule, self.arguments.index
        units = self._units(loop)
        member = self._wide(self.team.member)
        if schedule.steps:
            places = []
            for step in range(schedule.steps):
                unit = builder.add(member, index(step * schedule.team))
                is_last = (
                    step == schedule.steps - 1
                )  # the only one that can lack elements: there are no more than needed
                places.append(self._entered(outside, loop, unit, units, schedule.is_even or not is_last))
            self._run_side_by_side(places, loop.body)
            return
        turn = schedule.team * schedule.at_once
        for number, full in ((schedule.at_once, True), (1, False)):
            self._turns(outside, loop, units, member, number, turn, full)

    def _turns(
        self, outside: ThreadPlace, loop: Loop, units: ir.Value, member: ir.Value, at_once: int, turn: int, full: bool
    ) -> None:
        """Steps of a long row: first several side by side, as long as all threads have that many, then one by one."""
        builder, schedule, index = self.builder, self.schedule, self.arguments.index
        whole = builder.mul(builder.udiv(units, index(turn)), index(turn))
        first, last = (index(0), whole) if full else (whole, units)
        before = builder.block
        body, after = builder.append_block("turn"), builder.append_block("turned")
        builder.cbranch(builder.icmp_unsigned("<", first, last), body, after)
        builder.position_at_end(body)
        start = builder.phi(index)
        start.add_incoming(first, before)
        places = []
        for step in range(at_once):
            unit = builder.add(builder.add(start, member), index(step * schedule.team))
            places.append(self._entered(outside, loop, unit, units, full))
        self._run_side_by_side(places, loop.body)
        following = builder.add(start, index(at_once * schedule.team))
        start.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_unsigned("<", following, last), body, after)
        builder.position_at_end(after)

    def _units(self, loop: Loop) -> ir.Value:
        """How often threads take elements in a loop."""
        builder, index = self.builder, self.arguments.index
        units: ir.Value = builder.udiv(self.arguments.size(loop.axes[-1]), index(loop.lanes))
        for axis in loop.axes[:-1]:
            units = builder.mul(units, self.arguments.size(axis))
        return units

    def _entered(self, outside: ThreadPlace, loop: Loop, unit: ir.Value, units: ir.Value, is_even: bool) -> ThreadPlace:
        builder, index = self.builder, self.arguments.index
        is_inside = None
        if not is_even:
            is_inside = builder.icmp_unsigned("<", unit, units)
            unit = builder.select(is_inside, unit, builder.sub(units, index(1)))
        place = outside.inner(loop.lanes, is_inside)
        place.enter(loop.axes, unit, loop.lanes)
        return place

    def _wide(self, number: ir.Value) -> ir.Value:
        return number if self.arguments.index is not WORD else self.builder.zext(number, WORD)

    # --- instructions -------------------------------------------------------------------------------------------------

    def _run_side_by_side(self, places: Sequence[ThreadPlace], body: Sequence[Instruction]) -> None:
        """Loads of all places first, stores of all places last."""
        loads = [instruction for instruction in body if isinstance(instruction, Load)]
        stores = [instruction for instruction in body if isinstance(instruction, Store)]
        others = [instruction for instruction in body if not isinstance(instruction, Load | Store)]
        for step, place in enumerate(places):
            for instruction in loads:
                self._run_one(place, instruction, step)
        for step, place in enumerate(places):
            for instruction in (*others, *stores):
                self._run_one(place, instruction, step)
        for instruction in others:
            if isinstance(instruction, Accumulate):
                self._gathered[instruction.accumulator].join()

    def _run_one(self, place: ThreadPlace, instruction: Instruction, step: int) -> None:
        match instruction:
            case Load(register, buffer):
                place.registers[register] = place.load(buffer, self.nest.buffers[buffer].dtype)
            case Compute(register, op, operands, attributes):
                assert op.emit is not None
                values = [place.value(operand) for operand in operands]
                place.registers[register] = op.emit(place.instructions, *values, **dict(attributes))
            case Store(buffer, operand):
                self._store(place, buffer, place.value(operand))
            case Keep(scratch, operand):
                self._kept[scratch, step] = place.value(operand)
            case Recall(register, scratch):
                place.registers[register] = self._kept[scratch, step]
            case Accumulate(accumulator, operand):
                self._gathered[accumulator].add(place, place.value(operand))
            case _:
                raise AssertionError(f"{instruction} cannot stand here")

    def _store(self, place: ThreadPlace, buffer: int, value: Value) -> None:
        if place.is_inside is None:
            place.store(buffer, value)
            return
        with self.builder.if_then(place.is_inside):
            place.store(buffer, value)

    def _at(self, place: ThreadPlace, at: At) -> None:
        """One position; where it lies outside its axis the kernel ends."""
        builder = self.builder
        single = Instructions(builder, 1)
        position = single.convert(place.value(at.position), DataType.Int).code
        size = self.arguments.word(self.arguments.layout.size(at.axis))
        inside = builder.icmp_unsigned("<", position, size)
        with builder.if_then(builder.not_(inside), odds=(1, 99)):
            intrinsics.trap(builder)
        inner = place.inner(1, None)
        narrow = position if self.arguments.index is WORD else builder.trunc(position, self.arguments.index)
        inner.positions[at.axis] = narrow
        for instruction in at.body:
            self._run_one(inner, instruction, 0)
        place.registers.update(inner.registers)

    # --- reductions ---------------------------------------------------------------------------------------------------

    def _begin(self, index: int) -> None:
        self._gathered[index] = Gathered(self.builder, self.nest.accumulators[index])

    def _finished(self, index: int, dtype: DataType) -> Value:
        total = self.team.combined(self._gathered[index], index)
        return Instructions(self.builder, 1).convert(total, dtype)
