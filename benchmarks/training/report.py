"""Figures as tables: for the terminal and, the same tables, as Markdown; and all figures as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.capture.contests import Row
from benchmarks.report import Sheet, mean_ratio, milliseconds, times
from benchmarks.training.steps import COMPILE, EAGER, FLOOR, FUSED, JIT_MODEL, JIT_STEP, WARM_STEPS

_TOLD = ("equal", "tier", "recordings")


def sheets(about: Mapping[str, str], sections: Mapping[str, Sequence[Row]], quick: bool) -> list[Sheet]:
    """All tables, in the order they are read; the machine is told below the last one."""
    found = [make(rows) for name, rows in sections.items() if rows for make in _SHEETS[name]]
    rounds = ("The rounds of a quick run are too few for these figures.",) if quick else ()
    machine = ", ".join(f"{name} {value}" for name, value in about.items())
    if found:
        last = found[-1]
        found[-1] = Sheet(last.title, last.columns, last.rows, (*last.remarks, *rounds, machine))
    return found


def steps_sheet(rows: Sequence[Row]) -> Sheet:
    trainers = (EAGER, FUSED, COMPILE, JIT_MODEL, JIT_STEP)
    starters = (COMPILE, JIT_MODEL, JIT_STEP)
    cells = [
        (
            row.name,
            *(milliseconds(row.seconds.get(name)) for name in trainers),
            *(times(row.over(other, JIT_STEP)) for other in (FUSED, COMPILE)),
            *(_seconds(getattr(row, "second_step", {}).get(name)) for name in starters),
            _seconds(getattr(row, "warm_steps", {}).get(JIT_STEP)),
            *_told(row),
        )
        for row in rows
    ]
    means = (mean_ratio(row.over(other, JIT_STEP) for row in rows) for other in (FUSED, COMPILE))
    cells.append(("geometric mean", *[""] * len(trainers), *means, *[""] * 4, *[""] * len(_TOLD)))
    columns = (
        *("", "eager ms", "fused ms", "torch. compile ms", "jit( model) ms", "jit( step) ms"),
        *("jit(step) over fused", "over torch. compile"),
        *("second step: torch. compile s", "jit( model) s", "jit( step) s", f"{WARM_STEPS} steps, jit(step) s"),
    )
    return _sheet("Training steps with AdamW: all but eager with torch's fused form", columns, cells, rows)


def optimizers_sheet(rows: Sequence[Row]) -> Sheet:
    cells = [
        (
            row.name,
            *(milliseconds(row.seconds.get(name)) for name in (FUSED, JIT_STEP)),
            times(row.over(FUSED, JIT_STEP)),
            *_told(row),
        )
        for row in rows
    ]
    return _sheet("The optimizer alone", ("", "torch, fused ms", "ingot.jit ms", "over fused"), cells, rows)


def bounds_sheet(rows: Sequence[Row]) -> Sheet:
    """How far steps are from their floors, and what they need of memory."""
    cells = []
    for row in rows:
        peaks, saved = (getattr(row, name, {}) for name in ("peaks", "saved"))
        closed = getattr(row, "closed", None)
        cells.append(
            (
                row.name,
                *(milliseconds(row.seconds.get(name)) for name in (FUSED, FLOOR, JIT_STEP)),
                "" if closed is None else f"{closed:.0%}",
                *(_megabytes(peaks.get(name)) for name in (FUSED, JIT_MODEL, JIT_STEP)),
                _share(peaks.get(JIT_STEP), peaks.get(FUSED)),
                *(_megabytes(saved.get(name)) for name in (FUSED, JIT_MODEL)),
                _share(saved.get(JIT_MODEL), saved.get(FUSED)),
            )
        )
    columns = (
        *("", "fused ms", "products alone ms", "jit(step) ms", "of the distance closed"),
        *("a step's peak: eager MB", "jit(model) MB", "jit(step) MB", "jit(step) of eager"),
        *("saved for backward: eager MB", "jit(model) MB", "of eager"),
    )
    return Sheet("Floors and memory of training steps", columns, tuple(cells))


def _megabytes(nbytes: int | None) -> str:
    return "" if nbytes is None else f"{nbytes / 1e6:.1f}"


def _share(ours: int | None, other: int | None) -> str:
    return f"{ours / other:.2f}x" if ours is not None and other else ""


_SHEETS = {"steps": (steps_sheet, bounds_sheet), "optimizers": (optimizers_sheet,)}


def _sheet(title: str, columns: tuple[str, ...], cells: Sequence[tuple[str, ...]], rows: Sequence[Row]) -> Sheet:
    differences = (f"WRONG: {row.name}: {row.difference}" for row in rows if not row.is_equal)
    remarks = (*differences, *(remark for row in rows for remark in row.remarks))
    return Sheet(title, (*columns, *_TOLD), tuple(cells), remarks)


def _told(row: Row) -> tuple[str, str, str]:
    return "yes" if row.is_equal else "NO", row.tier, "" if row.recordings is None else str(row.recordings)


def _seconds(spent: float | None) -> str:
    return "" if spent is None else f"{spent:.2f}"
