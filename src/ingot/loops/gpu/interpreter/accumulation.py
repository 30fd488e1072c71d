"""Reductions over the threads of a GPU, for the interpreter: in the same order as generated code.

What a thread takes together it combines first, sums of float32 in float32: they are few. That joins what it has in the
type of the accumulator. Threads of a group then exchange what they have, in pairs whose numbers differ in one
bit, first within each warp and then between warps. Where the threads of a group stand below each other, they do
so within a warp, and then half of the lines of threads take over what the other half has, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from ingot.base.dtypes import DataType
from ingot.base.errors import LoopError
from ingot.base.numbers import Number
from ingot.loops.elements import Element, Elements
from ingot.loops.gpu.interpreter.block import ThreadBlock, ThreadScope
from ingot.loops.gpu.interpreter.tensors import TensorAccess
from ingot.loops.gpu.launches import VALUES_AT_ONCE, left_by_launches
from ingot.loops.gpu.schedule import WARP, Columns, RowSchedule
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.nest import Nest
from ingot.ops.emission import commuting_extremum

Combine = Callable[[Element, Element], Element]


class _Exchanging(Elements):
    """Combines two values so that all threads of a group get the same result, although each has its own value as
    the first operand. Generated code does the same; which of two zeros a thread finds alone is not fixed here."""

    def extremum(self, how: str, x: Element, y: Element) -> Element:
        return commuting_extremum(self, how, x, y) if x.dtype.is_float else super().extremum(how, x, y)


_EXCHANGING = _Exchanging()


class Accumulation(TensorAccess):
    def __init__(self, nest: Nest, call: GpuCall, memory: Sequence[Any], scalars: Sequence[Number]):
        super().__init__(nest, call, memory, scalars)
        self._left: dict[int, dict[tuple[int, int], Any]] = {index: {} for index in left_by_launches(nest)}
        """Values of accumulators that launches leave to others: by part and row, or by block for totals."""

    def is_left(self, index: int) -> bool:
        return index in self._left

    def begin(self, index: int, block: ThreadBlock, rows: int) -> None:
        block.accumulated[index] = self._nothing(index, block, rows)

    def accumulate(self, index: int, values: Sequence[tuple[Element, ThreadScope]], block: ThreadBlock) -> None:
        """What a thread takes together joins what it has."""
        if index not in block.accumulated:
            raise LoopError(f"{self.nest.accumulators[index].name} was not begun here\n{self.nest.text}")
        together = self._together(index, [(value, scope.inside, scope.vector_width) for value, scope in values], block)
        rows = block.accumulated[index].array.shape[1]
        while together.array.shape[1] > rows:
            half = together.array.shape[1] // 2
            low, high = (
                Element(half_of_rows, together.dtype) for half_of_rows in numpy.split(together.array, [half], axis=1)
            )
            together = self._in_own_type(index, low, high)
        block.accumulated[index] = self.combined(index, block.accumulated[index], together)

    def finish(self, index: int, block: ThreadBlock, scope: ThreadScope) -> Element:
        """What the thread group of each thread has accumulated, or what launches before have left for its row."""
        if index not in self._left:
            if index not in block.accumulated:
                raise LoopError(f"{self.nest.accumulators[index].name} was not begun here\n{self.nest.text}")
            return self._of_thread_group(index, block.accumulated[index], block.rows)
        left, count = self._left[index], scope.left
        accumulated, group_size = self._nothing(index, block, scope.vector_width), block.rows.thread_group_size
        at_once = max(VALUES_AT_ONCE // scope.vector_width, 1)
        for start in range(0, count, at_once * group_size):
            values = []
            for iteration in range(at_once):
                number = start + block.member + iteration * group_size
                chosen = numpy.broadcast_arrays(numpy.where(number < count, number, 0), scope.rows)
                try:
                    places = zip(*(array.ravel().tolist() for array in chosen), strict=True)
                    found = numpy.array([left[place] for place in places])
                except KeyError as missing:
                    name = self.nest.accumulators[index].name
                    raise LoopError(f"nothing was left for {name} at {missing}\n{self.nest.text}") from missing
                value = Element(found.reshape(chosen[0].shape), accumulated.dtype)
                values.append((value, number < count, scope.vector_width))
            accumulated = self.combined(index, accumulated, self._together(index, values, block))
        return self._of_thread_group(index, accumulated, block.rows)

    def leave(self, index: int, block: ThreadBlock, scope: ThreadScope, is_total: bool) -> None:
        """What a block has accumulated, or each of its thread groups for the part of its rows, is there for other
        launches."""
        schedule, left = block.rows, self._left[index]
        if is_total:
            total = _exchanged_by(block.accumulated[index], schedule.threads, self._combine(index))
            left[block.number, 0] = total.array[0, 0]
            return
        values = self._of_thread_group(index, block.accumulated[index], schedule)
        shape = schedule.threads, scope.vector_width
        firsts = numpy.broadcast_to(scope.inside & (block.member == 0), shape)
        for row, value in zip(numpy.broadcast_to(scope.rows, shape)[firsts], values.array[firsts], strict=True):
            if (scope.split, int(row)) in left:
                raise LoopError(f"part {scope.split} of row {row} is left a second time\n{self.nest.text}")
            left[scope.split, int(row)] = value

    def _nothing(self, index: int, block: ThreadBlock, rows: int) -> Element:
        nothing = self.nothing(index)
        return Element(numpy.full((block.schedule.threads, rows), nothing.array), nothing.dtype)

    def _together(self, index: int, values: Sequence[tuple[Element, Any, int]], block: ThreadBlock) -> Element:
        """Values of each thread, which of them there are, and in how many lanes."""
        accumulator, found = self.nest.accumulators[index], None
        assert accumulator.op.combination is not None
        for value, inside, vector_width in values:
            if not (accumulator.op.name == "sum" and value.dtype is DataType.Float):
                value = self.elements.convert(value, accumulator.dtype)
            nothing = self.elements.literal(accumulator.op.combination.identity(value.dtype), value.dtype)
            spread = numpy.broadcast_to(value.array, (block.schedule.threads, vector_width))
            value = Element(numpy.where(inside, spread, nothing.array), value.dtype)
            found = value if found is None else self._in_own_type(index, found, value)
        assert found is not None
        return found

    def _in_own_type(self, index: int, first: Element, second: Element) -> Element:
        combination = self.nest.accumulators[index].op.combination
        assert combination is not None
        return combination.combine(self.elements, first, second)

    def _combine(self, index: int) -> Combine:
        combination = self.nest.accumulators[index].op.combination
        assert combination is not None
        return lambda own, other: combination.combine(_EXCHANGING, own, other)

    def _of_thread_group(self, index: int, value: Element, schedule: RowSchedule) -> Element:
        if isinstance(schedule, Columns):
            return _upwards(value, schedule, self._combine(index))
        return _exchanged_by(value, schedule.thread_group_size, self._combine(index))


def _exchanged_by(value: Element, group_size: int, combine: Combine) -> Element:
    """Thread groups of neighbouring threads."""
    value = _exchanged(value, 1, min(group_size, WARP), combine)
    warps = group_size // WARP
    if warps <= 1:
        return value
    threads = numpy.arange(len(value.array))
    left_by = threads // group_size * group_size + threads % WARP % warps * WARP
    return _exchanged(Element(value.array[left_by], value.dtype), 1, warps, combine)


def _upwards(value: Element, schedule: Columns, combine: Combine) -> Element:
    """Thread groups of threads that stand below each other."""
    value = _exchanged(value, schedule.thread_groups, WARP, combine)
    line = max(schedule.thread_groups, WARP)
    lines = schedule.threads // line
    while lines > 1:
        lines //= 2
        upper, lower = (value.array[start : start + lines * line] for start in (0, lines * line))
        value = combine(Element(upper, value.dtype), Element(lower, value.dtype))
    return Element(value.array[numpy.arange(schedule.threads) % line], value.dtype)


def _exchanged(value: Element, distance: int, threads: int, combine: Combine) -> Element:
    while distance < threads:
        other = numpy.arange(len(value.array)) ^ distance
        value = combine(value, Element(value.array[other], value.dtype))
        distance *= 2
    return value
