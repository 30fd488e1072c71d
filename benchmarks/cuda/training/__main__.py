"""`python -m benchmarks.cuda --training`: measure, print tables, say which targets are met, save what was asked for."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console

import benchmarks.cuda.training
from benchmarks.capture.contests import error_text
from benchmarks.cuda.contests import first_use
from benchmarks.cuda.surroundings import NO_GPU, about, current_gpu, nothing_on_disk
from benchmarks.cuda.training.cases import CASES, FIRST, TrainedNetwork
from benchmarks.cuda.training.contests import TrainingRow, prepare, training_row
from benchmarks.cuda.training.report import line, page, sheets
from benchmarks.measuring import Effort
from benchmarks.report import Sheet
from benchmarks.results import COMPILE, Results, machine, save

TABLE_WIDTH = 200
ROUNDS, SHORTEST_TURN = 7, 0.1
QUICK_ROUNDS = 2
MINUTES = 3.5
"""No row is begun that would not be done by then."""
GROUP = "training"


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda --training", description=benchmarks.cuda.training.__doc__
    )
    parser.add_argument("--model", action="append", metavar="NAME", help="models with this in the name; repeatable")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="begin no row that would not be done by then")
    parser.add_argument("--quick", action="store_true", help="small models and few rounds: figures of little meaning")
    parser.add_argument("--explain", action="store_true", help="print what ingot.jit says of each step, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all figures, anew after every row")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save docs/cuda-training-benchmark.md, likewise")
    return parser.parse_args(arguments)


def wanted(names: Sequence[str]) -> list[TrainedNetwork]:
    return [case for case in CASES if not names or any(name in case.name for name in names)]


def measure(
    device: torch.device, chosen: argparse.Namespace, with_compile: bool, begun: float
) -> Iterator[TrainingRow]:
    """The rows for which there is time, each told as it is done."""
    effort = Effort(QUICK_ROUNDS, 0.0) if chosen.quick else Effort(ROUNDS, SHORTEST_TURN)
    a_share = 0.0
    for case in wanted(chosen.model or ()):
        start = time.monotonic()
        if start - begun + a_share * case.share > 60 * chosen.minutes:
            _tell(f"{case.name}: left out, there is no time")
            continue
        try:
            row = training_row(case, device, effort, with_compile, chosen.quick, chosen.explain)
        except Exception as error:  # the other rows are measured all the same
            _tell(f"{case.name}: FAILED: {error_text(error)}")
            continue
        finally:
            a_share = max(a_share, (time.monotonic() - start) / case.share)
        _tell(f"{line(row)}; {time.monotonic() - begun:.0f} s so far")
        yield row


def main(arguments: Sequence[str] | None = None) -> int:
    begun = time.monotonic()
    chosen = options(arguments)
    rows: list[TrainingRow] = []
    with nothing_on_disk():
        device = current_gpu()
        if device is None:
            print(NO_GPU, file=sys.stderr)
            return 2
        first = first_use(device, not chosen.no_compile)
        # What is imported and set up for the first training step of a process is nobody's row.
        prepare(FIRST, device, COMPILE in first, is_small=True)
        told = machine() | about(device)
        for row in measure(device, chosen, COMPILE in first, begun):
            rows.append(row)
            keep(Results(told, (), first, {GROUP: tuple(rows)}), rows, chosen)
    show(sheets(rows, told, chosen.quick))
    return 1 if any(row.difference for row in rows) or not rows else 0


def keep(results: Results, rows: Sequence[TrainingRow], chosen: argparse.Namespace) -> None:
    """Save what was asked for, as far as it is known."""
    if chosen.json:
        save(results, chosen.json)
    if chosen.markdown:
        chosen.markdown.write_text(page(sheets(rows, results.machine, chosen.quick)))


def show(tables: Sequence[Sheet]) -> None:
    console = Console(width=TABLE_WIDTH)
    for table in tables:
        console.print(table.for_terminal(), *table.remarks, "", sep="\n", highlight=False)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
