"""The interpreter of nests for GPUs: runs every thread of every block by itself, in plain Python and numpy.

In: a nest, the numbers of a call, the bytes of its buffers, its scalars. Out: the bytes of its outputs, and whether
they are valid: a GPU's kernel ends where an index lies outside its axis. It shares the op table with code generation
and nothing else. A LoopError tells where a nest or a schedule breaks its rules: what the loop interpreter checks; and
that what a thread takes together lies where one access can reach it, that scratch memory in registers is read by the
thread that wrote it, at the same place, that shared memory is written once and read after a barrier by all others, that
the threads of a team agree on what is theirs in common, and that all threads have elements where a schedule says so.
The bounds check proves none of that, and all of its own claims are checked here as well.

Arrays have a line per thread of a block and a column per element that a thread takes together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy

from ingot.base.dtypes import DataType
from ingot.base.errors import LoopError
from ingot.base.numbers import Number
from ingot.loops.elements import Element
from ingot.loops.gpu.block import Block, Scope
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.gpu.team import folded_lanes, folded_team
from ingot.loops.gpu.tensors import TensorAccess
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
    LoopKind,
    Nest,
    Place,
    Recall,
    Store,
)


def interpret_on_gpu(
    nest: Nest, call: GpuCall, memory: Sequence[Any], scalars: Sequence[Number], seed: int = 0
) -> bool:
    """Run a nest; whether its results are valid. `memory` holds each buffer's bytes from its first element on, outputs
    before inputs. The seed decides in which order blocks run."""
    machine = _Machine(nest, call, memory, scalars, Random(seed))
    with numpy.errstate(all="ignore"):
        machine.run()
    machine.check_outputs()
    return machine.is_valid


class _Machine(TensorAccess):
    def __init__(self, nest: Nest, call: GpuCall, memory: Sequence[Any], scalars: Sequence[Number], random: Random):
        super().__init__(nest, call, memory, scalars)
        self.call, self.schedule, self.random = call, call.schedule, random

    def run(self) -> None:
        for loop in self.nest.body:
            assert isinstance(loop, Loop)
            for number in self.random.sample(range(self.call.grid), self.call.grid):
                block = Block(number, self.schedule)
                if loop.kind is LoopKind.GRID:
                    self._grid(loop, block)
                else:
                    self._blocks(loop, block)

    def _fault(self, instruction: Instruction, scope: Scope, what: str) -> LoopError:
        return self.fault(instruction, scope.positions, what)

    # --- loops --------------------------------------------------------------------------------------------------------

    def _grid(self, loop: Loop, block: Block) -> None:
        schedule = self.schedule
        first = block.number * schedule.threads * loop.at_once + block.thread
        units = [first + turn * schedule.threads for turn in range(loop.at_once)]
        self._run_together(loop.body, [self._entered(Scope(), loop, unit) for unit in units], block)
        if schedule.has_rest:
            (axis,) = loop.axes
            rest, rank = self.sizes[axis] % loop.lanes, block.number * schedule.threads + block.thread
            scope = Scope({axis: numpy.minimum(self.sizes[axis] - rest + rank, self.sizes[axis] - 1)}, rank < rest)
            self._run_together(loop.body, [scope], block)

    def _blocks(self, loop: Loop, block: Block) -> None:
        if self.schedule.tile:
            remaining, origins = block.number, {}
            for axis in reversed(loop.axes):
                width = self.schedule.tile if axis in loop.blocked else 1
                remaining, place = divmod(remaining, -(-self.sizes[axis] // width))
                origins[axis] = place * width
            positions = {axis: numpy.array(origin) for axis, origin in origins.items() if axis not in loop.blocked}
            self._run_body(loop.body, Scope(positions, origins={axis: origins[axis] for axis in loop.blocked}), block)
            return
        row = block.number * self.schedule.teams + block.team
        self._run_body(loop.body, self._entered(Scope(), loop, row), block)

    def _entered(self, outside: Scope, loop: Loop, unit: Any) -> Scope:
        """One step: so many neighbours of the last axis. Threads without elements are at the last there are."""
        extents = [self.sizes[axis] for axis in loop.axes]
        if extents:
            extents[-1], rest = divmod(extents[-1], loop.lanes)
            if rest and not self.schedule.has_rest:
                raise self._fault(loop, outside, f"{rest} elements are left over")
        units = math.prod(extents)
        inside = unit < units
        if self.schedule.is_even and not inside.all():
            raise self._fault(loop, outside, "a thread has no elements, and they should come out even")
        places = numpy.unravel_index(numpy.minimum(unit, units - 1), extents) if extents else ()
        positions = dict(zip(loop.axes, places, strict=True))
        if extents:
            positions[loop.axes[-1]] = positions[loop.axes[-1]] * loop.lanes + numpy.arange(loop.lanes)
        return outside.inner(positions, inside)

    def _threads(self, loop: Loop, scope: Scope, block: Block) -> None:
        if scope.origins:
            self._run_together(loop.body, list(self._tile_steps(loop, scope, block)), block)
            return
        schedule = self.schedule
        units = math.prod(self.sizes[axis] for axis in loop.axes) // loop.lanes
        needed = -(-units // schedule.team)
        if schedule.steps not in (0, needed):
            raise self._fault(loop, scope, f"a team needs {needed} steps, not {schedule.steps}")
        steps = [
            self._entered(scope, loop, block.member + step * schedule.team) for step in range(schedule.steps or needed)
        ]
        together = schedule.steps or schedule.at_once
        full = len(steps) if schedule.steps else units // (schedule.team * together) * together
        for first in range(0, full, together):
            self._run_together(loop.body, steps[first : first + together], block, first)
        for first in range(full, len(steps)):
            self._run_together(loop.body, steps[first : first + 1], block, first)

    def _tile_steps(self, loop: Loop, scope: Scope, block: Block) -> Any:
        """Steps through a square: of neighbours along the last axis, as many along the other as go at once."""
        side, (first, last) = self.schedule.tile, loop.axes
        line = side // loop.lanes
        for start in range(0, side // loop.at_once * line, self.schedule.threads):
            outer, inner = numpy.divmod(start + block.thread, line)
            for beside in range(loop.at_once):
                relative = {first: outer * loop.at_once + beside, last: inner * loop.lanes + numpy.arange(loop.lanes)}
                yield self._in_tile(loop, scope, relative)

    def _in_tile(self, loop: Loop, scope: Scope, relative: dict[int, Any]) -> Scope:
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
        return scope.inner(positions, inside, relative)

    # --- instructions -------------------------------------------------------------------------------------------------

    def _run_body(self, body: Sequence[Instruction], scope: Scope, block: Block) -> None:
        """What is done once per row or square, by all of its threads alike; one of them stores."""
        for instruction in body:
            match instruction:
                case Loop():
                    self._threads(instruction, scope, block)
                case Barrier():
                    block.epoch += 1
                case Begin(accumulator):
                    nothing = self.nothing(accumulator)
                    block.gathered[accumulator] = Element(
                        numpy.full((self.schedule.threads, 1), nothing.array), nothing.dtype
                    )
                case Store(_, value):
                    self._check_agreement(instruction, self._value(value, scope), scope)
                    self.store(instruction, scope.inner({}, block.member == 0))
                case At():
                    self._at(instruction, scope, block)
                case _:
                    self._run_one(instruction, scope, block, 0)

    def _run_together(self, body: Sequence[Instruction], scopes: Sequence[Scope], block: Block, first: int = 0) -> None:
        """Steps side by side: what they read is read first, and what they gather joins the rest together."""
        together: dict[int, Element] = {}
        for part in ([i for i in body if isinstance(i, Load)], [i for i in body if not isinstance(i, Load)]):
            for step, scope in enumerate(scopes, first):
                for instruction in part:
                    if isinstance(instruction, Accumulate):
                        value = self._added(instruction.accumulator, self._value(instruction.value, scope), scope)
                        before = together.get(instruction.accumulator)
                        together[instruction.accumulator] = (
                            value if before is None else self._narrowly(instruction.accumulator, before, value)
                        )
                    else:
                        self._run_one(instruction, scope, block, step)
        for index, value in together.items():
            if index not in block.gathered:
                raise LoopError(f"{self.nest.accumulators[index].name} was not begun here\n{self.nest.text}")
            lanes = folded_lanes(value, lambda low, high, index=index: self._narrowly(index, low, high))
            block.gathered[index] = self.combined(index, block.gathered[index], lanes)

    def _run_one(self, instruction: Instruction, scope: Scope, block: Block, step: int) -> None:
        match instruction:
            case Store():
                self.store(instruction, scope)
            case Keep(scratch, value):
                self._keep(instruction, self._value(value, scope), scope, block, (scratch, step))
            case Load() | Compute() | Recall() | Finish():
                found = self._computed(instruction, scope, block, step)
                assert found.dtype is instruction.register.dtype, instruction.text(self.nest)
                scope.registers[instruction.register] = found
            case _:
                raise self._fault(instruction, scope, "it cannot stand here")

    def _computed(
        self, instruction: Load | Compute | Recall | Finish, scope: Scope, block: Block, step: int
    ) -> Element:
        match instruction:
            case Load():
                return self.load(instruction, scope)
            case Compute(_, op, operands, attributes):
                assert op.emit is not None
                values = [self._value(operand, scope) for operand in operands]
                return op.emit(self.elements, *values, **dict(attributes))
            case Recall(_, scratch):
                return self._recall(instruction, scope, block, (scratch, step))
            case Finish(register, accumulator):
                if accumulator not in block.gathered:
                    raise self._fault(instruction, scope, "it was not begun here")
                total = folded_team(
                    block.gathered[accumulator],
                    self.schedule.team,
                    lambda own, other: self.combined(accumulator, own, other),
                )
                return self.elements.convert(total, register.dtype)

    def _value(self, value: Any, scope: Scope) -> Element:
        return self.value(value, scope.positions, scope.registers)

    def _at(self, place: At, scope: Scope, block: Block) -> None:
        """One position; where it lies outside its axis the kernel ends, and the first one stands in for it here."""
        position = self.elements.convert(self._value(place.position, scope), DataType.Int).array
        within = (position >= 0) & (position < self.sizes[place.axis])
        self.is_valid &= bool(numpy.all(within | ~scope.inside))
        entered = scope.inner({place.axis: numpy.where(within, position, 0)}, scope.inside)
        for instruction in place.body:
            self._run_one(instruction, entered, block, 0)
        scope.registers.update(entered.registers)

    def _check_agreement(self, instruction: Instruction, value: Element, scope: Scope) -> None:
        teams = numpy.broadcast_to(value.array, (self.schedule.threads, 1)).reshape(-1, self.schedule.team)
        raw = numpy.ascontiguousarray(teams).view(numpy.uint8).reshape(*teams.shape, -1)
        if (raw != raw[:, :1]).any():
            raise self._fault(instruction, scope, "the threads of a team disagree")

    # --- accumulators -------------------------------------------------------------------------------------------------

    def _added(self, index: int, value: Element, scope: Scope) -> Element:
        """What threads have, and nothing where they have no elements; sums of float32 are few enough to stay so."""
        accumulator = self.nest.accumulators[index]
        assert accumulator.op.combination is not None
        if not (accumulator.op.name == "sum" and value.dtype is DataType.Float):
            value = self.elements.convert(value, accumulator.dtype)
        nothing = self.elements.literal(accumulator.op.combination.identity(value.dtype), value.dtype)
        lanes = max(position.shape[-1] for position in scope.positions.values())
        spread = numpy.broadcast_to(value.array, (self.schedule.threads, lanes))
        return Element(numpy.where(scope.inside, spread, nothing.array), value.dtype)

    def _narrowly(self, index: int, first: Element, second: Element) -> Element:
        """Both together, in their own type."""
        combination = self.nest.accumulators[index].op.combination
        assert combination is not None
        return combination.combine(self.elements, first, second)

    # --- scratch memory -----------------------------------------------------------------------------------------------

    def _keep(self, keep: Keep, value: Element, scope: Scope, block: Block, place: tuple[int, int]) -> None:
        scratch = self.nest.scratches[keep.scratch]
        fault = (
            block.keep_shared(keep.scratch, scope, scratch.axes, value)
            if scratch.place is Place.SHARED
            else block.keep_in_registers(place, scope, value)
        )
        if fault:
            raise self._fault(keep, scope, fault)

    def _recall(self, recall: Recall, scope: Scope, block: Block, place: tuple[int, int]) -> Element:
        scratch = self.nest.scratches[recall.scratch]
        found = (
            block.recall_shared(recall.scratch, scope, scratch.axes)
            if scratch.place is Place.SHARED
            else block.recall_from_registers(place, scope)
        )
        if isinstance(found, str):
            raise self._fault(recall, scope, found)
        return found
