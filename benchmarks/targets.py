"""What ingot wants to reach, and whether it does: one line per target, from the figures alone.

A target that concerns no row measured is not listed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.groups import IN_FLOAT32, ONE_ADDITION
from benchmarks.measuring import geometric_mean
from benchmarks.results import COMPILE, EAGER, INGOT, JIT, Results, Row

SHARE_OF_MEMORY = 0.8
"""Of the speed of a loop that only moves as many arrays, for what is bound by memory."""
MEANS = {"pointwise": (6.0, 3.0), "reductions": (None, 2.5)}
"""Geometric means over eager and over torch.compile, per group."""
COMPILE_SECONDS, COMPILE_RATIO = 25e-3, 50.0
CALL_SECONDS, CALL_RATIO = 1.5e-6, 15.0
SMALL_CALL = "a*b+c"
"""The small call that targets concern: in others the functions take longer than the call."""
MODELS_OVER_EAGER, MODELS_OVER_COMPILE, SECOND_RESULT_RATIO = 1.3, 1.0, 20.0
HALF_OVER_FLOAT32 = 1.7
CLIFF = 2.0
"""From one size to the next, 1.8 times as large, an element may not become this many times as expensive."""


@dataclass(frozen=True)
class Target:
    text: str
    reached: float
    wanted: float
    unit: str
    at_most: bool = False
    where: str = ""
    """The row that is furthest from it, where a target concerns the worst of several."""

    @property
    def is_met(self) -> bool:
        return self.reached <= self.wanted if self.at_most else self.reached >= self.wanted


def targets(results: Results) -> list[Target]:
    found: list[Target] = []
    for group in ("pointwise", "reductions"):
        found += _large(group, results.rows(group), INGOT)
        found += _large(f"{group}, ingot.jit", results.rows(group), JIT)
    rows = results.rows("pointwise")
    bound = ((row.name, row.speed / row.own_streams) for row in rows if row.memory_bound and row.own_streams)
    found += worst("pointwise bound by memory, share of its speed", bound, SHARE_OF_MEMORY)
    compiled = [row.compile_seconds[INGOT] for row in results.rows("pointwise", "reductions")]
    if compiled:
        milliseconds = statistics.median(compiled) * 1e3
        found.append(Target("median time to compile", milliseconds, COMPILE_SECONDS * 1e3, " ms", at_most=True))
    sooner = [
        row.compile_seconds[COMPILE] / row.compile_seconds[INGOT]
        for row in results.rows("pointwise", "reductions")
        if COMPILE in row.compile_seconds
    ]
    if sooner:
        found.append(
            Target("time to compile, over torch.compile, median", statistics.median(sooner), COMPILE_RATIO, "x")
        )
    for row in results.rows("small"):
        if row.name == SMALL_CALL:
            spent = row.seconds[INGOT] * 1e6
            found.append(Target("a small call", spent, CALL_SECONDS * 1e6, " us", at_most=True, where=row.name))
            found += worst("a small call, over one eager torch.add", [(row.name, row.over(ONE_ADDITION))], 1.0)
            found += worst("a small call, over torch.compile", [(row.name, row.over(COMPILE))], CALL_RATIO)
    small = ((row.name, row.over(EAGER, JIT)) for row in results.rows("small"))
    found += worst("small calls through ingot.jit, over eager", small, 1.0)
    found += _models("models", results.rows("models"))
    found += _models("frozen models", results.rows("frozen"))
    halves = ((row.name, row.over(IN_FLOAT32)) for row in results.rows("half") if row.memory_bound)
    found += worst("half types bound by memory, over float32", halves, HALF_OVER_FLOAT32)
    return found + _no_cliff(results.rows("linear"))


def _large(text: str, rows: Sequence[Row], contestant: str) -> list[Target]:
    """What large tensors are to reach, the same through a FusionDefinition and through ingot.jit."""
    found: list[Target] = []
    wanted_means = MEANS[text.partition(",")[0]]
    for other, wanted in zip((EAGER, COMPILE), wanted_means, strict=True):
        found += worst(f"{text}, over {other}", ((row.name, row.over(other, contestant)) for row in rows), 1.0)
        if wanted is not None:
            found += mean(f"{text}, over {other}", (row.over(other, contestant) for row in rows), wanted)
    return found


def _models(text: str, rows: Sequence[Row]) -> list[Target]:
    sooner = (row.second_result_ratio for row in rows)
    return [
        *mean(f"{text}, over eager", (row.over(EAGER, JIT) for row in rows), MODELS_OVER_EAGER),
        *mean(f"{text}, over torch.compile", (row.over(COMPILE, JIT) for row in rows), MODELS_OVER_COMPILE),
        *mean(f"{text}, second result over torch.compile's", sooner, SECOND_RESULT_RATIO),
    ]


def mean(text: str, ratios: Iterable[float | None], wanted: float) -> list[Target]:
    """The geometric mean of the ratios that were measured."""
    measured = [ratio for ratio in ratios if ratio is not None]
    return [Target(f"{text}, geometric mean", geometric_mean(measured), wanted, "x")] if measured else []


def worst(
    text: str, measured: Iterable[tuple[str, float | None]], wanted: float, unit: str = "x", at_most: bool = False
) -> list[Target]:
    """The figure furthest from what is wanted, of those that were measured."""
    figures = [(figure, name) for name, figure in measured if figure is not None]
    if not figures:
        return []
    figure, name = max(figures) if at_most else min(figures)
    return [Target(text, figure, wanted, unit, at_most, name)]


def _no_cliff(rows: Sequence[Row]) -> list[Target]:
    costs = [(row.seconds[INGOT] / row.elements, row.name) for row in rows]
    steps = [(after / before, name) for (before, _), (after, name) in pairwise(costs)]
    if not steps:
        return []
    step, name = max(steps)
    return [Target("steepest step of the cost of an element", step, CLIFF, "x", at_most=True, where=name)]
