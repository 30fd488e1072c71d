"""Cutting recorded paths at their questions into pieces that are traces of their own.

In: traces of calls with the same arguments that took different paths. Out: a tree of pieces. A piece is what happens up
to the next question, or to the end:

    piece 1: t = x.exp(); s = t.sum() > 0; ask s
    if r0:   piece 2: return t * 2
    else:    piece 3: return x

What always holds: paths on which the same was decided so far share their pieces; a piece gives what the paths through
it need later, and nothing else. A piece's arguments are those of the call, then what earlier pieces have made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.base.errors import IngotError
from ingot.frontend.jit.trace.trace import (
    EnvironmentTensor,
    GradientOf,
    Made,
    Origin,
    TensorMeta,
    Trace,
    TraceArgument,
    TraceOp,
    TraceValue,
    replace_values,
    values_in,
)


class DifferentPaths(IngotError):
    """Two paths differ although all answers so far were the same."""


@dataclass(eq=False, slots=True)
class Piece:
    """A part of one or several paths, with the pieces after it."""

    trace: Trace
    """Its results are the tensor that is asked, if there is a question, and what later pieces need of it."""
    path: int
    """The first of the paths that it is part of."""
    kept: tuple[int, ...] = ()
    """Which of the tensors that earlier pieces have made are needed after it."""
    after: Choice | Piece | None = None
    """What comes next; None at the end of a path."""


@dataclass(eq=False, slots=True)
class Choice:
    """What Python decides by the answers so far."""

    text: str
    following: dict[bool, Choice | Piece] = field(default_factory=dict)


def tree_of(paths: Sequence[Trace], arguments: int) -> Piece:
    """The pieces of paths whose tensors of the environment are numbered alike; `arguments` tensors are passed."""
    return _Cutter(paths, arguments).cut(range(len(paths)), 0, [])


@dataclass(slots=True)
class _Cutter:
    paths: Sequence[Trace]
    arguments: int

    def cut(self, through: Sequence[int], depth: int, held: Sequence[TraceValue]) -> Piece:
        """The piece after so many questions on paths that were the same until then; `held` are made by earlier ones."""
        first = self.paths[through[0]]
        start, events = _part(first, depth)
        self._compare(through, depth)
        if depth == len(first.questions):
            return Piece(_trace_of(first, start, events, held, self.arguments, first.results), through[0])
        needed = {register for path in through for register in _needed(self.paths[path], depth + 1)}
        kept = tuple(slot for slot, register in enumerate(held) if register in needed)
        made = dict.fromkeys(register for event in events for register in event.products)
        new = [register for register in made if register in needed and register not in held]
        asked = first.questions[depth].register
        piece = Piece(_trace_of(first, start, events, held, self.arguments, [asked, *new]), through[0], kept)
        piece.after = self._choose(through, depth, 0, [*(held[slot] for slot in kept), *new])
        return piece

    def _choose(self, through: Sequence[int], depth: int, position: int, held: Sequence[TraceValue]) -> Choice | Piece:
        """What is decided next after a question, or the piece after it."""
        decided = {path: self.paths[path].questions[depth].decisions[position : position + 1] for path in through}
        texts = {text for ((text, _),) in filter(None, decided.values())} | {"" for one in decided.values() if not one}
        if len(texts) > 1:
            raise DifferentPaths("the same answers of tensors were followed by different decisions")
        (text,) = texts
        if not text:
            return self.cut(through, depth + 1, held)
        choice = Choice(text)
        for outcome in (True, False):
            along = [path for path, ((_, one),) in decided.items() if one is outcome]
            if along:
                choice.following[outcome] = self._choose(along, depth, position + 1, held)
        return choice

    def _compare(self, through: Sequence[int], depth: int) -> None:
        texts = {_text(self.paths[path], depth) for path in through}
        if len(texts) > 1 or (len(through) > 1 and depth == len(self.paths[through[0]].questions)):
            raise DifferentPaths("the same answers of tensors were followed by different operations")


def _part(trace: Trace, depth: int) -> tuple[int, list[TraceOp]]:
    """The events between two questions, and where they begin."""
    start = trace.questions[depth - 1].event if depth else 0
    end = trace.questions[depth].event if depth < len(trace.questions) else len(trace.events)
    return start, trace.events[start:end]


def _text(trace: Trace, depth: int) -> str:
    """What a part of a path does, to be compared; which registers there are has been decided by then."""
    lines = [str(event) for event in _part(trace, depth)[1]]
    lines += [str(_without_storage(trace.note(made))) for event in _part(trace, depth)[1] for made in event.products]
    asked = trace.questions[depth].register if depth < len(trace.questions) else None
    return "\n".join([*lines, str(asked)])


def _without_storage(note: TensorMeta) -> tuple[Any, ...]:
    return note.dtype, note.shape, note.strides, note.device


def _needed(trace: Trace, depth: int) -> set[TraceValue]:
    """Registers that are used after so many questions and were made by the call."""
    found = {register for event in trace.events[trace.questions[depth - 1].event :] for register in event.operands}
    found.update(question.register for question in trace.questions[depth:])
    found.update(values_in(trace.results))
    return {register for register in found if not trace.note(register).is_leaf}


def _trace_of(
    path: Trace, start: int, events: Sequence[TraceOp], held: Sequence[TraceValue], arguments: int, results: Any
) -> Trace:
    """A part of a path as a trace, its registers numbered anew, so that equal parts are equal traces."""
    slots = {register: arguments + slot for slot, register in enumerate(held)}
    numbers: dict[TraceValue, TraceValue] = {}
    storages: dict[int, int] = {}
    tensors: list[TensorMeta] = []

    def renamed(register: TraceValue) -> TraceValue:
        if register not in numbers:
            note = path.note(register)
            storage = storages.setdefault(note.storage, len(storages))
            origin = _origin(note.origin, slots.get(register), start)
            numbers[register] = TraceValue(len(tensors))
            tensors.append(dataclasses.replace(note, storage=storage, origin=origin))
        return numbers[register]

    renamed_events = [
        dataclasses.replace(
            event,
            arguments=replace_values(event.arguments, renamed),
            keywords=replace_values(event.keywords, renamed),
            results=replace_values(event.results, renamed),
        )
        for event in events
    ]
    made = replace_values(results, renamed)
    return Trace(tensors, renamed_events, made, path.environment_tensors, casts=path.casts, symbols=path.symbols)


def _origin(origin: Origin, slot: int | None, start: int) -> Origin:
    if slot is not None:
        return TraceArgument(slot)
    return Made(origin.event - start) if isinstance(origin, Made) else origin


def with_common_environment(traces: Sequence[Trace]) -> list[Trace]:
    """The same traces with one list of environment tensors for all of them."""
    common = list({id(tensor): tensor for trace in traces for tensor in trace.environment_tensors}.values())
    places = {id(tensor): place for place, tensor in enumerate(common)}
    found = []
    for trace in traces:
        moved = [places[id(tensor)] for tensor in trace.environment_tensors]
        tensors = [
            dataclasses.replace(note, origin=type(note.origin)(moved[note.origin.position]))
            if isinstance(note.origin, EnvironmentTensor | GradientOf)
            else note
            for note in trace.tensors
        ]
        training = None if trace.training is None else trace.training.moved(moved)
        found.append(dataclasses.replace(trace, tensors=tensors, environment_tensors=common, training=training))
    return found
