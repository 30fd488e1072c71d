"""Where two traces of one function differ: a trace that stands in for calls, and one of a call that it stands for.

In: both traces, and the numbers of the call that stay open in the first. Out: the first thing that is not the same,
with the line of the user's code, or None. Sizes and numbers that stay open in the first trace are evaluated for the
call. Which tensors share memory is not compared: operations decide that by themselves, and arguments may share some in
one call and not in another. Nor are the lines that operations were asked for on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.sizes import SizeExpression
from ingot.frontend.jit.trace.questions import told_apart_like
from ingot.frontend.jit.trace.trace import (
    EnvironmentTensor,
    Origin,
    TensorMeta,
    Trace,
    TraceArgument,
    TraceOp,
    Variable,
    stride_order,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two calls, and the line of the user's code, "" if none is known."""

    text: str
    place: str


def first_difference(
    known: Trace, other: Trace, numbers: Sequence[int | float] = (), sizes_are_sure: bool = True
) -> Difference | None:
    """The first difference between what stands in for a call and what the call does.

    `numbers` are what the variables of the first trace are in this call. Unless `sizes_are_sure`, open sizes of the
    tensors that operations make are guesses, which are checked when the trace runs.
    """
    return _Comparison(known, other, numbers, sizes_are_sure).difference()


class _Comparison:
    def __init__(self, known: Trace, other: Trace, numbers: Sequence[int | float], sizes_are_sure: bool):
        self._known, self._other = known, other
        self._numbers = numbers
        self._sizes_are_sure = sizes_are_sure
        self._bound = _sizes_in(known, other)

    def difference(self) -> Difference | None:
        known, other = self._known, self._other
        for before, now in zip(known.events, other.events, strict=False):
            text = self._of_events(before, now)
            if text is not None:
                return Difference(text, now.place)
        if len(known.events) > len(other.events):
            missing = known.events[len(other.events)]
            return Difference(f"{missing.target} was recorded, and is not called any more", missing.place)
        if len(other.events) > len(known.events):
            added = other.events[len(known.events)]
            return Difference(f"{added.target} is called, which was not recorded", added.place)
        return self._of_environment() or self._of_results() or self._of_training()

    def _of_events(self, known: TraceOp, other: TraceOp) -> str | None:
        if known.target is not other.target:
            return f"{other.target} is called where {known.target} was recorded"
        for what in ("arguments", "keywords", "results"):
            before, now = (getattr(event, what) for event in (known, other))
            if not self._is_same(before, now):
                before = self._evaluated(before)
                return f"{what} of {known.target} are {_text(now)}, and were recorded as {_text(before)}"
        for before, now in zip(known.products, other.products, strict=True):
            if not self._is_like(self._known.note(before), self._other.note(now)):
                return f"{known.target} makes {self._other.note(now)}, and {self._known.note(before)} was recorded"
        for before, now in zip(known.operands, other.operands, strict=True):
            if self._known.note(before).origin != self._other.note(now).origin:
                return f"{known.target} is given another tensor than was recorded"
        return None

    def _is_same(self, known: Any, other: Any) -> bool:
        """Whether arguments are the same; those of the first trace may hold open sizes and numbers."""
        if isinstance(known, list | tuple):
            is_same = type(known) is type(other) and len(known) == len(other)
            return is_same and all(map(self._is_same, known, other))
        if isinstance(known, dict):
            is_same = isinstance(other, dict) and list(known) == list(other)
            return is_same and all(self._is_same(value, other[name]) for name, value in known.items())
        if isinstance(other, Variable):  # a setting that both read, which `_of_training` compares
            return known == other
        known = self._evaluated(known)
        if type(known) is not type(other):
            return False
        if isinstance(known, float | complex):
            return repr(known) == repr(other)  # two NaNs are the same, 0.0 and -0.0 are not
        return bool(known == other)

    def _evaluated(self, value: Any) -> Any:
        """What an argument of the first trace is in this call."""
        if isinstance(value, Variable) and value.position >= len(self._numbers):
            return value  # a setting of an optimizer, which stands for itself
        if isinstance(value, Variable):
            return value.type(self._numbers[value.position])
        if isinstance(value, SizeExpression):
            return sizes.evaluate(value, self._bound)
        if isinstance(value, list | tuple):
            return type(value)(map(self._evaluated, value))
        if isinstance(value, dict):
            return {name: self._evaluated(one) for name, one in value.items()}
        return value

    def _is_like(self, known: TensorMeta, other: TensorMeta) -> bool:
        """Whether a tensor that was made is of the type, the sizes and the layout that were recorded."""
        if (known.dtype, known.device, known.origin) != (other.dtype, other.device, other.origin):
            return False
        if len(known.shape) != len(other.shape):
            return False
        if not self._known.symbols:
            return known.shape == other.shape and known.strides == other.strides
        if not self._sizes_are_sure:
            return True
        return self._evaluated(tuple(known.sizes)) == other.shape and stride_order(known) == stride_order(other)

    def _of_environment(self) -> Difference | None:
        known, other = self._known.environment_tensors, self._other.environment_tensors
        if len(known) != len(other):
            return Difference("it returns another tensor from around it than was recorded", "")
        for position, (before, now) in enumerate(zip(known, other, strict=True)):
            if not _are_same_tensors(before, now):
                text = "a tensor that it is given from around it, or makes of numbers, is not the one recorded"
                return Difference(text, self._user_of(EnvironmentTensor(position)))
        return None

    def _user_of(self, origin: Origin) -> str:
        """Where a tensor is used first."""
        uses = (
            one.place for one in self._other.events if any(self._other.note(o).origin == origin for o in one.operands)
        )
        return next(uses, "")

    def _of_results(self) -> Difference | None:
        known, other = list(self._known.results), list(self._other.results)
        training = self._known.training
        for place, _ in () if training is None else training.readings:
            if place < len(other) and type(known[place]) is type(other[place]):
                known[place] = other[place]  # a number that is read at every call
        if not self._is_same(known, other):
            return Difference(f"it returns {_text(other)}, and {_text(known)} was recorded", "")
        return None

    def _of_training(self) -> Difference | None:
        known, other = self._known.training, self._other.training
        if (known is None) != (other is None):
            return Difference("it trains, or does not train any more", "")
        if known is None or other is None:
            return None
        _, returned = told_apart_like(self._known, self._other)
        if [register for _, register in known.read] != [question.register for question in returned]:
            return Difference("it returns the values of other tensors than were recorded", "")
        if list(map(id, known.schedules)) != list(map(id, other.schedules)):
            return Difference("other schedules of learning rates take a step than were recorded", "")
        settings = [[(id(one.group), str(one)) for one in each.settings] for each in (known, other)]
        updates = [{one.position: one.value for one in each.updates} for each in (known, other)]  # in any order
        if settings[0] != settings[1] or updates[0] != updates[1] or known.spent != other.spent:
            return Difference("it leaves other gradients than were recorded, or trains with another optimizer", "")
        return None


def _sizes_in(known: Trace, other: Trace) -> Mapping[str, int]:
    """The open sizes of one trace, as they are in another."""
    shapes = {note.origin.position: note.shape for note in other.tensors if isinstance(note.origin, TraceArgument)}
    return {name: shapes[position][axis] for name, (position, axis) in known.symbols.items() if position in shapes}


def _are_same_tensors(known: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a tensor around the function is the same object, or a constant with the same bits."""
    if known is other:
        return True
    if (known.dtype, known.shape, known.device) != (other.dtype, other.shape, other.device):
        return False
    return torch.equal(_bits(known), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 200
