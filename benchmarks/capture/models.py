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
from benchmarks.capture.followed import FOLLOWED, KERNELS, Kernels, followed, replaced, run_all
from benchmarks.capture.hugging_face import USES, Use
from benchmarks.capture.python_floor import answered
from benchmarks.capture.telling import recordings_of, tier_of, why_python_runs
from benchmarks.contestants import fresh_compile
from benchmarks.measuring import Call, Contestant
from benchmarks.models import transformers_package
from benchmarks.results import COMPILE, EAGER, JIT

FLOOR = "Python alone"
LEAST = "Python alone, with kernels"
"""In one call, after each call of the model what that one runs: each finds the processor's caches as the other has left
them, and is quicker by itself."""
WARM_CALLS = 4
"""Texts or passes that are compared: each text calls the model a dozen times."""


def over_least(row: Row) -> float | None:
    """How many times as long following takes as what it would take if it cost nothing itself."""
    return row.over(FOLLOWED, LEAST)


def over_sum(row: Row) -> float | None:
    """The same, compared with the sum of both measured apart."""
    if not {FLOOR, KERNELS, FOLLOWED} <= row.seconds.keys():
        return None
    return row.seconds[FOLLOWED] / (row.seconds[FLOOR] + row.seconds[KERNELS])


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
        if FLOOR in calls:
            calls[LEAST] = _with_kernels(calls[FLOOR], module, all_followed.kernels)
        if settings.compile_models:
            remarks += _add_compiled(use, inputs, settings, calls)
            for _ in range(8 * WARM_CALLS):  # compiling has changed nn.Module, so that calls are recorded again
                ours()
                all_followed.use()
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


def _with_kernels(floor: Call | Contestant, module: Any, kernels: Kernels) -> Contestant:
    """Python alone, and after each call of the model the kernels that belong to it."""
    floor = floor if isinstance(floor, Contestant) else Contestant(floor)

    def both() -> None:
        parts = iter(kernels)
        run_all(next(parts))

        def followed_by_kernels(plain: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                result = plain(*args, **kwargs)
                mode = torch._C._pop_torch_function_stack()  # the list has no answers for kernels
                run_all(next(parts))
                torch._C._push_on_torch_function_stack(mode)
                return result

            return forward

        with replaced(module, followed_by_kernels):
            floor.call()

    return Contestant(both, floor.prepare)


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
