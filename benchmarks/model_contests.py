"""Who runs a model: eager PyTorch, torch.compile and ingot.jit, each ready to be called.

In: a model. Out: calls without arguments, and how long each took to its second result. What always holds: ingot.jit's
outputs have been compared with eager's, and a difference ends the run. Gradients must be off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.contestants import JIT_CALLS, WrongResult, fresh_compile, inductor_settings
from benchmarks.measuring import Call, seconds
from benchmarks.models import Model
from benchmarks.results import COMPILE, EAGER, JIT
from ingot import jit
from ingot.frontend.jit.autotune.eager_comparison import ROUNDS
from ingot.frontend.jit.lowering.checked_weights import FIRST_WAIT

TOLERANCE = 1e-3
_CALLS = JIT_CALLS + FIRST_WAIT + 2 * ROUNDS + 4
"""After these calls it is also known whether packed weights are quicker."""


@dataclass(frozen=True)
class ModelContest:
    calls: dict[str, Call]
    second_result: dict[str, float]
    elements: int
    """Of the inputs."""
    nbytes: int
    """Of the weights and the inputs."""


def contest_of_model(model: Model, is_small: bool, with_compile: bool, is_frozen: bool = False) -> ModelContest:
    """Compile and check a model, with its weights as constants if it is frozen; torch.compile has a setting for that.

    Raises WrongResult if ingot.jit and eager differ.
    """
    module, inputs = model.make(is_small)
    expected = module(**inputs)
    jitted: Any = jit(module, freeze=is_frozen)
    calls: dict[str, Call] = {EAGER: lambda: module(**inputs)}
    second = {JIT: _seconds_to_second_result(lambda: jitted(**inputs))}
    if with_compile:
        compiled = fresh_compile(module)
        with inductor_settings(freezing=is_frozen):
            second[COMPILE] = _seconds_to_second_result(lambda: compiled(**inputs))
        calls[COMPILE] = lambda: compiled(**inputs)
    calls[JIT] = lambda: jitted(**inputs)
    for _ in range(_CALLS):
        _require_close(model, jitted(**inputs), expected)
    weights = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
    given = list(inputs.values())
    return ModelContest(
        calls, second, sum(tensor.numel() for tensor in given), weights + sum(tensor.nbytes for tensor in given)
    )


def _seconds_to_second_result(call: Call) -> float:
    return 2 * seconds(call, repeats=2)


def tensors_of(result: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a model's output, in order."""
    if isinstance(result, torch.Tensor):
        yield result
    else:
        for part in result.values() if hasattr(result, "values") else result:
            yield from tensors_of(part)


def _require_close(model: Model, result: Any, expected: Any) -> None:
    for number, (found, wanted) in enumerate(zip(tensors_of(result), tensors_of(expected), strict=True)):
        try:
            torch.testing.assert_close(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)
        except AssertionError as difference:
            raise WrongResult(f"{model.name}, result {number}: {difference}") from None
