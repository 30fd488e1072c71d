"""Figures as tables: one for each section, and how often ingot.jit is ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.capture.contests import Row
from benchmarks.report import Sheet, mean_ratio, times
from benchmarks.results import COMPILE, EAGER, JIT

COLUMNS = ("", "eager ms", "torch. compile ms", "ingot ms", "over eager", "over the faster", "equal", "tier")
BEHIND = 0.97
"""Below this share of the speed of the faster of the two others, a row counts as lost."""


def over_faster(row: Row) -> float | None:
    """How many times as long the faster of eager and torch.compile takes."""
    return min((found for other in (EAGER, COMPILE) if (found := row.over(other, JIT)) is not None), default=None)


def sheets(about: Mapping[str, str], sections: Mapping[str, Sequence[Row]], quick: bool) -> list[Sheet]:
    """The tables in the order they are read; the machine is told below the last one."""
    found = [section_sheet(name, rows) for name, rows in sections.items() if rows]
    if not found:
        return []
    everything = [row for rows in sections.values() for row in rows]
    last, machine = found[-1], ", ".join(f"{name} {value}" for name, value in about.items())
    lost = sum((over_faster(row) or 0) < BEHIND for row in everything)
    summary = f"All {len(everything)} rows: {lost} lost by more than 3%, " + ", ".join(
        f"{mean_ratio(ratios)} {what} in the geometric mean"
        for what, ratios in (
            ("over eager", [row.over(EAGER, JIT) for row in everything]),
            ("over the faster", [over_faster(row) for row in everything]),
        )
    )
    rounds = ("The rounds of a quick run are too few for these figures.",) if quick else ()
    found[-1] = Sheet(last.title, last.columns, last.rows, (*last.remarks, summary, *rounds, machine))
    return found


def section_sheet(name: str, rows: Sequence[Row]) -> Sheet:
    cells = [
        (
            row.name,
            *(_milliseconds(row.seconds.get(who)) for who in (EAGER, COMPILE, JIT)),
            times(row.over(EAGER, JIT)),
            times(over_faster(row)),
            "yes" if row.is_equal else "NO",
            row.tier,
        )
        for row in rows
    ]
    differences = (f"WRONG: {row.name}: {row.difference}" for row in rows if not row.is_equal)
    remarks = (*differences, *(remark for row in rows for remark in row.remarks))
    return Sheet(name.capitalize(), COLUMNS, tuple(cells), remarks)


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"
