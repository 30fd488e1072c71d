"""`python -m benchmarks.starting`: start processes, print the table, save what was asked for."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

import benchmarks.starting
from benchmarks.measuring import geometric_mean
from benchmarks.models import MODELS
from benchmarks.report import Sheet, milliseconds, times
from benchmarks.starting.process import Start

TABLE_WIDTH = 200


@dataclass(frozen=True)
class Row:
    name: str
    cold: tuple[Start, ...]
    warm: tuple[Start, ...]

    def ratio(self) -> float:
        """How many times as long it takes until the first compiled result if nothing was kept."""
        return _median(self.cold, "until_compiled") / _median(self.warm, "until_compiled")


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starting", description=benchmarks.starting.__doc__)
    parser.add_argument("--row", action="append", metavar="TEXT", help="models with this in their names; repeatable")
    parser.add_argument("--repeats", type=int, default=3, help="cold and warm processes a model; medians count")
    parser.add_argument("--size", choices=("small", "medium"), default="medium", help="small ones are for tests")
    parser.add_argument("--threads", type=int, default=1, help="threads of a process (default: 1)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the table")
    chosen = parser.parse_args(arguments)
    for name in ("repeats", "threads"):
        if getattr(chosen, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return chosen


def measure_row(name: str, repeats: int, flags: Sequence[str]) -> Row:
    cold, warm = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_start(name, folder, flags))
            warm.append(_start(name, folder, flags))
    return Row(name, tuple(cold), tuple(warm))


def _start(name: str, folder: str, flags: Sequence[str]) -> Start:
    # Written bytecode is what users have: they do not import for the first time either.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "benchmarks.starting.process", name, *flags]
    ran = subprocess.run(
        command, env=environment | {"INGOT_CACHE_DIR": folder}, stdout=subprocess.PIPE, text=True, check=True
    )
    return Start(**json.loads(ran.stdout.splitlines()[-1]))


def sheet(rows: Sequence[Row]) -> Sheet:
    columns = ("", "eager call", "compiled call", "first, cold", "second", "first, warm", "second")
    columns = (*columns, "first compiled result, cold", "warm", "ratio", "recorded, warm", "compiled, warm")
    cells = [
        (
            row.name,
            milliseconds(_median(row.warm, "eager")),
            milliseconds(_median(row.warm, "later")),
            *(milliseconds(_median(row.cold, part)) for part in ("first", "second")),
            *(milliseconds(_median(row.warm, part)) for part in ("first", "second")),
            *(milliseconds(_median(starts, "until_compiled")) for starts in (row.cold, row.warm)),
            times(row.ratio()),
            str(max(start.recordings for start in row.warm)),
            str(max(start.compilations for start in row.warm)),
        )
        for row in rows
    ]
    importing = statistics.median(start.importing for row in rows for start in row.warm)
    remarks = (
        f"Geometric mean of the ratios: {times(geometric_mean([row.ratio() for row in rows]))}. "
        f"Importing ingot and the first ingot.jit took {milliseconds(importing)} ms after torch.",
    )
    return Sheet("Milliseconds in a new process", columns, tuple(cells), remarks)


def _median(starts: Sequence[Start], part: str) -> float:
    return statistics.median(getattr(start, part) for start in starts)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    flags = ["--threads", str(chosen.threads), *(["--small"] if chosen.size == "small" else [])]
    names = [model.name for model in MODELS if not chosen.row or any(text in model.name for text in chosen.row)]
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        rows = [measure_row(name, chosen.repeats, flags) for name in progress.track(names, description="processes")]
    table = sheet(rows)
    Console(width=TABLE_WIDTH).print(table.for_terminal(), *table.remarks, sep="\n", highlight=False, markup=False)
    if chosen.markdown:
        chosen.markdown.write_text(table.as_markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
