"""The loops of a call: as few as the strides allow, in the order of memory.

In: a program, the sizes of its space, the strides of its buffers. Out: loops along which rows are counted, and loops
inside a row. Neighbours are one loop where every buffer moves along them as along one axis; what has a size of 1 is no
loop, unless the program asks for positions along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.fusion.groups import Level
from ingot.loops.program import Program

FEWEST_SIDE_BY_SIDE = 8
"""The fewest strided rows that are worth taking side by side."""


@dataclass
class LoopAxis:
    size: int
    strides: tuple[int, ...]
    """The stride of each buffer along the loop, in bytes."""
    index_positions: tuple[int, ...] = ()
    """The positions of this axis among the program's index axes."""


class LoopOrder:
    """Loops that rows are counted along (`outer`) and those inside a row (`inner`), of which there is at least one."""

    def __init__(
        self,
        program: Program,
        sizes: Sequence[int],
        strides: Sequence[Sequence[int]],
        reduced: frozenset[int],
        index_axes: Sequence[int],
    ):
        self.program = program
        levels = [program.level_of(result) for result in program.outputs] + [given.level for given in program.inputs]
        self.widths = [dtype.bytes for dtype in program.buffers]
        self.outputs = [b for b in range(len(program.outputs)) if levels[b] is Level.ELEMENT]
        self.inputs = [b for b in range(len(program.outputs), len(levels)) if levels[b] is Level.ELEMENT]
        loops = [
            (axis in reduced, LoopAxis(size, tuple(s[axis] for s in strides), _positions(index_axes, axis)))
            for axis, size in enumerate(sizes)
            if size != 1 or axis in index_axes
        ]
        self.outer = self._merged([loop for is_inner, loop in loops if not is_inner])
        self.inner = self._merged([loop for is_inner, loop in loops if is_inner])
        if not program.has_rows:
            self.outer, self.inner = self.outer[:-1], self.outer[-1:]
        if not self.inner:
            self.inner = [LoopAxis(1, (0,) * len(self.widths))]

    def _merged(self, loops: list[LoopAxis]) -> list[LoopAxis]:
        """In the order of memory, neighbours as one loop where every buffer allows it."""

        def distance(loop: LoopAxis) -> tuple[int, int]:
            return -sum(loop.strides[b] for b in self.outputs), -sum(loop.strides[b] for b in self.inputs)

        merged: list[LoopAxis] = []
        for loop in sorted(loops, key=distance):
            before = merged[-1] if merged else None
            if (
                before is not None
                and not before.index_positions
                and not loop.index_positions
                and all(far == near * loop.size for far, near in zip(before.strides, loop.strides, strict=True))
            ):
                merged[-1] = LoopAxis(before.size * loop.size, loop.strides)
            else:
                merged.append(loop)
        return merged

    @property
    def rows_are_strided(self) -> bool:
        """Whether neighbours in memory belong to neighbouring rows, which then go side by side."""
        picks = any(statement.is_row_gather for statement in self.program.statements)
        return (
            bool(self.outer)
            and not picks
            and self.outer[-1].size >= FEWEST_SIDE_BY_SIDE
            and self._score(self.outer[-1]) > self._score(self.inner[-1])
        )

    def _score(self, loop: LoopAxis) -> int:
        """How well a loop suits vectors: more for buffers that are dense along it."""
        return sum(
            2 if loop.strides[b] == self.widths[b] else loop.strides[b] == 0 for b in (*self.outputs, *self.inputs)
        )

    @property
    def loops(self) -> list[LoopAxis]:
        return [*self.outer, *self.inner]

    @property
    def index_axes(self) -> tuple[int, ...]:
        """The loop of each position the program asks for."""
        found = {position: number for number, loop in enumerate(self.loops) for position in loop.index_positions}
        return tuple(found[position] for position in sorted(found))

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        """The strides of each buffer, outputs first, along each loop."""
        return tuple(tuple(loop.strides[buffer] for loop in self.loops) for buffer in range(len(self.widths)))

    @property
    def sizes(self) -> list[int]:
        return [loop.size for loop in self.loops]


def _positions(index_axes: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(position for position, found in enumerate(index_axes) if found == axis)
