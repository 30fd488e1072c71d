"""AdamW alone: torch's fused form, and `ingot.jit(optimizer.step)`, on weights and biases with gradients.

In: how many values there are. Out: a row for each number. What always holds: after the warm-up steps, ingot's weights
were compared with eager's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import ingot
from benchmarks.capture.contests import Job, Row, difference, medians, quiet
from benchmarks.capture.telling import recordings_of, tier_of, why_python_runs
from benchmarks.training.steps import FUSED, JIT_STEP, RATE, WARM_STEPS, Settings

PARAMETERS = 196
"""Half of them weights, half of them biases."""
WIDTHS = (90, 364, 963)
SMALL_WIDTHS = (3, 5)
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Parameters:
    """Parameters with gradients, and their optimizer."""

    values: list[torch.nn.Parameter]
    optimizer: torch.optim.Optimizer

    @staticmethod
    def make(width: int) -> Parameters:
        numbers = torch.Generator().manual_seed(20)
        values = []
        for number in range(PARAMETERS):
            shape = (width,) if number % 2 else (width, width)
            values.append(torch.nn.Parameter(torch.randn(shape, generator=numbers)))
            values[-1].grad = torch.randn(shape, generator=numbers)
        return Parameters(values, torch.optim.AdamW(values, RATE, fused=True))


def optimizers(settings: Settings) -> list[Job]:
    """AdamW alone."""
    widths = SMALL_WIDTHS if settings.is_small else WIDTHS
    return [Job(name_of(width), partial(measure_optimizer, width, settings)) for width in widths]


def name_of(width: int) -> str:
    values = PARAMETERS // 2 * (width * width + width)
    return f"AdamW, {PARAMETERS} parameters, {values / 1e6:.3g}M values"


def measure_optimizer(width: int, settings: Settings) -> Row:
    eager, ours = Parameters.make(width), Parameters.make(width)
    jitted: Any = ingot.jit(ours.optimizer.step)
    with quiet():
        for _ in range(WARM_STEPS):
            eager.optimizer.step()
            jitted()
        differs = difference(ours.values, eager.values, TOLERANCE, "weights")
        found = medians({FUSED: eager.optimizer.step, JIT_STEP: jitted}, settings.effort)
    name = name_of(width)
    remarks = tuple(f"{name}: {reason}" for reason in why_python_runs(jitted))
    return Row(name, found, differs, tier_of(jitted), recordings_of(jitted), remarks=remarks)
