"""One case with and without tuning: the same function compiled twice, called in turns with the same tensors.

In: a case and a shape. Out: a row of figures. What always holds: both gave the same results, bit for bit, before
anything was timed, unless one of them leaves the call to eager PyTorch; what tuning itself measured is not among the
figures that are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import ingot
from benchmarks.cases import POINTWISE, REDUCTIONS, Case
from benchmarks.contestants import JIT_CALLS
from benchmarks.measuring import Contestant, Effort, race

LARGE = (4096, 4096)
"""The shape of the comparison's cases."""
ODD_SHAPES: tuple[tuple[str, int, int], ...] = (
    ("a*b+c", 3, 16_411),
    ("a*b*c", 1, 200_003),
    ("gate", 1, 50_001),
    ("gate", 333, 77),
    ("swiglu", 7, 14_337),
    ("bias+gelu", 1001, 333),
    ("bias+gelu", 65, 11_008),
    ("AdamW", 1, 65_537),
    ("AdamW", 1, 1_000_003),
    ("Black-Scholes", 1, 30_011),
    ("softmax", 10_007, 10),
    ("softmax", 37, 5003),
    ("log_softmax", 4097, 33),
    ("layer_norm", 513, 769),
    ("rms_norm", 7, 12_345),
    ("residual+layer_norm", 129, 2049),
    ("masked softmax", 65, 1025),
    ("column sum", 10_001, 17),
    ("column sum", 129, 40_007),
    ("a + b.T", 777, 777),
)


@dataclass(frozen=True)
class TuningRow:
    """One case, measured."""

    name: str
    rows: int
    columns: int
    default_seconds: float
    tuned_seconds: float
    speedup: float
    """The median over rounds of how many times as fast the tuned function was."""
    chosen: str
    promised: float
    """The speedup that tuning itself has measured, of the kernel alone."""
    candidates: int
    tuning_seconds: float
    stopped: str
    """Why a search ended before its time; "" if none did."""
    is_equal: bool
    runs_eagerly: bool
    """Whether one of the two found eager PyTorch quicker: their times then say nothing of schedules."""


def contests() -> list[tuple[Case, int, int]]:
    """All of them, in order."""
    by_name = {case.name: case for case in (*POINTWISE, *REDUCTIONS)}
    odd = [(by_name[name], rows, columns) for name, rows, columns in ODD_SHAPES]
    return [*((case, *LARGE) for case in by_name.values()), *odd]


def measure(case: Case, rows: int, columns: int, steps: int, effort: Effort) -> TuningRow:
    """Tune a case, and race the result against the default schedule."""
    tensors = case.tensors(rows, columns)
    with torch.no_grad():
        default, _ = _ready(ingot.jit(case.eager, name=case.name), tensors)
        tuned, spent = _ready(ingot.jit(case.eager, name=case.name, tuning_steps=steps), tensors)
        runs_eagerly = any(map(_prefers_eager, (default, tuned)))
        same = partial(torch.allclose, rtol=case.tolerance, atol=case.tolerance) if runs_eagerly else torch.equal
        is_equal = all(map(same, _results(default(*tensors)), _results(tuned(*tensors))))
        timings = race(
            {"default": Contestant(lambda: default(*tensors)), "tuned": Contestant(lambda: tuned(*tensors))}, effort
        )
    ours, plain = timings["tuned"], timings["default"]
    found = tuned.stats().tuned
    return TuningRow(
        case.name,
        rows,
        columns,
        plain.median,
        ours.median,
        statistics.median(theirs / mine for theirs, mine in zip(plain.rounds, ours.rounds, strict=True)),
        "; ".join(one.chosen for one in found if one.chosen),
        max((one.speedup for one in found), default=1.0),
        sum(one.candidates for one in found),
        spent,
        "; ".join(one.stopped for one in found if one.stopped),
        is_equal,
        runs_eagerly,
    )


def _ready(compiled: Any, tensors: Sequence[torch.Tensor]) -> tuple[Any, float]:
    """A compiled function to which nothing is new, and how long that took."""
    start = time.perf_counter()
    for _ in range(JIT_CALLS):
        compiled(*tensors)
    return compiled, time.perf_counter() - start


def _prefers_eager(compiled: Any) -> bool:
    return "eager PyTorch is quicker here" in compiled.explain()


def _results(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)
