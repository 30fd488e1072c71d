"""Where in the user's code something happens: from the frames of this thread to file:line."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import torch

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
