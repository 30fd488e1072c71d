"""Questions of a recording: where Python decided by the value of a tensor.

In: a trace with questions, which is the trace of one path. Out: whether a call may begin again at an answer that was
never seen, and the same path with its questions first. What always holds: a call may begin again only if what its
answers depend on has no effect that can be noticed; so no effect happens twice.

    before   n = dropout(x); m = mask.all(); ask m; return n * 2
    after    m = mask.all(); ask m; n = dropout(x); return n * 2
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import torch

from ingot.frontend.jit.trace.trace import (
    Question,
    Trace,
    TraceOp,
    TraceValue,
    draws_numbers,
    renumbered,
    values_in,
    written_arguments,
)

READS_VALUE: Any = torch.ops.aten._local_scalar_dense.default
"""The operation that gives a tensor's value to Python."""
ASKS = frozenset({"__bool__", "item", "__float__", "__int__", "__contains__"})
"""Methods of tensors by which Python may ask for a value while it is recorded."""
_ANSWER = re.compile(r"\br(\d+)\b")
"""An answer in an expression, by its number."""
_RETURNED = "turns a tensor's value into a Python value, and does more with it than decide"
MOST_QUESTIONS = 64
"""How many questions one call may ask. More are asked by loops that should not be unrolled."""
_PYTORCHS = ("aten", "prim", "prims")
"""Namespaces whose operators may be run again: they affect only the tensors that their schema names."""
_UNDERSTOOD = (*_PYTORCHS, "ingot")
"""Namespaces whose operators affect only those, and torch's generators."""


def effect_before_questions(trace: Trace) -> tuple[str, str] | None:
    """What a call does before its last question that must not be done twice, and the line; None if there is nothing."""
    if not trace.questions:
        return None
    if len(trace.questions) > MOST_QUESTIONS:
        return "it asks for values of tensors more often than is recorded", trace.questions[MOST_QUESTIONS].place
    if trace.reads_constants:
        return "it decides by values of tensors and by values of constants", trace.questions[0].place
    return _early_effect(trace) and _early_effect(asked_first(trace))


def _early_effect(trace: Trace) -> tuple[str, str] | None:
    """The first effect before the last question, and the line."""
    leaves = {note.storage for note in trace.tensors if note.is_leaf}
    for event in trace.events[: trace.questions[-1].event]:
        reason = _effect(trace, event, leaves)
        if reason is not None:
            return f"{reason} before it decides by a tensor's value", event.place
    return None


def ready_to_cut(paths: Sequence[Trace]) -> list[Trace]:
    """Paths of one kind of call, such that what comes before their last questions has no effect. Where one of them
    trains, all of them ask first: what only a step needs is best computed together with the rest of the step."""
    if any(path.training is not None or _early_effect(path) is not None for path in paths):
        return list(map(asked_first, paths))
    return list(paths)


def asked_first(trace: Trace) -> Trace:
    """The same path with nothing before a question but what its answer depends on; the rest comes after the last one,
    in its order. Paths that begin alike still do."""
    early: dict[int, None] = {}
    questions: list[Question] = []
    for question in trace.questions:
        early |= dict.fromkeys(_behind(trace, question))
        questions.append(dataclasses.replace(question, event=len(early)))
    late = [index for index in range(len(trace.events)) if index not in early]
    ordered = renumbered(trace, [trace.events[index] for index in (*early, *late)])
    return dataclasses.replace(ordered, questions=questions)


def questions_alone(trace: Trace) -> Trace:
    """A path that ends with its last question, and gives nothing."""
    first = asked_first(trace)
    return dataclasses.replace(first, events=first.events[: first.questions[-1].event], results=[])


def _behind(trace: Trace, question: Question) -> list[int]:
    """The events that an answer depends on, and those that cannot come after one of these, in order.

    All that touch memory which one of these overwrites are among them, so that the others may come later.
    """
    storages = lambda values: {trace.note(value).storage for value in values}
    needed, overwritten = storages([question.register]), set()
    found: list[int] = []
    for index in reversed(range(question.event)):
        event = trace.events[index]
        written = storages(_written(event))
        made = storages(event.products) | written
        touched = storages(event.operands) | made
        is_understood = event.target.namespace in _UNDERSTOOD
        if not is_understood or not made.isdisjoint(needed) or not touched.isdisjoint(overwritten):
            found.append(index)
            needed |= touched
            overwritten |= written
    return found[::-1]


def has_other_answers(trace: Trace, other: Trace) -> bool:
    """Whether tensors answered otherwise in another call; numbers that Python reads are hardly ever the same again, and
    those that it only returns do not count."""
    deciding, _ = told_apart_like(trace, other)
    answers = [[(question.asked_by, question.answer) for question in one] for one in (trace.questions, deciding)]
    return answers[0] != answers[1]


def told_apart(trace: Trace, readings: Sequence[tuple[int, str]]) -> tuple[str, str] | None:
    """Tell the questions of a proven trace that it decides by from those whose answers a training step only returns;
    why it cannot stand in for Python, and the line. `readings` are results that are numbers, as expressions."""
    questions = trace.questions
    if trace.training is None or not questions:
        return (_RETURNED, questions[-1].place) if readings else None
    deciding = {number for question in questions for text, _ in question.decisions for number in _answers_in(text)}
    kept = [n for n, question in enumerate(questions) if n in deciding or _is_overwritten(trace, question)]
    read = [number for number in range(len(questions)) if number not in kept]
    wrong = [number for _, text in readings for number in _answers_in(text) if number in kept]
    if wrong:
        return _RETURNED, questions[wrong[0]].place
    trace.training.read = tuple((number, questions[number].register) for number in read)
    trace.training.readings = tuple((place, _renumbered(text, read)) for place, text in readings)
    trace.questions = _left(questions, kept)
    return effect_before_questions(trace)


def _left(questions: Sequence[Question], kept: Sequence[int]) -> list[Question]:
    """The questions with these numbers. What was decided after another one belongs to the last of these before it: a
    decision depends on no other answers."""
    left: list[Question] = []
    for number, question in enumerate(questions):
        taken = tuple((_renumbered(text, kept), outcome) for text, outcome in question.decisions)
        if number in kept:
            left.append(dataclasses.replace(question, decisions=taken))
        elif taken:
            left[-1] = dataclasses.replace(left[-1], decisions=(*left[-1].decisions, *taken))
    return left


def told_apart_like(trace: Trace, other: Trace) -> tuple[list[Question], list[Question]]:
    """The questions of another call, told apart as those of a trace: what it decides by, and what it returns."""
    read = set() if trace.training is None else {number for number, _ in trace.training.read}
    numbered = list(enumerate(other.questions))
    return [one for number, one in numbered if number not in read], [one for number, one in numbered if number in read]


def _answers_in(text: str) -> list[int]:
    return [int(number) for number in _ANSWER.findall(text)]


def _renumbered(text: str, numbers: Sequence[int]) -> str:
    """An expression of some answers, of which these are left."""
    return _ANSWER.sub(lambda found: f"r{numbers.index(int(found[1]))}", text)


def _is_overwritten(trace: Trace, question: Question) -> bool:
    """Whether the tensor that was asked holds something else at the end."""
    storage = {trace.note(question.register).storage}
    return any(_writes(trace, event, storage) for event in trace.events[question.event :])


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
    return any(map(_draws, trace.events))


def _draws(event: TraceOp) -> bool:
    """Whether an operation draws random numbers; attention does so only for dropout."""
    if not draws_numbers(event.target):
        return False
    if event.target not in _ATTENTION:
        return True
    given = dict(zip((one.name for one in event.target._schema.arguments), event.arguments, strict=False))
    return (given | event.keywords).get("dropout_p", 0.0) != 0.0


_ATTENTION = frozenset({torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default})


def _effect(trace: Trace, event: TraceOp, leaves: set[int]) -> str | None:
    if _draws(event):
        return "it draws random numbers"
    if event.target.namespace not in _PYTORCHS:
        return f"it calls {event.target}"
    return "it writes into a tensor from before the call" if _writes(trace, event, leaves) else None


def _writes(trace: Trace, event: TraceOp, storages: set[int]) -> bool:
    return any(trace.note(register).storage in storages for register in _written(event))


def _written(event: TraceOp) -> list[TraceValue]:
    return values_in(written_arguments(event.target, event.arguments, event.keywords))
