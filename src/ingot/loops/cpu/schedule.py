"""Schedules: how a program's elements are visited. Part of what a compiled kernel is specialised to.

flat      every element on its own; the last loop goes in vectors
rows      one row after another, all passes over a row while it is in the cache
split     few long rows: each pass over a row is split into blocks that run in parallel
columns   strided rows: many side by side, one vector lane each
short     rows of a few elements: many side by side, one vector lane each, all elements of a row in as many registers
tiled     flat, where an input is dense along another axis than the others: small squares, transposed in scratch memory
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ingot.loops.motion import Motion
from ingot.loops.program import Program

MOST_LANES = 64
"""Elements of the longest vector; the lengths of all others divide it."""
SIDE_BY_SIDE = 4
"""How many strided rows are added up together: their sums are read and written once for all of them."""


class Form(Enum):
    FLAT = "flat"
    ROWS = "rows"
    SPLIT = "split"
    COLUMNS = "columns"
    SHORT = "short"
    TILED = "tiled"


@dataclass(frozen=True, slots=True)
class Schedule:
    form: Form
    outer: int
    """Axes that rows are counted along, numbered from 0; those inside a row follow."""
    inner: int
    motions: tuple[Motion, ...]
    """One per buffer, outputs first, along the axis that goes in vectors."""
    streaming: bool = False
    """Whether results bypass the caches, being far larger than they are."""
    keeps: bool = False
    """Whether values needed in several passes over a row are kept in scratch memory, and not computed again."""
    one_pass: bool = False
    """Whether variances are accumulated together with their means."""
    prefetches: bool = False
    """Whether the next row is prefetched while the current one is computed."""
    index_axes: tuple[int, ...] = ()
    """The axis of each position the program asks for."""
    transposed: tuple[int, ...] = ()
    """Buffers that are dense along another axis than the others, in the tiled form."""
    row_size: int = 0
    """Elements of a row in the short form: its loop over them is fully unrolled."""
    row_motions: tuple[Motion, ...] = ()
    """How buffers move along these: to the next element only where rows follow each other without a gap."""
    groups_rows: bool = False
    """Whether the flat form takes blocks of neighbouring rows, each a whole vector loop, instead of blocks of a row."""
    is_even: bool = False
    """Whether all vectors are full and there is at least one, because sizes and blocks are multiples of MOST_LANES."""
    vector_bytes: int | None = None
    """Bytes that a vector of the widest type takes, where that is not left to the rule for the loop's instructions.
    Loops that accumulate along their vectors keep the rule's: it decides in which order they add."""
    side_by_side: int = SIDE_BY_SIDE
    """How many strided rows are added up together, in the order of memory."""

    @property
    def axes(self) -> int:
        return self.outer + self.inner

    @property
    def vector_axis(self) -> int:
        """The axis that goes in vectors."""
        return self.outer - 1 if self.form in (Form.COLUMNS, Form.SHORT) else self.axes - 1

    @property
    def divided_axes(self) -> tuple[int, ...]:
        """The axes that threads divide among each other."""
        match self.form:
            case Form.FLAT | Form.TILED if not self.groups_rows:
                return tuple(range(self.axes))
            case Form.SPLIT:
                return (self.outer,)
            case _:
                return tuple(range(self.outer))

    @property
    def blocked_axes(self) -> tuple[int, ...]:
        """Those of the divided axes that go in blocks."""
        match self.form:
            case Form.FLAT if self.groups_rows:
                return (self.outer - 1,)
            case Form.FLAT:
                return tuple(range(self.outer, self.axes))
            case Form.TILED:
                return (self.axes - 2, self.axes - 1)
            case Form.SPLIT:
                return (self.outer,)
            case Form.COLUMNS | Form.SHORT:
                return (self.outer - 1,)
            case Form.ROWS:
                return ()

    def text(self, program: Program) -> str:
        names = [f"out{i}" for i in range(len(program.outputs))] + [f"in{i}" for i in range(len(program.inputs))]
        moves = ", ".join(f"{name} {motion.value}" for name, motion in zip(names, self.motions, strict=True))
        if self.row_motions:
            inside = ", ".join(f"{name} {m.value}" for name, m in zip(names, self.row_motions, strict=True))
            moves += f"; along i{self.axes - 1} of {self.row_size}: {inside}"
        moves += ", rows in groups" if self.groups_rows else ""
        extras = (", streaming stores" if self.streaming else "") + (", full vectors" if self.is_even else "")
        extras += "" if self.vector_bytes is None else f", vectors of {self.vector_bytes} bytes"
        return f"{self.form.value}: {self.outer} + {self.inner} axes; along i{self.vector_axis}: {moves}{extras}"
