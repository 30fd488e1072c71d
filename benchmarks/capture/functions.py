"""Functions with one thing inside that a recording cannot replace: eager, torch.compile, ingot, and without the thing.

In: the cases of `disturbed`. Out: a row for each. What always holds: eager and ingot have made the same calls, and both
the results of each call and the effects of all were compared.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

import ingot
from benchmarks.capture.contests import Job, Row, Settings, difference, error_text, medians, quiet
from benchmarks.capture.disturbed import CASES, Disturbed
from benchmarks.capture.telling import recordings_of, tier_of
from benchmarks.contestants import JIT_CALLS, fresh_compile
from benchmarks.measuring import Call, Contestant
from benchmarks.results import COMPILE, EAGER, JIT

PLAIN = "ingot.jit without it"


def functions(settings: Settings) -> list[Job]:
    """Large tensors, and something in the way."""
    return [Job(case.name, partial(measure_function, case, settings)) for case in CASES]


def measure_function(case: Disturbed, settings: Settings) -> Row:
    generator = torch.Generator().manual_seed(20)
    x, y = (torch.randn(settings.elements, generator=generator) for _ in range(2))
    with quiet(), torch.no_grad():
        eager, made = case.make(), case.make()
        jitted, plain = ingot.jit(made.function), ingot.jit(case.plain)
        differs = ""
        for _ in range(JIT_CALLS):
            wanted = eager.function(x, y, *eager.more)
            differs = differs or difference(jitted(x, y, *made.more), wanted)
            differs = differs or difference(plain(x, y), case.plain(x, y), where="without it")
        differs = differs or difference(made.effects(), eager.effects(), where="effects")
        calls: dict[str, Call | Contestant] = {EAGER: partial(eager.function, x, y, *eager.more)}
        remarks = _add_compiled(case, (x, y), calls) if settings.compile_functions else ()
        calls[JIT] = partial(jitted, x, y, *made.more)
        calls[PLAIN] = partial(plain, x, y)
        seconds = medians(calls, settings.effort)
    return Row(case.name, seconds, differs, tier_of(jitted), recordings_of(jitted), remarks=remarks)


def _add_compiled(case: Disturbed, tensors: tuple[Tensor, ...], calls: dict[str, Call | Contestant]) -> tuple[str, ...]:
    """Adds torch.compile's call, or says why there is none; it gets as many calls to get ready as ingot."""
    eager, made = case.make(), case.make()
    compiled: Any = fresh_compile(made.function)
    differs = ""
    try:
        for _ in range(JIT_CALLS):
            wanted = eager.function(*tensors, *eager.more)
            differs = differs or difference(compiled(*tensors, *made.more), wanted)
    except Exception as error:  # whatever it is that torch.compile cannot do
        return (f"{case.name}: torch.compile fails, {error_text(error)}",)
    calls[COMPILE] = partial(compiled, *tensors, *made.more)
    differs = differs or difference(made.effects(), eager.effects(), where="effects")
    return (f"{case.name}: torch.compile differs from eager, {differs}",) if differs else ()
