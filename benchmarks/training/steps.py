"""Whole steps of models: eager PyTorch with both forms of AdamW, torch.compile, ingot.jit of the model and of the step.

In: the cases. Out: a row for each. Everyone trains a model of its own from the same weights on the same batch, with the
same random numbers. What always holds: the loss of every warm-up step of ingot's was compared with eager's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

import ingot
from benchmarks.capture.contests import Job, Row, difference, error_text, medians, quiet
from benchmarks.capture.telling import recordings_of, tier_of, why_python_runs
from benchmarks.contestants import JIT_CALLS, fresh_compile
from benchmarks.measuring import Call, Effort, seconds
from benchmarks.training.cases import CASES, Batch, TrainingCase, whole_step
from benchmarks.training.floors import products_of
from benchmarks.training.memory import peak_of, saved_by_eager

EAGER, FUSED = "eager", "eager, fused"
COMPILE, JIT_MODEL, JIT_STEP = "torch.compile, fused", "ingot.jit(model), fused", "ingot.jit(step)"
"""Who trains; fused is torch's own AdamW as one kernel."""
FLOOR = "products alone"
"""What no one can be quicker than who leaves products to PyTorch."""
TOLERANCE = 1e-3
"""Of losses: roundings grow with every step."""
RATE = 1e-3
WARM_STEPS = JIT_CALLS + 2
"""A first step makes the optimizer's state, and is not like the others."""


@dataclass(frozen=True)
class Settings:
    """How large and how thorough."""

    effort: Effort
    is_small: bool
    with_compile: bool


@dataclass(frozen=True)
class TrainingRow(Row):
    second_step: Mapping[str, float] = field(default_factory=dict)
    """Seconds until the second step is done, by contestant."""
    warm_steps: Mapping[str, float] = field(default_factory=dict)
    """Seconds until all steps are done that nothing was measured in."""
    peaks: Mapping[str, int | None] = field(default_factory=dict)
    """Bytes that a step needs at its highest, by contestant, where the system tells."""
    saved: Mapping[str, int | None] = field(default_factory=dict)
    """Bytes kept of the model's call for its backward pass, by contestant, where that is known."""

    @property
    def closed(self) -> float | None:
        """How much of the distance between eager and the products alone the whole step closes."""
        if not {FUSED, JIT_STEP, FLOOR} <= self.seconds.keys():
            return None
        distance = self.seconds[FUSED] - self.seconds[FLOOR]
        return (self.seconds[FUSED] - self.seconds[JIT_STEP]) / distance if distance > 0 else None


@dataclass
class Trainer:
    """A contestant: its step, and what was seen of it so far."""

    step: Callable[[Batch], torch.Tensor]
    jitted: Any = None
    losses: list[torch.Tensor] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)

    def train(self, batch: Batch, number: int) -> None:
        """One step, with random numbers of its own."""
        torch.manual_seed(number)
        self.spent.append(seconds(lambda: self.losses.append(self.step(batch))))


def steps(settings: Settings) -> list[Job]:
    """Models, whole steps."""
    return [Job(case.name, partial(measure_step, case, settings)) for case in CASES]


def measure_step(case: TrainingCase, settings: Settings) -> TrainingRow:
    with quiet():
        batch = case.make(settings.is_small)[1]
        trainers = {name: trainer(case, settings.is_small, name) for name in (FUSED, EAGER, JIT_MODEL, JIT_STEP)}
        for one in trainers.values():
            _warm_up(one, batch)
        remarks = _add_compiled(case, settings, trainers, batch) if settings.with_compile else ()
        calls: dict[str, Call] = {name: partial(one.step, batch) for name, one in trainers.items()}
        peaks = {name: peak_of(calls[name]) for name in (FUSED, JIT_MODEL, JIT_STEP)}
        saved = {FUSED: saved_by_eager(case, settings.is_small), JIT_MODEL: _saved_by(trainers[JIT_MODEL].jitted)}
        found = medians({**calls, FLOOR: products_of(calls[FUSED])}, settings.effort)
    differs = (_differs(trainers[name], trainers[FUSED], name) for name in (JIT_MODEL, JIT_STEP))
    jitted = trainers[JIT_STEP].jitted
    return TrainingRow(
        *(case.name, found, next(filter(None, differs), ""), tier_of(jitted), recordings_of(jitted)),
        remarks=(*remarks, *(f"{case.name}: {reason}" for reason in why_python_runs(jitted))),
        second_step={name: sum(one.spent[:2]) for name, one in trainers.items()},
        warm_steps={name: sum(one.spent) for name, one in trainers.items()},
        peaks=peaks,
        saved=saved,
    )


def _saved_by(jitted: Any) -> int | None:
    """What a compiled model keeps for its backward pass; None if its calls are left to eager."""
    return None if jitted is None else jitted.stats().saved_bytes


def trainer(case: TrainingCase, is_small: bool, name: str) -> Trainer:
    """A contestant with a model and an optimizer of its own."""
    module, _ = case.make(is_small)
    optimizer = torch.optim.AdamW(module.parameters(), RATE, fused=True if name != EAGER else None)
    if name == JIT_STEP:
        whole: Any = ingot.jit(whole_step(module, optimizer, case.loss))
        return Trainer(whole, whole)
    called: Any = module
    jitted: Any = None
    if name == JIT_MODEL:
        called = jitted = ingot.jit(module)
    elif name == COMPILE:
        called = fresh_compile(module)
    return Trainer(whole_step(called, optimizer, case.loss), jitted)


def _warm_up(one: Trainer, batch: Batch) -> None:
    for number in range(WARM_STEPS):
        one.train(batch, number)


def _add_compiled(
    case: TrainingCase, settings: Settings, trainers: dict[str, Trainer], batch: Batch
) -> tuple[str, ...]:
    """Adds torch.compile, or says why it is missing. Its random numbers are others than eager's: with dropout, its
    losses are not compared."""
    one = trainer(case, settings.is_small, COMPILE)
    try:
        _warm_up(one, batch)
    except Exception as error:  # whatever it is that torch.compile cannot do
        return (f"{case.name}: torch.compile fails, {error_text(error)}",)
    trainers[COMPILE] = one
    return ()


def _differs(one: Trainer, eager: Trainer, name: str) -> str:
    pairs = enumerate(zip(one.losses, eager.losses, strict=True))
    texts = (difference(found, wanted, TOLERANCE, f"{name}, loss {number}") for number, (found, wanted) in pairs)
    return next(filter(None, texts), "")
