"""`python -m benchmarks.operations`: measure, print tables, save what was asked for; status 1 if a result is wrong."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

import benchmarks.operations
from benchmarks.capture.contests import run_jobs
from benchmarks.capture.report import save
from benchmarks.contestants import first_use
from benchmarks.measuring import Effort
from benchmarks.operations.contests import SECTIONS, jobs
from benchmarks.operations.report import sheets
from benchmarks.results import COMPILE, machine

TABLE_WIDTH = 150
"""Columns the tables need, whatever the output is."""
QUICK_ROUNDS, ROUNDS = 5, 15
SHORTEST_TURN = 0.01
"""Seconds: a single call of a millisecond says little."""


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operations", description=benchmarks.operations.__doc__)
    parser.add_argument("--only", action="append", choices=list(SECTIONS), help="this section; may be repeated")
    parser.add_argument("--row", action="append", metavar="TEXT", help="rows whose name has this in it; repeatable")
    parser.add_argument("--quick", action="store_true", help="few rounds: figures of little meaning")
    parser.add_argument("--repeats", type=int, help=f"rounds, of which the median counts (default: {ROUNDS})")
    parser.add_argument("--compile", action="store_true", help="torch.compile takes part, which takes minutes")
    parser.add_argument("--size", choices=("small", "medium"), default="medium", help="small ones are for tests")
    parser.add_argument("--threads", type=int, help="threads that everyone may use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the tables")
    chosen = parser.parse_args(arguments)
    for name in ("repeats", "threads"):
        if getattr(chosen, name) is not None and getattr(chosen, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    if chosen.threads is not None:
        torch.set_num_threads(chosen.threads)
    about = machine()
    effort = Effort(chosen.repeats or (QUICK_ROUNDS if chosen.quick else ROUNDS), SHORTEST_TURN)
    with_compile = COMPILE in first_use(with_compile=chosen.compile)
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it warns of what the tables show
    made = {
        name: jobs(SECTIONS[name], effort, with_compile, chosen.size == "small") for name in chosen.only or SECTIONS
    }
    sections = run_jobs(made, chosen.row or (), Console(stderr=True))
    tables = sheets(about, sections, chosen.quick)
    console = Console(width=TABLE_WIDTH)
    for table in tables:
        console.print(table.for_terminal(), *table.remarks, "", sep="\n", highlight=False, markup=False)
    if chosen.json:
        save(about, sections, chosen.json)
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(table.as_markdown() for table in tables))
    return 0 if all(row.is_equal for rows in sections.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
