"""Why a call needs a recording of its own, in words: what differs from the recorded call that is most like it.

In: keys of calls (arguments.py), the newest of which has no recording. Out: a text such as "x: size 0 was 8, is 16".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ingot.frontend.jit.arguments.call_key import counts_by_identity
from ingot.frontend.jit.arguments.structure import InstanceAttributes, Shape
from ingot.frontend.jit.arguments.variable_numbers import positional_names
from ingot.runtime.torch_state import changes


def difference(key: Any, recorded: Iterable[Any], function: Callable[..., Any]) -> str:
    """What is different in a call from those that were recorded; the last of those that are most like it counts."""
    closest: tuple[tuple[bool, int], list[str]] | None = None
    for other in recorded:
        found = list(_differences(other, key, function))
        distance = other[0][0] != key[0][0], len(found)  # other nesting is further away than any other difference
        if closest is None or distance <= closest[0]:
            closest = distance, found
    if closest is None:
        return "first call"
    return ", ".join(closest[1]) or "a recording was given up"


def differs_in_numbers(before: Any, now: Any) -> bool:
    """Whether two calls differ in the values of numbers, and in nothing else."""
    (old, old_state), (new, new_state) = before, now
    if old_state != new_state or old[0] != new[0]:
        return False
    changed = [(one, other) for one, other in zip(old[1:], new[1:], strict=True) if one != other]
    return bool(changed) and all(one[0] is other[0] and one[0] in (int, float) for one, other in changed)


def counts_up(before: Any, now: Any) -> bool:
    """Whether one call comes a step after another: a single int differs, by one."""
    changed = [(one[-1], other[-1]) for one, other in zip(before[0][1:], now[0][1:], strict=True) if one != other]
    return len(changed) == 1 and type(changed[0][1]) is int and changed[0][1] == changed[0][0] + 1


def _differences(before: Any, now: Any, function: Callable[..., Any]) -> Iterator[str]:
    (old, old_state), (new, new_state) = before, now
    yield from changes(old_state, new_state)
    if old[0] != new[0]:
        yield "other arguments are given, or nested in another way"
        return
    for name, one, other in zip(_names(function, new[0]), old[1:], new[1:], strict=True):
        if one != other:
            yield f"{name}: {_change(one, other)}"


def _change(before: Any, now: Any) -> str:
    is_tensor = [isinstance(part[0], torch.dtype) and len(part) == 7 for part in (before, now)]
    if all(is_tensor):
        return _change_of_tensor(before, now)
    if any(is_tensor) or before[0] is not now[0]:
        return f"was of type {_kind(before)}, is of type {_kind(now)}"
    if counts_by_identity(now[0]):
        return f"is another {_kind(now)}"
    if now[0] in (slice, range):
        return f"{now[0](*before[1:4])} became {now[0](*now[1:4])}"
    if before[1] == now[1]:
        return f"is another {_kind(now)} object of the same value"
    return f"{before[1]} became {now[1]}"


def _change_of_tensor(before: Any, now: Any) -> str:
    if before[0] is not now[0]:
        return f"dtype was {before[0]}, is {now[0]}"
    if len(before[1]) != len(now[1]):
        return f"had {len(before[1])} dimensions, has {len(now[1])}"
    sizes = enumerate(zip(before[1], now[1], strict=True))
    changed = [f"size {axis} was {old}, is {new}" for axis, (old, new) in sizes if old != new]
    if changed:
        return ", ".join(changed)
    if before[2] != now[2]:
        return f"strides were {before[2]}, are {now[2]}"
    if before[3] != now[3]:
        return f"was on {before[3]}, is on {now[3]}"
    if before[4] is not now[4]:
        return f"was a {before[4].__name__}, is a {now[4].__name__}"
    if before[5] != now[5]:
        return "only one of the calls passes a tensor of inference mode"
    return "the same tensor is passed in other places"


def _kind(part: Any) -> str:
    return "tensor" if isinstance(part[0], torch.dtype) else part[0].__name__


def _names(function: Callable[..., Any], shape: Shape) -> Iterator[str]:
    """What to call the leaves of a call's arguments."""
    ordered = positional_names(function)
    passed, named = shape.parts
    for position, part in enumerate(passed.parts):
        yield from _leaves(part, ordered[position] if position < len(ordered) else f"argument {position}")
    for name, part in zip(named.context, named.parts, strict=True):
        yield from _leaves(part, name)


def _leaves(shape: Shape, name: str) -> Iterator[str]:
    if shape.kind is None:
        yield name
        return
    keys = shape.context if isinstance(shape.context, tuple) and len(shape.context) == len(shape.parts) else None
    for position, part in enumerate(shape.parts):
        if isinstance(shape.kind, InstanceAttributes):
            yield from _leaves(part, f"{name}.{shape.context[position]}")
        else:
            yield from _leaves(part, f"{name}[{keys[position]!r}]" if keys else f"{name}[{position}]")
