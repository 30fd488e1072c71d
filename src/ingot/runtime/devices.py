"""How kernels are run on each kind of device: the one place that knows whose code belongs to which.

In: a device. Out: a backend, which launches kernels on it, makes memory there, and tells what it will need before it
needs it; None for devices that no code is generated for. A backend is used while its device is torch's current one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Protocol

import torch

from ingot.base.numbers import Number
from ingot.runtime.cuda import kernels as cuda
from ingot.runtime.cuda.driver import is_available
from ingot.runtime.kernels import Kernel, OutputTypes, kernels, launch, scheduled
from ingot.runtime.native import pool

Tensors = Sequence[torch.Tensor]
Targets = Mapping[int, torch.Tensor]
Bound = Mapping[str, int]


class Launch(Protocol):
    def __call__(
        self, kernel: Kernel, tensors: Tensors, scalars: Sequence[Number], bound: Bound, targets: Targets
    ) -> list[torch.Tensor]: ...


@dataclass(frozen=True, slots=True)
class Backend:
    """What runs kernels on one device."""

    launch: Launch
    """Run a kernel; results are new, except those that have a target."""
    foresee: Callable[[Kernel, Tensors, Bound, Targets], tuple[Callable[[], object], OutputTypes]]
    """For tensors without memory: what compiles the kernel a call will need, and what the call will give."""
    empty: Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
    """New memory, row-major."""


def _foresee(
    kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets
) -> tuple[Callable[[], object], OutputTypes]:
    call, outputs = scheduled(kernel, tensors, bound, targets)
    return lambda: kernels.get(kernel, call.schedule), outputs


_CPU = Backend(launch, _foresee, pool.empty)


@cache
def _cuda(device: torch.device) -> Backend | None:
    def foresee(
        kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets
    ) -> tuple[Callable[[], object], OutputTypes]:
        _, outputs = cuda.scheduled(kernel, tensors, bound, targets)
        return lambda: cuda.prepare(kernel, tensors, bound, targets, device.index), outputs

    def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    return Backend(partial(cuda.launch, where=device), foresee, empty) if is_available() else None


def backend_for(device: torch.device) -> Backend | None:
    """What runs kernels on a device; None if they are interpreted there."""
    if device.type == "cpu":
        return _CPU
    return _cuda(device) if device.type == "cuda" else None


def current(device: torch.device) -> AbstractContextManager[object]:
    """A context in which a device is torch's current one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
