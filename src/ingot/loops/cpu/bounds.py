"""The bounds check: proves for one call that a nest stays inside its memory, without running it.

In: a nest, the numbers of a call, and how many bytes each buffer has from its first element on. Out: nothing, or a
LoopError that names the access, the loops around it and the offset. Offsets are affine, so the lowest and the highest
follow from the ranges of the positions: each axis of a loop by itself, in whole or in blocks, of which the last may be
shorter. Loops without iterations access nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ingot.base.errors import LoopError
from ingot.loops.cpu.scheduling import CpuCall
from ingot.loops.nest import Accumulate, At, Finish, Instruction, Keep, Load, Loop, Nest, Recall, Store, walk


@dataclass(frozen=True)
class _LoopPlace:
    """What is known of all visits to a place inside the loops. Positions and blocks begin at 0."""

    positions: dict[int, int]
    """The highest position along each axis that a loop around has entered."""
    relative: dict[int, int]
    """The same, counted from where the current block begins."""
    blocks: dict[int, int]
    """The size of the largest block of axes that go in blocks here."""
    loops: tuple[str, ...] = ()


def check_bounds(nest: Nest, call: CpuCall, extents: Sequence[int]) -> None:
    """Raise a LoopError if any access could lie outside its buffer, scratch memory or accumulator."""
    _Check(nest, call, extents).visit(nest.body, _LoopPlace({}, {}, {}))


class _Check:
    def __init__(self, nest: Nest, call: CpuCall, extents: Sequence[int]):
        self.nest, self.call, self.extents = nest, call, extents
        self._blocked = {axis for i in walk(nest.body) if isinstance(i, Loop) for axis in i.blocked}

    def visit(self, body: Sequence[Instruction], place: _LoopPlace) -> None:
        for instruction in body:
            match instruction:
                case Loop():
                    self._loop(instruction, place)
                case At(axis, _, inner):
                    self.visit(inner, _entered(place, axis, self.call.sizes[axis], self.call.sizes[axis]))
                case Load(_, buffer) | Store(buffer, _):
                    self._buffer(instruction, buffer, place)
                case Keep(scratch, _) | Recall(_, scratch):
                    self._room(instruction, self.nest.scratches[scratch].axes, place)
                case Accumulate(accumulator, _) | Finish(_, accumulator):
                    axis = self.nest.accumulators[accumulator].axis
                    self._room(instruction, () if axis is None else (axis,), place)

    def _loop(self, loop: Loop, place: _LoopPlace) -> None:
        inner = replace(place, loops=(*place.loops, loop.text(self.nest)))
        for axis in loop.axes:
            size, block = self.call.sizes[axis], self.call.blocks[axis]
            if size <= 0:
                return
            if axis not in loop.blocked:
                inner = _entered(inner, axis, size, place.blocks.get(axis, size))
            elif block <= 0:
                raise self._fault(loop, place, f"i{axis} would go in blocks of {block}")
            else:
                inner = replace(inner, blocks={**inner.blocks, axis: min(block, size)})
        self.visit(loop.body, inner)

    def _buffer(self, access: Load | Store, number: int, place: _LoopPlace) -> None:
        buffer, strides = self.nest.buffers[number], self.call.strides[number]
        farthest = [position * strides[axis] for axis, position in place.positions.items()]
        lowest = sum(min(offset, 0) for offset in farthest)
        highest = sum(max(offset, 0) for offset in farthest) + buffer.dtype.bytes
        if lowest < 0 or highest > self.extents[number]:
            what = f"bytes {lowest} to {highest} of {buffer.name}, which has 0 to {self.extents[number]}"
            raise self._fault(access, place, what)

    def _room(self, access: Instruction, axes: Sequence[int], place: _LoopPlace) -> None:
        """Scratch memory and accumulators have room for a block of an axis that goes in blocks, else for all of it."""
        for axis in axes:
            room = (self.call.blocks if axis in self._blocked else self.call.sizes)[axis]
            if axis not in place.relative:
                raise self._fault(access, place, f"no loop around is at a position along i{axis}")
            if place.relative[axis] >= room:
                raise self._fault(access, place, f"{place.relative[axis]} along i{axis}, with room for {room}")

    def _fault(self, instruction: Instruction, place: _LoopPlace, what: str) -> LoopError:
        where = ", ".join(place.loops) or "outside all loops"
        return LoopError(f"{instruction.text(self.nest)}: {what}\n  in {where}\n{self.nest.text}")


def _entered(place: _LoopPlace, axis: int, size: int, within: int) -> _LoopPlace:
    """One position along an axis, of so many in all and so many in a block."""
    positions, relative = {**place.positions, axis: size - 1}, {**place.relative, axis: within - 1}
    return replace(place, positions=positions, relative=relative)
