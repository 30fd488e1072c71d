"""How elements that belong to no rows are shared out: threads of a block, and how often each takes elements.

In: how many units there are along the last axis, a unit being the neighbours that a thread takes together, how many
such lines, and what a unit reads. Out: a share. Nothing depends on the device; figures in what follows are an H200's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.loops.gpu.schedule import ACCESS
from ingot.loops.gpu.sharing import ENOUGH_THREADS

THREADS = 256
"""Of a block whose elements follow each other in memory."""
LINE_THREADS = 128
"""Of a block that has places along several axes to find: a bias and gelu, or rotations by cosines and sines, take 1 to
2% less time than with 256 threads. Without such axes it is as much time, or a little more."""
MOST_LINES = 65_535
"""Blocks that a grid can have along its second axis."""
MOST_TURNS = 4
"""How often a thread takes elements where it cannot have a whole access of them together. Where it can, once is enough:
most cases of the comparison take 1% more time if twice, and making numbers of bytes 3% if four times."""
FEW_BYTES = 8
"""A unit that reads less than that has time for another, which what is made of a line's values serves, too: images of
bytes, with a mean and a deviation for each channel, take 1% more time as float32 if a thread has one unit, and 2% if
four. As bfloat16, where a unit reads 8 bytes, it is as much time with one, and a third less to assemble; scales and
shifts of channels take 0.5 to 3% less with one."""
MUCH_READ = 48
"""A unit that reads as much is halved if nothing but arithmetic is done with it: 8 bytes of each of three arrays are
enough under way. a*b*c and AdamW take 0.4% less time, and AdamW half as much to assemble; with two arrays it is 1% more
time, and Black-Scholes, with three and functions, takes 10% more."""

MANY_FUNCTIONS, TURNS = 16, 4
"""A unit of which so many functions are computed is halved, too, and where there are enough of them a thread takes so
many in turn, by the same code: Black-Scholes takes a third less time to assemble, and to run as much as float32 and 5%
more as bfloat16. With two turns, or with eight or more, it is another 1 to 7% more."""


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
    """Of a block."""
    turns: int
    """How often each of them takes a unit."""
    has_lines: bool
    """Whether blocks stay within one line each."""


def share_of_elements(line: int, lines: int, unit: Unit) -> Share:
    """Blocks for so many lines of so many units."""
    turns = 1
    while turns * unit.widest < ACCESS and turns < MOST_TURNS and is_enough(line * lines, 2 * turns):
        turns *= 2
    if lines == 1:
        return Share(THREADS, turns, has_lines=False)
    serves_more = unit.has_line_values and unit.read < FEW_BYTES and is_enough(line * lines, 2)
    shared = _share_of_line(line, max(turns, 2 if serves_more else 1)) if lines <= MOST_LINES else None
    return shared or Share(LINE_THREADS, turns, has_lines=False)


def is_enough(units: int, turns: int) -> bool:
    """Whether there is enough to do for all threads if each takes so many units."""
    return units > turns * ENOUGH_THREADS


def _share_of_line(line: int, turns: int) -> Share | None:
    """Blocks that cover a line with little to spare, of threads that take units so often, or less often; None if lines
    are too short for that."""
    while turns:
        for threads in (LINE_THREADS, LINE_THREADS // 2):
            if -(-line // (threads * turns)) * threads * turns * 8 <= line * 9:
                return Share(threads, turns, has_lines=True)
        turns //= 2
    return None
