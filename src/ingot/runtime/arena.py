"""One block of memory for all intermediate values of a call: those that are not alive together may share a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value that lives from one step to another, both included."""

    first: int
    last: int
    nbytes: int


def plan_arena(lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
    """An offset for each value, a multiple of the alignment, and how many bytes they need together. The largest are
    placed first, each as low as those alive with it allow."""
    room = [-(-value.nbytes // alignment) * alignment for value in lifetimes]
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(lifetimes)), key=lambda index: -lifetimes[index].nbytes):
        value = lifetimes[index]
        rivals = [other for other in placed if _meet(value, lifetimes[other])]
        offset = 0
        for other in sorted(rivals, key=lambda other: offsets[other]):
            if offset + room[index] <= offsets[other]:
                break
            offset = max(offset, offsets[other] + room[other])
        offsets[index] = offset
        placed.append(index)
        total = max(total, offset + room[index])
    return offsets, total


def _meet(one: Lifetime, other: Lifetime) -> bool:
    return one.first <= other.last and other.first <= one.last
