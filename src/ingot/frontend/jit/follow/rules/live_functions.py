"""Python functions of torch, run in such a way that the functions they are made of are followed.

In: a function such as `torch.nn.functional.gelu`. Out: the same code, which does not ask whether a mode watches. The
question is asked before the first operation and, while a mode is active, answered by handing the whole call to the mode
again. All other names are looked up where they always are, at every call: patched ones count. Helpers of the same
module ask on behalf of the function that calls them, so they are run in the same way.
"""

from __future__ import annotations

import contextlib
import types
from functools import lru_cache
from typing import Any

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _no(*_: Any) -> bool:
    return False


class _Globals(dict[str, Any]):
    """A module's names as they are at the moment, apart from the questions."""

    def __init__(self, actual: dict[str, Any]):
        super().__init__(dict.fromkeys(_QUESTIONS, _no))
        self._actual = actual

    def __missing__(self, name: str) -> Any:
        value = self._actual[name]
        is_helper = name.startswith("_") and isinstance(value, types.FunctionType)
        return live(value) if is_helper and value.__globals__ is self._actual else value


def live(function: types.FunctionType) -> types.FunctionType:
    """A function that runs a Python function of torch without asking for modes."""
    made = _live(function)
    is_current = made.__code__ is function.__code__ and made.__defaults__ is function.__defaults__
    if not is_current or made.__kwdefaults__ is not function.__kwdefaults__:
        _live.cache_clear()  # the function itself was changed
        made = _live(function)
    return made


@lru_cache(maxsize=1024)
def _live(function: types.FunctionType) -> types.FunctionType:
    return _made_live(function, {})


def _made_live(function: types.FunctionType, known: dict[Any, types.FunctionType]) -> types.FunctionType:
    """`known` holds what is being made: a function may hold itself in its closure."""
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    made = types.FunctionType(
        function.__code__, _Globals(function.__globals__), function.__name__, function.__defaults__, cells or None
    )
    made.__kwdefaults__ = function.__kwdefaults__
    known[function] = made
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell stays empty
            cell.cell_contents = _live_part(original.cell_contents, known)
    return made


def _live_part(value: Any, known: dict[Any, types.FunctionType]) -> Any:
    """What a function holds in its closure: the functions of torch among it are run in the same way."""
    if not isinstance(value, types.FunctionType) or not (value.__module__ or "").startswith("torch."):
        return value
    return known.get(value) or _made_live(value, known)
