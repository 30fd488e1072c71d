"""`python -m benchmarks.tuning`: tune every case, print what that gained; status 1 if results differ."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress

import benchmarks.tuning
from benchmarks.measuring import Effort, geometric_mean
from benchmarks.report import Sheet, times
from benchmarks.results import machine
from benchmarks.tuning.contests import TuningRow, contests, measure

TABLE_WIDTH = 170
QUICK_ROUNDS, ROUNDS = 3, 21
SHORTEST_TURN = 0.005
STEPS = 32
"""Candidates that are measured for each kernel."""


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=benchmarks.tuning.__doc__)
    parser.add_argument("--row", action="append", metavar="TEXT", help="cases whose name has this in it; repeatable")
    parser.add_argument("--part", metavar="I/N", default="1/1", help="every N-th case, from the I-th on")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"candidates for each kernel (default: {STEPS})")
    parser.add_argument("--quick", action="store_true", help="few rounds: figures of little meaning")
    parser.add_argument("--threads", type=int, help="threads that everyone may use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all figures, beside those that are there")
    parser.add_argument("--read", action="store_true", help="measure nothing; print what the file of --json has")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the table")
    chosen = parser.parse_args(arguments)
    part, _, parts = chosen.part.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        parser.error("--part is like 2/5")
    chosen.first, chosen.every = int(part) - 1, int(parts)
    if chosen.read and not chosen.json:
        parser.error("--read needs --json")
    if chosen.steps < 1 or (chosen.threads is not None and chosen.threads < 1):
        parser.error("--steps and --threads must be at least 1")
    return chosen


def measured(chosen: argparse.Namespace, console: Console) -> list[TuningRow]:
    """The rows that were asked for."""
    wanted = [one for one in contests() if not chosen.row or any(text in one[0].name for text in chosen.row)]
    effort = Effort(QUICK_ROUNDS if chosen.quick else ROUNDS, 0.0 if chosen.quick else SHORTEST_TURN)
    # Drawn between the cases alone: a thread that draws would take its turn on a core that is being measured.
    with Progress(console=console, transient=True, auto_refresh=False) as progress:
        cases = wanted[chosen.first :: chosen.every]
        return [measure(*case, chosen.steps, effort) for case in progress.track(cases, description="tuning")]


def sheet(rows: Sequence[TuningRow], steps: int) -> Sheet:
    columns = ("", "shape", "default us", "tuned us", "speedup", "chosen", "candidates", "tuned in s", "equal")
    cells = [
        (
            row.name,
            f"{row.rows} x {row.columns}",
            *(f"{seconds * 1e6:,.1f}" for seconds in (row.default_seconds, row.tuned_seconds)),
            times(row.speedup),
            "runs eagerly" if row.runs_eagerly else row.stopped or row.chosen or "the default",
            str(row.candidates),
            f"{row.tuning_seconds:.1f}",
            "yes" if row.is_equal else "NO",
        )
        for row in rows
    ]
    ratios = [row.speedup for row in rows if not row.runs_eagerly]
    changed = [row.speedup for row in rows if row.chosen and not row.runs_eagerly]
    remarks = [f"geometric mean {times(geometric_mean(ratios))}, worst {times(min(ratios))}"] if ratios else []
    if changed:
        mean, worst = times(geometric_mean(changed)), times(min(changed))
        remarks.append(f"where tuning chose something, {len(changed)} of {len(rows)}: mean {mean}, worst {worst}")
    remarks.append(", ".join(f"{name} {value}" for name, value in machine().items()))
    return Sheet(
        f"Tuned schedules over the default ones, {steps} candidates a kernel", columns, tuple(cells), (*remarks,)
    )


def saved(path: Path) -> list[TuningRow]:
    """The rows of a file; none if there is no such file."""
    return [TuningRow(**row) for row in json.loads(path.read_text())] if path.exists() else []


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    if chosen.threads is not None:
        torch.set_num_threads(chosen.threads)
    rows = saved(chosen.json) if chosen.read else measured(chosen, Console(stderr=True))
    if chosen.json and not chosen.read:
        kept = {(row.name, row.rows, row.columns): row for row in (*saved(chosen.json), *rows)}
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps([asdict(row) for row in kept.values()], indent=2) + "\n")
    table = sheet(rows, chosen.steps)
    console = Console(width=TABLE_WIDTH)
    console.print(table.for_terminal(), *table.remarks, "", sep="\n", highlight=False, markup=False)
    if chosen.markdown:
        chosen.markdown.write_text(table.as_markdown())
    return 0 if all(row.is_equal for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
