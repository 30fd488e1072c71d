"""A trace as a bundle holds it: what was done, without the memory in which it was done.

In: a recorded trace, with names for the tensors of its environment. Out: operations on numbered values with their
types. Where tensors lie, who made them and which share memory is left out: replaying the operations gives all that
anew, so that no file can claim it wrongly.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.errors import BundleError, CaptureError
from ingot.base.sizes import Size
from ingot.frontend.bundles.admitted_operators import admitted_operator, check_arguments
from ingot.frontend.jit.cache.generalisation import SizeRange, Unified
from ingot.frontend.jit.trace.trace import (
    EnvironmentTensor,
    TensorMeta,
    Trace,
    TraceArgument,
    TraceOp,
    TraceValue,
    values_in,
)


@dataclass(frozen=True, slots=True)
class StoredType:
    """What is known of a tensor. Sizes may be expressions, and strides are None for a tensor that is row-major."""

    dtype: torch.dtype
    sizes: tuple[Size, ...]
    strides: tuple[int, ...] | None
    device: torch.device


@dataclass(frozen=True, slots=True)
class StoredArgument:
    """A tensor that is passed, in the order in which they are."""

    value: TraceValue
    type: StoredType


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A tensor of the bundle, by its name."""

    value: TraceValue
    name: str
    type: StoredType


@dataclass(frozen=True, slots=True)
class StoredOperation:
    """One operation; `types` are those of the tensors among its results."""

    target: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    results: Any
    types: tuple[StoredType, ...]


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """One recorded call."""

    arguments: tuple[StoredArgument, ...]
    weights: tuple[StoredWeight, ...]
    operations: tuple[StoredOperation, ...]
    results: tuple[Any, ...]
    """What is returned, flattened: values, and plain Python values."""
    ranges: tuple[SizeRange, ...] = ()
    divisors: tuple[tuple[str, int], ...] = ()
    symbols: dict[str, tuple[int, int]] = field(init=False)
    """Sizes that stay open, by their name: an argument, and the axis where the size is read."""

    def __post_init__(self) -> None:
        found: dict[str, tuple[int, int]] = {}
        for position, argument in enumerate(self.arguments):
            for axis, size in enumerate(argument.type.sizes):
                if not isinstance(size, int):
                    found.setdefault(str(size), (position, axis))
        object.__setattr__(self, "symbols", found)


def stored(trace: Trace, names: Mapping[int, str], unified: Unified | None = None) -> StoredTrace:
    """A recorded trace for a bundle; `names` are those of its environment's tensors, by position."""
    arguments: dict[int, StoredArgument] = {}
    weights: list[StoredWeight] = []
    for index, note in enumerate(trace.tensors):
        if isinstance(note.origin, TraceArgument):
            arguments[note.origin.position] = StoredArgument(TraceValue(index), _type_of(note))
        elif isinstance(note.origin, EnvironmentTensor):
            weights.append(StoredWeight(TraceValue(index), names[note.origin.position], _type_of(note)))
    operations = tuple(_operation(trace, event) for event in trace.events)
    ranges, divisors = ((), ()) if unified is None else (unified.ranges, unified.divisors)
    ordered = tuple(arguments[position] for position in sorted(arguments))
    return StoredTrace(ordered, tuple(weights), operations, tuple(trace.results), ranges, divisors)


def _operation(trace: Trace, event: TraceOp) -> StoredOperation:
    keywords = _pinned(trace, event)
    try:
        admitted_operator(str(event.target))
        check_arguments(event.target, event.arguments, keywords)
    except BundleError as error:
        raise CaptureError(f"{event.target} cannot be part of a bundle: {error} ({event.place})") from error
    types = tuple(_type_of(trace.note(made)) for made in event.products)
    return StoredOperation(event.target, event.arguments, keywords, event.results, types)


def _pinned(trace: Trace, event: TraceOp) -> dict[str, Any]:
    """The keywords of an operation. One that makes tensors of numbers says which type and device they have: what is
    left out would be the default of the process that loads the bundle."""
    if event.operands or not isinstance(event.results, TraceValue):
        return event.keywords
    note, declared = trace.note(event.results), {argument.name for argument in event.target._schema.arguments}
    pinned = {name: value for name, value in (("dtype", note.dtype), ("device", note.device)) if name in declared}
    return event.keywords | pinned


def _type_of(note: TensorMeta) -> StoredType:
    strides = None if _is_row_major(note.shape, note.strides) else note.strides
    return StoredType(note.dtype, note.sizes, None if note.open_sizes else strides, note.device)


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if 0 in shape:
        return True
    expected = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return all(size == 1 or one == other for size, one, other in zip(shape, strides, expected, strict=True))


def opened(concrete: Trace, trace: StoredTrace) -> Trace | None:
    """A trace recorded while one with open sizes was replayed, with these sizes open; None if it did something else."""
    if [event.target for event in concrete.events] != [one.target for one in trace.operations]:
        return None
    declared = {leaf.value: leaf.type for leaf in (*trace.arguments, *trace.weights)}
    events: list[TraceOp] = []
    for event, operation in zip(concrete.events, trace.operations, strict=True):
        if values_in(event.results) != values_in(operation.results):
            return None
        events.append(
            dataclasses.replace(event, arguments=operation.arguments, keywords=operation.keywords, numbers=frozenset())
        )
        declared |= dict(zip(events[-1].products, operation.types, strict=True))
    if len(declared) != len(concrete.tensors):
        return None
    notes = []
    for index, note in enumerate(concrete.tensors):
        sizes = declared[TraceValue(index)].sizes
        is_open = not all(isinstance(size, int) for size in sizes)
        notes.append(dataclasses.replace(note, open_sizes=sizes) if is_open else note)
    return dataclasses.replace(concrete, tensors=notes, events=events, symbols=dict(trace.symbols), slices=[])
