"""Squares of elements that blocks of threads turn in shared memory, where some buffers lie across the others.

In: the loops of a call and its buffers. Out: the loop along which the turned buffers are dense, and the square that a
block takes. Always holds: a side is a multiple of 8 times what a thread takes together, so that neither reading nor
writing shared memory has two threads wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.loops.gpu.schedule import SHARED_BYTES
from ingot.loops.gpu.tuning import CudaTuning
from ingot.loops.ordering import LoopOrder

UNITS_OF_SIDE = 8
"""Of what a thread takes together, at least, along a side."""


@dataclass(frozen=True, slots=True)
class Tile:
    side: int
    lanes: int
    threads: int
    """One for each small square of neighbours that a thread takes together, if they are not too many."""


def turned_buffers(order: LoopOrder, tuning: CudaTuning) -> tuple[int, list[int]] | None:
    """The outer loop along which some buffers are dense while the last loop strides through them, and those buffers."""
    last = order.inner[-1]
    found: dict[int, list[int]] = {}
    for buffer in (*order.outputs, *order.inputs):
        if last.strides[buffer] in (0, order.widths[buffer]) or last.size < tuning.shortest_axis:
            continue
        for number, loop in enumerate(order.outer):
            if loop.strides[buffer] == order.widths[buffer] and loop.size >= tuning.shortest_axis:
                found.setdefault(number, []).append(buffer)
    return max(found.items(), key=lambda item: len(item[1])) if found else None


def tile_for(lanes: int, widths: Sequence[int], tuning: CudaTuning) -> Tile:
    """The square for so many neighbours at a time, with room for buffers of these widths."""
    lanes = min(lanes, max(tuning.tile_lanes, tuning.tile_bytes // max(widths)))
    side = tuning.side if lanes > 2 else tuning.short_side
    while side > UNITS_OF_SIDE and side * side * sum(widths) > SHARED_BYTES:
        side //= 2
    lanes = max(min(lanes, side // UNITS_OF_SIDE), 1)
    return Tile(side, lanes, min((side // lanes) ** 2, tuning.tile_threads))
