"""How a program is spread over the threads of a GPU: one of four forms, each a dataclass with fields of its own.

Grid     no rows: elements spread over all threads there are
Teams    rows, of which each belongs to a team of threads: some neighbouring lanes, or a whole block
Columns  rows that lie across memory: a thread has some neighbouring ones, and those below it in the block the same
Tiles    no rows, but some buffers lie across the others: squares of elements, which blocks turn in shared memory
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

from ingot.loops.motion import Motion
from ingot.loops.program import Program

ACCESS = 16
"""Bytes that a thread reads or writes at most with one instruction."""
WARP = 32
"""Threads that go in step and can read each other's registers."""
MOST_THREADS = 1024
"""Of a block."""
SHARED_BYTES = 48 << 10
"""Shared memory that every block may have."""
MOST_PARTS = 1024
"""That a row goes in: code that combines them counts on it."""
MOST_COUNTERS = 1024
"""Numbers that the blocks of one launch are counted by: so many are there for each stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Threads(ABC):
    """What all forms have."""

    outer: int
    """Axes that rows are counted along, numbered from 0; those inside a row follow."""
    inner: int
    motions: tuple[Motion, ...]
    """One per buffer, outputs first, along the axis whose neighbours a thread takes together."""
    lanes: int
    """Neighbouring elements of that axis that a thread takes together."""
    threads: int
    """Of a block."""
    is_even: bool = False
    """Whether elements come out even: every thread has all of its elements."""
    is_wide: bool = False
    """Whether distances in memory take 64 bits."""
    counted: tuple[int, ...] = ()
    """The axis of each position the program asks for."""

    @property
    def axes(self) -> int:
        return self.outer + self.inner

    @property
    def vector_axis(self) -> int:
        """The axis whose neighbours a thread takes together."""
        return self.axes - 1

    @property
    def is_unrolled(self) -> bool:
        """Whether loops over a thread's elements are fully unrolled."""
        return True

    @property
    @abstractmethod
    def share(self) -> str:
        """What belongs to each thread, team or block, in words."""

    @property
    def extras(self) -> str:
        """What else is so, in words that each begin with a comma."""
        return (", full" if self.is_even else "") + (", 64-bit distances" if self.is_wide else "")

    def text(self, program: Program) -> str:
        names = [f"out{i}" for i in range(len(program.outputs))] + [f"in{i}" for i in range(len(program.inputs))]
        moves = ", ".join(f"{name} {motion.value}" for name, motion in zip(names, self.motions, strict=True))
        return (
            f"{type(self).__name__.lower()}: {self.outer} + {self.inner} axes; blocks of {self.threads} threads, "
            f"{self.share}, {self.lanes} elements together; along i{self.vector_axis}: {moves}{self.extras}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(_Threads):
    """Elements spread over all threads there are."""

    at_once: int = 1
    """How often a thread takes elements."""
    in_turn: bool = False
    """Whether it takes them one time after another, by the same code; else side by side."""
    has_rest: bool = False
    """Whether some elements are left over at the end, fewer than a thread takes together."""
    has_lines: bool = False
    """Whether each block stays within one line along the last axis: which one it is says a second number of the block,
    so that nothing needs dividing."""
    alike: tuple[int, ...] = ()
    """For each buffer the first one with the same strides, in bytes, so that distances in both are computed once; known
    here alone: threads of other forms would hold them too long. Nothing is known where there are none."""

    @property
    def share(self) -> str:
        in_turn, on_a_line = " in turn" if self.in_turn else "", " on a line" if self.has_lines else ""
        return f"{self.at_once} times each{in_turn}{on_a_line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows(_Threads):
    """What both forms for rows have: a team of threads for each row, or for some neighbouring ones."""

    team: int
    """Threads that share them."""
    steps: int = 0
    """How often a team takes elements until it has its whole row, which then stays in registers between passes; 0 where
    rows are longer: they are counted at run time, and read again in each pass."""
    at_once: int = 1
    """How often a thread takes elements before it turns back, in rows that are counted at run time."""
    one_pass: bool = False
    """Whether variances are gathered together with their means."""
    is_split: bool = False
    """Whether each row goes in parts, over several blocks: every pass over it is a launch."""
    counts_blocks: bool = False
    """Whether blocks count themselves, so that the last one to be done can put together what all have left."""
    total_threads: int = MOST_THREADS
    """Of the one block that puts it together, if that is a launch of its own."""

    @property
    def is_unrolled(self) -> bool:
        return self.steps > 0

    @property
    def teams(self) -> int:
        """Teams of a block, each of which has a row, or some neighbouring ones, at a time."""
        return self.threads // self.team

    @property
    @abstractmethod
    def rows_together(self) -> int:
        """Neighbouring rows that a team has at a time."""

    @property
    def share(self) -> str:
        return f"teams of {self.team}, {self.steps or 'counted'} steps"

    @property
    def extras(self) -> str:
        return (", in parts" if self.is_split else "") + super(_Rows, self).extras


@dataclass(frozen=True, slots=True, kw_only=True)
class Teams(_Rows):
    """Rows that lie along memory: the threads of a team are neighbours, and so are the elements of each."""

    @property
    def rows_together(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(_Rows):
    """Rows that lie across memory: the elements that a thread takes together belong to neighbouring rows, and the
    threads of a team stand below each other."""

    @property
    def vector_axis(self) -> int:
        return self.outer - 1

    @property
    def rows_together(self) -> int:
        return self.lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles(_Threads):
    """Squares of elements, which blocks turn in shared memory."""

    tile: int
    """Elements along each side of a block's square."""
    turned: tuple[int, ...]
    """Buffers that lie across the others, dense along the axis before the last."""

    @property
    def share(self) -> str:
        return f"{self.tile} x {self.tile} elements each"


RowSchedule: TypeAlias = Teams | Columns
GpuSchedule: TypeAlias = Grid | Teams | Columns | Tiles
