"""Figures as tables: for the terminal and, the same tables, as Markdown; and all figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.capture.contests import Row
from benchmarks.capture.followed import FOLLOWED, KERNELS
from benchmarks.capture.functions import PLAIN
from benchmarks.capture.models import FLOOR, LEAST, over_least, over_sum
from benchmarks.capture.targets import Sections, share_of_limit, targets
from benchmarks.groups import ONE_ADDITION
from benchmarks.report import Sheet, mean_ratio, microseconds, milliseconds, target_sheet, times
from benchmarks.results import COMPILE, EAGER, JIT


def sheets(about: Mapping[str, str], sections: Sections, quick: bool) -> list[Sheet]:
    """All tables, in the order they are read."""
    found = [_SHEETS[name](rows) for name, rows in sections.items() if rows]
    last = target_sheet(targets(sections), quick=False)
    rounds = ("The rounds of a quick run are too few for these.",) if quick else ()
    machine = ", ".join(f"{name} {value}" for name, value in about.items())
    return [*found, Sheet(last.title, last.columns, last.rows, (*rounds, machine))]


def functions_sheet(rows: Sequence[Row]) -> Sheet:
    columns = ("", "eager ms", "torch. compile ms", "ingot ms", "ingot without it ms", "speed of without it")
    cells = [
        (
            row.name,
            *(_milliseconds(row, name) for name in (EAGER, COMPILE, JIT, PLAIN)),
            times(row.over(PLAIN, JIT)),
            *(times(row.over(other, JIT)) for other in (EAGER, COMPILE)),
            *_told(row),
        )
        for row in rows
    ]
    means = (mean_ratio(row.over(other, JIT) for row in rows) for other in (PLAIN, EAGER, COMPILE))
    cells.append(("geometric mean", *[""] * 4, *means, *[""] * 3))
    return _sheet(
        "Functions with one thing in the way", (*columns, "over eager", "over torch. compile"), cells, rows, "all"
    )


def slow_sheet(rows: Sequence[Row]) -> Sheet:
    cells = [
        (
            row.name,
            *(microseconds(row.seconds.get(name)) for name in (EAGER, JIT)),
            times(row.over(EAGER, JIT)),
            _extra(row),
            times(share_of_limit(row)),
            *_told(row),
        )
        for row in rows
    ]
    columns = ("", "eager us", "ingot us", "over eager", "extra us", "of the limit")
    return _sheet("Where little is to be gained: one call", columns, cells, rows, "after the third call")


def models_sheet(rows: Sequence[Row]) -> Sheet:
    cells = [
        (
            row.name,
            *(_milliseconds(row, name) for name in (EAGER, COMPILE, JIT)),
            *(times(row.over(other, JIT)) for other in (EAGER, COMPILE)),
            _milliseconds(row, FLOOR),
            _share(row.over(FLOOR, EAGER)),
            *(_milliseconds(row, name) for name in (KERNELS, LEAST, FOLLOWED)),
            times(over_least(row)),
            times(over_sum(row)),
            f"{row.torch_calls:,}" if row.torch_calls is not None else "",
            *_told(row),
        )
        for row in rows
    ]
    means = (mean_ratio(row.over(other, JIT) for row in rows) for other in (EAGER, COMPILE))
    overheads = (mean_ratio(map(over, rows)) for over in (over_least, over_sum))
    cells.append(("geometric mean", *[""] * 3, *means, *[""] * 5, *overheads, *[""] * 4))
    columns = ("", "eager ms", "torch. compile ms", "ingot ms", "over eager", "over torch. compile")
    floor = ("Python alone ms", "of eager", "kernels ms", "both in one call ms", "followed ms")
    floor += ("over both in one call", "over both apart", "torch calls")
    return _sheet("Models: texts and passes", (*columns, *floor), cells, rows, "all")


def lengths_sheet(rows: Sequence[Row]) -> Sheet:
    cells = [
        (
            row.name,
            *(_milliseconds(row, name) for name in (EAGER, JIT)),
            times(row.over(EAGER, JIT)),
            *_told(row),
        )
        for row in rows
    ]
    return _sheet("BERT, ten lengths", ("", "eager ms", "ingot ms", "over eager"), cells, rows, "all lengths")


def calls_sheet(rows: Sequence[Row]) -> Sheet:
    cells = [
        (
            row.name,
            *(microseconds(row.seconds.get(name)) for name in (ONE_ADDITION, EAGER, JIT)),
            *(times(row.over(other, JIT)) for other in (ONE_ADDITION, EAGER)),
            *_told(row),
        )
        for row in rows
    ]
    columns = ("", "one eager add us", "eager us", "ingot us", "over one add", "over eager")
    return _sheet("What a call costs by itself", columns, cells, rows, "all")


_SHEETS = {
    "functions": functions_sheet,
    "slow": slow_sheet,
    "models": models_sheet,
    "lengths": lengths_sheet,
    "calls": calls_sheet,
}


def save(about: Mapping[str, str], sections: Sections, path: Path) -> None:
    figures = {name: [asdict(row) | {"is_equal": row.is_equal} for row in rows] for name, rows in sections.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": dict(about), "sections": figures}, indent=2) + "\n")


def _sheet(
    title: str, columns: Sequence[str], cells: Sequence[tuple[str, ...]], rows: Sequence[Row], counted: str
) -> Sheet:
    """A table with what every section tells in its last columns, and below it what differs and what fails."""
    differences = (f"WRONG: {row.name}: {row.difference}" for row in rows if not row.is_equal)
    remarks = (*differences, *(remark for row in rows for remark in row.remarks))
    return Sheet(title, (*columns, "equal", "tier", f"recordings, {counted}"), tuple(cells), remarks)


def _told(row: Row) -> tuple[str, str, str]:
    recordings = "" if row.recordings is None else str(row.recordings)
    return "yes" if row.is_equal else "NO", row.tier, recordings


def _milliseconds(row: Row, contestant: str) -> str:
    """As other tables show them, and microseconds as well where they count."""
    seconds = row.seconds.get(contestant)
    return milliseconds(seconds) if seconds is None or seconds >= 10e-3 else f"{seconds * 1e3:.3f}"


def _extra(row: Row) -> str:
    """Microseconds that ingot takes longer than eager."""
    if row.over(EAGER, JIT) is None:
        return ""
    return f"{(row.seconds[JIT] - row.seconds[EAGER]) * 1e6:+,.2f}"


def _share(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.0%}"
