"""A call and its backward pass as one trace, and its parts as traces of their own.

    joint := trace, of which the first events are the call's, outputs, tangents, inputs, gradients

Outputs are what the call returned, tangents the gradients that came in for them, and gradients what went out for the
inputs. All are values of the one trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.frontend.jit.trace.trace import (
    Made,
    Origin,
    TensorMeta,
    Trace,
    TraceOp,
    TraceValue,
    replace_values,
    values_in,
    written_arguments,
)


@dataclass(frozen=True, slots=True)
class JointTrace:
    """One recorded call with its backward pass."""

    trace: Trace
    forward_events: int
    """How many events are the call's; those after them are the backward pass's."""
    outputs: tuple[TraceValue, ...]
    """What the call returned, each once."""
    is_differentiable: tuple[bool, ...]
    """Which outputs need gradients."""
    tangents: tuple[TraceValue | None, ...]
    """The gradients of the outputs that came in; None where none did."""
    inputs: tuple[TraceValue, ...]
    """What gradients were asked for."""
    gradients: tuple[TraceValue | None, ...]
    """What they are; None where an input has none."""

    @property
    def forward(self) -> Sequence[TraceOp]:
        return self.trace.events[: self.forward_events]

    @property
    def backward(self) -> Sequence[TraceOp]:
        return self.trace.events[self.forward_events :]

    def is_of_backward(self, value: TraceValue) -> bool:
        """Whether a value is there only once the backward pass has begun."""
        origin = self.trace.note(value).origin
        return value in self.tangents or (isinstance(origin, Made) and origin.event >= self.forward_events)


def leaves_of(trace: Trace) -> list[TraceValue]:
    """The values that exist before the call begins, and gradients that come in."""
    return [TraceValue(index) for index, note in enumerate(trace.tensors) if note.is_leaf]


def storages_written(trace: Trace, events: Sequence[TraceOp]) -> set[int]:
    """The memory that some events write into."""
    written = [written_arguments(one.target, one.arguments, one.keywords) for one in events]
    return {trace.note(value).storage for value in values_in(written)}


def part_of(
    trace: Trace, events: Sequence[TraceOp], leaves: Mapping[TraceValue, Origin], results: Sequence[Any]
) -> Trace:
    """A trace of some events of another, with the given values as leaves; the only values in it are those it uses."""
    numbers: dict[TraceValue, TraceValue] = {}
    tensors: list[TensorMeta] = []

    def renumber(value: TraceValue) -> TraceValue:
        if value not in numbers:
            numbers[value] = TraceValue(len(tensors))
            note = trace.note(value)
            tensors.append(dataclasses.replace(note, origin=leaves[value]) if value in leaves else note)
        return numbers[value]

    def renumber_product(value: TraceValue, operands: Sequence[TraceValue]) -> TraceValue:
        if value in operands or value not in leaves:
            return renumber(value)
        tensors.append(trace.note(value))  # it is given as a leaf, and made again beside what else the event makes
        return TraceValue(len(tensors) - 1)

    for leaf in leaves:
        renumber(leaf)
    made: list[TraceOp] = []
    for index, event in enumerate(events):
        arguments = replace_values(event.arguments, renumber)
        keywords = replace_values(event.keywords, renumber)
        products = replace_values(event.results, lambda value, known=event.operands: renumber_product(value, known))
        made.append(dataclasses.replace(event, arguments=arguments, keywords=keywords, results=products))
        for value in values_in(products):
            if isinstance(tensors[value.index].origin, Made) and value not in values_in((arguments, keywords)):
                tensors[value.index] = dataclasses.replace(tensors[value.index], origin=Made(index))
    return Trace(
        tensors,
        made,
        [replace_values(result, renumber) for result in results],
        trace.environment_tensors,
        casts=trace.casts,
    )
