"""Questions of a recording: where Python decided by the value of a tensor.

In: a trace with questions, which is the trace of one path. Out: whether a call may be begun again from the start when an
answer comes that was never seen. What always holds: it may be, if all that was done up to the last question is forgotten
without a trace; then nothing is ever done twice.
"""

from __future__ import annotations

from typing import Any

import torch

from ingot.frontend.jit.trace.trace import Trace, TraceOp, is_mutable, tags_of, values_in, written_arguments

READS_VALUE: Any = torch.ops.aten._local_scalar_dense.default
"""The operation by which every value gets to Python."""
ASKS = frozenset({"__bool__"})
"""Methods of tensors by which Python may decide while it is recorded."""
_OURS = ("aten", "prim", "prims")
"""Whose operations have no effects but on the tensors that their schema names."""


def effect_before_questions(trace: Trace) -> tuple[str, str] | None:
    """What a call does before its last question that must not be done twice, and the line; None if there is nothing."""
    if not trace.questions:
        return None
    if trace.reads_constants:
        return "it decides by values of tensors and by values of constants", trace.questions[0].place
    leaves = {note.storage for note in trace.tensors if note.is_leaf}
    for event in trace.events[: trace.questions[-1].event]:
        reason = _effect(trace, event, leaves)
        if reason is not None:
            return f"{reason} before it decides by a tensor's value", event.place
    return None


def writes_leaves(trace: Trace) -> bool:
    """Whether a call writes into tensors from before it."""
    leaves = {note.storage for note in trace.tensors if note.is_leaf}
    return any(_writes(trace, event, leaves) for event in trace.events)


def draws(trace: Trace) -> bool:
    """Whether a call draws random numbers."""
    return any(torch.Tag.nondeterministic_seeded in tags_of(event.target) for event in trace.events)


def _effect(trace: Trace, event: TraceOp, leaves: set[int]) -> str | None:
    if torch.Tag.nondeterministic_seeded in tags_of(event.target):
        return "it draws random numbers"
    if event.target.namespace not in _OURS:
        return f"it calls {event.target}"
    return "it writes into a tensor from before the call" if _writes(trace, event, leaves) else None


def _writes(trace: Trace, event: TraceOp, leaves: set[int]) -> bool:
    if not is_mutable(event.target):
        return False
    written = values_in(written_arguments(event.target, event.arguments, event.keywords))
    return any(trace.note(register).storage in leaves for register in written)
