"""A trace whose weights are known: parameters and buffers taken as they are, and who reads what.

Its events are rewritten one by one, by those who fold and pack (freezing.py, packing.py).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.frontend.jit.trace.trace import (
    Made,
    Surrounding,
    TensorMeta,
    Trace,
    TraceOp,
    TraceValue,
    renumbered,
    values_in,
    written_arguments,
)

_aten: Any = torch.ops.aten


@dataclass(slots=True)
class FrozenTrace:
    trace: Trace
    events: list[TraceOp | None]
    """Events that were taken into others are None."""
    weights: dict[TraceValue, torch.Tensor]
    """The surrounding tensors that no event writes into, and their transposes."""
    uses: Counter[TraceValue] = field(default_factory=Counter)

    @classmethod
    def of(cls, trace: Trace) -> FrozenTrace:
        written = {
            trace.note(register).storage
            for event in trace.events
            if written_arguments(event.target, event.arguments, event.keywords)
            for register in event.operands
        }
        weights = {
            TraceValue(index): trace.surroundings[note.origin.position]
            for index, note in enumerate(trace.tensors)
            if isinstance(note.origin, Surrounding) and note.storage not in written
        }
        return cls(trace, list(trace.events), weights)

    def __post_init__(self) -> None:
        for event in self.trace.events:
            self.uses.update(event.operands)
        self.uses.update(values_in(self.trace.results))
        for event in self.trace.events:
            if event.target is _aten.t.default and event.arguments[0] in self.weights:
                self.weights[event.results] = self.weights[event.arguments[0]].t()

    def finish(self) -> Trace:
        """The trace with the events that are left."""
        return renumbered(self.trace, [event for event in self.events if event is not None])

    def replace(self, index: int, target: Any, arguments: tuple[Any, ...], follower: int | None) -> None:
        """Let an event be another that gives its result, or that of the event after it, which it takes in."""
        results = self.event(index).results if follower is None else self.event(follower).results
        self.events[index] = dataclasses.replace(
            self.event(index), target=target, arguments=arguments, keywords={}, results=results
        )
        if follower is not None:
            self.events[follower] = None

    # --- looking around -----------------------------------------------------------------------------------------------

    def event(self, index: int) -> TraceOp:
        event = self.events[index]
        assert event is not None
        return event

    def note(self, register: TraceValue) -> TensorMeta:
        return self.trace.note(register)

    def known(self, value: Any) -> torch.Tensor | None:
        """The weight that an argument is; None for everything else."""
        return value if isinstance(value, torch.Tensor) else self.weights.get(value)

    def is_missing(self, value: Any) -> bool:
        """Whether an argument is a tensor that is not a weight."""
        return isinstance(value, TraceValue) and value not in self.weights

    def only_reader(self, index: int, register: TraceValue) -> int | None:
        """The one event that reads a register once; None if others do, too."""
        return self._next_reader(index, register) if self.uses[register] == 1 else None

    def _next_reader(self, index: int, register: TraceValue) -> int | None:
        for later in range(index + 1, len(self.events)):
            event = self.events[later]
            if event is not None and register in event.operands:
                return later
        return None

    def rectifier(self, index: int, register: TraceValue) -> int | None:
        """The relu that is all that happens to a result, or that happens to it in place before anything else."""
        reader = self._next_reader(index, register)
        if reader is None or any(
            note.storage == self.note(register).storage and other != register.index
            for other, note in enumerate(self.trace.tensors)
            if isinstance(note.origin, Made) and note.origin.event <= reader
        ):
            return None
        target = self.event(reader).target
        if target is _aten.relu_.default or (target is _aten.relu.default and self.uses[register] == 1):
            return reader
        return None
