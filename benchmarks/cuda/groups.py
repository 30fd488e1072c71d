"""Which cases meet which contestants: large tensors by the device's clock, small calls and compiling by the host's.

In: settings. Out: rows by group. What the host does is measured in rounds that lie seconds apart, all of it in each:
its processor is shared and slow for seconds on end, which a single case's own rounds would not outlast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from benchmarks.cases import Case
from benchmarks.cuda.cases import CASES, SMALL_CASES
from benchmarks.cuda.clocks import device_clock, host_clock
from benchmarks.cuda.contests import Try, prepare
from benchmarks.groups import ONE_ADDITION, SMALL
from benchmarks.measuring import Contestant, Effort, Race, race
from benchmarks.results import JIT, Row

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SMALL_GROUP = "small"
COPY = "copy"
HOST_ROUNDS = 5
"""How often all that the host does is measured, a few seconds apart."""


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
    own_shapes: bool = True
    """Whether cases that are about a shape have it."""

    @cached_property
    def copy(self) -> Contestant:
        """A copy of an array on the device: its bytes are read once and written once."""
        source, target = (torch.ones(self.copy_bytes, dtype=torch.uint8, device=self.device) for _ in range(2))
        return Contestant(lambda: target.copy_(source))

    def wanted(self, cases: Iterable[Case]) -> list[Case]:
        return [case for case in cases if not self.only or any(part in case.name for part in self.only)]

    def inputs(self, case: Case, dtype: str) -> list[torch.Tensor]:
        """Large tensors of a type."""
        rows, columns = (self.own_shapes and case.shape) or (self.rows, self.columns)
        return case.tensors(rows, columns, DTYPES[dtype], self.device)


def measure_large(case: Case, dtype: str, bench: Bench) -> Row:
    """Large tensors of a type: everyone, against the speed of a copy."""
    contest = prepare(case, bench.inputs(case, dtype), bench.with_compile)
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


class SmallCall:
    """A case on small tensors, where what the host does to call is all there is."""

    def __init__(self, case: Case, bench: Bench):
        inputs = [tensor.view(SMALL) for tensor in case.tensors(*SMALL, device=bench.device)]
        contest = prepare(case, inputs, bench.with_compile)
        one, other = inputs[0], inputs[-1]
        calls = {ONE_ADDITION: partial(torch.add, one, other), **contest.calls}
        contestants = {name: Contestant(call) for name, call in calls.items()}
        self.race = Race(contestants, Effort(bench.effort.rounds, 0.0), host_clock(bench.device))
        self._row = Row(case.name, {}, one.numel(), contest.nbytes, kernels=contest.kernels, reason=contest.reason)

    @property
    def row(self) -> Row:
        return replace(self._row, seconds={name: timing.median for name, timing in self.race.timings.items()})


class Compiling:
    """A case compiled over and over, from nothing each time. Whatever else the processor is busy with only ever adds
    to what that takes: the least counts. For second results the first time counts, as for torch.compile, which would
    find parts of its first time again."""

    def __init__(self, case: Case, dtype: str, bench: Bench):
        self._case, self._dtype, self._bench = case, dtype, bench
        self._spent: list[float] = []

    def run(self) -> None:
        self._spent.append(Try(self._case, self._bench.inputs(self._case, self._dtype)).compile_seconds)

    def row(self, measured: Row) -> Row:
        """A row with the least of its own and all times since."""
        return replace(measured, compile_seconds={JIT: min(measured.compile_seconds[JIT], *self._spent)})


def host_rounds(measured: dict[str, Sequence[Row]], with_small: bool, bench: Bench) -> dict[str, tuple[Row, ...]]:
    """Rows of large tensors with what compiling them takes, and those of small ones."""
    compiling = {dtype: [Compiling(case, dtype, bench) for case in bench.wanted(CASES)] for dtype in measured}
    small = [SmallCall(case, bench) for case in bench.wanted(SMALL_CASES)] if with_small else []
    for _ in range(HOST_ROUNDS):
        for each in (each for group in compiling.values() for each in group):
            each.run()
        for each in small:
            each.race.run()
    rows = {
        dtype: tuple(each.row(row) for each, row in zip(compiling[dtype], measured[dtype], strict=True))
        for dtype in measured
    }
    return rows | ({SMALL_GROUP: tuple(each.row for each in small)} if with_small else {})
