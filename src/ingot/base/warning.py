"""Warnings that point at the user's line: the innermost one that is neither ingot's nor torch's."""

from __future__ import annotations

import sys
import warnings

from ingot.base.errors import IngotWarning

_LIBRARIES = ("ingot", "torch")


def warn(text: str, category: type[Warning] = IngotWarning) -> None:
    """Warn about the call that the user has made."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_librarys(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    module = frame.f_globals.get("__name__") or "<unknown>"
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _is_librarys(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES
