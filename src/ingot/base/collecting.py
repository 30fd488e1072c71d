"""Putting off Python's garbage collection while something is compiled.

Compiling makes many small objects, most of which stay, so Python begins to look for garbage among all objects of the
process: with a few large packages loaded that takes longer than compiling a kernel. It comes later instead.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_compiling = 0
_was_enabled = False


@contextmanager
def collecting_later() -> Iterator[None]:
    """No collection starts by itself meanwhile, in no thread; if it was off before, it stays off."""
    global _compiling, _was_enabled
    with _lock:
        if _compiling == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _compiling += 1
    try:
        yield
    finally:
        with _lock:
            _compiling -= 1
            if _compiling == 0 and _was_enabled:
                gc.enable()
