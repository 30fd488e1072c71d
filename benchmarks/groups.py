"""Which cases meet which contestants: the groups of the comparison.

In: settings and the yardsticks of the memory. Out: per group a list of jobs, each of which measures one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.cases import MULTIPLY_ADD, POINTWISE, PRODUCT, REDUCTIONS, SMALL_FUNCTIONS, SOFTMAX, SWIGLU, Case
from benchmarks.contestants import Contest, prepare
from benchmarks.measuring import Call, Contestant, Effort, Timing, race
from benchmarks.memory_speed import MemorySpeed, Yardstick, in_huge_pages
from benchmarks.model_contests import contest_of_model
from benchmarks.models import MODELS, Model
from benchmarks.results import EAGER, INGOT, Row
from ingot import memory
from ingot.runtime.native.memory.pool import default_capacity

ONE_ADDITION, IN_FLOAT32 = "one eager torch.add", "ingot in float32"
FRESH_RESULTS, HUGE_INPUTS = "ingot, fresh results", "ingot, inputs in huge pages"
SMALL = (32, 64)
POINTS_PER_DECADE = 4


@dataclass(frozen=True)
class Settings:
    """How large and how thorough."""

    rows: int
    columns: int
    largest: int
    """Elements of the last point of the linear cost."""
    array_bytes: int
    """Size of each array of the yardsticks."""
    effort: Effort
    with_compile: bool
    small_models: bool

    @property
    def calls_of_microseconds(self) -> Effort:
        """Effort where one call is too short for the clock."""
        return Effort(self.effort.rounds, 0.01)


@dataclass(frozen=True)
class Bench:
    settings: Settings
    memory: MemorySpeed


Job = Callable[[], Row]


def large(cases: Sequence[Case], bench: Bench) -> list[Job]:
    """Large float32 tensors: everyone, against the speed of the memory."""
    return [partial(measure_large, case, bench) for case in cases]


def measure_large(case: Case, bench: Bench) -> Row:
    settings = bench.settings
    contest = prepare(case, case.tensors(settings.rows, settings.columns), settings.with_compile, with_jit=True)
    return _against_memory(case, contest, bench, {})


def half(bench: Bench) -> list[Job]:
    """Half types, which have half the bytes to move, and so should take little more than half the time."""
    cases = (PRODUCT, MULTIPLY_ADD, SWIGLU)
    return [partial(measure_half, case, dtype, bench) for dtype in (torch.bfloat16, torch.float16) for case in cases]


def measure_half(case: Case, dtype: torch.dtype, bench: Bench) -> Row:
    settings = bench.settings
    wide = prepare(case, case.tensors(settings.rows, settings.columns), with_compile=False)
    contest = prepare(case, case.tensors(settings.rows, settings.columns, dtype), settings.with_compile)
    return _against_memory(case, contest, bench, {IN_FLOAT32: wide.calls[INGOT]}, f"{case.name}, {_name(dtype)}")


def small(bench: Bench) -> list[Job]:
    """Small tensors, where a call is all there is."""
    return [partial(measure_small, case, bench.settings) for case in SMALL_FUNCTIONS]


def measure_small(case: Case, settings: Settings) -> Row:
    tensors = [tensor.view(SMALL) for tensor in case.tensors(*SMALL)]
    contest = prepare(case, tensors, settings.with_compile, with_jit=True)
    one, other = tensors[0], tensors[-1]
    calls = {ONE_ADDITION: partial(torch.add, one, other), **contest.calls}
    timings = race({name: Contestant(call) for name, call in calls.items()}, settings.calls_of_microseconds)
    return Row(case.name, _medians(timings), one.numel(), contest.nbytes)


def models(bench: Bench) -> list[Job]:
    """Whole models without gradients."""
    return [partial(measure_model, model, bench.settings) for model in MODELS]


def frozen(bench: Bench) -> list[Job]:
    """The same models with weights that are constants."""
    return [partial(measure_model, model, bench.settings, is_frozen=True) for model in MODELS]


def measure_model(model: Model, settings: Settings, is_frozen: bool = False) -> Row:
    with torch.no_grad():
        contest = contest_of_model(model, settings.small_models, settings.with_compile, is_frozen)
        timings = race({name: Contestant(call) for name, call in contest.calls.items()}, settings.effort)
    return Row(model.name, _medians(timings), contest.elements, contest.nbytes, second_result=contest.second_result)


def linear(bench: Bench) -> list[Job]:
    """One operation from a thousand elements to as many as the settings say: is there a cliff?"""
    largest = bench.settings.largest
    tensors = MULTIPLY_ADD.tensors(1, largest)
    sizes, point = [], 0
    while (size := round(1000 * 10 ** (point / POINTS_PER_DECADE))) <= largest:
        sizes.append(size)
        point += 1
    return [partial(measure_size, [tensor[:size] for tensor in tensors], bench.settings) for size in sizes]


def measure_size(tensors: Sequence[torch.Tensor], settings: Settings) -> Row:
    contest = prepare(MULTIPLY_ADD, tensors, with_compile=False)
    timings = race({name: Contestant(call) for name, call in contest.calls.items()}, settings.calls_of_microseconds)
    elements = tensors[0].numel()
    return Row(f"{elements:,}", _medians(timings), elements, contest.nbytes)


def pool(bench: Bench) -> list[Job]:
    """What recycled memory gains, and what huge pages would gain for the inputs, too."""
    return [partial(measure_memory, case, bench.settings) for case in (PRODUCT, SOFTMAX)]


def measure_memory(case: Case, settings: Settings) -> Row:
    contest = prepare(case, case.tensors(settings.rows, settings.columns), with_compile=False)
    call = contest.calls[INGOT]
    in_huge = prepare(case, [in_huge_pages(tensor) for tensor in contest.tensors], with_compile=False).calls[INGOT]

    def recycle() -> None:
        memory.set_capacity(default_capacity())
        call()

    contestants = {
        INGOT: Contestant(call, recycle),
        HUGE_INPUTS: Contestant(in_huge, recycle),
        FRESH_RESULTS: Contestant(call, partial(memory.set_capacity, 0)),
        EAGER: Contestant(contest.calls[EAGER]),
    }
    try:
        timings = race(contestants, settings.effort)
    finally:
        memory.set_capacity(default_capacity())
    return Row(case.name, _medians(timings), contest.tensors[0].numel(), contest.nbytes)


GROUPS: dict[str, Callable[[Bench], list[Job]]] = {
    "pointwise": partial(large, POINTWISE),
    "reductions": partial(large, REDUCTIONS),
    "small": small,
    "models": models,
    "frozen": frozen,
    "half": half,
    "linear": linear,
    "pool": pool,
}


def _against_memory(case: Case, contest: Contest, bench: Bench, more: dict[str, Call], name: str = "") -> Row:
    """A race of all contestants, the triad, and the yardstick with as many streams as the case has."""
    triad, own = bench.memory.yardstick(2, 1), bench.memory.yardstick(*contest.streams)
    contestants = {other: Contestant(call) for other, call in (contest.calls | more).items()}
    yardsticks = {id(yardstick): yardstick for yardstick in (triad, own)}
    both = {f"memory {key}": yardstick.contestant for key, yardstick in yardsticks.items()}
    timings = race(contestants | both, bench.settings.effort)

    def speed(yardstick: Yardstick) -> float:
        return yardstick.nbytes / timings[f"memory {id(yardstick)}"].median

    seconds = _medians({other: timings[other] for other in contestants})
    return Row(
        name or case.name,
        seconds,
        contest.tensors[0].numel(),
        contest.nbytes,
        {other: max(first - seconds[other], 0.0) for other, first in contest.first_seconds.items()},
        speed(triad),
        speed(own),
        case.memory_bound,
    )


def _medians(timings: dict[str, Timing]) -> dict[str, float]:
    return {name: timing.median for name, timing in timings.items()}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
