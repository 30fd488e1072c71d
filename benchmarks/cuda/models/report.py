"""Figures of whole models as tables and targets: for the terminal and, the same tables, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.cuda.models.contests import COMPILE_REPLAYED, CONTESTANTS, JIT_REPLAYED
from benchmarks.report import Sheet, mean_ratio, milliseconds, target_sheet, times
from benchmarks.results import COMPILE, EAGER, JIT, Results, Row
from benchmarks.targets import Target, mean, worst

OVER_COMPILE, WORST_OVER_COMPILE, SECOND_RESULT_RATIO = 1.15, 1.0, 1.0
_COMPILERS, _OURS = (COMPILE, COMPILE_REPLAYED), (JIT, JIT_REPLAYED)
INTRODUCTION = """\
# Whole models on an NVIDIA GPU

Written by `python -m benchmarks.cuda --models --markdown docs/cuda-models-benchmark.md`. Models in eval mode with
random weights, under `no_grad`. Eager PyTorch, torch.compile and ingot.jit take turns on the same tensors, both
compilers also with `mode="reduce-overhead"`, which replays CUDA graphs; times are medians of the rounds, by events
around calls in a row, so that what the host needs to make them counts where it is longer than the device. Before
anything is measured, results are compared with what eager computes in a wider type: none may be further from that than
a tolerance and twice eager's largest distance.

Second results are counted from the module alone, without the mode: recording or tracing, compiling, measuring which
strategies are quickest, and both runs. What either could find on disk is switched off. `best over best` is the better
of torch.compile's modes over the better of ingot.jit's.
"""


def sheets(results: Results, quick: bool) -> list[Sheet]:
    """All tables, in the order they are read."""
    found = [models_sheet(dtype, rows, results) for dtype, rows in results.groups.items() if rows]
    return [*found, target_sheet(targets(results), quick)]


def page(tables: Sequence[Sheet]) -> str:
    return "\n".join([INTRODUCTION, *(table.as_markdown() for table in tables)])


def models_sheet(title: str, rows: Sequence[Row], results: Results) -> Sheet:
    columns = (
        *("", "eager ms", "torch. compile ms", "reduce- overhead ms", "ingot.jit ms", "reduce- overhead ms"),
        *("over eager", "over torch. compile", "reduce-overhead over torch. compile's", "best over best"),
        *("second result in ms", "torch. compile's in ms", "over torch. compile's"),
    )
    cells = [
        (
            row.name,
            *(_exactly(row.seconds.get(name)) for name in CONTESTANTS),
            *(times(ratio) for ratio in _ratios(row)),
            *(milliseconds(row.second_result.get(name)) for name in (JIT, COMPILE)),
            times(row.second_result_ratio),
        )
        for row in rows
    ]
    means = (mean_ratio(ratios) for ratios in zip(*map(_ratios, rows), strict=True))
    sooner = mean_ratio(row.second_result_ratio for row in rows)
    cells.append(("geometric mean", "", "", "", "", "", *means, "", "", sooner))
    eagerly = tuple(f"{row.name} ran eagerly: {row.reason}" for row in rows if row.reason)
    about = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    return Sheet(title, columns, tuple(cells), (*eagerly, about))


def _exactly(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _ratios(row: Row) -> tuple[float | None, ...]:
    return row.over(EAGER, JIT), row.over(COMPILE, JIT), row.over(COMPILE_REPLAYED, JIT_REPLAYED), best_over_best(row)


def best_over_best(row: Row) -> float | None:
    """How many times as long the better of torch.compile's modes takes as the better of ingot.jit's."""
    theirs, ours = ([row.seconds[name] for name in names if name in row.seconds] for names in (_COMPILERS, _OURS))
    return min(theirs) / min(ours) if theirs and ours else None


def targets(results: Results) -> list[Target]:
    rows = [(f"{row.name}, {dtype}", row) for dtype, group in results.groups.items() for row in group]
    ratios = [(name, best_over_best(row)) for name, row in rows]
    sooner = [(name, row.second_result_ratio) for name, row in rows]
    return [
        *mean("best over torch.compile's best", (ratio for _, ratio in ratios), OVER_COMPILE),
        *worst("best over torch.compile's best", ratios, WORST_OVER_COMPILE),
        *worst("second result over torch.compile's", sooner, SECOND_RESULT_RATIO),
    ]


def line(dtype: str, row: Row) -> str:
    """A row in one line, for those who wait."""
    spent = ", ".join(f"{name} {row.seconds[name] * 1e3:.3f}" for name in CONTESTANTS if name in row.seconds)
    second = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in row.second_result.items())
    ratio = best_over_best(row)
    best = "" if ratio is None else f"; best over best {ratio:.2f}x"
    return f"{row.name}, {dtype}: {spent} ms{best}; second result: {second}{'; ' if row.reason else ''}{row.reason}"
