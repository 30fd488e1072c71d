"""Which tensors lie in the same memory: by the addresses of their storages, since one piece of memory may have several.

Two tensors over overlapping parts of a numpy array, of a mapped file or of anything else that torch did not allocate
have a storage each. A storage counts as a whole, because `as_strided` reaches all of it from any tensor in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import itemgetter

import torch


def addresses_of(tensor: torch.Tensor) -> range:
    """The addresses of the bytes in a tensor's storage."""
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    return range(start, start + storage.nbytes())


def do_overlap(one: range, other: range) -> bool:
    """Whether two ranges of addresses have one in common."""
    return max(one.start, other.start) < min(one.stop, other.stop)


def are_joined(memories: Iterable[tuple[range, int]]) -> bool:
    """Whether two ranges of addresses overlap that have different numbers."""
    end, number_there = 0, None
    for memory, number in sorted(memories, key=lambda item: item[0].start):
        if not memory:
            continue
        if memory.start < end and number != number_there:
            return True
        if memory.stop > end:
            end, number_there = memory.stop, number
    return False


class KnownMemory:
    """Pieces of memory with their numbers, which others are compared with again and again."""

    def __init__(self, memories: Iterable[tuple[range, int]]):
        known = sorted(((memory, number) for memory, number in memories if memory), key=lambda item: item[0].start)
        self.are_joined = are_joined(known)
        """Whether two of them overlap that have different numbers."""
        self._pieces: list[tuple[int, int, int]] = []
        for memory, number in known:
            if self._pieces and memory.start < self._pieces[-1][1]:
                start, end, before = self._pieces.pop()
                self._pieces.append((start, max(end, memory.stop), before))
            else:
                self._pieces.append((memory.start, memory.stop, number))

    def meets(self, memory: range, number: int) -> bool:
        """Whether a range of addresses overlaps a piece that has another number."""
        if not memory:
            return False
        first = bisect_left(self._pieces, memory.start + 1, key=_end)
        last = bisect_left(self._pieces, memory.stop, key=_start)
        return any(other != number for _, _, other in self._pieces[first:last])


class NumberedMemory:
    """Numbers for pieces of memory as they turn up; what overlaps has one number."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, int, int]] = []
        """Start, end and number, in the order of addresses. No two overlap."""

    def number(self, memory: range, new: int) -> tuple[int, set[int]]:
        """The number of a range of addresses: that of what it overlaps, or a new one. If it joins pieces that had
        several numbers, those that are this one from now on, too."""
        if not memory:
            return new, set()
        first = bisect_left(self._pieces, memory.start + 1, key=_end)
        last = bisect_left(self._pieces, memory.stop, key=_start)
        joined = self._pieces[first:last]
        numbers = [number for _, _, number in joined] or [new]
        start = min([memory.start, *map(_start, joined)])
        end = max([memory.stop, *map(_end, joined)])
        self._pieces[first:last] = [(start, end, numbers[0])]
        return numbers[0], set(numbers) - {numbers[0]}


_start, _end = itemgetter(0), itemgetter(1)
