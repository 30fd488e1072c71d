"""Nests over squares of elements, where some buffers are dense along another axis: those are transposed in shared
memory.

%0 = load in0                   blocks for block of i0, block of i1 {
%1 = load in1 (transposed)        threads for i0, i1 by 4 { load in0, keep in registers }
store out0 = %0 + %1        ->    threads for i1, i0 by 4, 4 at once { load in1, keep in shared memory }
                                  barrier
                                  threads for i0, i1 by 4 { recall both, store out0 }
                                }
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.base.dtypes import DataType
from ingot.loops.building import NestBuilder, Scope, loop
from ingot.loops.gpu.schedule import Tiles
from ingot.loops.nest import Barrier, Instruction, Keep, Load, Loop, LoopKind, Place, Recall, Register, Store
from ingot.loops.program import Input, Program

READ_AHEAD_BYTES = 128
"""How many bytes of the other elements a thread may have loaded while it transposes."""


class TilesBuilder(NestBuilder):
    """Squares of the last axis and the one along which transposed buffers are dense; those go through shared memory."""

    def __init__(self, program: Program, schedule: Tiles):
        super().__init__(program, schedule)
        self.schedule = schedule

    def write_loops(self) -> None:
        schedule = self.schedule
        self.across, self.along = schedule.axes - 2, schedule.axes - 1
        self._kept_in: dict[int, int] = {}
        """Buffer to scratch."""
        reads, writes = [], []
        for buffer in schedule.transposed:
            self._kept_in[buffer] = self.scratch(self._dtype(buffer), (self.across, self.along), Place.SHARED)
            (writes if buffer < len(self.program.outputs) else reads).append(buffer)
        tile = self._read_ahead()
        if reads:
            tile += [self._transposed(part for buffer in reads for part in self._read(buffer)), Barrier()]
        elements = Scope()
        self.write_pass(0, elements)
        tile.append(self._straight(self._kept_if_transposed(i) for i in elements.body))
        if writes:
            tile += [Barrier(), self._transposed(part for buffer in writes for part in self._written_back(buffer))]
        axes = tuple(range(schedule.axes))
        self.top.body.append(loop(LoopKind.BLOCKS, axes, tile, blocked=(self.across, self.along)))

    def _read_ahead(self) -> list[Instruction]:
        """Loads of buffers that are not transposed, so that they are under way while the others are."""
        schedule, first = self.schedule, len(self.program.outputs)
        each = schedule.tile * schedule.tile // schedule.threads
        parts: list[Instruction] = []
        for buffer in range(first, len(self.program.buffers)):
            room = each * sum(self._dtype(b).bytes for b in (*self._kept_in, buffer) if b not in schedule.transposed)
            if buffer not in schedule.transposed and room <= READ_AHEAD_BYTES:
                self._kept_in[buffer] = self.scratch(self._dtype(buffer), (self.across, self.along), Place.REGISTERS)
                parts += self._read(buffer)
        return [self._straight(parts)] if parts else []

    def _straight(self, body: Iterable[Instruction]) -> Loop:
        return loop(LoopKind.THREADS, (self.across, self.along), body, vector_width=self.schedule.vector_width)

    def _transposed(self, body: Iterable[Instruction]) -> Loop:
        vector_width = self.schedule.vector_width
        return loop(LoopKind.THREADS, (self.along, self.across), body, at_once=vector_width, vector_width=vector_width)

    def _read(self, buffer: int) -> list[Instruction]:
        register = self.register(self._dtype(buffer))
        return [Load(register, buffer), Keep(self._kept_in[buffer], register)]

    def _written_back(self, buffer: int) -> list[Instruction]:
        register = self.register(self._dtype(buffer))
        return [Recall(register, self._kept_in[buffer]), Store(buffer, register)]

    def _kept_if_transposed(self, instruction: Instruction) -> Instruction:
        if isinstance(instruction, Store) and instruction.buffer in self._kept_in:
            return Keep(self._kept_in[instruction.buffer], instruction.value)
        return instruction

    def _dtype(self, buffer: int) -> DataType:
        return self.program.buffers[buffer]

    def load(self, register: Register, operand: Input) -> Instruction:
        buffer = len(self.program.outputs) + operand.index
        return Recall(register, self._kept_in[buffer]) if buffer in self._kept_in else Load(register, buffer)
