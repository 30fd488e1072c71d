"""`python -m tests.opinfo`: try every operator, show what is wrong, and write the page about it."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

import tests.opinfo
from tests.opinfo.database import DTYPES, INPUTS, PUBLISHED, SAMPLES, has_dtype, operators
from tests.opinfo.report import page, problems
from tests.opinfo.workers import Task, run_tasks

DOCUMENTS = Path(__file__).parents[2] / "docs"
PAGES = {"cpu": DOCUMENTS / "opinfo.md", "cuda": DOCUMENTS / "opinfo-cuda.md"}


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.opinfo", description=tests.opinfo.__doc__)
    parser.add_argument("--op", action="append", metavar="PATTERN", help="only operators whose name matches, as *soft*")
    parser.add_argument(
        "--dtype",
        action="append",
        choices=list(DTYPES),
        help="only this dtype; may be repeated (default: {})".format(", ".join(PUBLISHED)),
    )
    parser.add_argument("--device", choices=list(PAGES), default="cpu", help="where samples are (default: cpu)")
    parser.add_argument("--samples", type=int, metavar="N", help="at most so many samples of each (default: all)")
    parser.add_argument(
        "--inputs",
        choices=list(INPUTS),
        default=SAMPLES,
        help="the usual ones, more of them with extreme values and layouts, or the usual ones with gaps in memory",
    )
    parser.add_argument(
        "--python", choices=("auto", "run", "skip"), default="skip", help="the tier that is tried (default: skip)"
    )
    parser.add_argument("--gradients", action="store_true", help="compare gradients too, of what can be differentiated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="where to write the page (default: in docs)")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs an NVIDIA GPU that PyTorch can use")
    if chosen.jobs < 1 or (chosen.samples is not None and chosen.samples < 1):
        parser.error("--jobs and --samples must be at least 1")
    return chosen


def tasks(
    patterns: Sequence[str],
    dtypes: Sequence[str],
    samples: int | None,
    device: str,
    inputs: str = SAMPLES,
    python: str = "skip",
    gradients: bool = False,
) -> list[Task]:
    """What there is to try; the longest-running kind is not known, so the order is that of the database."""
    return [
        Task(name, dtype, samples, device=device, inputs=inputs, python=python, gradients=gradients)
        for name, operator in operators().items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        for dtype in dtypes
        if has_dtype(operator, DTYPES[dtype], device, gradients)
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
    dtypes = chosen.dtype or PUBLISHED
    patterns, gradients = chosen.op or ["*"], chosen.gradients
    todo = tasks(patterns, dtypes, chosen.samples, chosen.device, chosen.inputs, chosen.python, gradients)
    if not todo:
        print("no operator of PyTorch's database matches", file=sys.stderr)
        return 2
    done = list(shown(run_tasks(todo, chosen.jobs), len(todo)))
    is_usual = chosen.inputs == SAMPLES and chosen.python == "skip" and not gradients
    is_whole = is_usual and not (chosen.op or chosen.dtype or chosen.samples)
    path = chosen.report or (PAGES[chosen.device] if is_whole else None)
    if path is not None:
        path.write_text(page(done, chosen.samples))
    verdicts = [verdict for task in done for verdict in task.verdicts]
    wrong = sum(bool(verdict.problem) for verdict in verdicts)
    crashed = sum(verdict.is_crash for verdict in verdicts)
    fates = ", ".join(f"{count} {fate}" for fate, count in Counter(verdict.fate for verdict in verdicts).items())
    print(f"{len(verdicts)} samples ({fates}), {wrong} of them wrong, of which {crashed} crashed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
