"""Reductions of rows that lie across memory: a thread has some neighbouring rows, and those below it the same ones.

    thread    0   1   2   3       a block of 4 threads across and 3 down: threads 0, 4 and 8 are a team
              4   5   6   7
              8   9  10  11

Those of a team within one warp exchange what they have gathered. Then the lower half of the warps leaves its values in
shared memory and the upper half takes them over, and so on, until the uppermost has them all. The order is always the
same, so results are, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.frame import in_memory, in_register
from ingot.codegen.llvm.instructions import Instructions, Value, memory_type
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.place import BYTE, SHARED, WIDEST_ACCESS
from ingot.codegen.ptx.teams import Gathered, Team
from ingot.loops.gpu.schedule import WARP, GpuSchedule

_INDEX = ir.IntType(32)
_WIDEST = 8


class ColumnTeam(Team):
    """The threads that stand below each other, as one of them sees it."""

    def __init__(self, builder: Any, schedule: GpuSchedule):
        super().__init__(builder, schedule.team)
        self._across, self._rows = schedule.teams, schedule.lanes
        self._line = max(self._across, WARP)
        """Threads that have different columns or have exchanged theirs."""
        self._lines = schedule.threads // self._line

    @property
    def number(self) -> ir.Value:
        return self.builder.urem(self.thread, _INDEX(self._across))

    @property
    def member(self) -> ir.Value:
        return self.builder.udiv(self.thread, _INDEX(self._across))

    def combined(self, gathered: Gathered, index: int, for_all: bool = True) -> Value:
        return self.all_combined({index: gathered}, for_all)[index]

    def all_combined(self, gathered: Mapping[int, Gathered], for_all: bool = False) -> dict[int, Value]:
        if self._across < WARP:
            with intrinsics.doubling(self.builder, self._across, WARP) as distance:
                for each in gathered.values():
                    each.take(self._of_neighbour(each.total(), distance))
        if self._lines == 1:
            return {index: each.total() for index, each in gathered.items()}
        return {index: self._upwards(each, for_all) for index, each in gathered.items()}

    def _of_neighbour(self, value: Value, distance: ir.Value) -> Value:
        if self._rows == 1:
            return intrinsics.of_neighbour(self.builder, value, distance)
        code = value.code
        for lane in range(self._rows):
            single = Value(self.builder.extract_element(value.code, lane), value.dtype)
            other = intrinsics.of_neighbour(self.builder, single, distance)
            code = self.builder.insert_element(code, other.code, lane)
        return Value(code, value.dtype)

    def _upwards(self, gathered: Gathered, for_all: bool) -> Value:
        """Half of the lines take over what the other half has, again and again."""
        builder = self.builder
        line, like = builder.udiv(self.thread, _INDEX(self._line)), gathered.total()
        intrinsics.barrier(builder)  # whoever reads what was here before has done so
        with intrinsics.halving(builder, self._lines // 2) as half:
            with builder.if_then(builder.icmp_unsigned("<", builder.sub(line, half), half)):
                self._write(line, gathered.total())
            intrinsics.barrier(builder)
            with builder.if_then(builder.icmp_unsigned("<", line, half)):
                gathered.take(self._read(builder.add(line, half), like))
        if not for_all:
            return gathered.total()
        with builder.if_then(builder.icmp_unsigned("==", line, _INDEX(0))):
            self._write(line, gathered.total())
        intrinsics.barrier(builder)
        return self._read(_INDEX(0), like)

    def _write(self, line: ir.Value, value: Value) -> None:
        code = in_memory(Instructions(self.builder, self._rows), value)
        self.builder.store(code, self._pointer(line, value), align=self._aligned(value))

    def _read(self, line: ir.Value, like: Value) -> Value:
        code = self.builder.load(self._pointer(line, like), align=self._aligned(like))
        return in_register(self.builder, code, like.dtype)

    def _pointer(self, line: ir.Value, value: Value) -> ir.Value:
        """What a line has in shared memory of this thread's rows; those of all accumulators lie in the same place."""
        builder = self.builder
        bytes_ = self._lines * self._across * self._rows * _WIDEST
        array = builder.module.shared_array(f"{builder.function.name}_columns", BYTE, bytes_)
        place = builder.add(builder.mul(line, _INDEX(self._across)), self.number)
        first = builder.gep(array, builder.mul(place, _INDEX(self._rows * value.dtype.bytes)))
        kind = Instructions(builder, self._rows).wide(memory_type(value.dtype))
        return builder.bitcast(first, ir.PointerType(kind, SHARED))

    def _aligned(self, value: Value) -> int:
        return min(self._rows * value.dtype.bytes, WIDEST_ACCESS)
