"""Tensors as the threads of a block access them, for the interpreter; every access is checked.

A LoopError tells of accesses outside a buffer, of elements that are written twice, of neighbours that one access cannot
reach because they do not lie at a multiple of its width, and of results that are written over what other threads read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from ingot.base.dtypes import DataType
from ingot.base.numbers import Number
from ingot.loops.elements import Element, held_as
from ingot.loops.gpu.interpreter.block import ThreadBlock, ThreadScope
from ingot.loops.interpreting import CallNumbers, Interpretation
from ingot.loops.kernel_arguments import ACCESS
from ingot.loops.nest import Load, Nest, Store

SEVERAL = -2
"""Threads that read a byte, where it is not one of them alone."""


class TensorAccess(Interpretation):
    def __init__(self, nest: Nest, call: CallNumbers, memory: Sequence[Any], scalars: Sequence[Number]):
        super().__init__(nest, call, memory, scalars)
        inputs = [number for number, buffer in enumerate(nest.buffers) if not buffer.is_output]
        self._overlaps = {
            output: {
                number: distance for number in inputs if (distance := _distance(memory, output, number)) is not None
            }
            for output in self.written
        }
        """Inputs that an output is written over, and how many bytes after the output's beginning they begin."""
        self._readers = {n: numpy.full(len(memory[n]), -1) for found in self._overlaps.values() for n in found}
        """Who reads each of their bytes, in the current launch."""

    def begin_launch(self) -> None:
        for readers in self._readers.values():
            readers[:] = -1

    def _offsets(self, instruction: Load | Store, scope: ThreadScope) -> Any:
        """Where the elements of all threads begin, in bytes, one line each."""
        buffer, length = self.nest.buffers[instruction.buffer], len(self.memory[instruction.buffer])
        strides, width = self.strides[instruction.buffer], buffer.dtype.bytes
        offsets = numpy.zeros_like(scope.inside, numpy.int64).reshape(-1, 1)
        for axis, position in scope.positions.items():
            offsets = offsets + position * strides[axis]
        if offsets.min() < 0 or offsets.max() + width > length:
            extent = f"bytes {offsets.min()} to {offsets.max() + width} of 0 to {length}"
            raise self.fault(instruction, scope.positions, extent)
        together = offsets.shape[1] * width
        is_dense = offsets.shape[1] > 1 and (numpy.diff(offsets) == width).all()
        if is_dense and (offsets[:, 0] % min(together, ACCESS)).any():
            raise self.fault(instruction, scope.positions, f"{together} bytes at once, not at a multiple of that")
        return offsets

    def load(self, instruction: Load, scope: ThreadScope, block: ThreadBlock) -> Element:
        dtype = self.nest.buffers[instruction.buffer].dtype
        offsets = self._offsets(instruction, scope)
        if instruction.buffer in self._readers:
            self._read(instruction, scope, block, offsets)
        raw = self.memory[instruction.buffer][offsets[..., None] + numpy.arange(dtype.bytes)]
        if dtype is DataType.Bool:
            return Element(raw[..., 0] != 0, dtype)
        return Element(numpy.ascontiguousarray(raw).view(held_as(dtype))[..., 0], dtype)

    def store(self, instruction: Store, scope: ThreadScope, block: ThreadBlock) -> None:
        value = self.value(instruction.value, scope.positions, scope.registers)
        offsets = self._offsets(instruction, scope)
        held = numpy.broadcast_to(value.array, offsets.shape).astype(held_as(value.dtype))
        inside = numpy.broadcast_to(scope.inside, offsets.shape)
        places = (offsets[inside][:, None] + numpy.arange(value.dtype.bytes)).ravel()
        written = self.written[instruction.buffer]
        if written[places].any() or len(numpy.unique(places)) < len(places):
            raise self.fault(instruction, scope.positions, "an element is written a second time")
        written[places] = True
        threads = numpy.repeat(numpy.broadcast_to(block.identity, offsets.shape)[inside], value.dtype.bytes)
        for overwritten, distance in self._overlaps[instruction.buffer].items():
            self._write_over(instruction, scope, overwritten, places - distance, threads)
        self.memory[instruction.buffer][places] = numpy.ascontiguousarray(held[inside]).view(numpy.uint8)

    def _read(self, instruction: Load, scope: ThreadScope, block: ThreadBlock, offsets: Any) -> None:
        """Remember which threads read bytes that are written over; values that threads without elements read are
        dropped anyway."""
        readers, width = self._readers[instruction.buffer], self.nest.buffers[instruction.buffer].dtype.bytes
        inside = numpy.broadcast_to(scope.inside, offsets.shape)
        places = offsets[inside][:, None] + numpy.arange(width)
        threads = numpy.broadcast_to(block.identity, offsets.shape)[inside][:, None]
        for output, overlaps in self._overlaps.items():
            if instruction.buffer in overlaps:
                there = places + overlaps[instruction.buffer]
                within = (there >= 0) & (there < len(self.written[output]))
                if self.written[output][there[within]].any():
                    raise self.fault(instruction, scope.positions, "it has been written over")
        before = readers[places]
        readers[places] = threads
        others = (before != -1) & (before != threads) | (readers[places] != threads)
        readers[places[others]] = SEVERAL

    def _write_over(self, instruction: Store, scope: ThreadScope, buffer: int, places: Any, threads: Any) -> None:
        readers = self._readers[buffer]
        within = (places >= 0) & (places < len(readers))
        found = readers[places[within]]
        if ((found != -1) & (found != threads[within])).any():
            what = f"another thread reads what it writes over of {self.nest.buffers[buffer].name}"
            raise self.fault(instruction, scope.positions, what)


def _distance(memory: Sequence[Any], output: int, number: int) -> int | None:
    """How far after an output's beginning another buffer's is, in bytes; None where they have no byte in common."""
    begin, other = (memory[n].__array_interface__["data"][0] for n in (output, number))
    is_apart = begin + len(memory[output]) <= other or other + len(memory[number]) <= begin
    return None if is_apart else other - begin
