"""One process: a model's calls from the first on; `python -m benchmarks.starting.process MODEL` prints a line of JSON.

In: a model's name. Out: a `Start`. The first result of `ingot.jit` is eager's own, unless an earlier process has kept a
recording of the call; the second is compiled.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

LATER_CALLS = 5
CALLS_UNTIL_KEPT = 16
"""Enough for a recording to be audited, after which it is kept."""


@dataclass(frozen=True)
class Start:
    """Seconds, and how much was compiled."""

    importing: float
    """`import ingot` and the first use of `ingot.jit`, after `import torch`."""
    eager: float
    """An eager call, once PyTorch is warm."""
    first: float
    second: float
    later: float
    """The median of some later calls."""
    recordings: int
    """How many of the first two calls ran Python to be recorded; without any, the first was compiled."""
    compilations: int

    @property
    def until_compiled(self) -> float:
        """From the first call to the first compiled result."""
        return self.first + (self.second if self.recordings else 0.0)


def measure(name: str, is_small: bool) -> Start:
    begin = time.perf_counter()
    import ingot

    ingot.jit(torch.relu)
    importing = time.perf_counter() - begin
    from benchmarks.models import MODELS
    from ingot.codegen.llvm.object_code import compilations

    module, inputs = next(model for model in MODELS if model.name == name).make(is_small)
    with torch.no_grad():
        eager = min(_seconds(lambda: module(**inputs)) for _ in range(LATER_CALLS))
        fast: Any = ingot.jit(module)
        first, second = (_seconds(lambda: fast(**inputs)) for _ in range(2))
        recordings, compiled = fast.recordings, compilations()
        for _ in range(CALLS_UNTIL_KEPT):
            fast(**inputs)
        later = statistics.median(_seconds(lambda: fast(**inputs)) for _ in range(LATER_CALLS))
    return Start(importing, eager, first, second, later, recordings, compiled)


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starting.process", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print(json.dumps(asdict(measure(chosen.model, chosen.small))))


if __name__ == "__main__":
    main()
