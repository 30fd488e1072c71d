"""Which cases meet which contestants: large tensors by the device's clock, small ones by the host's.

In: settings. Out: per group a list of jobs, each of which measures one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from benchmarks.cases import Case
from benchmarks.cuda.cases import CASES, SMALL_CASES
from benchmarks.cuda.clocks import device_clock, host_clock
from benchmarks.cuda.contests import prepare
from benchmarks.groups import ONE_ADDITION, SMALL, Job
from benchmarks.measuring import Contestant, Effort, race
from benchmarks.results import JIT, Row

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SMALL_GROUP = "small"
COPY = "copy"


@dataclass(frozen=True)
class Bench:
    """Where, how large and how thorough."""

    device: torch.device
    rows: int
    columns: int
    copy_bytes: int
    effort: Effort
    with_compile: bool
    only: tuple[str, ...] = ()
    """Names of the cases to measure, or parts of them; all where there are none."""

    @cached_property
    def copy(self) -> Contestant:
        """A copy of an array on the device: its bytes are read once and written once."""
        source, target = (torch.ones(self.copy_bytes, dtype=torch.uint8, device=self.device) for _ in range(2))
        return Contestant(lambda: target.copy_(source))

    def wants(self, case: Case) -> bool:
        return not self.only or any(part in case.name for part in self.only)


def large(dtype: torch.dtype, bench: Bench) -> list[Job]:
    """Large tensors of a type: everyone, against the speed of a copy."""
    return [partial(measure_large, case, dtype, bench) for case in CASES if bench.wants(case)]


def measure_large(case: Case, dtype: torch.dtype, bench: Bench) -> Row:
    inputs = case.tensors(bench.rows, bench.columns, dtype, bench.device)
    contest = prepare(case, inputs, bench.with_compile)
    contestants = {COPY: bench.copy} | {name: Contestant(call) for name, call in contest.calls.items()}
    timings = race(contestants, bench.effort, device_clock(bench.device))
    spent = {name: timing.median for name, timing in timings.items()}
    floor = contest.nbytes * spent.pop(COPY) / (2 * bench.copy_bytes)
    return Row(
        case.name,
        spent,
        contest.elements,
        contest.nbytes,
        {JIT: contest.compile_seconds},
        second_result=contest.second_result,
        floor=floor,
        kernels=contest.kernels,
        reason=contest.reason,
    )


def small(bench: Bench) -> list[Job]:
    """Small tensors, where what the host does to call is all there is."""
    return [partial(measure_small, case, bench) for case in SMALL_CASES if bench.wants(case)]


def measure_small(case: Case, bench: Bench) -> Row:
    inputs = [tensor.view(SMALL) for tensor in case.tensors(*SMALL, device=bench.device)]
    contest = prepare(case, inputs, bench.with_compile)
    one, other = inputs[0], inputs[-1]
    calls = {ONE_ADDITION: partial(torch.add, one, other), **contest.calls}
    contestants = {name: Contestant(call) for name, call in calls.items()}
    timings = race(contestants, Effort(bench.effort.rounds, 0.0), host_clock(bench.device))
    spent = {name: timing.median for name, timing in timings.items()}
    return Row(case.name, spent, one.numel(), contest.nbytes, kernels=contest.kernels, reason=contest.reason)


GROUPS: dict[str, Callable[[Bench], list[Job]]] = {
    **{name: partial(large, dtype) for name, dtype in DTYPES.items()},
    SMALL_GROUP: small,
}
