"""`python -m benchmarks.capture`: measure, print tables, save what was asked for; status 1 if a result is wrong."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

import benchmarks.capture
from benchmarks.capture.contests import Settings, run_jobs
from benchmarks.capture.report import save, sheets
from benchmarks.capture.sections import SECTIONS
from benchmarks.contestants import first_use
from benchmarks.measuring import Effort
from benchmarks.results import COMPILE, machine

TABLE_WIDTH = 190
"""Columns the tables need, whatever the output is."""
QUICK_ROUNDS, ROUNDS = 5, 15
SHORTEST_TURN = 0.01
"""Seconds: a single call of a millisecond says little."""
ELEMENTS = 1_000_000
"""Of the tensors of the functions."""


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capture", description=benchmarks.capture.__doc__)
    parser.add_argument("--only", action="append", choices=list(SECTIONS), help="this section; may be repeated")
    parser.add_argument("--row", action="append", metavar="TEXT", help="rows whose name has this in it; repeatable")
    parser.add_argument("--quick", action="store_true", help="few rounds: figures of little meaning")
    parser.add_argument("--repeats", type=int, help=f"rounds, of which the median counts (default: {ROUNDS})")
    parser.add_argument(
        "--compile",
        choices=("none", "functions", "all"),
        nargs="?",
        const="all",
        default="functions",
        help="where torch.compile takes part: in the functions alone, or in the models as well, which takes minutes",
    )
    parser.add_argument("--size", choices=("small", "medium"), default="small", help="of the models")
    parser.add_argument("--threads", type=int, help="threads that everyone may use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the tables")
    chosen = parser.parse_args(arguments)
    for name in ("repeats", "threads"):
        if getattr(chosen, name) is not None and getattr(chosen, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return chosen


def settings(chosen: argparse.Namespace) -> Settings:
    effort = Effort(chosen.repeats or (QUICK_ROUNDS if chosen.quick else ROUNDS), SHORTEST_TURN)
    works = COMPILE in first_use(with_compile=chosen.compile != "none")
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it warns of what the tables show
    return Settings(
        ELEMENTS,
        effort,
        compile_functions=works,
        compile_models=works and chosen.compile == "all",
        small_models=chosen.size == "small",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    if chosen.threads is not None:
        torch.set_num_threads(chosen.threads)
    about = machine()
    how = settings(chosen)
    jobs = {name: SECTIONS[name](how) for name in chosen.only or SECTIONS}
    sections = run_jobs(jobs, chosen.row or (), Console(stderr=True))
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
