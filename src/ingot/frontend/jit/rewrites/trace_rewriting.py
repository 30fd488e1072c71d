"""What all trace passes share: their shape, their result, and the one rewriter that they change traces with.

In: a trace. Out: a trace with the same results, or the same trace. What always holds: a pass sees the trace as it was
given (which operations make, read and write a value); its changes take effect together at the end.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ingot.base.forks import cached_property
from ingot.frontend.jit.trace.trace import (
    EnvironmentTensor,
    Made,
    TensorMeta,
    Trace,
    TraceOp,
    TraceValue,
    renumbered,
    values_in,
    written_arguments,
)

_aten: Any = torch.ops.aten


@dataclass(frozen=True, slots=True)
class TracePassResult:
    trace: Trace
    changed: int
    """How many operations were replaced or taken away."""
    taken: frozenset[int] = frozenset()
    """The positions of the environment's tensors whose values have become part of the trace."""


class TracePass(Protocol):
    """One rewrite of a trace that keeps its results: bit for bit, or within rounding where its module says so."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def needs_frozen(self) -> bool:
        """Whether it takes weights as they are: `ingot.jit(freeze=True)` allows that, and programs that compare them at
        every call (lowering/checked_weights.py)."""
        ...

    @property
    def keeps_bits(self) -> bool:
        """Whether results are the same bit for bit, not only within rounding."""
        ...

    def run(self, trace: Trace) -> TracePassResult: ...


class TraceRewriter:
    """A trace, what there is to know of its values, and what becomes of its operations."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.tensors = list(trace.tensors)
        self.results = trace.results
        self.changed = 0
        self.taken: set[int] = set()
        """The positions of the environment's tensors whose values have become part of the trace."""
        self._operations: list[tuple[TraceOp, ...]] = [(event,) for event in trace.events]
        """What each operation has become."""

    # --- looking around -----------------------------------------------------------------------------------------------

    def operations(self) -> Iterator[tuple[int, TraceOp]]:
        """Operations and their places, as far as they are still one; those that change meanwhile are given changed."""
        for index in range(len(self._operations)):
            if len(self._operations[index]) == 1:
                yield index, self.operation(index)

    def operation(self, index: int) -> TraceOp:
        (operation,) = self._operations[index]
        return operation

    def note(self, value: TraceValue) -> TensorMeta:
        return self.tensors[value.index]

    @cached_property
    def uses(self) -> Counter[TraceValue]:
        """How often each value is read, the results among the readers."""
        found = Counter(values_in(self.trace.results))
        for event in self.trace.events:
            found.update(event.operands)
        return found

    @cached_property
    def _makers(self) -> dict[TraceValue, int]:
        found: dict[TraceValue, int] = {}
        for index, event in enumerate(self.trace.events):
            for value in event.products:
                found.setdefault(value, index)
        return found

    @cached_property
    def written(self) -> set[int]:
        """Storages of all operands of operations that write into one of them."""
        return {
            self.trace.note(value).storage
            for event in self.trace.events
            if written_arguments(event.target, event.arguments, event.keywords)
            for value in event.operands
        }

    def maker(self, value: TraceValue) -> TraceOp | None:
        """The operation that makes a value; None for one from before the call."""
        index = self.maker_place(value)
        return None if index is None else self.trace.events[index]

    def maker_place(self, value: TraceValue) -> int | None:
        return self._makers.get(value)

    def only_reader(self, index: int, value: TraceValue) -> int | None:
        """The one operation that reads a value once; None if others do, too."""
        return self.next_reader(index, value) if self.uses[value] == 1 else None

    def next_reader(self, index: int, value: TraceValue) -> int | None:
        """The first operation after a place that reads a value; None if there is none."""
        for later in range(index + 1, len(self._operations)):
            if any(value in operation.operands for operation in self._operations[later]):
                return later
        return None

    def rectifier(self, index: int, value: TraceValue) -> int | None:
        """The relu that is the only reader of a result, or that is applied to it in place before any other reader."""
        reader = self.next_reader(index, value)
        if reader is None or any(
            note.storage == self.note(value).storage and other != value.index
            for other, note in enumerate(self.trace.tensors)
            if isinstance(note.origin, Made) and note.origin.event <= reader
        ):
            return None
        target = self.operation(reader).target
        if target is _aten.relu_.default or (target is _aten.relu.default and self.uses[value] == 1):
            return reader
        return None

    # --- weights, for passes that take them as they are ---------------------------------------------------------------

    @cached_property
    def weights(self) -> dict[TraceValue, torch.Tensor]:
        """The environment tensors that no operation writes into, and their transposes."""
        found = {
            TraceValue(index): self.trace.environment_tensors[note.origin.position]
            for index, note in enumerate(self.trace.tensors)
            if isinstance(note.origin, EnvironmentTensor) and note.storage not in self.written
        }
        for event in self.trace.events:
            if event.target is _aten.t.default and event.arguments[0] in found:
                found[event.results] = found[event.arguments[0]].t()
        return found

    def known(self, value: Any) -> torch.Tensor | None:
        """The weight that an argument is; None for everything else."""
        return value if isinstance(value, torch.Tensor) else self.weights.get(value)

    def is_missing(self, value: Any) -> bool:
        """Whether an argument is a tensor that is not a weight."""
        return isinstance(value, TraceValue) and value not in self.weights

    def take(self, *values: Any) -> None:
        """Note that the values of weights become part of the trace."""
        for value in values:
            if isinstance(value, TraceValue):
                maker = self.maker(value)  # a transpose, if any
                origin = self.note(value if maker is None else maker.arguments[0]).origin
                assert isinstance(origin, EnvironmentTensor)
                self.taken.add(origin.position)

    # --- changing -----------------------------------------------------------------------------------------------------

    def put(self, index: int, *operations: TraceOp) -> None:
        """Replace an operation by others, or by none."""
        self._operations[index] = operations
        self.changed += 1

    def call_instead(self, index: int, target: Any, arguments: tuple[Any, ...], follower: int | None) -> None:
        """Let an operation be another that gives its result, or that of the operation after it, which it takes in."""
        results = self.operation(index).results if follower is None else self.operation(follower).results
        self.put(
            index,
            dataclasses.replace(
                self.operation(index), target=target, arguments=arguments, keywords={}, results=results
            ),
        )
        if follower is not None:
            self.put(follower)

    def append(self, *operations: TraceOp) -> None:
        """Add operations after all others."""
        self._operations += [(operation,) for operation in operations]
        self.changed += len(operations)

    def change_note(self, value: TraceValue, **changes: Any) -> None:
        """Replace what is noted of a value."""
        self.tensors[value.index] = dataclasses.replace(self.tensors[value.index], **changes)
        self.changed += 1

    def new_value(self, like: TensorMeta, **changes: Any) -> TraceValue:
        """A value that an operation will make, in memory of its own."""
        storage = 1 + max(note.storage for note in self.tensors)
        self.tensors.append(dataclasses.replace(like, **{"origin": Made(0), "storage": storage, **changes}))
        return TraceValue(len(self.tensors) - 1)

    def finish(self) -> TracePassResult:
        """The trace with all changes."""
        if not self.changed:
            return TracePassResult(self.trace, 0)
        trace = dataclasses.replace(self.trace, tensors=self.tensors, results=self.results)
        events = [one for some in self._operations for one in some]
        return TracePassResult(renumbered(trace, events), self.changed, frozenset(self.taken))
