"""How a program is spread over the threads of a GPU.

grid     no rows: elements spread over all threads there are
teams    rows, of which each belongs to a team of threads: some neighbouring lanes, or a whole block
columns  rows that lie across memory: a thread has some neighbouring ones, and those below it in the block the same
tiles    no rows, but some buffers lie across the others: squares of elements, which blocks turn in shared memory
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ingot.loops.program import Program
from ingot.loops.schedule import Motion

ACCESS = 16
"""Bytes that a thread reads or writes at most with one instruction."""
WARP = 32
"""Threads that go in step and can read each other's registers."""


class GpuForm(Enum):
    GRID = "grid"
    TEAMS = "teams"
    COLUMNS = "columns"
    TILES = "tiles"


@dataclass(frozen=True, slots=True)
class GpuSchedule:
    form: GpuForm
    outer: int
    """Axes that rows are counted along, numbered from 0; those inside a row follow."""
    inner: int
    motions: tuple[Motion, ...]
    """One per buffer, outputs first, along the axis whose neighbours a thread takes together."""
    lanes: int
    """Neighbouring elements of that axis that a thread takes together."""
    threads: int
    """Of a block."""
    at_once: int = 1
    """How often a thread takes elements in the grid form, or before it turns back in long rows."""
    team: int = 1
    """Threads that share a row, or some neighbouring ones in the columns form."""
    steps: int = 0
    """How often a team takes elements until it has its whole row, which then stays in registers between passes; 0 where
    rows are longer: they are counted at run time, and read again in each pass."""
    is_even: bool = False
    """Whether elements come out even: every thread has all of its elements."""
    has_rest: bool = False
    """Whether some elements are left over at the end, fewer than a thread takes together."""
    has_lines: bool = False
    """Whether each block of the grid form stays within one line along the last axis: which one it is says a second
    number of the block, so that nothing needs dividing."""
    is_wide: bool = False
    """Whether distances in memory take 64 bits."""
    one_pass: bool = False
    """Whether variances are gathered together with their means."""
    counted: tuple[int, ...] = ()
    """The axis of each position the program asks for."""
    tile: int = 0
    """Elements along each side of a block's square, in the tiles form."""
    turned: tuple[int, ...] = ()
    """Buffers that lie across the others, dense along the axis before the last, in the tiles form."""
    is_split: bool = False
    """Whether each row goes in parts, over several blocks: every pass over it is a launch."""
    alike: tuple[int, ...] = ()
    """For each buffer the first one with the same strides, in bytes, so that distances in both are computed once; known
    in the grid form alone: other forms would hold them too long."""
    in_turn: bool = False
    """Whether a thread takes elements in the grid form one time after another, by the same code; else side by side."""
    counts_blocks: bool = False
    """Whether blocks count themselves, so that the last one to be done can put together what all have left."""

    @property
    def axes(self) -> int:
        return self.outer + self.inner

    @property
    def vector_axis(self) -> int:
        """The axis whose neighbours a thread takes together."""
        return self.outer - 1 if self.form is GpuForm.COLUMNS else self.axes - 1

    @property
    def is_unrolled(self) -> bool:
        """Whether a thread takes its elements so often, and no more: how often is in its code."""
        return self.form in (GpuForm.GRID, GpuForm.TILES) or self.steps > 0

    @property
    def teams(self) -> int:
        """Teams of a block, each of which has a row, or some neighbouring ones, at a time."""
        return self.threads // self.team

    @property
    def rows_together(self) -> int:
        """Neighbouring rows that a team has at a time."""
        return self.lanes if self.form is GpuForm.COLUMNS else 1

    def text(self, program: Program) -> str:
        names = [f"out{i}" for i in range(len(program.outputs))] + [f"in{i}" for i in range(len(program.inputs))]
        moves = ", ".join(f"{name} {motion.value}" for name, motion in zip(names, self.motions, strict=True))
        shares = {
            GpuForm.GRID: f"{self.at_once} times each{' in turn' if self.in_turn else ''}"
            f"{' on a line' if self.has_lines else ''}",
            GpuForm.TEAMS: f"teams of {self.team}, {self.steps or 'counted'} steps",
            GpuForm.COLUMNS: f"teams of {self.team}, {self.steps or 'counted'} steps",
            GpuForm.TILES: f"{self.tile} x {self.tile} elements each",
        }[self.form]
        extras = (", in parts" if self.is_split else "") + (", full" if self.is_even else "")
        extras += ", 64-bit distances" if self.is_wide else ""
        return (
            f"{self.form.value}: {self.outer} + {self.inner} axes; blocks of {self.threads} threads, {shares}, "
            f"{self.lanes} elements together; along i{self.vector_axis}: {moves}{extras}"
        )
