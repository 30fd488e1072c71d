"""`python -m benchmarks.cuda --models`: measure, print tables, say which targets are met, save what was asked for."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

import benchmarks.cuda.models
from benchmarks.contestants import WrongResult
from benchmarks.cuda.contests import first_use
from benchmarks.cuda.models.contests import compiled_by, forget, model_row
from benchmarks.cuda.models.networks import NETWORKS, Network
from benchmarks.cuda.models.profiles import profile_lines
from benchmarks.cuda.models.report import line, page, sheets
from benchmarks.cuda.surroundings import NO_GPU, about, current_gpu, nothing_on_disk
from benchmarks.measuring import Effort
from benchmarks.results import COMPILE, JIT, Results, Row, machine, save

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
TABLE_WIDTH = 200
ROUNDS, SHORTEST_TURN = 9, 0.02
QUICK_ROUNDS = 2
MINUTES = 5.5
"""No row is begun that would not be done by then."""
_WARM_UP_CALLS = 24


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda --models", description=benchmarks.cuda.models.__doc__
    )
    parser.add_argument("--model", action="append", metavar="NAME", help="models with this in the name; repeatable")
    parser.add_argument("--dtype", action="append", choices=list(DTYPES), help="only this type; may be repeated")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="begin no row that takes longer than that")
    parser.add_argument("--quick", action="store_true", help="small models and few rounds: figures of little meaning")
    parser.add_argument("--profile", metavar="NAME", help="print the kernels of models with this in the name instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save docs/cuda-models-benchmark.md")
    return parser.parse_args(arguments)


def wanted(names: Sequence[str]) -> list[Network]:
    return [network for network in NETWORKS if not names or any(name in network.name for name in names)]


def measure(device: torch.device, chosen: argparse.Namespace, first: dict[str, float]) -> Results:
    """Rows by type, each told as it is done; a model whose results are wrong is told of and has none."""
    effort = Effort(QUICK_ROUNDS, 0.0) if chosen.quick else Effort(ROUNDS, SHORTEST_TURN)
    groups: dict[str, tuple[Row, ...]] = {}
    begun, longest = time.monotonic(), 0.0
    for dtype in chosen.dtype or DTYPES:
        groups[dtype] = ()
        for network in wanted(chosen.model or ()):
            start = time.monotonic()
            if start - begun + longest > 60 * chosen.minutes:
                print(f"{network.name}, {dtype}: left out, there is no time", file=sys.stderr, flush=True)
                continue
            try:
                row = model_row(network, device, DTYPES[dtype], effort, COMPILE in first, chosen.quick)
            except WrongResult as difference:
                print(f"{dtype}: WRONG: {difference}", file=sys.stderr, flush=True)
                continue
            longest = max(longest, time.monotonic() - start)
            groups[dtype] = (*groups[dtype], row)
            print(line(dtype, row), file=sys.stderr, flush=True)
    return Results(machine() | about(device), (), first, groups)


def show_profiles(device: torch.device, chosen: argparse.Namespace) -> None:
    """Print what kernels models consist of, by each compiler."""
    for network in wanted([chosen.profile]):
        for dtype in chosen.dtype or ["bfloat16"]:
            forget(device)
            with torch.no_grad():
                module, inputs = network.make(device, DTYPES[dtype], chosen.quick)
                calls = compiled_by(module, inputs, not chosen.no_compile)
                calls = {name: calls[name] for name in (JIT, COMPILE) if name in calls}
                for call in calls.values():
                    for _ in range(_WARM_UP_CALLS):
                        call()
                print(f"{network.name}, {dtype}", flush=True)
                for text in profile_lines(calls, device):
                    print(text, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    with nothing_on_disk():
        device = current_gpu()
        if device is None:
            print(NO_GPU, file=sys.stderr)
            return 2
        if chosen.profile:
            show_profiles(device, chosen)
            return 0
        results = measure(device, chosen, first_use(device, not chosen.no_compile))
    tables = sheets(results, chosen.quick)
    console = Console(width=TABLE_WIDTH)
    for table in tables:
        console.print(table.for_terminal(), *table.remarks, "", sep="\n", highlight=False)
    if chosen.json:
        save(results, chosen.json)
    if chosen.markdown:
        chosen.markdown.write_text(page(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main())
