"""Which recorded calls may be differentiated by programs, and the leaves of their traces.

In: the trace of a call. Out: why such calls are left to PyTorch while gradients are needed, if they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ingot.frontend.jit.gradients.joint_trace import leaves_of, storages_written
from ingot.frontend.jit.trace.trace import (
    EnvironmentTensor,
    Trace,
    TraceArgument,
    TraceOp,
    TraceValue,
    is_mutable,
    values_in,
    written_arguments,
)

_COUNTS = frozenset({"add_"})
"""Operators by which modules count their calls."""


def why_never(trace: Trace) -> str | None:
    """Why calls like a recorded one are never compiled with their gradients, if they are not."""
    leaves = {note.storage for note in trace.tensors if note.is_leaf}
    returned = [trace.note(value).storage for value in dict.fromkeys(values_in(trace.results))]
    if not leaves.isdisjoint(returned):
        return "it returns an argument, a tensor around it, or a view of one"
    if len(set(returned)) < len(returned):
        return "it returns tensors that share memory"
    written = {trace.note(value).storage for value in written_leaves(trace, trace.events)}
    for event in trace.events:
        touched = [value for value in event.operands if trace.note(value).storage in written]
        if touched and not _keeps_account(event):
            return "it writes into an argument, or into a tensor around it, and reads it"
    return None


def _keeps_account(event: TraceOp) -> bool:
    """Whether an event touches what it overwrites only to keep account: statistics of a normalization in training, or
    the number of calls. Running it again, with what it overwrote put back, gives the same results."""
    name = event.target.overloadpacket.__name__
    if is_mutable(event.target):
        return name in _COUNTS and len(event.operands) == 1
    return bool(values_in(written_arguments(event.target, event.arguments, event.keywords)))


def written_leaves(trace: Trace, events: Sequence[TraceOp]) -> list[TraceValue]:
    """The leaves whose memory some events write into."""
    storages = storages_written(trace, events)
    return [value for value in leaves_of(trace) if trace.note(value).storage in storages]


def leaf_tensors(
    trace: Trace, tensors: Sequence[torch.Tensor], values: Sequence[TraceValue] | None = None
) -> list[torch.Tensor]:
    """The tensors that leaves of a trace stand for in a call with these arguments; left out, all of them."""
    found = []
    for value in leaves_of(trace) if values is None else values:
        origin = trace.note(value).origin
        assert isinstance(origin, TraceArgument | EnvironmentTensor)
        found.append((tensors if isinstance(origin, TraceArgument) else trace.environment_tensors)[origin.position])
    return found
