"""The first difference between what two calls gave, and what to say of it.

In: two values of the same shape of nesting. Out: a text that names place, element, both values and the tolerance; None
if there is no difference. Tensors are compared with a tolerance for their type, everything else by value.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ingot.frontend.jit.arguments.structure import take_apart

TOLERANCES = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (1e-4, 1e-4),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (2e-2, 2e-2),
}
"""Relative and absolute; a wrong operator is off by far more, another order of summation by far less."""
_PLAIN = (bool, int, str, bytes, type(None))


def difference_between(what: str, found: Any, wanted: Any) -> str | None:
    """What differs, in words; `what` names the value, such as "the result"."""
    found_leaves: list[Any] = []
    wanted_leaves: list[Any] = []
    if take_apart(found, found_leaves) != take_apart(wanted, wanted_leaves):
        return f"{what} is nested in another way than eager's"
    single = len(found_leaves) == 1
    for number, (one, other) in enumerate(zip(found_leaves, wanted_leaves, strict=True)):
        text = _of_leaves(what if single else f"{what}, tensor or value {number},", one, other)
        if text is not None:
            return text
    return None


def _of_leaves(name: str, found: Any, wanted: Any) -> str | None:
    if isinstance(found, torch.Tensor) and isinstance(wanted, torch.Tensor):
        return _of_tensors(name, found, wanted)
    if isinstance(found, float) and isinstance(wanted, float):
        relative, absolute = TOLERANCES[torch.float32]  # it may have been a tensor's value
        same = math.isclose(found, wanted, rel_tol=relative, abs_tol=absolute) or (found != found and wanted != wanted)
        return None if same else f"{name} is {found!r}, eager gives {wanted!r}"
    if type(found) is not type(wanted):
        return f"{name} is a {type(found).__name__}, eager gives a {type(wanted).__name__}"
    if isinstance(found, _PLAIN) and found != wanted:
        return f"{name} is {found!r}, eager gives {wanted!r}"
    return None  # other objects are the function's own; Python made them


def _of_tensors(name: str, found: torch.Tensor, wanted: torch.Tensor) -> str | None:
    for what, one, other in (
        ("dtype", found.dtype, wanted.dtype),
        ("shape", list(found.shape), list(wanted.shape)),
        ("device", found.device, wanted.device),
    ):
        if one != other:
            return f"{name} has the {what} {one}, eager's has {other}"
    with torch.no_grad():
        relative, absolute = TOLERANCES.get(found.dtype, (0.0, 0.0))
        close = torch.isclose(found, wanted, rtol=relative, atol=absolute, equal_nan=True)
        if bool(close.all()):
            return None
        index = tuple((~close).nonzero()[0].tolist())
        values = f"{found[index].item()!r}, eager gives {wanted[index].item()!r}"
        tolerance = f"tolerance: {relative:g} relative, {absolute:g} absolute"
        return (
            f"{name} differs from eager's at element {list(index)}: it is {values} ({tolerance}); "
            f"{int((~close).sum())} of {close.numel()} elements differ"
        )
