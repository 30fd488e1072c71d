"""The trace that other numbers would give, derived from one recording.

In: a trace, and numbers of its call with those that are passed instead. Out: the trace of the other call, or None where
it cannot be derived. It can where operators that only do arithmetic take the numbers as they were passed:

    aten.mul_.Tensor(%0, 0.1)  # number 3, which was 0.1 and is now 0.2
->  aten.mul_.Tensor(%0, 0.2)

A number has to be found in one place alone. Elsewhere a part of PyTorch may have made another number of it, or a place
may hold it by chance, and only a second recording tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ingot.frontend.jit.trace.trace import Trace, TraceOp

_CALCULATING = frozenset({"add", "sub", "rsub", "mul", "div", "addcmul", "addcdiv", "lerp", "clamp", "masked_fill"})
"""Operators, in place or not, whose numbers decide only the values of elements."""

Change = tuple[int | float, int | float]
"""What a number was, and what it is to be."""


def foretold(trace: Trace, changes: Mapping[int, Change]) -> Trace | None:
    """The trace with other numbers, which are given by their place among the call's arguments."""
    uses: dict[int, list[int]] = {leaf: [] for leaf in changes}
    for index, event in enumerate(trace.events):
        for leaf in event.numbers & changes.keys():
            uses[leaf].append(index)
    events = list(trace.events)
    for leaf, (was, becomes) in changes.items():
        if len(uses[leaf]) != 1:
            return None
        (index,) = uses[leaf]
        changed = _changed(events[index], was, becomes)
        if changed is None:
            return None
        events[index] = changed
    return replace(trace, events=events)


def _changed(event: TraceOp, was: int | float, becomes: int | float) -> TraceOp | None:
    """An operation with another number in the one place that holds a number."""
    name = event.target.overloadpacket.__name__
    held = [*event.arguments, *event.keywords.values()]
    if name.removesuffix("_") not in _CALCULATING or sum(is_same(value, was) for value in held) != 1:
        return None
    if was in _left_out(event):  # it may have been passed there
        return None
    arguments = tuple(becomes if is_same(value, was) else value for value in event.arguments)
    keywords = {key: becomes if is_same(value, was) else value for key, value in event.keywords.items()}
    return replace(event, arguments=arguments, keywords=keywords)


def _left_out(event: TraceOp) -> list[Any]:
    """The values of arguments that an operation was not given: PyTorch also leaves out those that are the default."""
    parameters = event.target._schema.arguments[len(event.arguments) :]
    return [one.default_value for one in parameters if one.name not in event.keywords and one.has_default_value()]


def is_same(one: Any, other: int | float) -> bool:
    """Whether a value is this number: 0.0 is not -0.0, 1 not 1.0, two NaNs are the same."""
    return type(one) is type(other) and repr(one) == repr(other)
