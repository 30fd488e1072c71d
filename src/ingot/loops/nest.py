"""The loop IR: a kernel as loops over axes, loads, operations and stores.

    nest        := buffers, scalars, scratches, accumulators, body
    body        := instruction*
    instruction := loop | at | load | store | compute | keep | recall | prefetch | begin | accumulate | finish | barrier
    loop        := kind, axes, which of them go in blocks, body
    kind        := 'parallel' | 'serial' | 'vector' on a processor, 'grid' | 'blocks' | 'threads' | 'serial' on a GPU

A loop over several axes visits all combinations, the last axis fastest. An axis that goes in blocks is visited block by
block; an inner loop over the same axis then visits the block's elements. Registers are assigned once and can be used in
the loop that assigns them and in all loops inside it. Buffers name no index: where an element lies follows from the
positions of all loops around and the buffer's strides, which are arguments of a call, as are the sizes of the axes.
Scratch memory belongs to one iteration of the parallel loop around it. An accumulator that is begun outside a parallel
loop and used inside it accumulates per block of iterations, and the blocks are combined in their order, so results do
not depend on the number of threads.

On a GPU iterations are spread over threads, some neighbouring elements of the last axis to each at a time: those of a
grid loop over all threads there are; those of a blocks loop over blocks of threads, or over the thread groups of a
block; and those of a threads loop inside it over the threads of that block or thread group, the same ones to the same
threads in every such loop. So scratch memory that lies in registers is there again in the next loop, and shared memory
is where threads give values to each other, with a barrier between writing and reading. Finishing an accumulator
combines what the threads of a group have accumulated. A blocks loop may take neighbouring rows together, to each
thread of a group the same. Where two axes go in blocks of one size, a block of threads has a square of elements,
and threads loops over both axes, in either order, visit it.

Every loop at the top of a nest for a GPU is a launch, and so is what follows them, by a single block. An accumulator
that is begun outside them is accumulated in one launch and finished in others: by each block for itself where it
accumulates values per row, or else by each thread group for the part of its row, where all axes of a row go in blocks
of so many elements. These values are left in memory, part by part, and combined where the accumulator is finished: by a
thread group those of all parts of its row, as if they were elements of one; at the top all of them. Where blocks count
themselves, a loop over rows that has none over elements inside, and what follows all loops, is no launch: the last
block to be done with the same rows, or with any, does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ingot.base.dtypes import DataType
from ingot.base.forks import cached_property
from ingot.base.types import literal
from ingot.loops.program import Argument, ConstantOperand
from ingot.ops import Op


@dataclass(frozen=True, slots=True)
class Register:
    index: int
    dtype: DataType

    def __str__(self) -> str:
        return f"%{self.index}"


@dataclass(frozen=True, slots=True)
class AxisPosition:
    """The current position along an axis, as a number."""

    axis: int
    dtype: DataType

    def __str__(self) -> str:
        return f"i{self.axis}"


@dataclass(frozen=True, slots=True)
class Extent:
    """How many positions there are along some axes, taken together."""

    axes: tuple[int, ...]
    dtype: DataType

    def __str__(self) -> str:
        return "*".join(f"n{axis}" for axis in self.axes)


Value = Register | ConstantOperand | Argument | AxisPosition | Extent


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in memory."""

    name: str
    dtype: DataType
    is_output: bool


class Place(Enum):
    """Where scratch memory lies."""

    MEMORY = "memory"
    REGISTERS = "registers"
    """Registers of a GPU's threads: each thread keeps what it will need itself."""
    SHARED = "shared"
    """Memory of a block of a GPU's threads."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory of one iteration of a parallel loop, dense along some axes: all of them, or the current block."""

    name: str
    dtype: DataType
    axes: tuple[int, ...]
    place: Place = Place.MEMORY

    def text(self) -> str:
        where = "" if self.place is Place.MEMORY else f" in {self.place.value}"
        return f"scratch {self.name}: {self.dtype.text}[{', '.join(f'i{axis}' for axis in self.axes)}]{where}"


@dataclass(frozen=True, slots=True)
class Accumulator:
    """What a reduction has accumulated so far: one value, or one per position along an axis that goes in blocks."""

    name: str
    op: Op
    dtype: DataType
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    register: Register
    buffer: int

    def text(self, nest: Nest) -> str:
        return f"{self.register} = load {nest.buffers[self.buffer].name}"


@dataclass(frozen=True, slots=True)
class Store:
    buffer: int
    value: Value

    def text(self, nest: Nest) -> str:
        return f"store {nest.buffers[self.buffer].name} = {self.value}"


@dataclass(frozen=True, slots=True)
class Compute:
    register: Register
    op: Op
    operands: tuple[Value, ...]
    attributes: tuple[tuple[str, Any], ...]

    def text(self, nest: Nest) -> str:
        parts = [*map(str, self.operands), *(f"{name}={literal(value)}" for name, value in self.attributes)]
        return f"{self.register} = {self.op.name}({', '.join(parts)}): {self.register.dtype.text}"


@dataclass(frozen=True, slots=True)
class Keep:
    """Write to scratch memory at the current position."""

    scratch: int
    value: Value

    def text(self, nest: Nest) -> str:
        return f"keep {nest.scratches[self.scratch].name} = {self.value}"


@dataclass(frozen=True, slots=True)
class Recall:
    """Read from scratch memory at the current position."""

    register: Register
    scratch: int

    def text(self, nest: Nest) -> str:
        return f"{self.register} = recall {nest.scratches[self.scratch].name}"


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Prefetch the element one step further along an axis. It changes no result."""

    buffer: int
    axis: int

    def text(self, nest: Nest) -> str:
        return f"prefetch {nest.buffers[self.buffer].name} at i{self.axis} + 1"


@dataclass(frozen=True, slots=True)
class Begin:
    accumulator: int

    def text(self, nest: Nest) -> str:
        found = nest.accumulators[self.accumulator]
        along = "" if found.axis is None else f" for each i{found.axis}"
        return f"begin {found.name}: {found.op.name} in {found.dtype.text}{along}"


@dataclass(frozen=True, slots=True)
class Accumulate:
    accumulator: int
    value: Value

    def text(self, nest: Nest) -> str:
        return f"{nest.accumulators[self.accumulator].name} <- {self.value}"


@dataclass(frozen=True, slots=True)
class Finish:
    """The accumulated value, in the type of the reduction's result."""

    register: Register
    accumulator: int

    def text(self, nest: Nest) -> str:
        return f"{self.register} = finish {nest.accumulators[self.accumulator].name}: {self.register.dtype.text}"


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of a block arrive here before any goes on."""

    def text(self, nest: Nest) -> str:
        return "barrier"


class LoopKind(Enum):
    PARALLEL = "parallel"
    SERIAL = "serial"
    VECTOR = "vector"
    GRID = "grid"
    BLOCKS = "blocks"
    THREADS = "threads"


@dataclass(frozen=True, slots=True)
class Loop:
    kind: LoopKind
    axes: tuple[int, ...]
    blocked: frozenset[int]
    """The axes that go block by block."""
    body: tuple[Instruction, ...]
    at_once: int = 1
    """Iterations side by side: of a serial loop in the one vector loop it holds, of a grid loop in a thread, of a
    threads loop over a square neighbours along its first axis in a thread."""
    vector_width: int = 1
    """Neighbouring elements of the last axis that one thread of a GPU takes together."""

    def text(self, nest: Nest) -> str:
        heads = [f"block of i{axis}" if axis in self.blocked else f"i{axis} in 0..n{axis}" for axis in self.axes]
        together = f" by {self.vector_width}" if self.vector_width > 1 else ""
        unrolled = f", {self.at_once} at once" if self.at_once > 1 else ""
        over = f" for {', '.join(heads)}" if heads else ""
        return f"{self.kind.value}{over}{together}{unrolled}"


@dataclass(frozen=True, slots=True)
class At:
    """Instructions for one position along an axis, which a value names; their registers can be used after it.

    A position outside the axis is a fault: the kernel's results are void then.
    """

    axis: int
    position: Value
    body: tuple[Instruction, ...]

    def text(self, nest: Nest) -> str:
        return f"at i{self.axis} = {self.position}"


Instruction = Load | Store | Compute | Keep | Recall | Prefetch | Begin | Accumulate | Finish | Barrier | Loop | At


@dataclass(frozen=True)
class Nest:
    axes: int
    """How many axes there are; their sizes are arguments."""
    buffers: tuple[Buffer, ...]
    scalars: tuple[DataType, ...]
    scratches: tuple[Scratch, ...]
    accumulators: tuple[Accumulator, ...]
    body: tuple[Instruction, ...]

    @cached_property
    def text(self) -> str:
        buffers = ", ".join(f"{buffer.name}: {buffer.dtype.text}" for buffer in self.buffers)
        scalars = "".join(f", scalar{index}: {dtype.text}" for index, dtype in enumerate(self.scalars))
        lines = [f"kernel({buffers}{scalars}) {{"]
        lines += [f"  {scratch.text()}" for scratch in self.scratches]
        lines += [line for instruction in self.body for line in _lines(instruction, self, "  ")]
        return "\n".join([*lines, "}"])


def walk(body: tuple[Instruction, ...]) -> Iterator[Instruction]:
    """All instructions, those inside loops after their loop."""
    for instruction in body:
        yield instruction
        if isinstance(instruction, Loop | At):
            yield from walk(instruction.body)


def values_read(instruction: Instruction) -> tuple[Value, ...]:
    """What an instruction reads, loops aside."""
    if isinstance(instruction, Compute):
        return instruction.operands
    if isinstance(instruction, At):
        return (instruction.position,)
    return (instruction.value,) if isinstance(instruction, Store | Keep | Accumulate) else ()


def register_made(instruction: Instruction) -> Register | None:
    return instruction.register if isinstance(instruction, Load | Compute | Recall | Finish) else None


def _lines(instruction: Instruction, nest: Nest, indent: str) -> Iterator[str]:
    if not isinstance(instruction, Loop | At):
        yield indent + instruction.text(nest)
        return
    yield f"{indent}{instruction.text(nest)} {{"
    for inner in instruction.body:
        yield from _lines(inner, nest, indent + "  ")
    yield indent + "}"
