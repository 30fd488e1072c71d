"""Squares of elements that a block of threads transposes in shared memory.

    straight loop     a thread takes neighbours along the last axis, one row of the square after another
    transposed loop   a thread takes a small square, neighbours along both axes, dense along the other one, and
                      transposes it in its registers, so that shared memory sees whole rows of it only, in either loop

Shared memory is rows of units, of what a thread takes together: 16 bytes, mostly. In which place of its row a unit lies
depends on the row, so that threads that access units beneath each other find them in different banks:

    place of unit u in row r  =  u xor (r / elements of a unit)

Threads beyond the end of an axis read the last elements there are, and keep what they read where nothing reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.instructions import Instructions, memory_type
from ingot.codegen.llvm.storage import WORD, in_memory, in_register
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.place import ThreadPlace
from ingot.loops.gpu.schedule import Tiles
from ingot.loops.nest import Barrier, Instruction, Keep, Load, Loop, Nest, Place, Recall, Store

_INDEX = ir.IntType(32)
RunOne = Callable[[ThreadPlace, Instruction, int], None]
"""Emits one instruction of one iteration that does not use shared memory."""


@dataclass
class _Square:
    """The places of one thread that are transposed together: `vector_width` of them, or a single one that is not
    transposed."""

    places: list[ThreadPlace]
    row: ir.Value
    """The first along the axis before the last, counted in the block's square."""
    unit: ir.Value
    """The first along the last axis, counted in the block's square."""


class TileEmission:
    """A blocks loop over squares, as one thread sees it."""

    def __init__(self, nest: Nest, schedule: Tiles, outside: ThreadPlace, loop: Loop, run_one: RunOne):
        self.nest, self.builder, self.arguments = nest, outside.builder, outside.arguments
        self.schedule, self.vector_width = schedule, schedule.vector_width
        self._run_one = run_one
        self._units = self.schedule.tile // self.vector_width
        self._thread = intrinsics.thread_number(self.builder)
        self._outside = outside.inner(self.vector_width, None)
        self._enter(loop)

    def _enter(self, loop: Loop) -> None:
        """Where the block's square begins, from the number of the block."""
        builder, index, side = self.builder, self.arguments.index, self.schedule.tile
        remaining = self._wide(intrinsics.block_number(builder))
        for axis in reversed(loop.axes):
            width = side if axis in loop.blocked else 1
            position = remaining
            if axis:
                extent = builder.udiv(builder.add(self.arguments.size(axis), index(width - 1)), index(width))
                remaining = self.arguments.quotient(position, axis, width)
                position = builder.sub(position, builder.mul(remaining, extent))
            self._outside.positions[axis] = builder.mul(position, index(width))

    def run(self, body: Sequence[Instruction]) -> None:
        across = self.schedule.axes - 2
        for instruction in body:
            if isinstance(instruction, Barrier):
                intrinsics.barrier(self.builder)
                continue
            assert isinstance(instruction, Loop)
            squares = self._transposed() if instruction.axes[-1] == across else self._straight()
            self._run_loop(squares, instruction.body)

    # --- places -------------------------------------------------------------------------------------------------------

    def _straight(self) -> list[_Square]:
        rows = self.schedule.threads // self._units
        found = []
        for first in range(0, self.schedule.tile, rows):
            row, unit = self._share(first)
            found.append(
                _Square([self._place(row, self._times(unit, self.vector_width), 1, self.vector_width)], row, unit)
            )
        return found

    def _transposed(self) -> list[_Square]:
        columns = self.schedule.threads // self._units
        found = []
        for first in range(0, self._units, columns):
            unit, group = self._share(first)
            row = self._times(group, self.vector_width)
            along = [
                self.builder.add(self._times(unit, self.vector_width), _INDEX(number))
                for number in range(self.vector_width)
            ]
            places = [self._place(row, position, self.vector_width, 1) for position in along]
            for place in places:
                place.is_transposed = True
            found.append(_Square(places, row, unit))
        return found

    def _share(self, first: int) -> tuple[ir.Value, ir.Value]:
        """The thread's number taken apart: neighbouring threads differ in the second part."""
        quotient = self.builder.udiv(self._thread, _INDEX(self._units))
        return self.builder.add(quotient, _INDEX(first)), self.builder.urem(self._thread, _INDEX(self._units))

    def _times(self, number: ir.Value, factor: int) -> ir.Value:
        return self.builder.mul(number, _INDEX(factor))

    def _place(self, row: ir.Value, column: ir.Value, height: int, width: int) -> ThreadPlace:
        """A place in the square, of so many elements along each axis; the last ones there are if it is outside."""
        axes = self.schedule.axes - 2, self.schedule.axes - 1
        insides, positions = [], {}
        for axis, relative, count in zip(axes, (row, column), (height, width), strict=True):
            position = self.builder.add(self._outside.positions[axis], self._wide(relative))
            if not self.schedule.is_even:
                size = self.arguments.size(axis)
                insides.append(self.builder.icmp_unsigned("<", position, size))
                last = self.builder.sub(size, self.arguments.index(count))
                position = self.builder.select(insides[-1], position, last)
            positions[axis] = position
        place = self._outside.inner(self.vector_width, self.builder.and_(*insides) if insides else None)
        place.positions.update(positions)
        return place

    def _wide(self, number: ir.Value) -> ir.Value:
        return number if self.arguments.index is not WORD else self.builder.zext(number, WORD)

    # --- instructions -------------------------------------------------------------------------------------------------

    def _run_loop(self, squares: Sequence[_Square], body: Sequence[Instruction]) -> None:
        """Loads of all places first, stores of each last."""
        loads = [i for i in body if isinstance(i, Load)]
        stores = [i for i in body if isinstance(i, Store)]
        others = [i for i in body if not isinstance(i, Load | Store)]
        for part in (loads, [*others, *stores]):
            for iteration, square in enumerate(squares):
                for instruction in part:
                    self._run(square, instruction, iteration)

    def _run(self, square: _Square, instruction: Instruction, iteration: int) -> None:
        if isinstance(instruction, Keep | Recall) and self._is_shared(instruction.scratch):
            self._keep(square, instruction) if isinstance(instruction, Keep) else self._recall(square, instruction)
            return
        for place in square.places:
            self._run_one(place, instruction, iteration)

    def _is_shared(self, scratch: int) -> bool:
        return self.nest.scratches[scratch].place is Place.SHARED

    def _keep(self, square: _Square, keep: Keep) -> None:
        instructions = Instructions(self.builder, self.vector_width)
        rows = [in_memory(instructions, place.value(keep.value)) for place in square.places]
        for number, row in enumerate(self._exchanged(rows)):
            pointer, align = self._pointer(square, number, keep.scratch)
            self.builder.store(row, pointer, align=align)

    def _recall(self, square: _Square, recall: Recall) -> None:
        rows = []
        for number in range(len(square.places)):
            pointer, align = self._pointer(square, number, recall.scratch)
            rows.append(self.builder.load(pointer, align=align))
        for place, code in zip(square.places, self._exchanged(rows), strict=True):
            place.registers[recall.register] = in_register(self.builder, code, recall.register.dtype)

    def _pointer(self, square: _Square, number: int, scratch: int) -> tuple[ir.Value, int]:
        """Where a unit of a row lies, and what its address is a multiple of."""
        builder: Any = self.builder
        found = self.nest.scratches[scratch]
        kind = Instructions(builder, self.vector_width).wide(memory_type(found.dtype))
        array = builder.module.shared_array(found.name, kind, self.schedule.tile * self._units)
        row = builder.add(square.row, _INDEX(number))
        swizzle = builder.urem(builder.udiv(row, _INDEX(self.vector_width)), _INDEX(self._units))
        place = builder.add(self._times(row, self._units), builder.xor(square.unit, swizzle))
        return builder.gep(array, place), self.vector_width * found.dtype.bytes

    def _exchanged(self, rows: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """Transposes rows, where there is more than one."""
        if len(rows) == 1:
            return rows
        columns = []
        for lane in range(self.vector_width):
            column: ir.Value = ir.Constant(rows[0].type, ir.Undefined)
            for number, row in enumerate(rows):
                column = self.builder.insert_element(column, self.builder.extract_element(row, lane), number)
            columns.append(column)
        return columns


def run_tiles(nest: Nest, schedule: Tiles, outside: ThreadPlace, loop: Loop, run_one: RunOne) -> None:
    TileEmission(nest, schedule, outside, loop, run_one).run(loop.body)
