"""The arguments of a compiled kernel: one array of 64-bit words, and which word is what.

number of threads; fault (set by the kernel); grain: iterations of a parallel loop that a thread takes at a time, or on
a GPU the parts of a split reduction
size of each axis
block of each axis: how many of its elements go together where it goes in blocks
per buffer (outputs, then inputs): address, then its stride in bytes along each axis
scalars, each in a word of its own: floats as the bits of a double
for values that blocks of a GPU's threads hand to each other: address of the workspace, bytes of it per accumulator
where blocks are counted: address of the counters
divisors, for each axis by whose extent threads divide: see `loops.gpu.dividing`
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.loops.nest import Nest

THREADS, FAULT, GRAIN = range(3)
SPLITS = GRAIN
"""What the word of the grain is on a GPU: how many parts a split reduction has."""
ACCESS = 16
"""Bytes that a thread of a GPU reads or writes at most with one instruction, and so the strictest alignment."""
_FIRST_SIZE = 3


@dataclass(frozen=True, slots=True)
class WordLayout:
    axes: int
    buffers: int
    scalars: int
    has_workspace: bool = False
    has_counters: bool = False
    divided: tuple[int, ...] = ()
    """Axes whose extents numbers are divided by."""

    @staticmethod
    def of(
        nest: Nest, has_workspace: bool = False, has_counters: bool = False, divided: tuple[int, ...] = ()
    ) -> WordLayout:
        return WordLayout(nest.axes, len(nest.buffers), len(nest.scalars), has_workspace, has_counters, divided)

    def size(self, axis: int) -> int:
        return _FIRST_SIZE + axis

    def block(self, axis: int) -> int:
        return _FIRST_SIZE + self.axes + axis

    def address(self, buffer: int) -> int:
        return _FIRST_SIZE + 2 * self.axes + buffer * (self.axes + 1)

    def stride(self, buffer: int, axis: int) -> int:
        return self.address(buffer) + 1 + axis

    def scalar(self, index: int) -> int:
        return self.address(self.buffers) + index

    @property
    def workspace(self) -> int:
        return self.scalar(self.scalars)

    @property
    def workspace_share(self) -> int:
        return self.workspace + 1

    @property
    def counters(self) -> int:
        return self.workspace + 2 * self.has_workspace

    def divisor(self, axis: int) -> int:
        return self.counters + self.has_counters + self.divided.index(axis)

    @property
    def count(self) -> int:
        return self.counters + self.has_counters + len(self.divided)
