"""Lines of the user's code, for messages: where a function is defined, and which line is running."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch


def definition_of(function: Any) -> str:
    """Where a function is defined, as file:line."""
    while not hasattr(function, "__code__") and (inner := _inside(function)) is not None:
        function = inner
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else user_place()


def _inside(function: Any) -> Any:
    for name in ("__func__", "__wrapped__", "func"):
        if hasattr(function, name):
            return getattr(function, name)
    call = getattr(type(function).__call__, "__wrapped__", type(function).__call__)
    return call if hasattr(call, "__code__") else None  # functions that are not written in Python have nothing inside


_OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[3]), "<frozen")
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_PACKAGES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
"""Outside of virtual environments they lie within the standard library."""


def user_place() -> str:
    """The innermost line of code that is not torch's, ingot's or the standard library's, as file:line."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        is_standard = name.startswith(_STANDARD_LIBRARY) and not name.startswith(_PACKAGES)
        if not is_standard and not name.startswith(_OURS):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown place"


def module_of(function: Any) -> torch.nn.Module | None:
    """The module whose forward a function is: its hooks run around the function."""
    owner = getattr(function, "__self__", None)
    is_forward = getattr(function, "__name__", "") == "forward"
    return owner if isinstance(owner, torch.nn.Module) and is_forward else None
