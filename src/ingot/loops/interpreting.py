"""What the interpreters of nests share: values of operands, accumulators, and that outputs are written once.

In: a nest, the numbers of a call, the bytes of its buffers, its scalars. The op table is all that is shared with code
generation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy

from ingot.base.dtypes import DataType
from ingot.base.errors import LoopError
from ingot.base.numbers import Number
from ingot.loops.elements import Element, Elements
from ingot.loops.nest import AxisPosition, Extent, Instruction, Nest, Register, Value
from ingot.loops.program import Argument, ConstantOperand


class CallNumbers(Protocol):
    """What an interpreter needs to know of a call."""

    @property
    def sizes(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]: ...


class Interpretation:
    """One run of a nest."""

    def __init__(self, nest: Nest, call: CallNumbers, memory: Sequence[Any], scalars: Sequence[Number]):
        self.nest, self.memory, self.scalars = nest, memory, scalars
        self.sizes, self.strides = call.sizes, call.strides
        self.is_valid = True
        """Whether the results are valid: no index has lain outside its axis so far."""
        self.elements = Elements()
        self.written = {
            number: numpy.zeros(len(memory[number]), bool)
            for number, buffer in enumerate(nest.buffers)
            if buffer.is_output
        }

    def check_outputs(self) -> None:
        """Every element must have been written; between them there may be others, where a result has strides."""
        for number, written in self.written.items():
            buffer, width = self.nest.buffers[number], self.nest.buffers[number].dtype.bytes
            moves = [(s, d) for s, d in zip(self.sizes, self.strides[number], strict=True) if d]
            beyond = len(written) - (width + sum((size - 1) * stride for size, stride in moves))
            missing = math.prod(size for size, _ in moves) - int(written.sum()) // width + beyond // width
            if missing:
                raise LoopError(f"{missing} elements of {buffer.name} are never written\n{self.nest.text}")

    def fault(self, instruction: Instruction, positions: Mapping[int, Any], what: str) -> LoopError:
        where = ", ".join(f"i{axis} = {position}" for axis, position in positions.items())
        return LoopError(f"{instruction.text(self.nest)}: {what}, at {where or 'the top'}\n{self.nest.text}")

    def value(self, value: Value, positions: Mapping[int, Any], registers: Mapping[Register, Element]) -> Element:
        if isinstance(value, ConstantOperand):
            return self.elements.literal(value.value, value.dtype)
        if isinstance(value, Argument):
            return self._scalar(value)
        if isinstance(value, AxisPosition):
            position = numpy.asarray(positions[value.axis], numpy.int64)
            return self.elements.convert(Element(position, DataType.Int), value.dtype)
        if isinstance(value, Extent):
            count = math.prod(self.sizes[axis] for axis in value.axes)
            return self.elements.convert(self.elements.literal(count, DataType.Int), value.dtype)
        return registers[value]

    def _scalar(self, argument: Argument) -> Element:
        number = self.scalars[argument.index]
        given = DataType.Double if argument.dtype.is_float else DataType.Int
        return self.elements.convert(self.elements.literal(number, given), argument.dtype)

    def nothing(self, index: int) -> Element:
        """What an accumulator holds before anything is accumulated."""
        accumulator = self.nest.accumulators[index]
        assert accumulator.op.combination is not None
        return self.elements.literal(accumulator.op.combination.identity(accumulator.dtype), accumulator.dtype)

    def combined(self, index: int, so_far: Element, value: Element) -> Element:
        """Two values combined, in the type of an accumulator."""
        accumulator = self.nest.accumulators[index]
        assert accumulator.op.combination is not None
        combined = accumulator.op.combination.combine(
            self.elements, so_far, self.elements.convert(value, accumulator.dtype)
        )
        assert combined.dtype is accumulator.dtype
        return combined
