"""Reductions over the threads of a group: what each thread accumulates, and how the values are combined.

Within a warp threads read each other's registers, with numbers that differ in one bit at a time: after five such
exchanges all of them have the same result. Where a thread group is several warps, each leaves its result in shared
memory, and after a barrier all do the same again with those. The order is always the same, so results are, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ingot.base.dtypes import DataType
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.combining import combined, halves, identity
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type
from ingot.codegen.llvm.storage import in_memory, in_register
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.place import ThreadPlace
from ingot.loops.gpu.schedule import WARP
from ingot.loops.nest import Accumulator

_INDEX = ir.IntType(32)


class ThreadAccumulator:
    """What one thread has accumulated.

    What it takes together, several times some neighbouring elements, it combines first, sums in the type of the
    elements: they are few, so that little is lost, and wider types are slow. What comes of that joins the rest in the
    type of the accumulator. Lanes are combined, too, except where they belong to `rows` neighbouring rows.
    """

    def __init__(self, builder: Any, accumulator: Accumulator, rows: int = 1):
        self.builder, self.accumulator, self.rows = builder, accumulator, rows
        self._instructions = Instructions(builder, rows)
        self._together: TypedValue | None = None
        with builder.at_entry():
            self._memory = builder.alloca(self._instructions.wide(memory_type(accumulator.dtype)))
        self.clear()

    def clear(self) -> None:
        """Set to the value before the first element."""
        self.replace(identity(self._instructions, self.accumulator))

    def forget(self) -> None:
        """Mark the value as dead: it is overwritten before it is read."""
        kind = self._instructions.wide(memory_type(self.accumulator.dtype))
        self.builder.store(ir.Constant(kind, ir.Undefined), self._memory)

    def add(self, place: ThreadPlace, value: TypedValue) -> None:
        """The elements of a place, unless there are none; they count once `join` is called."""
        instructions = place.instructions
        if not self._may_stay_narrow(value):
            value = instructions.convert(value, self.accumulator.dtype)
        if place.is_inside is not None:
            nothing = self._identity(instructions, value.dtype)
            value = TypedValue(self.builder.select(place.is_inside, value.code, nothing.code), value.dtype)
        self._together = value if self._together is None else self._combined(instructions, self._together, value)

    def join(self) -> None:
        """What has been added together joins what is there."""
        value, self._together = self._together, None
        if value is None:
            return
        vector_width = value.code.type.count if isinstance(value.code.type, ir.VectorType) else 1
        while vector_width > self.rows:
            vector_width //= 2
            low, high = halves(self.builder, value, vector_width)
            value = self._combined(Instructions(self.builder, vector_width), low, high)
        self.take(value)

    def take(self, value: TypedValue) -> None:
        """What another thread has accumulated joins what is there."""
        self.replace(combined(self._instructions, self.accumulator, self.total(), value))

    def total(self) -> TypedValue:
        return in_register(self.builder, self.builder.load(self._memory), self.accumulator.dtype)

    def _may_stay_narrow(self, value: TypedValue) -> bool:
        return self.accumulator.op.name == "sum" and value.dtype is DataType.Float

    def _combined(self, instructions: Instructions, first: TypedValue, second: TypedValue) -> TypedValue:
        assert self.accumulator.op.combination is not None
        accumulating = Instructions(self.builder, instructions.lanes, accumulates=True)
        return self.accumulator.op.combination.combine(accumulating, first, second)

    def _identity(self, instructions: Instructions, dtype: DataType) -> TypedValue:
        assert self.accumulator.op.combination is not None
        return instructions.literal(self.accumulator.op.combination.identity(dtype), dtype)

    def replace(self, value: TypedValue) -> None:
        self.builder.store(in_memory(self._instructions, value), self._memory)


class ThreadGroup:
    """The threads that share a row, as one of them sees it."""

    def __init__(self, builder: Any, threads: int):
        self.builder, self.threads = builder, threads
        self.thread = intrinsics.thread_number(builder)

    @property
    def number(self) -> ir.Value:
        """The number of this thread's thread group in its block."""
        return self.builder.udiv(self.thread, _INDEX(self.threads))

    @property
    def member(self) -> ir.Value:
        """The number of this thread in its thread group."""
        return self.builder.urem(self.thread, _INDEX(self.threads))

    def combined(self, accumulated: ThreadAccumulator, index: int, for_all: bool = True) -> TypedValue:
        """What the whole thread group has accumulated, for each of its threads, or at least for the first of them."""
        value = self._exchanged(accumulated.accumulator, accumulated.total(), min(self.threads, WARP))
        warps = self.threads // WARP
        return value if warps <= 1 else self._through_shared_memory(accumulated.accumulator, value, warps, index)

    def all_combined(self, accumulated: Mapping[int, ThreadAccumulator]) -> dict[int, TypedValue]:
        """The same for several accumulators at once, in the same order, by short code: in loops."""
        self._exchange(accumulated.values(), min(self.threads, WARP))
        if self.threads > WARP:
            self._leave_to_warps({index: (each.accumulator, each.total()) for index, each in accumulated.items()})
            intrinsics.barrier(self.builder)
            for index, each in accumulated.items():
                each.replace(self._left_by_warps(each.accumulator, self.threads // WARP, index))
            self._exchange(accumulated.values(), self.threads // WARP)
        return {index: each.total() for index, each in accumulated.items()}

    def _exchange(self, accumulated: Collection[ThreadAccumulator], threads: int) -> None:
        if threads == 1:
            return
        with intrinsics.doubling(self.builder, 1, threads) as distance:
            for each in accumulated:
                each.take(intrinsics.of_neighbour(self.builder, each.total(), distance))

    def _exchanged(self, accumulator: Accumulator, value: TypedValue, threads: int) -> TypedValue:
        single = Instructions(self.builder, 1)
        distance = 1
        while distance < threads:
            other = intrinsics.of_neighbour(self.builder, value, distance)
            value = combined(single, accumulator, value, other)
            distance *= 2
        return value

    def _through_shared_memory(self, accumulator: Accumulator, value: TypedValue, warps: int, index: int) -> TypedValue:
        self._leave_to_warps({index: (accumulator, value)})
        intrinsics.barrier(self.builder)
        return self._exchanged(accumulator, self._left_by_warps(accumulator, warps, index), warps)

    def _leave_to_warps(self, values: Mapping[int, tuple[Accumulator, TypedValue]]) -> None:
        """What a warp has, in shared memory."""
        builder = self.builder
        warp, lane = builder.udiv(self.thread, _INDEX(WARP)), builder.urem(self.thread, _INDEX(WARP))
        with builder.if_then(builder.icmp_unsigned("==", lane, _INDEX(0))):
            for index, (accumulator, value) in values.items():
                code = in_memory(Instructions(builder, 1), value)
                builder.store(code, builder.gep(self._array(accumulator, index), warp))

    def _left_by_warps(self, accumulator: Accumulator, warps: int, index: int) -> TypedValue:
        """What one of the warps has left, for each thread another one."""
        builder = self.builder
        number = builder.urem(builder.urem(self.thread, _INDEX(WARP)), _INDEX(warps))
        mine = builder.load(builder.gep(self._array(accumulator, index), number))
        return in_register(builder, mine, accumulator.dtype)

    def _array(self, accumulator: Accumulator, index: int) -> ir.Value:
        name, count = f"{self.builder.function.name}_accumulated{index}", max(self.threads // WARP, 1)
        return self.builder.module.shared_array(name, memory_type(accumulator.dtype), count)
