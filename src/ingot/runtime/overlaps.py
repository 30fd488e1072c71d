"""Which tensors lie in the same memory: by the addresses of their storages, since one piece of memory may have several.

Two tensors over overlapping parts of a numpy array, of a mapped file or of anything else that torch did not allocate
have a storage each. A storage counts as a whole, because `as_strided` reaches all of it from any tensor in it.
"""

from __future__ import annotations

from collections.abc import Iterable

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


class NumberedMemory:
    """Numbers for pieces of memory as they turn up; what overlaps has one number."""

    def __init__(self) -> None:
        self._known: list[tuple[range, int]] = []

    def find(self, memory: range) -> list[int]:
        """The numbers of all that a range of addresses overlaps with, each once; the lowest is first."""
        return sorted({number for known, number in self._known if do_overlap(known, memory)})

    def add(self, memory: range, number: int) -> list[int]:
        """Let a range have a number, with all that it overlaps; the numbers that those had and have no more."""
        replaced = [one for one in self.find(memory) if one != number]
        self._known = [(known, number if one in replaced else one) for known, one in self._known]
        if (memory, number) not in self._known:
            self._known.append((memory, number))
        return replaced
