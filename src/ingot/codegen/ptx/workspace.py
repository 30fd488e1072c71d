"""Values of accumulators that blocks of threads leave in memory, to be combined by other blocks.

Each accumulator has its share of the workspace. Where rows are split, it holds the values of the first part of all
rows, then those of the second, and so on; for a total, one value of each block. They are combined in the
same order, so that all come to the same result.

Blocks may count themselves when they have left their values. The counter is 0 before and after a launch: the last block
resets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.instructions import Instructions, TypedValue, memory_type
from ingot.codegen.llvm.storage import WORD, in_memory, in_register
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.place import TENSORS, KernelArguments, ThreadPlace
from ingot.codegen.ptx.thread_groups import ThreadAccumulator, ThreadGroup
from ingot.loops.gpu.launches import VALUES_AT_ONCE, left_by_launches
from ingot.loops.kernel_arguments import ACCESS
from ingot.loops.nest import Nest

_COUNT = ir.IntType(32)


class Workspace:
    def __init__(self, builder: Any, arguments: KernelArguments, nest: Nest):
        self._builder, self._arguments, self._nest = builder, arguments, nest
        self._shares = {accumulator: share for share, accumulator in enumerate(left_by_launches(nest))}

    def __contains__(self, accumulator: int) -> bool:
        return accumulator in self._shares

    def leave(self, accumulator: int, position: ir.Value, value: TypedValue, vector_width: int) -> None:
        """Write one value, or some neighbouring ones."""
        code = in_memory(Instructions(self._builder, vector_width), value)
        self._builder.store(
            code, self._pointer(accumulator, position, vector_width), align=self._aligned(accumulator, vector_width)
        )

    def is_last(self, counter: ir.Value, count: ir.Value) -> ir.Value:
        """Whether this block is the last of so many to be done; all of its threads are told, as a number, not 0."""
        builder = self._builder
        flag = builder.module.shared_array(f"{builder.function.name}_is_last", _COUNT, 1)
        intrinsics.barrier(builder)  # all of its threads have left what is theirs
        with builder.if_then(builder.icmp_unsigned("==", intrinsics.thread_number(builder), _COUNT(0))):
            last = builder.sub(count, _COUNT(1))
            builder.device_fence()  # what this block has left is there before it is counted
            is_last = builder.icmp_unsigned("==", builder.atomic_count(self._counter(counter), last), last)
            with builder.if_then(is_last):
                builder.device_fence()  # and what others have left is read after that
            builder.store(builder.zext(is_last, _COUNT), flag)
        intrinsics.barrier(builder)
        return builder.load(flag)

    def accumulate(
        self,
        accumulated: Mapping[int, ThreadAccumulator],
        place: ThreadPlace,
        thread_group: ThreadGroup,
        first: ir.Value,
        distance: ir.Value,
        count: ir.Value,
        most: int | None = None,
    ) -> None:
        """A thread's share of `count` values of some accumulators, so far from each other; there are no more than
        `most`, if that is known: threads that are as many take one each."""
        builder = self._builder
        member, at_once = builder.zext(thread_group.member, WORD), max(VALUES_AT_ONCE // place.vector_width, 1)
        if most is not None:
            at_once = min(at_once, -(-most // thread_group.threads))
        before, body, after = builder.block, builder.append_block("values"), builder.append_block("accumulated")
        builder.branch(body)
        builder.position_at_end(body)
        start = builder.phi(WORD)
        start.add_incoming(WORD(0), before)
        read = []
        for iteration in range(at_once):
            number = builder.add(builder.add(start, member), WORD(iteration * thread_group.threads))
            is_inside = builder.icmp_unsigned("<", number, count)
            number = builder.select(is_inside, number, WORD(0))
            position = builder.add(first, builder.mul(number, distance))
            inner = place.inner(place.vector_width, is_inside)
            read += [(index, inner, self._read(index, position, place.vector_width)) for index in accumulated]
        for index, inner, value in read:
            accumulated[index].add(inner, value)
        for each in accumulated.values():
            each.join()
        following = builder.add(start, WORD(at_once * thread_group.threads))
        start.add_incoming(following, builder.block)
        builder.repeat(builder.icmp_unsigned("<", following, count), body, after)
        builder.position_at_end(after)

    def _read(self, accumulator: int, position: ir.Value, vector_width: int) -> TypedValue:
        pointer = self._pointer(accumulator, position, vector_width)
        code = self._builder.load(pointer, align=self._aligned(accumulator, vector_width))
        return in_register(self._builder, code, self._nest.accumulators[accumulator].dtype)

    def _pointer(self, accumulator: int, position: ir.Value, vector_width: int) -> ir.Value:
        builder, layout = self._builder, self._arguments.layout
        dtype = self._nest.accumulators[accumulator].dtype
        with builder.at_entry():
            share = builder.mul(self._arguments.word(layout.workspace_share), WORD(self._shares[accumulator]))
            begin = builder.add(self._arguments.word(layout.workspace), share)
            base = builder.inttoptr(begin, ir.PointerType(memory_type(dtype), TENSORS))
        kind = Instructions(builder, vector_width).wide(memory_type(dtype))
        return builder.bitcast(builder.gep(base, position), ir.PointerType(kind, TENSORS))

    def _counter(self, number: ir.Value) -> ir.Value:
        builder = self._builder
        with builder.at_entry():
            begin = self._arguments.word(self._arguments.layout.counters)
            counters = builder.inttoptr(begin, ir.PointerType(_COUNT, TENSORS))
        return builder.gep(counters, number)

    def _aligned(self, accumulator: int, vector_width: int) -> int:
        return min(vector_width * self._nest.accumulators[accumulator].dtype.bytes, ACCESS)
