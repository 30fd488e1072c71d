"""Memory of training: how much a step needs at its highest, and how much is kept for the backward pass.

In: a step, or a case. Out: bytes. What always holds: memory is counted as the system does, whoever asks for it, so that
PyTorch's memory, ingot's pool and its arenas count alike; what lies idle is given back before a step is looked at.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import ingot
from benchmarks.training.cases import TrainingCase

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESETS_PEAK = "5"
STEPS = 3
"""Steps that are looked at; the one that needs least counts, as pages come and go."""


def peak_of(step: Callable[[], object]) -> int | None:
    """The most memory that is resident during a step, above what is before it: gradients, what is kept for the backward
    pass, and intermediate values; parameters and the optimizer's state are there before. None where the system does not
    tell."""
    if not _RESET.exists():
        return None
    found = []
    for _ in range(STEPS):
        _give_back()
        before = _resident("VmRSS")
        _RESET.write_text(_RESETS_PEAK)
        step()
        found.append(_resident("VmHWM") - before)
    return max(min(found), 0)


def _give_back() -> None:
    gc.collect()
    ingot.memory.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def saved_by_eager(case: TrainingCase, is_small: bool) -> int:
    """What eager keeps of a model's call for its backward pass, apart from parameters, buffers and the batch."""
    module, batch = case.make(is_small)
    around = {_storage(one) for one in (*module.parameters(), *module.buffers(), *batch.values())}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if _storage(tensor) not in around:
            kept[_storage(tensor)] = tensor
        return tensor

    def called(*args: Any, **kwargs: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            return module(*args, **kwargs)

    loss = case.loss(called, batch)
    found = sum(one.untyped_storage().nbytes() for one in kept.values())
    loss.backward()
    return found


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
