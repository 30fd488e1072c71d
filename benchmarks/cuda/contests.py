"""Who computes a case on a device: eager PyTorch, torch.compile and ingot.jit, each ready to be called.

In: a case and its inputs. Out: calls without arguments, what became of the case in ingot.jit and how long that took to
compile, and how long each contestant took to its second result. What always holds: ingot.jit's results have been
compared with eager's in a wider type, and a difference ends the run.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.cases import Case
from benchmarks.contestants import JIT_CALLS, WrongResult, fresh_compile
from benchmarks.cuda.clocks import synchronize
from benchmarks.measuring import Call, seconds
from benchmarks.results import COMPILE, EAGER, JIT
from ingot import jit
from ingot.runtime.cuda.kernels import gpu_kernels
from ingot.runtime.cuda.modules import modules

WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}
TOLERANCES = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5}
"""How far a result may be from what the wider type gives, in parts of it, beyond eager's own largest distance."""


@dataclass(frozen=True)
class DeviceContest:
    """A case made ready."""

    calls: dict[str, Call]
    second_result: dict[str, float]
    """Seconds until the second result, by contestant."""
    compile_seconds: float
    """What ingot.jit took to compile, by its own account: from what it had recorded to loaded kernels."""
    elements: int
    nbytes: int
    kernels: int
    """Kernels that ingot.jit generated; none where it runs eagerly."""
    reason: str
    """Why it runs eagerly, where it does."""


def prepare(case: Case, inputs: Sequence[torch.Tensor], with_compile: bool) -> DeviceContest:
    """Compile and check a case. Raises WrongResult if ingot.jit and eager differ."""
    device = inputs[0].device
    check = Check(case, inputs)
    nbytes = sum(tensor.nbytes for tensor in (*inputs, *check.expected))
    calls: dict[str, Call] = {EAGER: partial(case.eager, *inputs)}
    first = Try(case, inputs)
    second = {JIT: first.second_result}
    if with_compile:
        compiled = fresh_compile(case.eager)
        second[COMPILE] = _seconds_to_second_result(lambda: compiled(*inputs), device)
        calls[COMPILE] = partial(compiled, *inputs)
    for number in range(JIT_CALLS):
        result = first.function(*inputs)
        if number in (0, JIT_CALLS - 1):
            check.require_close(result)
    calls[JIT] = partial(first.function, *inputs)
    kernels, reason = generated_kernels(first.function, device)
    return DeviceContest(calls, second, first.compile_seconds, inputs[0].numel(), nbytes, kernels, reason)


class Try:
    """A function compiled by ingot.jit from nothing: no kernel of an earlier try is found."""

    def __init__(self, case: Case, inputs: Sequence[torch.Tensor]):
        gpu_kernels._compiled.made.clear()
        modules._loaded.made.clear()
        self.function: Any = jit(case.eager)
        self.second_result = _seconds_to_second_result(lambda: self.function(*inputs), inputs[0].device)
        kinds = self.function._compiled.specialisations.values()
        self.compile_seconds = sum(kind.compile_seconds for kind in kinds)


class Check:
    """What eager gives for a case, and what it gives in a wider type."""

    def __init__(self, case: Case, inputs: Sequence[torch.Tensor]):
        self._case = case
        self.expected = _as_tuple(case.eager(*inputs))
        wide = [tensor.to(WIDER.get(tensor.dtype, tensor.dtype)) for tensor in inputs]
        self._precise = _as_tuple(case.eager(*wide))

    def require_close(self, result: Any) -> None:
        """Raise WrongResult unless every element is about as close to the wider type's as eager's are."""
        for number, (found, eager, precise) in enumerate(
            zip(_as_tuple(result), self.expected, self._precise, strict=True)
        ):
            if found.dtype is not eager.dtype or found.shape != eager.shape:
                text = f"{found.dtype} {list(found.shape)} instead of {eager.dtype} {list(eager.shape)}"
                raise WrongResult(f"{self._case.name}, result {number}: {text}")
            tolerance = TOLERANCES[eager.dtype]
            furthest = float((eager - precise).abs().max())
            try:
                torch.testing.assert_close(
                    found, precise, rtol=tolerance, atol=2 * furthest, check_dtype=False, equal_nan=True
                )
            except AssertionError as difference:
                raise WrongResult(f"{self._case.name}, result {number}: {difference}") from None


def generated_kernels(function: Any, device: torch.device) -> tuple[int, str]:
    """How many kernels a compiled function has and runs on a device, and why there are none."""
    compiled = function._compiled
    if compiled.given_up is not None:
        return 0, compiled.given_up
    kinds = list(compiled.specialisations.values())
    if not kinds:
        return 0, "nothing was recorded"
    last = kinds[-1]
    if last.broken is not None:
        return 0, last.broken.reason
    modules = [] if last.program is None else last.program.modules
    found = [module._plan.refuses(kernel, device.type) for module in modules for kernel in module.kernels()]
    return found.count(False), "" if False in found else "no kernel was generated"


def first_use(device: torch.device, with_compile: bool) -> dict[str, float]:
    """Seconds until the very first compiled call, by contestant. torch.compile is missing if it does not work here."""
    x = torch.ones(8, 8, device=device)
    case = Case("x - 1", ("full",), lambda x: x - 1.0)
    case.eager(x)
    function = jit(case.eager)
    spent = {JIT: _seconds_to_second_result(lambda: function(x), device)}
    if with_compile:
        torch.compiler.config.force_disable_caches = True
        try:
            compiled = fresh_compile(case.eager)
            spent[COMPILE] = _seconds_to_second_result(lambda: compiled(x), device)
        except Exception as error:  # whatever is missing
            print(f"torch.compile is left out, because it fails here: {type(error).__name__}: {error}")
    return spent


def _seconds_to_second_result(call: Call, device: torch.device) -> float:
    def both() -> None:
        call()
        call()
        synchronize(device)

    gc.collect()  # garbage of other contestants must not be collected while this one is timed
    synchronize(device)
    with warnings.catch_warnings():
        # What runs eagerly is said in the table, with the reason.
        warnings.simplefilter("ignore")
        return seconds(both)


def _as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)
