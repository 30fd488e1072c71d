"""Reductions of strided rows: a thread has some neighbouring rows, and the threads below it have the same ones.

    thread    0   1   2   3       a block of 4 threads across and 3 down: threads 0, 4 and 8 are a thread group
              4   5   6   7
              8   9  10  11

The threads of a group within one warp exchange what they have accumulated. As long as a thread has several rows,
it gives half of them away and combines the other half, so that little is exchanged and no two threads hold the same
rows. With a single row left, both threads of a pair combine it. Then one thread for each row leaves the values of its
warp in shared memory, and the upper half of the warps combines them with those of the lower half, again and again,
until the uppermost warp has all values in shared memory, for code that needs whole rows. The order is always the same,
so results are, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.combining import combined, halves
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type
from ingot.codegen.llvm.storage import in_memory, in_register
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.place import BYTE, SHARED
from ingot.codegen.ptx.thread_groups import ThreadAccumulator, ThreadGroup
from ingot.loops.gpu.schedule import WARP, Columns
from ingot.loops.kernel_arguments import ACCESS

_INDEX = ir.IntType(32)
_WIDEST = 8


class ColumnThreadGroup(ThreadGroup):
    """The threads of a group, which lie below each other in the block, as one of them sees it."""

    def __init__(self, builder: Any, schedule: Columns):
        super().__init__(builder, schedule.thread_group_size)
        self._across, self._rows = schedule.thread_groups, schedule.vector_width
        self._line = max(self._across, WARP)
        """Threads that have different columns or have exchanged theirs."""
        self._lines = schedule.threads // self._line

    @property
    def number(self) -> ir.Value:
        return self.builder.urem(self.thread, _INDEX(self._across))

    @property
    def member(self) -> ir.Value:
        return self.builder.udiv(self.thread, _INDEX(self._across))

    def combined(self, accumulated: ThreadAccumulator, index: int, for_all: bool = True) -> TypedValue:
        return self.all_combined({index: accumulated}, for_all)[index]

    def all_combined(
        self, accumulated: Mapping[int, ThreadAccumulator], for_all: bool = False
    ) -> dict[int, TypedValue]:
        for each in accumulated.values():
            shared_out = self._within_warp(each)
            if self._lines > 1 or shared_out.rows < self._rows:
                self._upwards(each, shared_out, for_all)
            else:
                each.replace(shared_out.total())
        return {index: each.total() for index, each in accumulated.items()}

    # --- within a warp ------------------------------------------------------------------------------------------------

    def _within_warp(self, accumulated: ThreadAccumulator) -> ThreadAccumulator:
        """What the threads of the group in one warp have accumulated, shared out among them by rows, or all of
        it for each of them where there are no more rows to share out."""
        value, rows = accumulated.total(), self._rows
        for distance in self._distances:
            if rows > 1:
                rows //= 2
                low, high = halves(self.builder, value, rows)
                is_upper = self._is_upper(distance)
                value = self._chosen(is_upper, high, low)
                other = self._of_neighbour(self._chosen(is_upper, low, high), rows, distance)
            else:
                other = self._of_neighbour(value, rows, distance)
            value = combined(Instructions(self.builder, rows), accumulated.accumulator, value, other)
        found = ThreadAccumulator(self.builder, accumulated.accumulator, rows)
        found.replace(value)
        return found

    @property
    def _distances(self) -> list[int]:
        """Between the threads of a group in one warp that exchange what they have, one after another."""
        return [1 << bit for bit in range(WARP.bit_length() - 1) if 1 << bit >= self._across]

    def _is_upper(self, distance: int) -> ir.Value:
        return self.builder.icmp_unsigned("!=", self.builder.and_(self.thread, _INDEX(distance)), _INDEX(0))

    def _chosen(self, condition: ir.Value, yes: TypedValue, no: TypedValue) -> TypedValue:
        return TypedValue(self.builder.select(condition, yes.code, no.code), yes.dtype)

    def _of_neighbour(self, value: TypedValue, rows: int, distance: int) -> TypedValue:
        if rows == 1:
            return intrinsics.of_neighbour(self.builder, value, distance)
        code = value.code
        for lane in range(rows):
            single = TypedValue(self.builder.extract_element(value.code, lane), value.dtype)
            other = intrinsics.of_neighbour(self.builder, single, distance)
            code = self.builder.insert_element(code, other.code, lane)
        return TypedValue(code, value.dtype)

    def _first_row(self, rows: int) -> ir.Value:
        """The first of so many rows that the thread has been left with, counted from the first of its thread
        group's."""
        first: ir.Value = _INDEX(0)
        share = self._rows
        for distance in self._distances:
            if share == rows:
                break
            share //= 2
            first = self.builder.select(self._is_upper(distance), self.builder.add(first, _INDEX(share)), first)
        return first

    # --- between warps ------------------------------------------------------------------------------------------------

    def _upwards(self, accumulated: ThreadAccumulator, shared_out: ThreadAccumulator, for_all: bool) -> None:
        """Half of the lines combine what they have with what the other half has, again and again, in shared memory."""
        builder = self.builder
        line = builder.udiv(self.thread, _INDEX(self._line))
        own = self._pointer(line, self._first_row(shared_out.rows), shared_out)
        intrinsics.barrier(builder)  # every thread has read what was here before
        self._write(own, shared_out)
        intrinsics.barrier(builder)
        if self._lines > 1:
            self._combine_lines(line, own, shared_out)
        whole = self._pointer(_INDEX(0), _INDEX(0), accumulated)
        if for_all:
            accumulated.replace(self._read(whole, accumulated))
            return
        accumulated.forget()
        with builder.if_then(builder.icmp_unsigned("==", line, _INDEX(0))):
            accumulated.replace(self._read(whole, accumulated))

    def _combine_lines(self, line: ir.Value, own: ir.Value, shared_out: ThreadAccumulator) -> None:
        """What all lines have left, where the first has left its own. Several threads of a line may have the same rows:
        so they combine in registers."""
        builder = self.builder
        with intrinsics.halving(builder, self._lines // 2) as half:
            with builder.if_then(builder.icmp_unsigned("<", line, half)):
                distance = builder.mul(half, _INDEX(self._across * self._rows // shared_out.rows))
                shared_out.take(self._read(builder.gep(own, distance), shared_out))
                self._write(own, shared_out)
            intrinsics.barrier(builder)

    def _write(self, place: ir.Value, accumulated: ThreadAccumulator) -> None:
        """The first of the threads with the same rows stores them. Their values may differ in the bits of a NaN,
        because one thread's second operand is another's first."""
        builder = self.builder
        others = self._distances[(self._rows // accumulated.rows).bit_length() - 1 :]
        is_first = builder.icmp_unsigned("==", builder.and_(self.thread, _INDEX(sum(others))), _INDEX(0))
        with builder.if_then(is_first) if others else nullcontext():
            code = in_memory(Instructions(builder, accumulated.rows), accumulated.total())
            builder.store(code, place, align=_aligned(accumulated))

    def _read(self, place: ir.Value, accumulated: ThreadAccumulator) -> TypedValue:
        code = self.builder.load(place, align=_aligned(accumulated))
        return in_register(self.builder, code, accumulated.accumulator.dtype)

    def _pointer(self, line: ir.Value, first: ir.Value, accumulated: ThreadAccumulator) -> ir.Value:
        """What a line has in shared memory of this thread's rows, from the first on; that of all accumulators lies in
        the same place."""
        builder, dtype = self.builder, accumulated.accumulator.dtype
        bytes_ = self._lines * self._across * self._rows * _WIDEST
        array = builder.module.shared_array(f"{builder.function.name}_columns", BYTE, bytes_)
        place = builder.add(builder.mul(line, _INDEX(self._across)), self.number)
        row = builder.add(builder.mul(place, _INDEX(self._rows)), first)
        begin = builder.gep(array, builder.mul(row, _INDEX(dtype.bytes)))
        kind = Instructions(builder, accumulated.rows).wide(memory_type(dtype))
        return builder.bitcast(begin, ir.PointerType(kind, SHARED))


def _aligned(accumulated: ThreadAccumulator) -> int:
    return min(accumulated.rows * accumulated.accumulator.dtype.bytes, ACCESS)
