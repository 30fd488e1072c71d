"""Squares of elements that blocks of threads transpose in shared memory, where some buffers are dense along another
axis.

In: the loops of a call and its buffers. Out: the loop along which the transposed buffers are dense, and the square that
a block takes. Always holds: a side is a multiple of 8 times what a thread takes together, so that neither reading nor
writing shared memory has two threads wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.loops.gpu.schedule import SHARED_BYTES
from ingot.loops.gpu.tuning import CudaTuning
from ingot.loops.ordering import LoopOrder

UNITS_OF_SIDE = 8
"""The fewest units, each what a thread takes together, along a side."""


@dataclass(frozen=True, slots=True)
class Tile:
    side: int
    vector_width: int
    threads: int
    """Threads of a block: one for each small square of neighbours, up to the limit of `tuning`."""


def transposed_buffers(order: LoopOrder, tuning: CudaTuning) -> tuple[int, list[int]] | None:
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


def tile_for(vector_width: int, widths: Sequence[int], tuning: CudaTuning) -> Tile:
    """The square for so many neighbours at a time, with room for buffers of these widths."""
    vector_width = min(vector_width, max(tuning.tile_vector_width, tuning.tile_bytes // max(widths)))
    side = tuning.side if vector_width > 2 else tuning.short_side
    while side > UNITS_OF_SIDE and side * side * sum(widths) > SHARED_BYTES:
        side //= 2
    vector_width = max(min(vector_width, side // UNITS_OF_SIDE), 1)
    return Tile(side, vector_width, min((side // vector_width) ** 2, tuning.tile_threads))
