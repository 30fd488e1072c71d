"""How a buffer moves along the axis that goes in vectors, or whose neighbours a thread takes together.

In: a stride and the width of an element, in bytes. Out: what code may count on. Always holds: kernels depend on motions
and not on strides, so that one serves all shapes of one broadcast pattern.
"""

from __future__ import annotations

from enum import Enum


class Motion(Enum):
    """How a buffer moves along one axis."""

    NEXT = "next"
    """To the next element in memory."""
    STILL = "still"
    """Not at all: the same element throughout."""
    STRIDED = "strided"
    """By a distance that is an argument of the call."""


def motion_of(stride: int, width: int) -> Motion:
    return Motion.NEXT if stride == width else Motion.STILL if stride == 0 else Motion.STRIDED
