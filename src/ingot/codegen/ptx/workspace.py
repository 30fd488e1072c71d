"""What launches leave to those after them: values of accumulators in memory, which are combined again.

Each accumulator has its share of the workspace. Where rows go in parts, it holds the values of the first part of all
rows, then those of the second, and so on; for a total, one value of each block. Whoever combines them does it in the
same order, so that all come to the same result.
"""

from __future__ import annotations

from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.frame import WORD, in_memory, in_register
from ingot.codegen.llvm.instructions import Instructions, Value, memory_type
from ingot.codegen.ptx.place import TENSORS, WIDEST_ACCESS, Arguments, ThreadPlace
from ingot.codegen.ptx.teams import Gathered, Team
from ingot.loops.gpu.launches import left_by_launches
from ingot.loops.nest import Nest

_VALUES_AT_ONCE = 8
"""That a thread asks for before it waits."""


class Workspace:
    def __init__(self, builder: Any, arguments: Arguments, nest: Nest):
        self._builder, self._arguments, self._nest = builder, arguments, nest
        self._shares = {accumulator: share for share, accumulator in enumerate(left_by_launches(nest))}

    def __contains__(self, accumulator: int) -> bool:
        return accumulator in self._shares

    def leave(self, accumulator: int, position: ir.Value, value: Value, lanes: int) -> None:
        """Write one value, or some neighbouring ones."""
        code = in_memory(Instructions(self._builder, lanes), value)
        self._builder.store(code, self._pointer(accumulator, position, lanes), align=self._aligned(accumulator, lanes))

    def combined(
        self,
        accumulator: int,
        place: ThreadPlace,
        team: Team,
        first: ir.Value,
        distance: ir.Value,
        count: ir.Value,
        for_all: bool = True,
    ) -> Value:
        """`count` values, so far from each other, combined by a team as it combines what its threads gather."""
        builder = self._builder
        gathered = Gathered(builder, self._nest.accumulators[accumulator], place.lanes)
        member, at_once = builder.zext(team.member, WORD), max(_VALUES_AT_ONCE // place.lanes, 1)
        before, body, after = builder.block, builder.append_block("values"), builder.append_block("combined")
        builder.branch(body)
        builder.position_at_end(body)
        start = builder.phi(WORD)
        start.add_incoming(WORD(0), before)
        read = []
        for turn in range(at_once):
            number = builder.add(builder.add(start, member), WORD(turn * team.threads))
            is_inside = builder.icmp_unsigned("<", number, count)
            number = builder.select(is_inside, number, WORD(0))
            position = builder.add(first, builder.mul(number, distance))
            read.append((is_inside, self._read(accumulator, position, place.lanes)))
        for is_inside, value in read:
            gathered.add(place.inner(place.lanes, is_inside), value)
        gathered.join()
        following = builder.add(start, WORD(at_once * team.threads))
        start.add_incoming(following, builder.block)
        builder.cbranch(builder.icmp_unsigned("<", following, count), body, after)
        builder.position_at_end(after)
        return team.combined(gathered, accumulator, for_all)

    def _read(self, accumulator: int, position: ir.Value, lanes: int) -> Value:
        pointer = self._pointer(accumulator, position, lanes)
        code = self._builder.load(pointer, align=self._aligned(accumulator, lanes))
        return in_register(self._builder, code, self._nest.accumulators[accumulator].dtype)

    def _pointer(self, accumulator: int, position: ir.Value, lanes: int) -> ir.Value:
        builder, layout = self._builder, self._arguments.layout
        dtype = self._nest.accumulators[accumulator].dtype
        with builder.at_entry():
            share = builder.mul(self._arguments.word(layout.workspace_share), WORD(self._shares[accumulator]))
            begin = builder.add(self._arguments.word(layout.workspace), share)
            base = builder.inttoptr(begin, ir.PointerType(memory_type(dtype), TENSORS))
        kind = Instructions(builder, lanes).wide(memory_type(dtype))
        return builder.bitcast(builder.gep(base, position), ir.PointerType(kind, TENSORS))

    def _aligned(self, accumulator: int, lanes: int) -> int:
        return min(lanes * self._nest.accumulators[accumulator].dtype.bytes, WIDEST_ACCESS)
