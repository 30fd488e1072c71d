"""Who computes a case: eager PyTorch, torch.compile and ingot, each ready to be called.

In: a case and its inputs. Out: calls without arguments. What always holds: ingot's results have been compared with
eager's before anything is measured, and a difference ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from benchmarks.cases import Case
from benchmarks.measuring import Call, seconds
from benchmarks.results import COMPILE, EAGER, INGOT, JIT
from ingot import DataType, FusionDefinition, jit
from ingot.frontend.jit.autotune.eager_comparison import ROUNDS

HALVES = {torch.bfloat16: DataType.BFloat16, torch.float16: DataType.Half}
HALF_TOLERANCES = {torch.bfloat16: 4e-2, torch.float16: 5e-3}
"""Eager rounds after every operation, ingot once: results differ by a few roundings."""

JIT_CALLS = 2 * ROUNDS + 4
"""After these calls nothing is new to a function compiled by ingot.jit: recorded, compiled, tried, run."""


class WrongResult(Exception):
    """ingot did not compute what eager PyTorch computes."""


@dataclass(frozen=True)
class Contest:
    """A case made ready: calls by name, and how long the first call of each took."""

    tensors: Sequence[torch.Tensor]
    results: Sequence[torch.Tensor]
    calls: dict[str, Call]
    first_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.tensors, *self.results))

    @property
    def streams(self) -> tuple[int, int]:
        """How many arrays are read and written, small ones beside the largest left out."""
        largest = max(tensor.nbytes for tensor in (*self.tensors, *self.results))
        reads, writes = (
            sum(tensor.nbytes * 16 > largest for tensor in tensors) for tensors in (self.tensors, self.results)
        )
        return reads, writes


def define(case: Case, tensors: Sequence[torch.Tensor]) -> FusionDefinition:
    """The case as a fusion; results have the dtype of the first input."""
    half = HALVES.get(tensors[0].dtype)
    assert case.fused is not None, f"{case.name} is only called as a function"
    with FusionDefinition() as fd:
        results = case.fused(fd.ops, *(fd.from_pytorch(tensor) for tensor in tensors))
        for result in results if isinstance(results, tuple) else (results,):
            fd.add_output(result if half is None else fd.ops.cast(result, half))
    return fd


def prepare(case: Case, tensors: Sequence[torch.Tensor], with_compile: bool, with_jit: bool = False) -> Contest:
    """Define, compile and check a case. Raises WrongResult if ingot and eager differ."""
    inputs = list(tensors)
    expected = case.eager(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    recycle_memory(expected)
    made: list[FusionDefinition] = []

    def first_call() -> None:
        made.append(define(case, inputs))
        made[0].execute(inputs)

    first = {INGOT: seconds(first_call)}
    fusion = made[0]
    require_close(case, fusion.execute(inputs), expected)
    # Bound, not wrapped in a function of Python's, which would cost each call what some of them cost themselves.
    calls: dict[str, Call] = {EAGER: partial(case.eager, *inputs)}
    if with_compile:
        compiled = fresh_compile(case.eager)
        first[COMPILE] = seconds(lambda: compiled(*inputs))
        calls[COMPILE] = partial(compiled, *inputs)
    calls[INGOT] = partial(fusion.execute, inputs)
    if with_jit:
        calls[JIT] = _jitted(case, inputs, expected)
    return Contest(inputs, expected, calls, first)


def _jitted(case: Case, inputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> Call:
    """The eager function through ingot.jit, recorded, compiled and checked."""
    function = jit(case.eager)
    for _ in range(JIT_CALLS):
        results = function(*inputs)
        require_close(case, results if isinstance(results, tuple) else (results,), expected)
    return partial(function, *inputs)


def fresh_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled by torch.compile, which is made to forget what it has compiled before."""
    torch.compiler.reset()
    return torch.compile(function)


def inductor_settings(**settings: Any) -> AbstractContextManager[Any]:
    """Settings of what torch.compile compiles with, imported at the first need: it takes seconds."""
    from torch._inductor import config

    return config.patch(settings)


def require_close(case: Case, results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    for number, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        tolerance = HALF_TOLERANCES.get(wanted.dtype, case.tolerance)
        try:
            torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)
        except AssertionError as difference:
            raise WrongResult(f"{case.name}, result {number}: {difference}") from None


def recycle_memory(results: Sequence[torch.Tensor]) -> None:
    """Let ingot's pool have blocks for such results, so that a first call is not mostly the system finding memory."""
    with FusionDefinition() as fd:
        for number, result in enumerate(results):
            fd.add_output(fd.from_pytorch(result) + float(number))
    fd.execute(list(results))


def first_use(with_compile: bool) -> dict[str, float]:
    """Seconds until the very first compiled call, by contestant. torch.compile is missing if it does not work here."""
    tensors = [torch.ones(8, 8)]
    case = Case("x - 1", ("full",), lambda x: x - 1.0, lambda ops, x: x - 1.0)
    spent = {INGOT: seconds(lambda: define(case, tensors).execute(tensors))}
    if with_compile:
        # What it has left on disk in an earlier run would pass for fast compilation.
        torch.compiler.config.force_disable_caches = True
        try:
            spent[COMPILE] = seconds(lambda: fresh_compile(case.eager)(*tensors))
        except Exception as error:  # whatever is missing: most often a C++ compiler
            print(f"torch.compile is left out, because it fails here: {type(error).__name__}: {error}")
    return spent
