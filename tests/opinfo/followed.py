"""Calls of operators as a followed function makes them: between operations that wait, with Python's effects around.

In: a call of the database. Out: the same call within a function that appends to a list, hands over operands that are
pending and computes with the results. Eager runs the very same function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ingot.frontend.jit.follow.steps.step_tree import StepNode
from tests.opinfo.database import OUT, Call

CALLS = 4
"""The first ones learn what calls do, the next is recorded, and the last runs compiled segments."""


def surrounded(call: Call) -> Call:
    """The same call on operands that are computed right before it."""
    return dataclasses.replace(call, function=_between_others(call.function, call.variant != OUT))


def _between_others(function: Callable[..., Any], uses_results: bool) -> Callable[..., Any]:
    def calling(*args: Any, **kwargs: Any) -> Any:
        seen: list[Any] = []
        args, kwargs = tree_map(_same_values, (args, kwargs))
        seen.append(args)
        result = function(*args, **kwargs)
        seen.append(result)
        return (result, tree_map(_negated, result)) if uses_results else result

    return calling


def _is_usual(value: Any) -> bool:
    return type(value) is torch.Tensor and value.layout is torch.strided and not value.is_quantized


def _same_values(value: Any) -> Any:
    if not _is_usual(value):
        return value
    return value & True if value.dtype is torch.bool else value * 1


def _negated(value: Any) -> Any:
    if not _is_usual(value):
        return value
    return ~value if value.dtype is torch.bool else -value


def has_segments(jitted: Any) -> bool:
    """Whether anything that was pending has run as a segment."""
    return any(node.segments for root in jitted._compiled.follower._roots.values() for node in _nodes(root))


def _nodes(node: StepNode) -> Iterator[StepNode]:
    yield node
    for child in list(node.children.values()):
        yield from _nodes(child)
