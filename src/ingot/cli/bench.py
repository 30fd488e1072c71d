"""`ingot bench`: a quick comparison of eager PyTorch with what ingot makes of the same functions, on this machine.

In: nothing. Out: a table. Every function is checked against eager before it is timed, and the two take turns, so that
what else the machine does meets both. The best of all calls counts: a disturbance can only make one longer. The
published comparison, with torch.compile, is `benchmarks` in the repository.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch.nn import functional

import ingot
from ingot.cli.terminal import console, print_json
from ingot.ir.interpreter import clock

_WARM_UP = 24
"""Calls before anything is timed: recorded, compiled, compared with eager."""


@dataclass(frozen=True, slots=True)
class BenchCase:
    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class BenchResult:
    name: str
    shape: str
    eager_seconds: float
    ingot_seconds: float
    tier: str

    @property
    def speedup(self) -> float:
        return self.eager_seconds / self.ingot_seconds


def _cases(size: int) -> tuple[BenchCase, ...]:
    square = (size, size)
    return (
        BenchCase("a * b + c", lambda a, b, c: a * b + c, (square,) * 3),
        BenchCase("gate", lambda x, y, b: torch.sigmoid(x * y + b) * torch.tanh(x - y), (square,) * 3),
        BenchCase("gelu(x + bias)", lambda x, b: functional.gelu(x + b), (square, (size,))),
        BenchCase("softmax", lambda x: torch.softmax(x, -1), (square,)),
        BenchCase("layer_norm", lambda x, w, b: functional.layer_norm(x, (size,), w, b), (square, (size,), (size,))),
        BenchCase(
            "rms_norm", lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w, (square, (size,))
        ),
        BenchCase("swiglu", lambda x, y: functional.silu(x) * y, (square,) * 2),
        BenchCase("a small call", lambda x, y: torch.tanh(x * y) + 1, ((32, 64), (32, 64))),
    )


def _measured(case: BenchCase, device: torch.device, rounds: int) -> BenchResult:
    torch.manual_seed(0)
    tensors = [torch.randn(shape, device=device) for shape in case.shapes]
    compiled: Any = ingot.jit(case.function, name=case.name)
    with torch.no_grad():
        for _ in range(_WARM_UP):
            torch.testing.assert_close(compiled(*tensors), case.function(*tensors), rtol=1e-4, atol=1e-4)
        eager, ours = [], []
        for _ in range(rounds):
            eager.append(_seconds(case.function, tensors, device))
            ours.append(_seconds(compiled, tensors, device))
    shape = " x ".join(map(str, case.shapes[0]))
    return BenchResult(case.name, shape, min(eager), min(ours), compiled.tier)


def _seconds(function: Callable[..., Any], tensors: list[torch.Tensor], device: torch.device) -> float:
    """How long a call takes: several together, where one is too short for a clock."""
    calls = 1 if tensors[0].numel() > 1 << 16 else 100
    start = clock(device)
    for _ in range(calls):
        function(*tensors)
    return (clock(device) - start) / calls


@click.command()
@click.option("--size", type=click.IntRange(16, 16384), default=2048, show_default=True, help="rows and columns")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=15, show_default=True, help="calls each way")
@click.option("--device", default="cpu", show_default=True, help="where to run, such as cuda")
@click.option("--json", "as_json", is_flag=True, help="print the same for programs")
def bench(size: int, rounds: int, device: str, as_json: bool) -> None:
    """Compare eager PyTorch with ingot on a handful of functions.

    Each result is compared with eager's before anything is timed. Times are the best of all rounds.
    """
    try:
        where = torch.device(device)
        torch.empty(1, device=where)
    except (RuntimeError, AssertionError) as error:
        raise click.UsageError(f"there is no device {device!r}: {str(error).splitlines()[0]}") from error
    results = []
    cases, started = _cases(size), time.perf_counter()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=len(cases))
        for case in cases:
            progress.update(task, description=case.name)
            results.append(_measured(case, where, rounds))
            progress.advance(task)
    if as_json:
        print_json([asdict(result) | {"speedup": result.speedup} for result in results])
        return
    title = f"float32 on {where}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    listing = Table("", "size", "eager ms", "ingot ms", "speedup", "tier", title=title)
    for result in results:
        times = (f"{seconds * 1e3:.4f}" for seconds in (result.eager_seconds, result.ingot_seconds))
        listing.add_row(result.name, result.shape, *times, f"{result.speedup:.1f}x", result.tier)
    console().print(listing)
    console().print(f"measured in {time.perf_counter() - started:.1f} s")
