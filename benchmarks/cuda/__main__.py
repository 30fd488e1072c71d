"""`python -m benchmarks.cuda`: measure, print tables, say which targets are met, save what was asked for."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

import benchmarks.cuda
from benchmarks.cuda.cases import CASES
from benchmarks.cuda.clocks import device_clock
from benchmarks.cuda.contests import first_use
from benchmarks.cuda.groups import COPY, DTYPES, SMALL_GROUP, Bench, host_rounds, measure_large
from benchmarks.cuda.models.__main__ import main as measure_models
from benchmarks.cuda.report import kernels_text, page, picture, sheets
from benchmarks.cuda.training.__main__ import main as measure_training
from benchmarks.measuring import Effort, race
from benchmarks.results import COMPILE, Results, Row, Speed, machine, save

TABLE_WIDTH = 190
"""Columns the tables need, whatever the output is."""
QUICK_ROUNDS, ROUNDS = 3, 11
SHORTEST_TURN = 3e-3


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description=benchmarks.cuda.__doc__)
    parser.add_argument("--models", action="store_true", help="whole models instead; --models --help says more")
    parser.add_argument("--training", action="store_true", help="training steps instead; --training --help says more")
    parser.add_argument("--only", action="append", metavar="NAME", help="cases whose name has this in it; repeatable")
    parser.add_argument("--dtype", action="append", choices=list(DTYPES), help="only this type; may be repeated")
    parser.add_argument("--no-small", action="store_true", help="leave the host's time of small calls out")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    parser.add_argument("--quick", action="store_true", help="small tensors and few rounds: figures of little meaning")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the page, which is docs/cuda-benchmark.md")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="save the picture, which is docs/cuda-benchmark.svg"
    )
    return parser.parse_args(arguments)


def bench_for(device: torch.device, quick: bool, with_compile: bool, only: Sequence[str]) -> Bench:
    if quick:
        return Bench(device, 256, 256, 1 << 20, Effort(QUICK_ROUNDS, 0.0), with_compile, tuple(only), own_shapes=False)
    return Bench(device, 8192, 8192, 1 << 30, Effort(ROUNDS, SHORTEST_TURN), with_compile, tuple(only))


def measure(bench: Bench, groups: Sequence[str], first: dict[str, float]) -> Results:
    """All rows of some groups, each told as it is done."""
    copy = race({COPY: bench.copy}, bench.effort, device_clock(bench.device))[COPY]
    speed = Speed(COPY, 2 * bench.copy_bytes / copy.best, 2 * bench.copy_bytes / copy.median)
    measured: dict[str, Sequence[Row]] = {}
    for dtype in (group for group in groups if group in DTYPES):
        done: list[Row] = []
        for case in bench.wanted(CASES):
            done.append(measure_large(case, dtype, bench))
            print(f"{dtype}, {done[-1].name}: right, {kernels_text(done[-1])}", file=sys.stderr, flush=True)
        measured[dtype] = done
    print("what the host does: compiling, and small calls", file=sys.stderr, flush=True)
    rows = host_rounds(measured, SMALL_GROUP in groups, bench)
    return Results(machine() | _about(bench.device), (speed,), first, rows)


def _about(device: torch.device) -> dict[str, str]:
    if device.type != "cuda":
        return {}
    found = torch.cuda.get_device_properties(device)
    return {"GPU": f"{found.name}, {found.multi_processor_count} multiprocessors", "CUDA": str(torch.version.cuda)}


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if "--models" in given:
        return measure_models([argument for argument in given if argument != "--models"])
    if "--training" in given:
        return measure_training([argument for argument in given if argument != "--training"])
    chosen = options(given)
    with tempfile.TemporaryDirectory() as folder:
        # No contestant may find what an earlier run has compiled: not torch.compile, and not the driver, which keeps
        # machine code made from PTX. All of these are read when they are first needed.
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": folder, "CUDA_CACHE_DISABLE": "1"}
        if not torch.cuda.is_available():
            print("this comparison needs an NVIDIA GPU; python -m benchmarks is the one for CPUs", file=sys.stderr)
            return 2
        device = torch.device("cuda", torch.cuda.current_device())
        first = first_use(device, not chosen.no_compile)
        bench = bench_for(device, chosen.quick, COMPILE in first, chosen.only or ())
        groups = [*(chosen.dtype or DTYPES), *([] if chosen.no_small else [SMALL_GROUP])]
        results = measure(bench, groups, first)
    tables = sheets(results, chosen.quick)
    console = Console(width=TABLE_WIDTH)
    for table in tables:
        console.print(table.for_terminal(), *table.remarks, "", sep="\n", highlight=False)
    if chosen.json:
        save(results, chosen.json)
    if chosen.markdown:
        chosen.markdown.write_text(page(tables))
    if chosen.picture:
        chosen.picture.write_text(picture(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
