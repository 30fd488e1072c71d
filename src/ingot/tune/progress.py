"""A bar on the terminal while kernels are tuned, once that has taken a second.

In: what is measured, and how many candidates of how many. Out: a line on standard error, which goes when tuning ends;
nothing where standard error is no terminal.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

_SECONDS_BEFORE = 1.0


class TuningProgress:
    """One search."""

    def __init__(self, name: str, total: int):
        self._name, self._total = name, total
        self._begun = time.perf_counter()
        self._bar: Any = None
        self._task: Any = None

    def advance(self, done: int, speedup: float) -> None:
        """So many candidates are measured, and the best is so many times as fast as the default."""
        if self._bar is None:
            if time.perf_counter() - self._begun < _SECONDS_BEFORE or not sys.stderr.isatty():
                return
            # Imported here because it takes as long as compiling ten kernels, and most processes draw nothing.
            rich, console = import_module("rich.progress"), import_module("rich.console")
            self._bar = rich.Progress(console=console.Console(stderr=True), transient=True)
            self._task = self._bar.add_task(f"tuning {self._name}", total=self._total)
            self._bar.start()
        self._bar.update(self._task, completed=done, description=f"tuning {self._name}, {speedup:.2f}x so far")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
