"""Whole models: eager, torch.compile and ingot.jit of a model's forward, and the floor that running Python sets.

In: the uses of `hugging_face`. Out: a row for each. Gradients are off. What always holds: each of ingot's warm-up
results was compared with eager's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import ingot
from benchmarks.capture.contests import Job, Row, Settings, difference, error_text, medians, quiet
from benchmarks.capture.followed import FOLLOWED, KERNELS, followed
from benchmarks.capture.hugging_face import USES, Use
from benchmarks.capture.python_floor import answered
from benchmarks.capture.telling import recordings_of, tier_of, why_python_runs
from benchmarks.contestants import fresh_compile
from benchmarks.measuring import Call, Contestant
from benchmarks.models import transformers_package
from benchmarks.results import COMPILE, EAGER, JIT

FLOOR = "Python alone"
WARM_CALLS = 4
"""Texts or passes that are compared: each text calls the model a dozen times."""


def least_seconds(row: Row) -> float | None:
    """What following would take if it cost nothing itself: Python alone, and the kernels."""
    if FLOOR not in row.seconds or KERNELS not in row.seconds:
        return None
    return row.seconds[FLOOR] + row.seconds[KERNELS]


def over_least(row: Row) -> float | None:
    """How many times as long following takes."""
    least = least_seconds(row)
    return None if least is None or FOLLOWED not in row.seconds else row.seconds[FOLLOWED] / least


def models(settings: Settings) -> list[Job]:
    """Texts and single passes."""
    return [Job(use.name, partial(measure_model, use, settings)) for use in USES]


def measure_model(use: Use, settings: Settings) -> Row:
    is_small = settings.small_models
    transformers_package().logging.set_verbosity_error()
    with quiet(), torch.no_grad():
        module, inputs = use.model.make(is_small)
        eager = partial(use.run, module, inputs, is_small)
        other: Any = use.model.make(is_small)[0]
        other.forward = ingot.jit(other.forward)
        ours = partial(use.run, other, inputs, is_small)
        differs = ""
        for number in range(WARM_CALLS if use.is_exact else 8 * WARM_CALLS):
            differs = differs or difference(ours(), eager(), use.tolerance, f"call {number}")
        calls: dict[str, Call | Contestant] = {EAGER: eager, JIT: ours}
        remarks, torch_calls = _add_floor(use, eager, calls)
        other_one: Any = use.model.make(is_small)[0]
        all_followed = followed(other_one, partial(use.run, other_one, inputs, is_small))
        calls |= {FOLLOWED: all_followed.use, KERNELS: all_followed.run_kernels}
        if settings.compile_models:
            remarks += _add_compiled(use, inputs, settings, calls)
        seconds = medians(calls, settings.effort)
    tier, recordings = tier_of(other.forward), recordings_of(other.forward)
    remarks += tuple(f"{use.name}: {reason}" for reason in why_python_runs(other.forward))
    return Row(use.name, seconds, differs, tier, recordings, torch_calls, remarks)


def _add_floor(use: Use, eager: Call, calls: dict[str, Call | Contestant]) -> tuple[tuple[str, ...], int | None]:
    """Adds the call answered from a list, or says why there is none; and how many answers the list has."""
    try:
        calls[FLOOR], torch_calls = answered(eager)
    except Exception as error:  # whatever code does when it is given what it was given before
        return (f"{use.name}: no floor, {error_text(error)}",), None
    return (), torch_calls


def _add_compiled(use: Use, inputs: Any, settings: Settings, calls: dict[str, Call | Contestant]) -> tuple[str, ...]:
    """Adds torch.compile's call, or says why there is none."""
    module: Any = use.model.make(settings.small_models)[0]
    wanted = use.run(module, inputs, settings.small_models)
    module.forward = fresh_compile(module.forward)
    compiled = partial(use.run, module, inputs, settings.small_models)
    differs = ""
    try:
        for _ in range(WARM_CALLS):
            differs = differs or difference(compiled(), wanted, use.tolerance)
    except Exception as error:  # whatever it is that torch.compile cannot do
        return (f"{use.name}: torch.compile fails, {error_text(error)}",)
    calls[COMPILE] = compiled
    return (f"{use.name}: torch.compile differs from eager, {differs}",) if differs else ()
