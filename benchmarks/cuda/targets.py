"""What ingot wants to reach on a GPU, and whether it does: one line per target, from the figures alone."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.cuda.cases import FULL_REDUCTIONS
from benchmarks.cuda.groups import DTYPES, SMALL_GROUP
from benchmarks.results import COMPILE, JIT, Results, Row
from benchmarks.targets import Target, mean, worst

OVER_FLOOR, OVER_FLOOR_OF_FULL_REDUCTIONS = 1.10, 1.25
OVER_COMPILE, WORST_OVER_COMPILE = 1.15, 0.97
CALL_MICROSECONDS = 5.0
COMPILE_MILLISECONDS, COMPILE_RATIO = 50.0, 10.0


def targets(results: Results) -> list[Target]:
    found: list[Target] = []
    for dtype in DTYPES:
        rows = results.rows(dtype)
        reductions = [row for row in rows if row.name in FULL_REDUCTIONS]
        others = [row for row in rows if row.name not in FULL_REDUCTIONS]
        found += _over_floor(f"{dtype}, over the floor", others, OVER_FLOOR)
        found += _over_floor(f"{dtype}, full reductions over the floor", reductions, OVER_FLOOR_OF_FULL_REDUCTIONS)
    rows = results.rows(*DTYPES)
    found += mean("over torch.compile", (row.over(COMPILE, JIT) for row in rows), OVER_COMPILE)
    found += worst("over torch.compile", ((row.name, row.over(COMPILE, JIT)) for row in rows), WORST_OVER_COMPILE)
    calls = ((row.name, row.seconds[JIT] * 1e6) for row in results.rows(SMALL_GROUP))
    found += worst("host time of a small call", calls, CALL_MICROSECONDS, " us", at_most=True)
    compiled = [row for row in rows if row.kernels]
    per_kernel = ((row.name, compile_milliseconds(row)) for row in compiled)
    found += worst("time to compile a kernel", per_kernel, COMPILE_MILLISECONDS, " ms", at_most=True)
    sooner = [(row.name, row.second_result_ratio) for row in compiled]
    found += mean("second result over torch.compile's", (ratio for _, ratio in sooner), COMPILE_RATIO)
    found += worst("second result over torch.compile's", sooner, COMPILE_RATIO)
    return found


def compile_milliseconds(row: Row) -> float | None:
    """What ingot.jit took to compile one of a row's kernels."""
    return row.compile_seconds[JIT] * 1e3 / row.kernels if row.kernels else None


def _over_floor(text: str, rows: Sequence[Row], wanted: float) -> list[Target]:
    ratios = ((row.name, row.over_floor(JIT)) for row in rows)
    return worst(text, ratios, wanted, at_most=True)
