"""What a call keeps for its backward pass, and the two traces that this makes of the joint one.

In: a joint trace. Out: the trace of the call, which also returns what is kept, and the trace of the backward pass,
which begins by computing again what is not. The fewest bytes are kept: a minimum cut between what the call has and what
its backward pass reads. Products, convolutions, random numbers and whatever else PyTorch runs are never computed twice.

What code outside can write into afterwards, arguments, parameters and outputs, is kept only where eager's backward pass
reads the very same memory: eager refuses to go on if it was written in between, and where it does not, neither may we.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ingot.frontend.jit.gradients.joint_trace import JointTrace, leaves_of, part_of, storages_written
from ingot.frontend.jit.gradients.maximum_flow import INFINITE, FlowNetwork
from ingot.frontend.jit.lowering.faults import reporting_faults
from ingot.frontend.jit.trace.ssa import OperationKind, to_ssa
from ingot.frontend.jit.trace.trace import (
    Made,
    Origin,
    TensorMeta,
    Trace,
    TraceArgument,
    TraceOp,
    TraceValue,
    replace_values,
)

_BYTES_OF_A_TENSOR = 64
"""What keeping a tensor costs besides its elements."""
_FREE = 1
"""Bytes that are counted for what is alive anyway."""


@dataclass(frozen=True, slots=True)
class Split:
    """A joint trace, taken apart."""

    forward: Trace
    """Returns the outputs, and after them what it has made for the backward pass."""
    backward: Trace
    """Takes what is kept, what is referred to, and the tangents. Returns gradients, and None where there are none."""
    kept: tuple[TraceValue, ...]
    """What is kept, values of the joint trace, in the order in which the backward pass takes it."""
    referenced: tuple[TraceValue, ...]
    """Leaves that the call overwrites, and the backward pass is given as they are then: statistics of a
    normalization, which it does not read."""
    made: tuple[TraceValue, ...]
    """Those of them that the call makes; the others are arguments and environment tensors."""
    moments: Mapping[TraceValue, TraceValue]
    """What is kept of leaves as they are during the call, and these leaves: their `.data` may be set later. What eager
    keeps besides a leaf, a view of it or something made of it, is of the old data."""
    recomputed: tuple[TraceOp, ...]
    """The call's operations that the backward pass computes again."""
    bytes_kept: int
    bytes_eager: int
    """What eager's backward pass reads of the call, arguments and parameters apart; so does `bytes_kept`."""


@reporting_faults
def split(joint: JointTrace, numerics: str) -> Split:
    """The two traces of a call and its backward pass, whose operations are lowered by the flag `numerics`."""
    needed = _read_by_backward(joint)
    kept = _cheapest(joint, needed, numerics)
    recomputed = _recomputed(joint, needed, kept)
    trace, overwritten = joint.trace, storages_written(joint.trace, joint.forward)
    order = sorted(kept, key=lambda value: value.index)
    referenced = [value for value in order if trace.note(value).is_leaf and _storage(joint, value) in overwritten]
    saved = [value for value in order if value not in referenced]
    recomputed, moments, notes = _at_their_moment(joint, recomputed, saved)
    read = {value for event in joint.backward for value in event.operands} | set(joint.gradients)
    again = {value for event in recomputed for value in event.operands}
    saved = [*(value for value in saved if value in read | again), *moments]
    tangents = [value for value in joint.tangents if value is not None]
    given = [*saved, *referenced, *tangents]
    leaves: dict[TraceValue, Origin] = {value: TraceArgument(position) for position, value in enumerate(given)}
    made = [value for value in saved if value not in moments and not trace.note(value).is_leaf]
    forward_leaves = {value: trace.note(value).origin for value in leaves_of(trace) if value not in tangents}
    return Split(
        part_of(trace, joint.forward, forward_leaves, [*joint.outputs, *made]),
        part_of(
            dataclasses.replace(trace, tensors=[*trace.tensors, *notes]),
            [*recomputed, *joint.backward],
            leaves,
            joint.gradients,
        ),
        tuple(saved),
        tuple(referenced),
        tuple(made),
        moments,
        tuple(recomputed),
        _bytes(joint, made),
        _bytes(joint, [value for value in needed if not trace.note(value).is_leaf]),
    )


def _read_by_backward(joint: JointTrace) -> list[TraceValue]:
    """The values of the call that its backward pass reads, or gives back as they are."""
    read = [value for event in joint.backward for value in event.operands]
    read += [value for value in joint.gradients if value is not None]
    return [value for value in dict.fromkeys(read) if not joint.is_of_backward(value)]


def _cheapest(joint: JointTrace, needed: Sequence[TraceValue], numerics: str) -> set[TraceValue]:
    """The values to keep: a minimum cut of values, each of which costs its bytes."""
    trace = joint.trace
    recomputable = _recomputable(joint, numerics)
    outside = {_storage(joint, value) for value in leaves_of(joint.trace)}
    outside |= {_storage(joint, value) for value in joint.outputs}
    may_be_kept = {_storage(joint, value) for value in needed}
    network = FlowNetwork()
    source, sink = network.add_node(), network.add_node()
    nodes: dict[TraceValue, tuple[int, int]] = {}

    def capacity(value: TraceValue) -> float:
        note = trace.note(value)
        is_outside = note.storage in outside
        if is_outside and note.storage not in may_be_kept:
            return INFINITE
        if note.is_leaf:
            return _FREE
        is_view = value in recomputable and _shares_memory(joint, recomputable[value])
        return INFINITE if is_view else note.nbytes + _BYTES_OF_A_TENSOR

    def visit(first: TraceValue) -> None:
        pending = [first]
        while pending:
            value = pending.pop()
            if value in nodes:
                continue
            begin, end = nodes[value] = network.add_node(), network.add_node()
            network.add_edge(begin, end, capacity(value))
            if value in recomputable:
                pending += recomputable[value].operands
            else:
                network.add_edge(source, begin, INFINITE)

    for value in needed:
        visit(value)
        network.add_edge(nodes[value][1], sink, INFINITE)
    for value, (begin, _) in list(nodes.items()):
        for operand in dict.fromkeys(recomputable[value].operands if value in recomputable else ()):
            network.add_edge(nodes[operand][1], begin, INFINITE)
    near_source = network.minimum_cut(source, sink)
    return {value for value, (begin, end) in nodes.items() if begin in near_source and end not in near_source}


def _recomputable(joint: JointTrace, numerics: str) -> dict[TraceValue, TraceOp]:
    """What makes each value that can be computed again: code that is generated, from values that nothing overwrites
    afterwards."""
    trace = joint.trace
    ssa = to_ssa(dataclasses.replace(trace, results=[*joint.outputs, *joint.gradients]), numerics)
    last_writes = _last_writes(joint)
    found: dict[TraceValue, TraceOp] = {}
    for index, operation in enumerate(ssa.operations[: joint.forward_events]):
        event = operation.event
        is_pure = operation.kind is not OperationKind.CALL and bool(event.operands)
        reads_last = all(last_writes.get(_storage(joint, value), -1) < index for value in event.operands)
        if is_pure and reads_last and not any(_storage(joint, value) in last_writes for value in event.products):
            found |= dict.fromkeys(event.products, event)
    return found


def _last_writes(joint: JointTrace) -> dict[int, int]:
    """The last event of the call that writes into each piece of memory; what existed before the call may be written
    after it as well."""
    leaves = {_storage(joint, value) for value in leaves_of(joint.trace)}
    found: dict[int, int] = {}
    for index, event in enumerate(joint.forward):
        for storage in storages_written(joint.trace, [event]):
            found[storage] = joint.forward_events if storage in leaves else index
    return found


def _recomputed(joint: JointTrace, needed: Iterable[TraceValue], kept: set[TraceValue]) -> list[TraceOp]:
    """The call's events that make, of what is kept, what the backward pass reads, in their order."""
    positions: set[int] = set()
    pending = [value for value in needed if value not in kept]
    while pending:
        origin = joint.trace.note(pending.pop()).origin
        assert isinstance(origin, Made)
        if origin.event not in positions:
            positions.add(origin.event)
            pending += [value for value in joint.trace.events[origin.event].operands if value not in kept]
    return [joint.trace.events[position] for position in sorted(positions)]


def _at_their_moment(
    joint: JointTrace, recomputed: Sequence[TraceOp], saved: Iterable[TraceValue]
) -> tuple[list[TraceOp], dict[TraceValue, TraceValue], list[TensorMeta]]:
    """The events with values of their own in the places of leaves, these values with their leaves, and their notes."""
    read = {value for event in recomputed for value in event.operands}
    leaves = [value for value in saved if value in read and joint.trace.note(value).is_leaf]
    first = len(joint.trace.tensors)
    moments = {TraceValue(first + position): leaf for position, leaf in enumerate(leaves)}
    renamed = {leaf: moment for moment, leaf in moments.items()}

    def rename(value: TraceValue) -> TraceValue:
        return renamed.get(value, value)

    events = [
        dataclasses.replace(
            event, arguments=replace_values(event.arguments, rename), keywords=replace_values(event.keywords, rename)
        )
        for event in recomputed
    ]
    return events, moments, [joint.trace.note(leaf) for leaf in leaves]


def _shares_memory(joint: JointTrace, event: TraceOp) -> bool:
    storages = {_storage(joint, value) for value in event.operands}
    return any(_storage(joint, value) in storages for value in event.products)


def _storage(joint: JointTrace, value: TraceValue) -> int:
    return joint.trace.note(value).storage


def _bytes(joint: JointTrace, values: Sequence[TraceValue]) -> int:
    """The bytes of some values, each piece of memory once."""
    sizes: dict[int, int] = {}
    for value in values:
        note = joint.trace.note(value)
        sizes[note.storage] = max(sizes.get(note.storage, 0), note.nbytes)
    return sum(sizes.values())
