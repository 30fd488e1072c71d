"""How elements without rows are shared out: threads of a block, and how many units each thread takes.

In: how many units there are along the last axis, a unit being the neighbours that a thread takes together, how many
such lines, and what a unit reads. Out: a share. Nothing depends on the device; figures in what follows are an H200's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.loops.gpu.tuning import CudaTuning

MOST_LINES = 65_535
"""Blocks that a grid can have along its second axis."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a thread takes together."""

    widest: int
    """Bytes of the buffer whose elements are the widest."""
    read: int
    """Bytes that are read, of all buffers whose elements differ along a line."""
    has_line_values: bool
    """Whether others are read, too, whose elements are the same all along a line."""


@dataclass(frozen=True, slots=True)
class Share:
    threads: int
    """Threads of a block."""
    iterations: int
    """How many units each thread takes."""
    has_lines: bool
    """Whether blocks stay within one line each."""


def share_of_elements(line: int, lines: int, unit: Unit, tuning: CudaTuning) -> Share:
    """The share for `lines` lines of `line` units each."""
    iterations = 1
    while (
        iterations * unit.widest < tuning.access
        and iterations < tuning.most_iterations
        and is_enough(line * lines, 2 * iterations, tuning)
    ):
        iterations *= 2
    if lines == 1:
        return Share(tuning.grid_threads, iterations, has_lines=False)
    serves_more = unit.has_line_values and unit.read < tuning.few_bytes and is_enough(line * lines, 2, tuning)
    iterations_of_line = max(iterations, 2 if serves_more else 1)
    shared = _share_of_line(line, iterations_of_line, tuning.line_threads) if lines <= MOST_LINES else None
    return shared or Share(tuning.line_threads, iterations, has_lines=False)


def is_enough(units: int, iterations: int, tuning: CudaTuning) -> bool:
    """Whether there is work for all threads if each takes this many units."""
    return units > iterations * tuning.enough_threads


def _share_of_line(line: int, iterations: int, most: int) -> Share | None:
    """Blocks that cover a line with little to spare, of at most so many threads that take units so often, or less
    often; None if lines are too short for that."""
    while iterations:
        for threads in (most, most // 2):
            if -(-line // (threads * iterations)) * threads * iterations * 8 <= line * 9:
                return Share(threads, iterations, has_lines=True)
        iterations //= 2
    return None
