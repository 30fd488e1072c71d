"""Figures as tables: for the terminal and, the same tables, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.groups import FRESH_RESULTS, HUGE_INPUTS, IN_FLOAT32, ONE_ADDITION, SMALL
from benchmarks.measuring import geometric_mean
from benchmarks.results import COMPILE, EAGER, INGOT, JIT, Results, Row
from benchmarks.targets import Target


@dataclass(frozen=True)
class Sheet:
    """One table. Cells are text; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...] = ()

    def for_terminal(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number else "left", no_wrap=number == 0)
        for row in self.rows:
            table.add_row(*row)
        return table

    def as_markdown(self) -> str:
        lines = [f"## {self.title}", "", _markdown_row(self.columns), _markdown_row(["---"] * len(self.columns))]
        lines += [_markdown_row(row) for row in self.rows]
        for remark in self.remarks:
            lines += ["", remark]
        return "\n".join(lines) + "\n"


def sheets(results: Results) -> list[Sheet]:
    """All tables, in the order they are read."""
    found = [memory_sheet(results)]
    for group, make in _SHEETS.items():
        rows = results.groups.get(group)
        if rows:
            found.append(make(rows))
    return found


def target_sheet(targets: Sequence[Target], quick: bool) -> Sheet:
    rows = (
        (
            target.text,
            f"{'at most' if target.at_most else 'at least'} {target.wanted:g}{target.unit}",
            f"{target.reached:.2f}{target.unit}",
            target.where,
            "met" if target.is_met else "MISSED",
        )
        for target in targets
    )
    remarks = ("The tensors of a quick run are too small for these.",) if quick else ()
    return Sheet("Targets", ("", "wanted", "reached", "by the worst", ""), tuple(rows), remarks)


def memory_sheet(results: Results) -> Sheet:
    rows = ((speed.name, _gigabytes(speed.best), _gigabytes(speed.median)) for speed in results.memory)
    about = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    first = ", ".join(f"{name} {spent * 1e3:,.0f} ms" for name, spent in results.first_use.items())
    remarks = (about, f"first compiled call of the process: {first}")
    return Sheet("Speed of the memory, GB/s", ("", "best", "median"), tuple(rows), remarks)


def large_sheet(title: str, rows: Sequence[Row]) -> Sheet:
    columns = (
        "",
        "eager ms",
        "torch. compile ms",
        "ingot ms",
        "over eager",
        "over torch. compile",
        "ingot. jit ms",
        "jit over eager",
        "jit over torch. compile",
        "GB/s",
        "of triad",
        "of as many streams",
        "compiles in ms",
        "torch. compile in ms",
        "ratio",
    )
    cells = []
    for row in rows:
        cells.append(
            (
                row.name,
                *(milliseconds(row.seconds.get(name)) for name in (EAGER, COMPILE, INGOT)),
                times(row.over(EAGER)),
                times(row.over(COMPILE)),
                milliseconds(row.seconds.get(JIT)),
                *(times(row.over(name, JIT)) for name in (EAGER, COMPILE)),
                _gigabytes(row.speed),
                _share(row.speed, row.triad),
                _share(row.speed, row.own_streams),
                *(milliseconds(row.compile_seconds.get(name)) for name in (INGOT, COMPILE)),
                times(row.compile_ratio),
            )
        )
    others = (EAGER, COMPILE)
    of_fusion, of_jit = ([mean_ratio(row.over(other, who) for row in rows) for other in others] for who in (INGOT, JIT))
    compiles = mean_ratio(row.compile_ratio for row in rows)
    cells.append(("geometric mean", "", "", "", *of_fusion, "", *of_jit, "", "", "", "", "", compiles))
    return Sheet(f"{title}, {rows[0].elements:,} float32 elements", columns, tuple(cells))


def half_sheet(rows: Sequence[Row]) -> Sheet:
    columns = (
        *("", "eager ms", "torch. compile ms", "ingot ms", "ingot in float32 ms"),
        *("over eager", "over torch. compile", "over float32", "GB/s", "of as many streams"),
    )
    cells = [
        (
            row.name,
            *(milliseconds(row.seconds.get(name)) for name in (EAGER, COMPILE, INGOT, IN_FLOAT32)),
            *(times(row.over(name)) for name in (EAGER, COMPILE, IN_FLOAT32)),
            _gigabytes(row.speed),
            _share(row.speed, row.own_streams),
        )
        for row in rows
    ]
    means = (mean_ratio(row.over(name) for row in rows) for name in (EAGER, COMPILE, IN_FLOAT32))
    cells.append(("geometric mean", "", "", "", "", *means, "", ""))
    return Sheet(f"Half types, {rows[0].elements:,} elements", columns, tuple(cells))


def small_sheet(rows: Sequence[Row]) -> Sheet:
    contestants = (ONE_ADDITION, EAGER, COMPILE, INGOT, JIT)
    cells = (
        (
            row.name,
            *(microseconds(row.seconds.get(name)) for name in contestants),
            *(times(row.over(name)) for name in contestants[:3]),
            *(times(row.over(name, JIT)) for name in (EAGER, COMPILE)),
        )
        for row in rows
    )
    columns = (
        *("", *(f"{name} us" for name in contestants), "over torch.add", "over eager", "over torch. compile"),
        *("jit over eager", "jit over torch. compile"),
    )
    return Sheet("Small tensors, {} x {}, float32: one call".format(*SMALL), columns, tuple(cells))


def models_sheet(title: str, rows: Sequence[Row]) -> Sheet:
    columns = (
        *("", "eager ms", "torch. compile ms", "ingot.jit ms", "over eager", "over torch. compile"),
        *("second result after ms", "torch. compile's after ms", "ratio"),
    )
    cells = [
        (
            row.name,
            *(milliseconds(row.seconds.get(name)) for name in (EAGER, COMPILE, JIT)),
            *(times(row.over(name, JIT)) for name in (EAGER, COMPILE)),
            *(milliseconds(row.second_result.get(name)) for name in (JIT, COMPILE)),
            times(row.second_result_ratio),
        )
        for row in rows
    ]
    means = (mean_ratio(row.over(name, JIT) for row in rows) for name in (EAGER, COMPILE))
    cells.append(("geometric mean", "", "", "", *means, "", "", mean_ratio(row.second_result_ratio for row in rows)))
    return Sheet(title, columns, tuple(cells))


def linear_sheet(rows: Sequence[Row]) -> Sheet:
    cells = (
        (
            row.name,
            *(f"{row.seconds[name] / row.elements * 1e9:.3f}" for name in (EAGER, INGOT)),
            times(row.over(EAGER)),
            _gigabytes(row.speed),
        )
        for row in rows
    )
    columns = ("elements", "eager ns an element", "ingot ns an element", "over eager", "GB/s")
    return Sheet("Cost of an element of a*b+c", columns, tuple(cells))


def pool_sheet(rows: Sequence[Row]) -> Sheet:
    contestants = (EAGER, FRESH_RESULTS, INGOT, HUGE_INPUTS)
    cells = (
        (
            row.name,
            *(milliseconds(row.seconds[name]) for name in contestants),
            times(row.over(FRESH_RESULTS)),
            times(row.over(INGOT, HUGE_INPUTS)),
        )
        for row in rows
    )
    columns = ("", *(f"{name} ms" for name in contestants), "gained by recycled memory", "gained by huge pages")
    return Sheet(f"Memory of results and inputs, {rows[0].elements:,} float32 elements", columns, tuple(cells))


_SHEETS = {
    "pointwise": lambda rows: large_sheet("Element by element", rows),
    "reductions": lambda rows: large_sheet("Reductions and layout", rows),
    "small": small_sheet,
    "models": lambda rows: models_sheet("Models in eval mode, without gradients", rows),
    "frozen": lambda rows: models_sheet("The same models, frozen: weights are constants", rows),
    "half": half_sheet,
    "linear": linear_sheet,
    "pool": pool_sheet,
}


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:,.1f}"


def microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.2f}"


def _gigabytes(speed: float) -> str:
    return f"{speed / 1e9:.1f}"


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _share(speed: float, limit: float | None) -> str:
    return "" if limit is None else f"{speed / limit:.0%}"


def mean_ratio(ratios) -> str:
    measured = [ratio for ratio in ratios if ratio is not None]
    return times(geometric_mean(measured)) if measured else ""


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |"
