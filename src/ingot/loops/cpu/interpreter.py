"""The loop interpreter: runs a nest in plain Python and numpy, and checks all that generated code takes on trust.

In: a nest, the numbers of a call, the bytes of its buffers, its scalars. Out: the bytes of its outputs, and whether
they are valid: they are void where an index lay outside its axis. It shares the op table with code generation and
nothing else. A LoopError tells where a nest breaks its rules: every access lies inside its buffer, every element of an
output is written exactly once, scratch memory and accumulators are used only where they were written or begun, and
iterations of a parallel loop get along in any order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy
from numpy.lib.stride_tricks import as_strided

from ingot.base.dtypes import DataType
from ingot.base.errors import LoopError
from ingot.base.numbers import Number
from ingot.loops.cpu.scheduling import CpuCall
from ingot.loops.elements import Element, held_as
from ingot.loops.interpreting import Interpretation
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
    Prefetch,
    Recall,
    Register,
    Store,
    Value,
    walk,
)


def interpret(nest: Nest, call: CpuCall, memory: Sequence[Any], scalars: Sequence[Number], seed: int = 0) -> bool:
    """Run a nest; whether its results are valid. `memory` holds each buffer's bytes from its first element on, outputs
    before inputs. The seed decides in which order the iterations of parallel loops run."""
    machine = _CpuMachine(nest, call, memory, scalars, Random(seed))
    with numpy.errstate(all="ignore"):
        machine.run(nest.body, _Scope())
    machine.check_outputs()
    return machine.is_valid


@dataclass
class _ScratchMemory:
    array: Any
    written: Any
    """Which of its elements have been."""


@dataclass
class _Scope:
    """What is known at a place inside the loops."""

    positions: dict[int, Any] = field(default_factory=dict)
    """Along each axis: a number, or one per lane in a vector loop."""
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The current block of axes that go in blocks."""
    registers: dict[Register, Element] = field(default_factory=dict)
    accumulators: dict[int, Element] = field(default_factory=dict)
    scratches: dict[int, _ScratchMemory] = field(default_factory=dict)
    lanes: int | None = None
    """How many elements a vector loop has here."""

    def inner(self) -> _Scope:
        """One loop further in: what is assigned there is forgotten afterwards, what is accumulated and kept is not."""
        copies = dict(self.positions), dict(self.ranges), dict(self.registers)
        return replace(self, positions=copies[0], ranges=copies[1], registers=copies[2])


class _CpuMachine(Interpretation):
    def __init__(self, nest: Nest, call: CpuCall, memory: Sequence[Any], scalars: Sequence[Number], random: Random):
        super().__init__(nest, call, memory, scalars)
        self.call, self.random = call, random
        self._blocked = {axis for i in walk(nest.body) if isinstance(i, Loop) for axis in i.blocked}

    def _fault(self, instruction: Instruction, scope: _Scope, what: str) -> LoopError:
        return self.fault(instruction, scope.positions, what)

    # --- instructions -------------------------------------------------------------------------------------------------

    def run(self, body: Sequence[Instruction], scope: _Scope) -> None:
        for instruction in body:
            match instruction:
                case Loop(LoopKind.VECTOR):
                    self._vector(instruction, scope)
                case Loop(LoopKind.SERIAL):
                    for entered in self._iterations(instruction, scope):
                        self.run(instruction.body, entered)
                case Loop():
                    self._parallel(instruction, scope)
                case At():
                    self._at(instruction, scope)
                case Store(buffer, value):
                    self._store(instruction, buffer, self._value(value, scope), scope)
                case Keep(scratch, value):
                    memory, index = self._place(instruction, scratch, scope)
                    memory.array[index], memory.written[index] = self._value(value, scope).array, True
                case Prefetch() | Barrier():
                    pass  # it may point anywhere, and changes nothing
                case Begin(accumulator):
                    scope.accumulators[accumulator] = self._identity(accumulator, scope)
                case Accumulate(accumulator, value):
                    self._accumulate(instruction, accumulator, self._value(value, scope), scope)
                case _:
                    scope.registers[instruction.register] = self._computed(instruction, scope)

    def _computed(self, instruction: Load | Compute | Recall | Finish, scope: _Scope) -> Element:
        match instruction:
            case Load(_, buffer):
                found = self._load(instruction, buffer, scope)
            case Compute(_, op, operands, attributes):
                assert op.emit is not None
                values = [self._value(operand, scope) for operand in operands]
                found = op.emit(self.elements, *values, **dict(attributes))
            case Recall(_, scratch):
                memory, index = self._place(instruction, scratch, scope)
                if not numpy.all(memory.written[index]):
                    raise self._fault(instruction, scope, "nothing was kept there")
                found = Element(memory.array[index], self.nest.scratches[scratch].dtype)
            case Finish(register, accumulator):
                found = self.elements.convert(self._accumulated(instruction, accumulator, scope), register.dtype)
        assert found.dtype is instruction.register.dtype, f"{instruction.text(self.nest)} gives {found.dtype.text}"
        return found

    def _value(self, value: Value, scope: _Scope) -> Element:
        return self.value(value, scope.positions, scope.registers)

    # --- loops --------------------------------------------------------------------------------------------------------

    def _iterations(self, loop: Loop, scope: _Scope) -> Iterator[_Scope]:
        """A scope for each iteration: all combinations of positions or blocks, the last axis fastest."""
        for steps in itertools.product(*(self._steps(loop, axis, scope) for axis in loop.axes)):
            entered = scope.inner()
            for axis, step in zip(loop.axes, steps, strict=True):
                if axis in loop.blocked:
                    last = min(step + self.call.blocks[axis], self.call.sizes[axis])
                    entered.ranges[axis] = (step, last)
                else:
                    entered.positions[axis] = step
            yield entered

    def _steps(self, loop: Loop, axis: int, scope: _Scope) -> range:
        if axis in loop.blocked:
            return range(0, self.call.sizes[axis], self.call.blocks[axis])
        return range(*self._range(axis, scope))

    def _range(self, axis: int, scope: _Scope) -> tuple[int, int]:
        return scope.ranges.get(axis, (0, self.call.sizes[axis]))

    def _vector(self, loop: Loop, scope: _Scope) -> None:
        (axis,) = loop.axes
        first, last = self._range(axis, scope)
        if first < last:
            entered = scope.inner()
            entered.positions[axis], entered.lanes = numpy.arange(first, last, dtype=numpy.int64), last - first
            self.run(loop.body, entered)

    def _at(self, place: At, scope: _Scope) -> None:
        """One position; where it lies outside its axis all results are void, and the first one stands in for it."""
        position = int(self.elements.convert(self._value(place.position, scope), DataType.Int).array)
        inside = 0 <= position < self.call.sizes[place.axis]
        self.is_valid &= inside
        entered = scope.inner()
        entered.positions[place.axis] = position if inside else 0
        self.run(place.body, entered)
        scope.registers.update(entered.registers)

    def _parallel(self, loop: Loop, scope: _Scope) -> None:
        """Grains of iterations in any order; what they accumulate is combined in their own order."""
        crossing = _accumulated_across(loop)
        iterations = list(self._iterations(loop, scope))
        grains = [iterations[start : start + self.call.grain] for start in range(0, len(iterations), self.call.grain)]
        partial: dict[int, dict[int, Element]] = {}
        for number in self.random.sample(range(len(grains)), len(grains)):
            accumulated = {index: self._identity(index, scope) for index in crossing}
            for entered in grains[number]:
                entered.accumulators, entered.scratches = dict(accumulated), {}
                self.run(loop.body, entered)
                accumulated = {index: entered.accumulators[index] for index in crossing}
            partial[number] = accumulated
        for number in range(len(grains)):
            for index, value in partial[number].items():
                scope.accumulators[index] = self.combined(index, scope.accumulators[index], value)

    # --- buffers ------------------------------------------------------------------------------------------------------

    def _elements(self, instruction: Load | Store, buffer: int, scope: _Scope, memory: Any) -> Any:
        """The bytes of the current elements, one row per lane, as a view of a buffer's memory."""
        strides, width = self.call.strides[buffer], self.nest.buffers[buffer].dtype.bytes
        offset = sum(position * strides[axis] for axis, position in scope.positions.items())
        if isinstance(offset, int):
            first, step = offset, 0
        else:
            first, step = int(offset[0]), int(offset[1] - offset[0]) if len(offset) > 1 else 0
        lanes = 1 if scope.lanes is None else scope.lanes
        last = first + step * (lanes - 1)
        if min(first, last) < 0 or max(first, last) + width > len(memory):
            extent = f"bytes {min(first, last)} to {max(first, last) + width} of 0 to {len(memory)}"
            raise self._fault(instruction, scope, extent)
        if isinstance(instruction, Store) and lanes > 1 and abs(step) < width:
            raise self._fault(instruction, scope, "an element is written a second time")
        shape, steps = ((width,), (1,)) if scope.lanes is None else ((lanes, width), (step, 1))
        return as_strided(memory[first:], shape, steps)

    def _load(self, instruction: Load, buffer: int, scope: _Scope) -> Element:
        dtype = self.nest.buffers[buffer].dtype
        raw = self._elements(instruction, buffer, scope, self.memory[buffer])
        if dtype is DataType.Bool:
            return Element(raw[..., 0] != 0, dtype)
        # A copy: a result may be written over it before the register is used for the last time.
        return Element(numpy.array(raw, order="C").view(held_as(dtype))[..., 0], dtype)

    def _store(self, instruction: Store, buffer: int, value: Element, scope: _Scope) -> None:
        written = self._elements(instruction, buffer, scope, self.written[buffer])
        if written.any():
            raise self._fault(instruction, scope, "an element is written a second time")
        written[...] = True
        held = numpy.ascontiguousarray(numpy.broadcast_to(value.array, written.shape[:-1]).astype(held_as(value.dtype)))
        self._elements(instruction, buffer, scope, self.memory[buffer])[...] = held[..., None].view(numpy.uint8)

    # --- scratch memory and accumulators ------------------------------------------------------------------------------

    def _place(self, instruction: Keep | Recall, number: int, scope: _Scope) -> tuple[_ScratchMemory, tuple]:
        """A scratch, made anew where it is first used, and the index of the current position in it."""
        scratch = self.nest.scratches[number]
        if number not in scope.scratches:
            extents = tuple((self.call.blocks if a in self._blocked else self.call.sizes)[a] for a in scratch.axes)
            poison = numpy.full((*extents, scratch.dtype.bytes), 0xA5, numpy.uint8).view(held_as(scratch.dtype))
            scope.scratches[number] = _ScratchMemory(poison[..., 0], numpy.zeros(extents, bool))
        memory = scope.scratches[number]
        index = tuple(numpy.asarray(scope.positions[a]) - self._range(a, scope)[0] for a in scratch.axes)
        for relative, extent, axis in zip(index, memory.written.shape, scratch.axes, strict=True):
            if relative.min() < 0 or relative.max() >= extent:
                raise self._fault(instruction, scope, f"{relative.max()} along i{axis}, of {extent}")
        return memory, index

    def _identity(self, index: int, scope: _Scope) -> Element:
        single, axis = self.nothing(index), self.nest.accumulators[index].axis
        if axis is None:
            return single
        first, last = self._range(axis, scope)
        return Element(numpy.full(last - first, single.array), single.dtype)

    def _accumulated(self, instruction: Instruction, index: int, scope: _Scope) -> Element:
        """What an accumulator holds: of one with a value per position that of the current one."""
        if index not in scope.accumulators:
            raise self._fault(instruction, scope, f"{self.nest.accumulators[index].name} was not begun here")
        found, axis = scope.accumulators[index], self.nest.accumulators[index].axis
        if axis is None:
            return found
        return Element(found.array[scope.positions[axis] - self._range(axis, scope)[0]], found.dtype)

    def _accumulate(self, instruction: Accumulate, index: int, value: Element, scope: _Scope) -> None:
        axis = self.nest.accumulators[index].axis
        so_far = self._accumulated(instruction, index, scope)
        lanes = Element(numpy.broadcast_to(value.array, () if scope.lanes is None else (scope.lanes,)), value.dtype)
        if axis is None:
            scope.accumulators[index] = self.combined(index, so_far, self._folded(index, lanes))
            return
        combined = self.combined(index, so_far, lanes)
        scope.accumulators[index].array[scope.positions[axis] - self._range(axis, scope)[0]] = combined.array

    def _folded(self, index: int, value: Element) -> Element:
        """All lanes as one, in pairs, so that rounding stays small."""
        value = self.elements.convert(value, self.nest.accumulators[index].dtype)
        while value.array.ndim and value.array.size > 1:
            half, odd = value.array.size // 2, value.array[value.array.size // 2 * 2 :]
            low, high = (Element(part, value.dtype) for part in (value.array[:half], value.array[half : 2 * half]))
            value = Element(numpy.concatenate([self.combined(index, low, high).array, odd]), value.dtype)
        return Element(value.array.reshape(()), value.dtype)


def _accumulated_across(loop: Loop) -> list[int]:
    """Accumulators that are begun outside a loop and used inside it."""
    begun = {i.accumulator for i in walk(loop.body) if isinstance(i, Begin)}
    return sorted({i.accumulator for i in walk(loop.body) if isinstance(i, Accumulate)} - begun)
