"""Pointwise operations on large CPU tensors: eager PyTorch, torch.compile and ingot, side by side in one process.

Prints a table of ratios and, with --json FILE, saves the figures. GB/s counts every input read once and every result
written once, for ingot. torch.compile needs a C++ compiler; without one its columns stay empty.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ingot import FusionDefinition


@dataclass(frozen=True)
class Case:
    name: str
    inputs: int
    eager: Callable[..., torch.Tensor]
    define: Callable[..., Any]


def gelu(ops: Any, x: Any, bias: Any) -> Any:
    return ops.gelu(x + bias)


CASES = (
    Case("a*b*c", 3, lambda a, b, c: a * b * c, lambda ops, a, b, c: a * b * c),
    Case("a*b+c", 3, lambda a, b, c: a * b + c, lambda ops, a, b, c: a * b + c),
    Case(
        "gate",
        3,
        lambda x, y, b: torch.sigmoid(x * y + b) * torch.tanh(x - y),
        lambda ops, x, y, b: ops.sigmoid(x * y + b) * ops.tanh(x - y),
    ),
    Case("bias+gelu", 2, lambda x, b: torch.nn.functional.gelu(x + b), gelu),
    Case("swiglu", 2, lambda x, y: torch.nn.functional.silu(x) * y, lambda ops, x, y: ops.silu(x) * y),
)


@dataclass
class Row:
    name: str
    eager_ms: float
    compile_ms: float | None
    ingot_ms: float
    gigabytes_per_second: float
    ingot_first_call_ms: float
    compile_first_call_ms: float | None


def milliseconds(function: Callable[[], object], repeats: int) -> float:
    function()
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent) * 1e3


def once(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1e3


def fusion(case: Case) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(case.define(fd.ops, *(fd.define_tensor(1) for _ in range(case.inputs))))
    return fd


def measure(case: Case, elements: int, repeats: int) -> Row:
    tensors = [torch.randn(elements) for _ in range(case.inputs)]
    fd = fusion(case)
    first = once(lambda: fd.execute(tensors))
    torch.testing.assert_close(fd.execute(tensors)[0], case.eager(*tensors), rtol=1e-5, atol=1e-5)
    compiled, compile_first, compile_ms = torch.compile(case.eager), None, None
    try:
        compile_first = once(lambda: compiled(*tensors))
        compile_ms = milliseconds(lambda: compiled(*tensors), repeats)
    except Exception as error:
        Console(stderr=True).print(f"torch.compile failed on {case.name}: {type(error).__name__}")
    ingot_ms = milliseconds(lambda: fd.execute(tensors), repeats)
    eager_ms = milliseconds(lambda: case.eager(*tensors), repeats)
    bandwidth = (case.inputs + 1) * elements * 4 / ingot_ms / 1e6
    return Row(case.name, eager_ms, compile_ms, ingot_ms, bandwidth, first, compile_first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1 << 24, help="elements per tensor (default: 16M)")
    parser.add_argument("--repeats", type=int, default=9, help="timed calls, of which the median counts")
    parser.add_argument("--json", metavar="FILE", help="save the figures")
    options = parser.parse_args()
    rows = [measure(case, options.elements, options.repeats) for case in track(CASES, "measuring")]
    title = f"float32, {options.elements:,} elements, {torch.get_num_threads()} threads"
    table = Table(
        "",
        "eager ms",
        "compile ms",
        "ingot ms",
        "over eager",
        "over compile",
        "GB/s",
        "first call, and compile's",
        title=title,
    )
    for row in rows:
        over_compile = f"{row.compile_ms / row.ingot_ms:.1f}x" if row.compile_ms else ""
        firsts = f"{row.ingot_first_call_ms:.0f} ms" + (
            f" / {row.compile_first_call_ms:.0f}" if row.compile_first_call_ms else ""
        )
        table.add_row(
            row.name,
            f"{row.eager_ms:.1f}",
            f"{row.compile_ms:.1f}" if row.compile_ms else "",
            f"{row.ingot_ms:.1f}",
            f"{row.eager_ms / row.ingot_ms:.1f}x",
            over_compile,
            f"{row.gigabytes_per_second:.0f}",
            firsts,
        )
    Console().print(table)
    mean = math.exp(statistics.fmean(math.log(row.eager_ms / row.ingot_ms) for row in rows))
    Console().print(f"geometric mean over eager: {mean:.1f}x")
    if options.json:
        with open(options.json, "w") as file:
            json.dump([asdict(row) for row in rows], file, indent=2)


if __name__ == "__main__":
    main()
