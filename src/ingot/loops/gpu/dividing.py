"""Taking numbers apart without division, which takes a GPU some twenty instructions, one waiting for the other.

In: a divisor for numbers of less than 31 bits. Out: one word from which a thread gets the quotient by multiplying and
shifting:

    word = factor + (bits << 32)        number // divisor == upper half of (2 * number * factor) >> bits

The divisor is at most 2^bits, and more than half of that unless it is 1. The factor is the next number above
2^(31 + bits) / divisor, by 1 at most, so it has no more than 32 bits, and number * factor / 2^(31 + bits) is above
number / divisor by less than 1 / divisor: never as much as it takes to reach the next whole number. Twice the number
still has 32 bits, and of such products a GPU computes the upper half alone.

What there is to divide by follows from a nest and its schedule: where one number counts along several axes, the extents
of all of them but the first. Numbers of 64 bits are divided.
"""

from __future__ import annotations

from ingot.loops.gpu.schedule import GpuSchedule, Grid, Tiles
from ingot.loops.nest import Loop, LoopKind, Nest, walk


def divisor_word(divisor: int) -> int:
    """For a divisor from 1 to 2^31, and numbers below that."""
    bits = (divisor - 1).bit_length()
    factor = (1 << (31 + bits)) // divisor + 1
    return factor + (bits << 32)


def divided_axes(nest: Nest, schedule: GpuSchedule) -> tuple[int, ...]:
    """Axes by whose extents threads divide, where numbers have 32 bits."""
    if schedule.is_wide:
        return ()
    loops = [instruction for instruction in walk(nest.body) if isinstance(instruction, Loop)]
    return tuple(sorted({axis for loop in loops for axis in _counted_together(loop, schedule)[1:]}))


def _counted_together(loop: Loop, schedule: GpuSchedule) -> tuple[int, ...]:
    """The axes that one number counts along."""
    match schedule:
        case Tiles():
            return loop.axes if loop.kind is LoopKind.BLOCKS else ()
        case Grid(has_lines=True):
            return loop.axes[:-1]
        case _:
            return tuple(axis for axis in loop.axes if axis not in loop.blocked)


def divisor_along(axis: int, size: int, schedule: GpuSchedule) -> int:
    """The extent of an axis of that size, counted in what goes together along it; at least 1."""
    together = schedule.vector_width if axis == schedule.vector_axis else 1
    if isinstance(schedule, Tiles) and axis >= schedule.axes - 2:
        together = schedule.tile
    return max(-(-size // together), 1)
