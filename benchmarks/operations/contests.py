"""Who computes a case: eager PyTorch, torch.compile if it is asked to, and ingot.jit; compared, then measured in turn.

In: cases. Out: a row for each. What always holds: every result of ingot's first calls was compared with eager's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import ingot
from benchmarks.capture.contests import Job, Row, difference, error_text, medians, quiet
from benchmarks.capture.telling import recordings_of, tier_of
from benchmarks.contestants import JIT_CALLS, fresh_compile
from benchmarks.measuring import Call, Effort
from benchmarks.operations import geometry, images, lookups
from benchmarks.operations.cases import Data, OperationCase
from benchmarks.results import COMPILE, EAGER, JIT

SECTIONS: dict[str, tuple[OperationCase, ...]] = {
    "geometry": geometry.CASES,
    "images": images.CASES,
    "lookups": lookups.CASES,
}


def jobs(cases: tuple[OperationCase, ...], effort: Effort, with_compile: bool, is_small: bool) -> list[Job]:
    return [Job(case.name, partial(measure_case, case, effort, with_compile, is_small)) for case in cases]


def measure_case(case: OperationCase, effort: Effort, with_compile: bool, is_small: bool) -> Row:
    arguments = case.make(Data(is_small))
    jitted = ingot.jit(case.function)
    with quiet(), torch.no_grad():
        wanted = case.function(*arguments)
        differs = ""
        for _ in range(JIT_CALLS):
            differs = differs or difference(jitted(*arguments), wanted)
        calls: dict[str, Call] = {EAGER: partial(case.function, *arguments)}
        remarks = _add_compiled(case, arguments, wanted, calls) if with_compile else ()
        calls[JIT] = partial(jitted, *arguments)
        seconds = medians(calls, effort)
    return Row(case.name, seconds, differs, tier_of(jitted), recordings_of(jitted), remarks=(*remarks, *_slow(jitted)))


def _add_compiled(case: OperationCase, arguments: Any, wanted: Any, calls: dict[str, Call]) -> tuple[str, ...]:
    """Adds torch.compile's call, or says why there is none."""
    compiled: Any = fresh_compile(case.function)
    try:
        differs = next(filter(None, [difference(compiled(*arguments), wanted) for _ in range(JIT_CALLS)]), "")
    except Exception as error:  # whatever it is that torch.compile cannot do
        return (f"{case.name}: torch.compile fails, {error_text(error)}",)
    calls[COMPILE] = partial(compiled, *arguments)
    return (f"{case.name}: torch.compile differs from eager, {differs}",) if differs else ()


def _slow(jitted: Any) -> tuple[str, ...]:
    """What ingot says where it has measured that eager PyTorch is quicker."""
    lines = jitted.explain().splitlines() if hasattr(jitted, "explain") else []
    return tuple(line.strip() for line in lines if "eager PyTorch is quicker" in line)
