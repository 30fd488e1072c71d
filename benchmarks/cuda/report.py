"""Figures of a GPU as tables: for the terminal and, the same tables, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.cuda.groups import DTYPES, HOST_ROUNDS, SMALL_GROUP
from benchmarks.cuda.targets import compile_milliseconds, targets
from benchmarks.groups import ONE_ADDITION, SMALL
from benchmarks.pictures import bars
from benchmarks.report import Sheet, mean_ratio, memory_sheet, microseconds, milliseconds, target_sheet, times
from benchmarks.results import COMPILE, EAGER, JIT, Results, Row

CONTESTANTS = (EAGER, COMPILE, JIT)
INTRODUCTION = f"""\
# The comparison on an NVIDIA GPU

Written by `python -m benchmarks.cuda --markdown docs/cuda-benchmark.md`. Eager PyTorch, torch.compile and ingot.jit
take turns on the same tensors; times are the device's own, by events, medians of the rounds. The floor is what moving
the bytes would take at the speed of a copy measured in the same rounds: every input read once, every result written
once. Before anything is measured, results of ingot.jit are compared with what eager computes in a wider type: no
element may be further from that than a tolerance and twice eager's largest distance.

A kernel is compiled by ingot from what it has recorded of a function: graph passes, fusion, schedule, LLVM and the
driver's assembler; of {HOST_ROUNDS + 1} times seconds apart, each from nothing, the least is given, since other work
of the processor only ever adds to it. Second results are counted from the function alone, once for both compilers:
recording or tracing it, compiling, and both runs. What either could find on disk is switched off. Small calls are
measured in the same rounds, seconds apart, and their medians are over all of them.

![Speed in parts of what a copy reaches](cuda-benchmark.svg)
"""


def sheets(results: Results, quick: bool) -> list[Sheet]:
    """All tables, in the order they are read."""
    found = [memory_sheet(results)]
    for dtype in DTYPES:
        rows = results.rows(dtype)
        if rows:
            found.append(large_sheet(dtype, rows))
    rows = results.rows(SMALL_GROUP)
    if rows:
        found.append(small_sheet(rows))
    return [*found, target_sheet(targets(results), quick)]


def page(tables: Sequence[Sheet]) -> str:
    return "\n".join([INTRODUCTION, *(table.as_markdown() for table in tables)])


def picture(results: Results) -> str:
    """How close everyone comes to the floor, as bars: the line is the floor itself."""
    groups = {
        dtype: {
            row.name: {name: row.floor / row.seconds[name] for name in CONTESTANTS if row.floor and name in row.seconds}
            for row in results.rows(dtype)
        }
        for dtype in DTYPES
        if results.rows(dtype)
    }
    return bars("Speed in parts of what a copy reaches, which is the line", groups, "")


def large_sheet(dtype: str, rows: Sequence[Row]) -> Sheet:
    columns = (
        *("", "floor us", "eager us", "torch. compile us", "ingot.jit us"),
        *("eager over floor", "torch. compile over floor", "ingot.jit over floor"),
        *("over eager", "over torch. compile", "kernels", "compiled in ms a kernel"),
        *("second result in ms", "torch. compile's in ms", "over torch. compile's"),
    )
    cells = [
        (
            row.name,
            microseconds(row.floor),
            *(microseconds(row.seconds.get(name)) for name in CONTESTANTS),
            *(times(row.over_floor(name)) for name in CONTESTANTS),
            *(times(row.over(name, JIT)) for name in (EAGER, COMPILE)),
            kernels_text(row),
            _one_decimal(compile_milliseconds(row)),
            *(milliseconds(row.second_result.get(name)) for name in (JIT, COMPILE)),
            times(row.second_result_ratio),
        )
        for row in rows
    ]
    floors = (mean_ratio(row.over_floor(name) for row in rows) for name in CONTESTANTS)
    others = (mean_ratio(row.over(name, JIT) for row in rows) for name in (EAGER, COMPILE))
    sooner = mean_ratio(row.second_result_ratio for row in rows)
    cells.append(("geometric mean", "", "", "", "", *floors, *others, "", "", "", "", sooner))
    elements = f"{max(row.elements for row in rows):,}"
    return Sheet(f"{dtype}, up to {elements} elements", columns, tuple(cells), _reasons(rows))


def small_sheet(rows: Sequence[Row]) -> Sheet:
    contestants = (ONE_ADDITION, *CONTESTANTS)
    cells = tuple(
        (
            row.name,
            *(microseconds(row.seconds.get(name)) for name in contestants),
            *(times(row.over(name, JIT)) for name in contestants[:3]),
            kernels_text(row),
        )
        for row in rows
    )
    over = ("over torch.add", "over eager", "over torch. compile")
    columns = ("", *(f"{name} us" for name in contestants), *over, "kernels")
    title = "Small tensors, {} x {}, float32: the host's time for one call".format(*SMALL)
    return Sheet(title, columns, cells, _reasons(rows))


def kernels_text(row: Row) -> str:
    """How many kernels ingot.jit ran, or that it ran eagerly."""
    return str(row.kernels) if row.kernels else EAGER


def _reasons(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(f"{row.name} ran eagerly: {row.reason.splitlines()[0]}" for row in rows if not row.kernels)


def _one_decimal(number: float | None) -> str:
    return "" if number is None else f"{number:.1f}"
