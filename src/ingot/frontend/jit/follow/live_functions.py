"""Python functions of torch, run in such a way that the functions they are made of are followed.

In: a function such as `torch.nn.functional.gelu`. Out: the same code, which does not ask whether a mode watches. The
question is asked before the first operation and, while a mode is active, answered by handing the whole call to the mode
again. All other names are looked up where they always are, at every call: patched ones count.
"""

from __future__ import annotations

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
        return self._actual[name]


@lru_cache(maxsize=1024)
def live(function: types.FunctionType) -> types.FunctionType:
    """A function that runs a Python function of torch without asking for modes."""
    closure = function.__closure__ and tuple(
        types.CellType(_live_part(cell.cell_contents)) for cell in function.__closure__
    )
    made = types.FunctionType(
        function.__code__, _Globals(function.__globals__), function.__name__, function.__defaults__, closure or None
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _live_part(value: Any) -> Any:
    """What a function holds in its closure: the functions of torch among it are run likewise."""
    is_torchs = isinstance(value, types.FunctionType) and (value.__module__ or "").startswith("torch.")
    return live(value) if is_torchs else value
