"""Questions of a recording: where Python decided by the value of a tensor.

In: a trace with questions, which is the trace of one path. Out: whether a call may begin again at an answer that was
never seen. What always holds: it may only if the operations up to the last question have no effect that can be noticed;
so no effect happens twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from ingot.frontend.jit.trace.trace import Question, Trace, TraceOp, tags_of, values_in, written_arguments

READS_VALUE: Any = torch.ops.aten._local_scalar_dense.default
"""The operation that gives a tensor's value to Python."""
ASKS = frozenset({"__bool__", "item", "__float__", "__int__"})
"""Methods of tensors by which Python may ask for a value while it is recorded."""
MOST_QUESTIONS = 64
"""How many questions one call may ask. More are asked by loops that should not be unrolled."""
_OURS = ("aten", "prim", "prims")
"""Namespaces whose operators affect only the tensors that their schema names."""


def effect_before_questions(trace: Trace) -> tuple[str, str] | None:
    """What a call does before its last question that must not be done twice, and the line; None if there is nothing."""
    if not trace.questions:
        return None
    if len(trace.questions) > MOST_QUESTIONS:
        return "it asks for values of tensors more often than is recorded", trace.questions[MOST_QUESTIONS].place
    if trace.reads_constants:
        return "it decides by values of tensors and by values of constants", trace.questions[0].place
    leaves = {note.storage for note in trace.tensors if note.is_leaf}
    for event in trace.events[: trace.questions[-1].event]:
        reason = _effect(trace, event, leaves)
        if reason is not None:
            return f"{reason} before it decides by a tensor's value", event.place
    return None


def decided(questions: Sequence[Question], decisions: Sequence[Sequence[tuple[str, bool]]]) -> list[Question]:
    """Questions with what was decided by their answers."""
    pairs = zip(questions, decisions, strict=True)
    return [dataclasses.replace(question, decisions=tuple(taken)) for question, taken in pairs]


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
    written = values_in(written_arguments(event.target, event.arguments, event.keywords))
    return any(trace.note(register).storage in leaves for register in written)
