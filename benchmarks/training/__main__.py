"""`python -m benchmarks.training`: measure, print tables, save what was asked for; status 1 if a loss is wrong."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console

import benchmarks.training
from benchmarks.capture.contests import Job, run_jobs
from benchmarks.capture.report import save
from benchmarks.contestants import first_use
from benchmarks.measuring import Effort
from benchmarks.results import COMPILE, machine
from benchmarks.training.optimizers import optimizers
from benchmarks.training.report import sheets
from benchmarks.training.steps import Settings, steps

TABLE_WIDTH = 210
"""Columns the tables need, whatever the output is."""
QUICK_ROUNDS, ROUNDS = 3, 15
SHORTEST_TURN = 0.02
"""Seconds: a single step of a millisecond says little."""
SECTIONS: dict[str, Callable[[Settings], list[Job]]] = {"steps": steps, "optimizers": optimizers}


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=benchmarks.training.__doc__)
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


def settings(chosen: argparse.Namespace) -> Settings:
    effort = Effort(chosen.repeats or (QUICK_ROUNDS if chosen.quick else ROUNDS), SHORTEST_TURN)
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it warns of what the tables show
    return Settings(effort, chosen.size == "small", COMPILE in first_use(with_compile=chosen.compile))


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
