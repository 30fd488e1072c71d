"""Who trains: eager PyTorch, torch.compile of the model, ingot.jit of the model, of the step, and of it as a graph.

In: a case and a device. Out: a row of times. Everyone trains a model of its own from the same weights on the same batch
with AdamW's fused form, with the same random numbers in each of the first steps. What always holds: ingot's losses of
these steps were compared with eager's. Who fails is told of, and the others go on.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from benchmarks.capture.contests import error_text, quiet
from benchmarks.capture.telling import tier_of, why_python_runs
from benchmarks.contestants import JIT_CALLS
from benchmarks.cuda.clocks import synchronize, whole_clock
from benchmarks.cuda.models.contests import REPLAYED, forget
from benchmarks.cuda.training.cases import TrainedNetwork, loss_on
from benchmarks.cuda.training.memory import MemoryMeter
from benchmarks.measuring import Contestant, Effort, race, seconds
from benchmarks.results import COMPILE, EAGER, Row
from benchmarks.training.cases import Batch, whole_step
from ingot import jit

JIT_MODEL, JIT_STEP = "ingot.jit(model)", "ingot.jit(step)"
STEP_REPLAYED = f"{JIT_STEP}, {REPLAYED}"
CONTESTANTS = (EAGER, COMPILE, JIT_MODEL, JIT_STEP, STEP_REPLAYED)
OURS = (JIT_MODEL, JIT_STEP, STEP_REPLAYED)
RATE = 1e-4
LOSSES, TOLERANCE = 8, 2e-2
"""The losses that are compared closely."""
LATER_TOLERANCE = 0.1
"""Of the steps after them, in which CUDA graphs are captured and replayed: roundings grow with every step."""
WARM_STEPS = JIT_CALLS + 10
"""After these steps nothing is new to ingot.jit: recorded, compiled, tried, captured."""
_ORDER = (EAGER, STEP_REPLAYED, JIT_STEP, JIT_MODEL, COMPILE)
"""In which contestants begin: the whole step first of ingot's, so that it finds nothing that was compiled."""


@dataclass(frozen=True)
class TrainingRow(Row):
    """A case and everyone who trained it; `second_result` is the second step's."""

    first_steps: Mapping[str, float] = field(default_factory=dict)
    """Seconds until the first steps are done whose losses are compared closely, by contestant."""
    peaks: Mapping[str, int | None] = field(default_factory=dict)
    """Bytes that a step needs at its highest, by contestant."""
    difference: str = ""
    """The first loss of ingot's that is not eager's, in words; nothing if there is none."""
    tiers: Mapping[str, str] = field(default_factory=dict)
    is_replayed: bool = False
    """Whether the step that is to be replayed as a CUDA graph is."""
    is_host_limited: bool = False
    remarks: tuple[str, ...] = ()


@dataclass
class Trainer:
    """A contestant: its step, and what was seen of it so far."""

    step: Callable[[Batch], torch.Tensor]
    jitted: Any = None
    losses: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    peak: int | None = None

    def train(self, batch: Batch, number: int) -> None:
        """One step to its end, with random numbers of its own."""
        device = batch["inputs"].device

        def whole() -> None:
            self.losses.append(float(self.step(batch)))
            synchronize(device)

        torch.manual_seed(number)
        synchronize(device)
        self.spent.append(seconds(whole))


def training_row(
    case: TrainedNetwork,
    device: torch.device,
    effort: Effort,
    with_compile: bool,
    is_small: bool,
    is_explained: bool = False,
) -> TrainingRow:
    """A model trained by everyone, in turns."""
    with quiet():
        trainers, batch, remarks = prepare(case, device, with_compile, is_small)
        calls = {name: Contestant(partial(trainers[name].step, batch)) for name in CONTESTANTS if name in trainers}
        timings = race(calls, effort, whole_clock(device))
    jitted = {name: trainers[name].jitted for name in OURS if name in trainers}
    if is_explained:
        explain_all(jitted)
    differences = (differs(trainers[name], trainers[EAGER], name) for name in jitted)
    replays = replay_lines(jitted.get(STEP_REPLAYED))
    return TrainingRow(
        *(case.name, {name: timing.median for name, timing in timings.items()}, 0, 0),
        second_result={name: sum(one.spent[:2]) for name, one in trainers.items()},
        first_steps={name: sum(one.spent[:LOSSES]) for name, one in trainers.items()},
        peaks={name: one.peak for name, one in trainers.items()},
        difference=next(filter(None, differences), ""),
        tiers={name: tier_of(function) for name, function in jitted.items()},
        is_replayed=any(text.startswith("replayed as") for text in replays),
        is_host_limited=case.is_host_limited,
        remarks=(*remarks, *_remarks(jitted, replays)),
    )


def prepare(
    case: TrainedNetwork, device: torch.device, with_compile: bool, is_small: bool
) -> tuple[dict[str, Trainer], Batch, tuple[str, ...]]:
    """Trainers whose first steps are done, their batch, and who failed. Eager may not fail."""
    forget(device)
    batch = case.make(device, is_small)[1]
    trainer(case, device, is_small, EAGER).step(batch)  # libraries are loaded, and take memory that they keep
    trainers: dict[str, Trainer] = {}
    failures: list[str] = []
    for name in _ORDER if with_compile else _ORDER[:-1]:
        try:
            trainers[name] = _warmed_up(case, device, is_small, name, batch)
        except Exception as error:
            if name == EAGER:
                raise
            failures.append(f"{name} fails, {error_text(error)}")
    return trainers, batch, tuple(failures)


def trainer(case: TrainedNetwork, device: torch.device, is_small: bool, name: str) -> Trainer:
    """A contestant with a model and an optimizer of its own."""
    module, _ = case.make(device, is_small)
    optimizer = torch.optim.AdamW(module.parameters(), RATE, fused=True)
    loss = loss_on(device.type)
    if name in (JIT_STEP, STEP_REPLAYED):
        step = whole_step(module, optimizer, loss)
        whole: Any = jit(step, mode=REPLAYED) if name == STEP_REPLAYED else jit(step)
        return Trainer(whole, whole)
    called: Any = module
    jitted: Any = None
    if name == JIT_MODEL:
        called = jitted = jit(module)
    elif name == COMPILE:
        called = torch.compile(module)
    return Trainer(whole_step(called, optimizer, loss), jitted)


def _warmed_up(case: TrainedNetwork, device: torch.device, is_small: bool, name: str, batch: Batch) -> Trainer:
    meter = MemoryMeter(device)
    one = trainer(case, device, is_small, name)
    gc.collect()  # garbage of other contestants must not be collected while this one is timed
    for number in range(LOSSES if name == COMPILE else WARM_STEPS):
        one.train(batch, number)
    one.peak = meter.peak_of(partial(one.step, batch))
    return one


def differs(one: Trainer, eager: Trainer, name: str) -> str:
    """The first loss that is too far from eager's, in words; nothing if there is none."""
    for number, (found, wanted) in enumerate(zip(one.losses, eager.losses, strict=True)):
        tolerance = TOLERANCE if number < LOSSES else LATER_TOLERANCE
        if not abs(found - wanted) <= tolerance * abs(wanted):  # not a number is too far
            return f"{name}, loss {number}: {found:.5g} instead of {wanted:.5g}"
    return ""


def replay_lines(jitted: Any) -> list[str]:
    """What a function says of its programs as CUDA graphs."""
    lines = [] if jitted is None else [line.strip() for line in jitted.explain().splitlines()]
    return [line for line in lines if line.startswith(("replayed as", "not replayed", "to be captured"))]


def _remarks(jitted: Mapping[str, Any], replays: list[str]) -> list[str]:
    """Why Python runs, and why nothing is replayed, each said once."""
    found = [f"{name}: {reason}" for name, function in jitted.items() for reason in why_python_runs(function)]
    if not any(line.startswith("replayed as") for line in replays):
        found += [f"{STEP_REPLAYED}: {line}" for line in replays]
    return list(dict.fromkeys(found))


def explain_all(jitted: Mapping[str, Any]) -> None:
    """Print what ingot.jit says of itself."""
    for name, function in jitted.items():
        print(f"{name}: {function.explain()}", file=sys.stderr, flush=True)
