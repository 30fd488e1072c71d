"""The interpreter of nests for GPUs: runs every thread of every block by itself, in plain Python and numpy.

In: a nest, the numbers of a call, the bytes of its buffers, its scalars. Out: the bytes of its outputs, and whether
they are valid: a GPU's kernel ends where an index lies outside its axis. It shares the op table with code generation
and nothing else. A LoopError tells where a nest or a schedule breaks its rules: what the loop interpreter checks; and
that what a thread takes together lies where one access can reach it, that scratch memory in registers is read by the
thread that wrote it, at the same place, that shared memory is written once and read after a barrier by all others, that
the threads of a group agree on what is theirs in common, that all threads have elements where a schedule says
so, and that buffers have the same strides where it does. The bounds check proves none of that, and all of its own
claims are checked here as well.

Arrays have a line per thread of a block and a column per element that a thread takes together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy

from ingot.base.dtypes import DataType
from ingot.base.errors import LoopError
from ingot.base.numbers import Number
from ingot.loops.elements import Element
from ingot.loops.gpu.interpreter.accumulation import Accumulation
from ingot.loops.gpu.interpreter.block import ThreadBlock, ThreadScope
from ingot.loops.gpu.launches import GpuLaunch, launches_of
from ingot.loops.gpu.schedule import Grid, Tiles
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.nest import (
    Accumulate,
    At,
    Barrier,
    Begin,
    Compute,
    Finish,
    Instruction,
    Keep,
    Load,
    Loop,
    Nest,
    Place,
    Recall,
    Store,
    walk,
)


def interpret_on_gpu(
    nest: Nest, call: GpuCall, memory: Sequence[Any], scalars: Sequence[Number], seed: int = 0
) -> bool:
    """Run a nest; whether its results are valid. `memory` holds each buffer's bytes from its first element on, outputs
    before inputs. The seed decides in which order blocks run."""
    machine = _GpuMachine(nest, call, memory, scalars, Random(seed))
    with numpy.errstate(all="ignore"):
        machine.run()
    machine.check_outputs()
    return machine.is_valid


class _GpuMachine(Accumulation):
    def __init__(self, nest: Nest, call: GpuCall, memory: Sequence[Any], scalars: Sequence[Number], random: Random):
        super().__init__(nest, call, memory, scalars)
        self.call, self.schedule, self.random = call, call.schedule, random

    def run(self) -> None:
        if isinstance(self.schedule, Grid):
            self._check_strides(self.schedule)
        for launch in launches_of(self.nest, self.schedule):
            self.begin_launch()
            count = launch.blocks(self.call) * launch.lines(self.call)
            done = [0] * launch.counters(self.call)
            for number in self.random.sample(range(count), count):
                self._launch(launch, ThreadBlock(number, launch.schedule(self.schedule)))
                if done:
                    counter = number % len(done)
                    done[counter] += 1
                    if done[counter] == launch.counted(self.call):
                        self._last(launch, ThreadBlock(number, launch.last_schedule(self.schedule)))

    def _check_strides(self, schedule: Grid) -> None:
        for buffer, like in enumerate(schedule.alike):
            if self.call.strides[buffer] != self.call.strides[like]:
                raise LoopError(f"buffers {like} and {buffer} should have the same strides, and have not")

    def _launch(self, launch: GpuLaunch, block: ThreadBlock) -> None:
        loop = launch.loop
        if loop is None:
            self._run_body(launch.body, ThreadScope(inside=block.thread >= 0, left=self.call.grid), block)
            return
        match self.schedule:
            case Grid():
                self._grid(self.schedule, loop, block)
            case Tiles():
                self._tile(self.schedule, loop, block)
            case _:
                self._rows(loop, block)

    def _last(self, launch: GpuLaunch, block: ThreadBlock) -> None:
        """What the last block to be done does: it alone may read what others have left in the same launch."""
        if launch.last_loop is not None:
            self._rows(launch.last_loop, block)
        else:
            self._run_body(launch.last, ThreadScope(inside=block.thread >= 0, left=self.call.grid), block)

    def _fault(self, instruction: Instruction, scope: ThreadScope, what: str) -> LoopError:
        return self.fault(instruction, scope.positions, what)

    # --- loops --------------------------------------------------------------------------------------------------------

    def _grid(self, schedule: Grid, loop: Loop, block: ThreadBlock) -> None:
        outside, number = ThreadScope(), block.number
        if schedule.has_lines:
            line, number = divmod(number, self.call.grid)
            lines = replace(loop, axes=loop.axes[:-1], vector_width=1)
            outside = self._entered(outside, lines, numpy.full_like(block.thread, line), self.call.lines)
            loop = replace(loop, axes=loop.axes[-1:])
        first = number * schedule.threads * loop.at_once + block.thread
        units = [first + iteration * schedule.threads for iteration in range(loop.at_once)]
        iterations = [self._entered(outside, loop, unit, self._units(loop)) for unit in units]
        self._run_together(loop.body, iterations, block)
        if schedule.has_rest:
            (axis,) = loop.axes
            rest, rank = self.sizes[axis] % loop.vector_width, block.number * schedule.threads + block.thread
            scope = ThreadScope(
                {axis: numpy.minimum(self.sizes[axis] - rest + rank, self.sizes[axis] - 1)}, rank < rest
            )
            self._run_together(loop.body, [scope], block)

    def _tile(self, schedule: Tiles, loop: Loop, block: ThreadBlock) -> None:
        remaining, origins = block.number, {}
        for axis in reversed(loop.axes):
            width = schedule.tile if axis in loop.blocked else 1
            remaining, place = divmod(remaining, -(-self.sizes[axis] // width))
            origins[axis] = place * width
        positions = {axis: numpy.array(origin) for axis, origin in origins.items() if axis not in loop.blocked}
        self._run_body(loop.body, ThreadScope(positions, origins={axis: origins[axis] for axis in loop.blocked}), block)

    def _rows(self, loop: Loop, block: ThreadBlock) -> None:
        """The rows of each thread group, or parts of them; what is begun elsewhere is left there in the end."""
        split, number = divmod(block.number, self.call.grid)
        outer = replace(loop, axes=tuple(axis for axis in loop.axes if axis not in loop.blocked))
        row = number * block.rows.thread_groups + block.thread_group
        scope = self._entered(ThreadScope(split=split, left=self.call.splits), outer, row, self._units(outer))
        scope.rows = numpy.minimum(row, self._units(outer) - 1) * loop.vector_width + numpy.arange(loop.vector_width)
        totals = {i.accumulator for i in loop.body if isinstance(i, Accumulate)}
        used = dict.fromkeys(i.accumulator for i in walk(loop.body) if isinstance(i, Accumulate))
        left = [index for index in used if self.is_left(index)]
        for index in left:
            self.begin(index, block, 1 if index in totals else loop.vector_width)
        self._run_body(loop.body, scope, block)
        for index in left:
            self.leave(index, block, scope, index in totals)

    def _units(self, loop: Loop) -> int:
        """How often threads take elements in a loop."""
        extents = [self.sizes[axis] for axis in loop.axes]
        return math.prod(extents[:-1]) * (extents[-1] // loop.vector_width) if extents else 1

    def _entered(self, outside: ThreadScope, loop: Loop, unit: Any, last: int) -> ThreadScope:
        """One iteration: so many neighbours of the last axis. Threads without elements are at the last there are."""
        extents = [self.sizes[axis] for axis in loop.axes]
        if extents:
            extents[-1], rest = divmod(extents[-1], loop.vector_width)
            if rest and not (isinstance(self.schedule, Grid) and self.schedule.has_rest):
                raise self._fault(loop, outside, f"{rest} elements are left over")
        inside = unit < last
        if self.schedule.is_even and not inside.all():
            raise self._fault(loop, outside, "a thread has no elements, and they should come out even")
        places = numpy.unravel_index(numpy.minimum(unit, last - 1), extents) if extents else ()
        positions = dict(zip(loop.axes, places, strict=True))
        if extents:
            positions[loop.axes[-1]] = positions[loop.axes[-1]] * loop.vector_width + numpy.arange(loop.vector_width)
        return outside.inner(positions, inside, vector_width=outside.vector_width * loop.vector_width)

    def _threads(self, loop: Loop, scope: ThreadScope, block: ThreadBlock) -> None:
        if isinstance(self.schedule, Tiles):
            self._run_together(loop.body, list(self._tile_iterations(self.schedule, loop, scope, block)), block)
            return
        schedule, first, last = block.rows, 0, self._units(loop)
        if self.call.split_length:
            first = scope.split * self.call.split_length // loop.vector_width
            last = min(first + self.call.split_length // loop.vector_width, last)
        needed = -(-(last - first) // schedule.thread_group_size)
        if schedule.iterations not in (0, needed):
            raise self._fault(loop, scope, f"a thread group needs {needed} iterations, not {schedule.iterations}")
        units = [first + block.member + iteration * schedule.thread_group_size for iteration in range(needed)]
        iterations = [self._entered(scope, loop, unit, last) for unit in units]
        together = schedule.iterations or schedule.at_once
        full = needed if schedule.iterations else (last - first) // (schedule.thread_group_size * together) * together
        for start in (*range(0, full, together), *range(full, needed)):
            self._run_together(loop.body, iterations[start : start + (together if start < full else 1)], block, start)

    def _tile_iterations(self, schedule: Tiles, loop: Loop, scope: ThreadScope, block: ThreadBlock) -> Any:
        """Iterations through a square: of neighbours along the last axis, as many along the other as go at once."""
        side, (first, last) = schedule.tile, loop.axes
        line = side // loop.vector_width
        for start in range(0, side // loop.at_once * line, schedule.threads):
            outer, inner = numpy.divmod(start + block.thread, line)
            for beside in range(loop.at_once):
                relative = {
                    first: outer * loop.at_once + beside,
                    last: inner * loop.vector_width + numpy.arange(loop.vector_width),
                }
                yield self._in_tile(loop, scope, relative)

    def _in_tile(self, loop: Loop, scope: ThreadScope, relative: dict[int, Any]) -> ThreadScope:
        positions, inside = {}, numpy.array(True)
        for axis, place in relative.items():
            position, size = scope.origins[axis] + place, self.sizes[axis]
            within = position < size
            if (within.any(axis=1) != within.all(axis=1)).any():
                raise self._fault(loop, scope, f"what a thread takes together crosses the end of i{axis}")
            inside = inside & within[:, :1]
            positions[axis] = numpy.where(within, position, size - place.shape[1] + numpy.arange(place.shape[1]))
        if self.schedule.is_even and not inside.all():
            raise self._fault(loop, scope, "a thread has no elements, and they should come out even")
        return scope.inner(positions, inside, relative, loop.vector_width)

    # --- instructions -------------------------------------------------------------------------------------------------

    def _run_body(self, body: Sequence[Instruction], scope: ThreadScope, block: ThreadBlock) -> None:
        """What is done once per row or square, by all of its threads alike; one of them stores."""
        for instruction in body:
            match instruction:
                case Loop():
                    self._threads(instruction, scope, block)
                case Barrier():
                    block.epoch += 1
                case Begin(accumulator):
                    self.begin(accumulator, block, scope.vector_width)
                case Accumulate(accumulator, value):
                    first = scope.inner({}, block.member == 0)
                    self.accumulate(accumulator, [(self._value(value, scope), first)], block)
                case Store(_, value):
                    self._check_agreement(instruction, self._value(value, scope), scope, block)
                    self.store(instruction, scope.inner({}, block.member == 0), block)
                case At():
                    self._at(instruction, scope, block)
                case _:
                    self._run_one(instruction, scope, block, 0)

    def _run_together(
        self, body: Sequence[Instruction], scopes: Sequence[ThreadScope], block: ThreadBlock, first: int = 0
    ) -> None:
        """Iterations side by side: what they read is read first, and what they accumulate joins the rest together."""
        accumulated: dict[int, list[tuple[Element, ThreadScope]]] = {}
        for part in ([i for i in body if isinstance(i, Load)], [i for i in body if not isinstance(i, Load)]):
            for iteration, scope in enumerate(scopes, first):
                for instruction in part:
                    if isinstance(instruction, Accumulate):
                        found = self._value(instruction.value, scope), scope
                        accumulated.setdefault(instruction.accumulator, []).append(found)
                    else:
                        self._run_one(instruction, scope, block, iteration)
        for index, values in accumulated.items():
            self.accumulate(index, values, block)

    def _run_one(self, instruction: Instruction, scope: ThreadScope, block: ThreadBlock, iteration: int) -> None:
        match instruction:
            case Store():
                self.store(instruction, scope, block)
            case Keep(scratch, value):
                self._keep(instruction, self._value(value, scope), scope, block, (scratch, iteration))
            case Load() | Compute() | Recall() | Finish():
                found = self._computed(instruction, scope, block, iteration)
                assert found.dtype is instruction.register.dtype, instruction.text(self.nest)
                scope.registers[instruction.register] = found
            case _:
                raise self._fault(instruction, scope, "it cannot stand here")

    def _computed(
        self, instruction: Load | Compute | Recall | Finish, scope: ThreadScope, block: ThreadBlock, iteration: int
    ) -> Element:
        match instruction:
            case Load():
                return self.load(instruction, scope, block)
            case Compute(_, op, operands, attributes):
                assert op.emit is not None
                values = [self._value(operand, scope) for operand in operands]
                return op.emit(self.elements, *values, **dict(attributes))
            case Recall(_, scratch):
                return self._recall(instruction, scope, block, (scratch, iteration))
            case Finish(register, accumulator):
                return self.elements.convert(self.finish(accumulator, block, scope), register.dtype)

    def _value(self, value: Any, scope: ThreadScope) -> Element:
        return self.value(value, scope.positions, scope.registers)

    def _at(self, place: At, scope: ThreadScope, block: ThreadBlock) -> None:
        """One position; where it lies outside its axis the kernel ends, and the first one stands in for it here."""
        position = self.elements.convert(self._value(place.position, scope), DataType.Int).array
        within = (position >= 0) & (position < self.sizes[place.axis])
        self.is_valid &= bool(numpy.all(within | ~scope.inside))
        entered = scope.inner({place.axis: numpy.where(within, position, 0)}, scope.inside)
        for instruction in place.body:
            self._run_one(instruction, entered, block, 0)
        scope.registers.update(entered.registers)

    def _check_agreement(
        self, instruction: Instruction, value: Element, scope: ThreadScope, block: ThreadBlock
    ) -> None:
        """All threads of a group must have the same value; the bits of a NaN may differ."""
        spread = numpy.ascontiguousarray(numpy.broadcast_to(value.array, (block.schedule.threads, scope.vector_width)))
        firsts = spread[(block.member == 0)[:, 0]][block.thread_group[:, 0]]
        bits = f"V{spread.itemsize}"  # as they are, whatever the width
        agree = (spread.view(bits) == firsts.view(bits)) | ((spread != spread) & (firsts != firsts))
        if not agree.all():
            raise self._fault(instruction, scope, "the threads of a group disagree")

    # --- scratch memory -----------------------------------------------------------------------------------------------

    def _keep(self, keep: Keep, value: Element, scope: ThreadScope, block: ThreadBlock, place: tuple[int, int]) -> None:
        scratch = self.nest.scratches[keep.scratch]
        fault = (
            block.keep_shared(keep.scratch, scope, scratch.axes, value)
            if scratch.place is Place.SHARED
            else block.keep_in_registers(place, scope, value)
        )
        if fault:
            raise self._fault(keep, scope, fault)

    def _recall(self, recall: Recall, scope: ThreadScope, block: ThreadBlock, place: tuple[int, int]) -> Element:
        scratch = self.nest.scratches[recall.scratch]
        found = (
            block.recall_shared(recall.scratch, scope, scratch.axes)
            if scratch.place is Place.SHARED
            else block.recall_from_registers(place, scope)
        )
        if isinstance(found, str):
            raise self._fault(recall, scope, found)
        return found
