"""Tensors as the threads of a block access them, for the interpreter; every access is checked.

A LoopError tells of accesses outside a buffer, of elements that are written twice, and of neighbours that one access
cannot reach because they do not lie at a multiple of its width.
"""

from __future__ import annotations

from typing import Any

import numpy

from ingot.base.dtypes import DataType
from ingot.loops.elements import Element, held_as
from ingot.loops.gpu.block import Scope
from ingot.loops.interpreting import Interpretation
from ingot.loops.nest import Load, Store

WIDEST_ACCESS = 16


class TensorAccess(Interpretation):
    def _offsets(self, instruction: Load | Store, scope: Scope) -> Any:
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
        if is_dense and (offsets[:, 0] % min(together, WIDEST_ACCESS)).any():
            raise self.fault(instruction, scope.positions, f"{together} bytes at once, not at a multiple of that")
        return offsets

    def load(self, instruction: Load, scope: Scope) -> Element:
        dtype = self.nest.buffers[instruction.buffer].dtype
        offsets = self._offsets(instruction, scope)
        raw = self.memory[instruction.buffer][offsets[..., None] + numpy.arange(dtype.bytes)]
        if dtype is DataType.Bool:
            return Element(raw[..., 0] != 0, dtype)
        return Element(numpy.ascontiguousarray(raw).view(held_as(dtype))[..., 0], dtype)

    def store(self, instruction: Store, scope: Scope) -> None:
        value = self.value(instruction.value, scope.positions, scope.registers)
        offsets = self._offsets(instruction, scope)
        held = numpy.broadcast_to(value.array, offsets.shape).astype(held_as(value.dtype))
        inside = numpy.broadcast_to(scope.inside, offsets.shape)
        places = (offsets[inside][:, None] + numpy.arange(value.dtype.bytes)).ravel()
        written = self.written[instruction.buffer]
        if written[places].any() or len(numpy.unique(places)) < len(places):
            raise self.fault(instruction, scope.positions, "an element is written a second time")
        written[places] = True
        self.memory[instruction.buffer][places] = numpy.ascontiguousarray(held[inside]).view(numpy.uint8)
