"""How a program is spread over the threads of a GPU: one of four forms, each a dataclass with fields of its own.

Grid          no rows: elements spread over all threads there are
ThreadGroups  rows, each of which belongs to a thread group: some neighbouring threads of a warp, or a whole block
Columns       strided rows: a thread has some neighbouring rows, and the threads below it in the block have the same
Tiles         no rows, but some buffers are dense along another axis: squares, which blocks transpose in shared memory
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from ingot.loops.motion import Motion
from ingot.loops.program import Program

WARP = 32
"""Threads that run in lockstep and can read each other's registers."""
MOST_THREADS = 1024
"""Threads of a block."""
SHARED_BYTES = 48 << 10
"""Shared memory that every block may have."""
MOST_SPLITS = 1024
"""How many parts a split reduction may have: code that combines parts relies on it."""
MOST_COUNTERS = 1024
"""How many counters one launch may use: each stream has this many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Threads(ABC):
    """What all forms have."""

    form: ClassVar[str]
    """The name of the form in printed schedules."""

    outer: int
    """Axes that rows are counted along, numbered from 0; those inside a row follow."""
    inner: int
    motions: tuple[Motion, ...]
    """One per buffer, outputs first, along the axis whose neighbours a thread takes together."""
    vector_width: int
    """Neighbouring elements of that axis that a thread takes together."""
    threads: int
    """Threads of a block."""
    is_even: bool = False
    """Whether elements come out even: every thread has all of its elements."""
    is_wide: bool = False
    """Whether distances in memory take 64 bits."""
    index_axes: tuple[int, ...] = ()
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
        """What belongs to each thread, thread group or block, in words."""

    @property
    def extras(self) -> str:
        """Other properties, in words that each begin with a comma."""
        return (", full" if self.is_even else "") + (", 64-bit distances" if self.is_wide else "")

    def text(self, program: Program) -> str:
        names = [f"out{i}" for i in range(len(program.outputs))] + [f"in{i}" for i in range(len(program.inputs))]
        moves = ", ".join(f"{name} {motion.value}" for name, motion in zip(names, self.motions, strict=True))
        return (
            f"{self.form}: {self.outer} + {self.inner} axes; blocks of {self.threads} threads, "
            f"{self.share}, {self.vector_width} elements together; along i{self.vector_axis}: {moves}{self.extras}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(_Threads):
    """Elements spread over all threads there are."""

    form: ClassVar[str] = "grid"
    at_once: int = 1
    """How many iterations a thread has."""
    in_turn: bool = False
    """Whether these iterations are a loop, one after another; else they are unrolled, side by side."""
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
class _RowThreads(_Threads):
    """What both forms for rows have: a thread group for each row, or for some neighbouring ones."""

    thread_group_size: int
    """Threads that share them."""
    iterations: int = 0
    """How many iterations take a thread group through its whole row, which then stays in registers between passes and
    whose loops are fully unrolled; 0 where rows are longer: their iterations are counted at run time, and they are read
    again in each pass."""
    at_once: int = 1
    """How many iterations of a thread run side by side, in rows whose iterations are counted at run time."""
    one_pass: bool = False
    """Whether variances are accumulated together with their means."""
    is_split: bool = False
    """Whether this is a split reduction: parts of each row go to several blocks, and every pass over it is a launch."""
    last_block_combines: bool = False
    """Whether blocks count themselves, so that the last block combines the values of all."""
    total_threads: int = MOST_THREADS
    """Threads of the one block that combines them, if that is a launch of its own."""

    @property
    def is_unrolled(self) -> bool:
        return self.iterations > 0

    @property
    def thread_groups(self) -> int:
        """Thread groups of a block, each of which has a row, or some neighbouring ones, at a time."""
        return self.threads // self.thread_group_size

    @property
    @abstractmethod
    def rows_together(self) -> int:
        """Neighbouring rows that a thread group has at a time."""

    @property
    def share(self) -> str:
        return f"thread groups of {self.thread_group_size}, {self.iterations or 'dynamic'} iterations"

    @property
    def extras(self) -> str:
        return (", split reduction" if self.is_split else "") + super(_RowThreads, self).extras


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadGroups(_RowThreads):
    """Rows that lie along memory: the threads of a group are neighbours, and so are the elements of each."""

    form: ClassVar[str] = "thread groups"

    @property
    def rows_together(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(_RowThreads):
    """Strided rows: the elements that a thread takes together belong to neighbouring rows, and the threads of a thread
    group lie below each other in the block."""

    form: ClassVar[str] = "columns"

    @property
    def vector_axis(self) -> int:
        return self.outer - 1

    @property
    def rows_together(self) -> int:
        return self.vector_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles(_Threads):
    """Squares of elements, which blocks transpose in shared memory."""

    form: ClassVar[str] = "tiles"
    tile: int
    """Elements along each side of a block's square."""
    transposed: tuple[int, ...]
    """Buffers that are dense along the axis before the last, where the others are dense along the last."""

    @property
    def share(self) -> str:
        return f"{self.tile} x {self.tile} elements each"


RowSchedule: TypeAlias = ThreadGroups | Columns
GpuSchedule: TypeAlias = Grid | ThreadGroups | Columns | Tiles
