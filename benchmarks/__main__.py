"""`python -m benchmarks`: measure, print tables, say which targets are met, save what was asked for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

import benchmarks
from benchmarks.contestants import first_use
from benchmarks.groups import GROUPS, Bench, Settings
from benchmarks.measuring import Effort, race
from benchmarks.memory_speed import MemorySpeed
from benchmarks.pictures import bars, curves
from benchmarks.report import sheets, target_sheet
from benchmarks.results import COMPILE, EAGER, INGOT, Results, Row, Speed, machine, save
from benchmarks.targets import targets

YARDSTICKS = ((1, 0), (0, 1), (1, 1), (2, 1), (3, 1), (4, 3))
"""Reads and writes of the speeds of memory that are printed: reading, filling, copying, the triad, and more streams."""
BAR_CHART, LINE_CHART = "benchmark.svg", "linear-cost.svg"
MINIMUM_WIDTH = 168
"""Columns the tables need; where the output is no terminal, nothing is folded into less."""


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=benchmarks.__doc__)
    parser.add_argument("--group", action="append", choices=list(GROUPS), help="only this group; may be repeated")
    parser.add_argument("--quick", action="store_true", help="small tensors and few rounds: figures of little meaning")
    parser.add_argument("--repeats", type=int, help="rounds, of which the median counts (default: 15, quick: 3)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the tables")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help=f"save {BAR_CHART} and {LINE_CHART} there")
    chosen = parser.parse_args(arguments)
    if chosen.repeats is not None and chosen.repeats < 1:
        parser.error("--repeats must be at least 1")
    return chosen


def settings(quick: bool, repeats: int | None, with_compile: bool) -> Settings:
    if quick:
        return Settings(256, 256, 100_000, 1 << 20, Effort(repeats or 3, 0.0), with_compile, small_models=True)
    return Settings(4096, 4096, 100_000_000, 64 << 20, Effort(repeats or 15, 0.0), with_compile, small_models=False)


def measure(groups: Sequence[str], bench: Bench, first: dict[str, float], console: Console) -> Results:
    about = machine()
    rows: dict[str, tuple[Row, ...]] = {}
    # Drawn between the jobs alone: a thread that draws would take its turn on a core that is being measured.
    with Progress(console=console, transient=True, auto_refresh=False) as progress:
        yardsticks = [bench.memory.yardstick(*streams) for streams in progress.track(YARDSTICKS, description="memory")]
        timings = race({yardstick.name: yardstick.contestant for yardstick in yardsticks}, bench.settings.effort)
        speeds = tuple(
            Speed(
                yardstick.name,
                yardstick.nbytes / timings[yardstick.name].best,
                yardstick.nbytes / timings[yardstick.name].median,
            )
            for yardstick in yardsticks
        )
        for group in groups:
            rows[group] = tuple(job() for job in progress.track(GROUPS[group](bench), description=group))
    return Results(about, speeds, first, rows)


def draw(results: Results, folder: Path) -> None:
    """The pictures whose groups were measured."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = {
        group: {
            row.name: {name: row.seconds[EAGER] / row.seconds[name] for name in (COMPILE, INGOT) if name in row.seconds}
            for row in results.rows(group)
        }
        for group in ("pointwise", "reductions")
        if results.rows(group)
    }
    if groups:
        (folder / BAR_CHART).write_text(bars("Times as fast as eager PyTorch, which is the line", groups, "x"))
    rows = results.rows("linear")
    if rows:
        series = {
            name: [(float(row.elements), row.seconds[name] / row.elements * 1e9) for row in rows]
            for name in (EAGER, INGOT)
        }
        (folder / LINE_CHART).write_text(curves("Cost of a*b+c", "elements", "nanoseconds an element", series))


def main(arguments: Sequence[str] | None = None) -> Results:
    chosen = options(arguments)
    console = Console()
    if console.width < MINIMUM_WIDTH:
        console = Console(width=MINIMUM_WIDTH)
    first = first_use(with_compile=not chosen.no_compile)
    how = settings(chosen.quick, chosen.repeats, COMPILE in first)
    bench = Bench(how, MemorySpeed(how.array_bytes, how.effort))
    results = measure(chosen.group or list(GROUPS), bench, first, console)
    tables = [*sheets(results), target_sheet(targets(results), chosen.quick)]
    for table in tables:
        console.print(table.for_terminal(), *table.remarks, "", sep="\n", highlight=False)
    if chosen.json:
        save(results, chosen.json)
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(table.as_markdown() for table in tables))
    if chosen.pictures:
        draw(results, chosen.pictures)
    return results


if __name__ == "__main__":
    main()
