"""The command line that the comparisons of jobs share, and what becomes of what they measure.

In: a comparison's options; its jobs, section by section, and what writes its tables. Out: tables on the terminal and in
files; status 1 if a result is wrong. What always holds: the same words mean the same in every comparison.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.capture.contests import Job, Row, run_jobs
from benchmarks.capture.report import save
from benchmarks.contestants import first_use
from benchmarks.measuring import Effort
from benchmarks.report import Sheet
from benchmarks.results import COMPILE, machine


def parser_of(name: str, description: str | None, sections: Sequence[str], rounds: int) -> argparse.ArgumentParser:
    """The options of every comparison; it adds `--compile`, which is not the same in all."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=description)
    parser.add_argument("--only", action="append", choices=list(sections), help="this section; may be repeated")
    parser.add_argument("--row", action="append", metavar="TEXT", help="rows whose name has this in it; repeatable")
    parser.add_argument("--quick", action="store_true", help="few rounds: figures of little meaning")
    parser.add_argument("--repeats", type=int, help=f"rounds, of which the median counts (default: {rounds})")
    parser.add_argument("--threads", type=int, help="threads that everyone may use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the tables")
    return parser


def add_compile(parser: argparse.ArgumentParser) -> None:
    """`--compile` where it is for all rows or for none, and `--size`."""
    parser.add_argument("--compile", action="store_true", help="torch.compile takes part, which takes minutes")
    parser.add_argument("--size", choices=("small", "medium"), default="medium", help="small ones are for tests")


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    chosen = parser.parse_args(arguments)
    for name in ("repeats", "threads"):
        if getattr(chosen, name) is not None and getattr(chosen, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return chosen


def effort_of(chosen: argparse.Namespace, quick_rounds: int, rounds: int, shortest_turn: float) -> Effort:
    return Effort(chosen.repeats or (quick_rounds if chosen.quick else rounds), shortest_turn)


def compile_works(is_wanted: bool) -> bool:
    """Whether torch.compile takes part: if it is wanted, and works here."""
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it warns of what the tables show
    return COMPILE in first_use(with_compile=is_wanted)


def run(
    chosen: argparse.Namespace,
    make_jobs: Callable[[], Mapping[str, list[Job]]],
    sheets: Callable[[Mapping[str, str], dict[str, tuple[Row, ...]], bool], Sequence[Sheet]],
    table_width: int,
) -> int:
    """Measure, print and save; `table_width` is the columns that tables need, whatever the output is."""
    if chosen.threads is not None:
        torch.set_num_threads(chosen.threads)
    about = machine()
    sections = run_jobs(make_jobs(), chosen.row or (), Console(stderr=True))
    tables = sheets(about, sections, chosen.quick)
    console = Console(width=table_width)
    for table in tables:
        console.print(table.for_terminal(), *table.remarks, "", sep="\n", highlight=False, markup=False)
    if chosen.json:
        save(about, sections, chosen.json)
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(table.as_markdown() for table in tables))
    return 0 if all(row.is_equal for rows in sections.values() for row in rows) else 1
