"""`python -m tests.opinfo`: try every operator, show what is wrong, and write the page about it."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import tests.opinfo
from tests.opinfo.database import DTYPES, has_dtype, operators
from tests.opinfo.report import page, problems
from tests.opinfo.workers import Task, run_tasks

PAGE = Path(__file__).parents[2] / "docs" / "opinfo.md"


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.opinfo", description=tests.opinfo.__doc__)
    parser.add_argument("--op", action="append", metavar="PATTERN", help="only operators whose name matches, as *soft*")
    parser.add_argument("--dtype", action="append", choices=list(DTYPES), help="only this dtype; may be repeated")
    parser.add_argument("--samples", type=int, metavar="N", help="at most so many samples of each (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="where to write the page (default: docs/opinfo.md)")
    chosen = parser.parse_args(arguments)
    if chosen.jobs < 1 or (chosen.samples is not None and chosen.samples < 1):
        parser.error("--jobs and --samples must be at least 1")
    return chosen


def tasks(patterns: Sequence[str], dtypes: Sequence[str], samples: int | None) -> list[Task]:
    """What there is to try; the longest-running kind is not known, so the order is that of the database."""
    return [
        Task(name, dtype, samples)
        for name, operator in operators().items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        for dtype in dtypes
        if has_dtype(operator, DTYPES[dtype])
    ]


def shown(done: Iterable[Task], count: int) -> Iterator[Task]:
    """The same tasks, with progress and what is wrong on the terminal."""
    try:
        from rich.progress import MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        for number, task in enumerate(done, 1):
            print(f"{number} of {count}: {task.operator}, {task.dtype}", *problems(task), sep="\n", flush=True)
            yield task
        return
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), TextColumn("{task.fields[at]}")) as progress:
        bar = progress.add_task("operators", total=count, at="")
        for task in done:
            progress.update(bar, advance=1, at=f"{task.operator}, {task.dtype}")
            for problem in problems(task):
                progress.console.print(problem, markup=False, highlight=False, soft_wrap=True)
            yield task


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    todo = tasks(chosen.op or ["*"], chosen.dtype or list(DTYPES), chosen.samples)
    if not todo:
        print("no operator of PyTorch's database matches", file=sys.stderr)
        return 2
    done = list(shown(run_tasks(todo, chosen.jobs), len(todo)))
    is_whole = not (chosen.op or chosen.dtype or chosen.samples)
    path = chosen.report or (PAGE if is_whole else None)
    if path is not None:
        path.write_text(page(done))
    wrong = sum(bool(verdict.problem) for task in done for verdict in task.verdicts)
    print(f"{sum(len(task.verdicts) for task in done)} samples, {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
