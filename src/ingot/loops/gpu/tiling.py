"""Squares of elements that blocks of threads turn in shared memory, where some buffers lie across the others.

In: the loops of a call and its buffers. Out: the loop along which the turned buffers are dense, and the square that a
block takes. Always holds: a side is a multiple of 8 times what a thread takes together, so that neither reading nor
writing shared memory has two threads wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.loops.ordering import LoopOrder

SIDE = 64
SHORT_SIDE = 32
"""Of squares of single elements and pairs, so that a thread has few of them."""
SHORTEST_AXIS = 16
"""Along shorter axes most of a square would be empty."""
SHARED_BYTES = 48 << 10
"""Shared memory that every block may have."""
UNITS_OF_SIDE = 8
"""Of what a thread takes together, at least, along a side."""
MOST_LANES, MOST_NARROW_BYTES = 4, 8
"""What a thread takes together: so many elements, or more where they take no more bytes. With 8 x 8 of bfloat16 in a
thread, instead of 4 x 4, a + b.T takes 1% more time and twice as long to assemble; with 2 x 2 of float32, instead of
4 x 4, it takes 1% more time."""
TILE_THREADS = 256


@dataclass(frozen=True, slots=True)
class Tile:
    side: int
    lanes: int

    @property
    def threads(self) -> int:
        """One for each small square of neighbours that a thread takes together, if they are not too many."""
        return min((self.side // self.lanes) ** 2, TILE_THREADS)


def turned_buffers(order: LoopOrder) -> tuple[int, list[int]] | None:
    """The outer loop along which some buffers are dense while the last loop strides through them, and those buffers."""
    last = order.inner[-1]
    found: dict[int, list[int]] = {}
    for buffer in (*order.outputs, *order.inputs):
        if last.strides[buffer] in (0, order.widths[buffer]) or last.size < SHORTEST_AXIS:
            continue
        for number, loop in enumerate(order.outer):
            if loop.strides[buffer] == order.widths[buffer] and loop.size >= SHORTEST_AXIS:
                found.setdefault(number, []).append(buffer)
    return max(found.items(), key=lambda item: len(item[1])) if found else None


def tile_for(lanes: int, widths: Sequence[int]) -> Tile:
    """The square for so many neighbours at a time, with room for buffers of these widths."""
    lanes = min(lanes, max(MOST_LANES, MOST_NARROW_BYTES // max(widths)))
    side = SIDE if lanes > 2 else SHORT_SIDE
    while side > UNITS_OF_SIDE and side * side * sum(widths) > SHARED_BYTES:
        side //= 2
    return Tile(side, max(min(lanes, side // UNITS_OF_SIDE), 1))
