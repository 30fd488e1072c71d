"""The order in which threads put together what they have gathered, for the interpreter: that of generated code."""

from __future__ import annotations

from collections.abc import Callable

import numpy

from ingot.loops.elements import Element
from ingot.loops.gpu.schedule import WARP

Combine = Callable[[Element, Element], Element]


def folded_lanes(value: Element, combine: Combine) -> Element:
    """What a thread has taken together as one value: the lower half of it with the upper, until one is left."""
    while value.array.shape[1] > 1:
        half = value.array.shape[1] // 2
        value = combine(Element(value.array[:, :half], value.dtype), Element(value.array[:, half:], value.dtype))
    return value


def folded_team(value: Element, team: int, combine: Combine) -> Element:
    """The same for the threads of each team, a line each: neighbours in a warp, then those of all warps.

    Every thread combines its own value with that of another, whose number differs in one bit.
    """
    value = _exchanged(value, min(team, WARP), combine)
    warps = team // WARP
    if warps <= 1:
        return value
    threads = numpy.arange(len(value.array))
    left_by = threads // team * team + threads % WARP % warps * WARP
    return _exchanged(Element(value.array[left_by], value.dtype), warps, combine)


def _exchanged(value: Element, threads: int, combine: Combine) -> Element:
    distance = 1
    while distance < threads:
        other = numpy.arange(len(value.array)) ^ distance
        value = combine(value, Element(value.array[other], value.dtype))
        distance *= 2
    return value
