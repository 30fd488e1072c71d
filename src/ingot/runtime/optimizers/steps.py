"""Steps of optimizers over many parameters at once, on the CPU and on GPUs.

In: lists of parameters, gradients and state, all dense and of one type, and the settings of the step. Out: parameters,
state and step counts, written in place. A trace names a step by an operator of ingot's own; programs call the functions
here. On GPUs steps are PyTorch's fused kernels.
"""

from __future__ import annotations

import ctypes
from array import array as _array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy
import torch

from ingot.codegen.cpu.optimizer_steps import CHUNK, StepWord, compiled_steps
from ingot.runtime.disk_cache.process import process_functions
from ingot.runtime.profiling.ranges import kernel_range
from ingot.runtime.threads import bind_openmp, thread_count

TYPES = frozenset({torch.float32, torch.float64})
"""The types of parameters whose steps are compiled."""
_library = torch.library.Library("ingot", "FRAGMENT")
_library.define(
    "adam_step(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, "
    "Tensor(d!)[] counts, float rate, float beta1, float beta2, float weight_decay, float eps, "
    "bool is_decoupled, bool maximize, int[] moves, Tensor? found_inf, bool counts_skipped) -> ()"
)
_library.define(
    "sgd_step(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] buffers, float rate, float momentum, "
    "float dampening, float weight_decay, bool nesterov, bool maximize, int[] moves, Tensor? found_inf, "
    "bool counts_skipped) -> ()"
)
_library.define("unscale_step(Tensor(a!)[] gradients, Tensor scale, Tensor? found_inf) -> ()")
ADAM_STEP: torch._ops.OpOverload = torch.ops.ingot.adam_step.default
SGD_STEP: torch._ops.OpOverload = torch.ops.ingot.sgd_step.default
UNSCALE_STEP: torch._ops.OpOverload = torch.ops.ingot.unscale_step.default


def adam_step(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    averages: list[torch.Tensor],
    squares: list[torch.Tensor],
    counts: list[torch.Tensor],
    rate: float | torch.Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    is_decoupled: bool,
    maximize: bool,
    moves: list[int],
    found_inf: torch.Tensor | None,
    counts_skipped: bool,
) -> None:
    """A step of Adam, or of AdamW where weights decay apart from the gradients. On a GPU the rate may lie there, too.

    Where a scaler has found infinities in the gradients, nothing is computed; `counts_skipped` says whether writes are
    counted all the same, as they are by PyTorch's fused steps.
    """
    columns = (parameters, gradients, averages, squares, counts)
    settings: dict[str, Any] = {"lr": rate, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay, "eps": eps}
    settings |= {"amsgrad": False, "maximize": maximize}
    if is_skipped(found_inf):
        if counts_skipped:
            move_versions(columns, moves)
        return
    with kernel_range("adam_step"):
        if not parameters[0].is_cpu:
            counted = _counted(counts, parameters[0].device, beta1, beta2)
            _fused_step((parameters, gradients, averages, squares), counted, settings, is_decoupled)
        elif parameters[0].dtype is torch.float32 and not isinstance(rate, torch.Tensor):
            shrinking, decay = (1 - rate * weight_decay, 0.0) if is_decoupled else (1.0, weight_decay)
            numbers = rate, beta1, beta2, shrinking, decay, eps, -1.0 if maximize else 1.0
            _generated_step(parameters, gradients, averages, squares, counts, numbers)
        else:
            for one in counts:
                one.data.add_(1)  # which moves no version: that comes below
            _fused_step((parameters, gradients, averages, squares), counts, settings, is_decoupled)
    move_versions(columns, moves)


def _fused_step(
    columns: Sequence[list[torch.Tensor]], counts: list[torch.Tensor], settings: dict[str, Any], is_decoupled: bool
) -> None:
    """A step by PyTorch's kernel, which counts no writes."""
    step: Any = torch._fused_adamw_ if is_decoupled else torch._fused_adam_
    step(*columns, [], counts, **settings)


def count_steps(counts: list[torch.Tensor], beta1: float = 0.0, beta2: float = 0.0) -> _array[float]:
    """Make counts of float32 on the CPU one more; two factors for each that follow from it, for a rate of 1."""
    addresses, factors = _array("q", [one.data_ptr() for one in counts]), _array("d", bytes(16 * len(counts)))
    words = _array("q", bytes(8 * len(StepWord)))
    words[StepWord.COUNTS], words[StepWord.FACTORS] = addresses.buffer_info()[0], factors.buffer_info()[0]
    words[StepWord.TENSORS] = len(counts)
    numbers = _array("q", _array("d", [1.0, beta1, beta2]).tobytes())
    words[StepWord.RATE], words[StepWord.BETA1], words[StepWord.BETA2] = numbers
    _functions()[0](words.buffer_info()[0])
    return factors


def _counted(counts: list[torch.Tensor], device: torch.device, beta1: float, beta2: float) -> list[torch.Tensor]:
    """Step counts, each one more, where kernels of a GPU read them; they lie on the CPU if no optimizer is fused."""
    if not counts[0].is_cpu:
        torch._foreach_add_([one.data for one in counts], 1)
        return counts
    factors = count_steps(counts, beta1, beta2)
    if factors[2:] == factors[:-2]:  # where counts differ and corrections do not, it is the same step
        return [torch.full((), counts[0].item(), dtype=torch.float32, device=device)] * len(counts)
    return list(torch.tensor([one.item() for one in counts], dtype=torch.float32).to(device).unbind())


def _generated_step(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    averages: list[torch.Tensor],
    squares: list[torch.Tensor],
    counts: list[torch.Tensor],
    numbers: tuple[float, ...],
) -> None:
    """A step over parameters of float32; `numbers` are in the order of `StepWord`."""
    count, update = _functions()
    tasks = _tasks(tuple([one.numel() for one in parameters]))
    length = len(parameters)
    addresses = _array("q", [one.data_ptr() for one in (*parameters, *gradients, *averages, *squares, *counts)])
    factors = _array("d", bytes(16 * length))
    start = addresses.buffer_info()[0]
    words = _array("q", [start + 8 * length * column for column in range(5)])
    words.extend([factors.buffer_info()[0], *tasks.addresses, length, tasks.count, thread_count()])
    words.frombytes(_array("d", numbers).tobytes())
    address = words.buffer_info()[0]
    count(address)
    update(address)


@dataclass(frozen=True, slots=True)
class _Tasks:
    """How threads share tensors: for each task its tensor and its first element."""

    arrays: tuple[numpy.ndarray, ...]
    count: int

    @property
    def addresses(self) -> tuple[int, ...]:
        return tuple([one.ctypes.data for one in self.arrays])


@lru_cache(maxsize=256)
def _tasks(sizes: tuple[int, ...]) -> _Tasks:
    elements = numpy.array(sizes, numpy.int64)
    parts = -(-elements // CHUNK)
    tensors = numpy.repeat(numpy.arange(len(sizes), dtype=numpy.int64), parts)
    firsts = numpy.repeat(numpy.cumsum(parts) - parts, parts)
    starts = (numpy.arange(len(tensors), dtype=numpy.int64) - firsts) * CHUNK
    return _Tasks((elements, tensors, starts), len(tensors))


@lru_cache(maxsize=1)
def _functions() -> tuple[Callable[[int], None], Callable[[int], None]]:
    bind_openmp()
    compiled = compiled_steps(process_functions())
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return kind(compiled.count), kind(compiled.update)


def sgd_step(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    buffers: list[torch.Tensor],
    rate: float | torch.Tensor,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    moves: list[int],
    found_inf: torch.Tensor | None,
    counts_skipped: bool,
) -> None:
    """A step of SGD; there are no buffers where there is no momentum. What is skipped is as for Adam."""
    if is_skipped(found_inf):
        if counts_skipped:
            move_versions((parameters, gradients, buffers), moves)
        return
    step: Any = torch._fused_sgd_
    step(
        parameters,
        gradients,
        buffers,
        weight_decay=weight_decay,
        momentum=momentum,
        lr=rate,
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
        is_first_step=False,
    )
    move_versions((parameters, gradients, buffers), moves)


def unscale_step(gradients: list[torch.Tensor], scale: torch.Tensor, found_inf: torch.Tensor | None) -> None:
    """Divide gradients by the scale of their loss, as fused steps do before anything else unless they are skipped; the
    step itself counts these writes."""
    if not is_skipped(found_inf):
        torch._foreach_div_([one.data for one in gradients], scale)


def is_skipped(found_inf: torch.Tensor | None) -> bool:
    """Whether a scaler has found infinities, so that a step is left out."""
    return found_inf is not None and bool(found_inf.item())


def move_versions(columns: Sequence[list[torch.Tensor]], moves: Sequence[int]) -> None:
    """Count writes as the optimizer would that a step stands for: graphs that need what was there before see them."""
    for tensors, count in zip(columns, moves, strict=False):
        for _ in range(count):
            torch.autograd.graph.increment_version(tensors)
