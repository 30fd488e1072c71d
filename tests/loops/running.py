"""Kernels run through the loop interpreter, in place of their machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy
import torch

from ingot.base.numbers import Number
from ingot.ir.torch_types import to_torch
from ingot.loops.cpu.bounds import check_bounds
from ingot.loops.cpu.interpreter import interpret
from ingot.loops.cpu.nesting import build_nest
from ingot.loops.cpu.tuning import CpuTuning
from ingot.loops.gpu.interpreter.machine import interpret_on_gpu
from ingot.loops.gpu.nesting import build_gpu_nest
from ingot.loops.gpu.tuning import CudaTuning
from ingot.runtime.backends.interface import Bound, Targets, Tensors
from ingot.runtime.backends.registry import backend_for, using
from ingot.runtime.cpu.backend import CpuBackend
from ingot.runtime.cpu.kernels import launch, scheduled
from ingot.runtime.cuda import kernels as cuda
from ingot.runtime.kernels import Kernel, KernelFault, extents

DEFAULT = CpuTuning()


def memory_of(tensor: torch.Tensor, extent: int) -> Any:
    """The bytes of a tensor from its first element on, as they lie in memory."""
    if not extent:
        return numpy.empty(0, numpy.uint8)
    return numpy.ctypeslib.as_array((ctypes.c_uint8 * extent).from_address(tensor.data_ptr()))


class Launch(Protocol):
    """What can stand in for the backend's own way to run a kernel."""

    def __call__(
        self,
        kernel: Kernel,
        tensors: Tensors,
        scalars: Sequence[Number],
        bound: Bound,
        targets: Targets,
        tuning: CpuTuning,
        /,
    ) -> list[torch.Tensor]: ...


@dataclass(frozen=True)
class _LaunchingBackend(CpuBackend):
    way: Launch = launch

    def launch(
        self,
        kernel: Kernel,
        tensors: Tensors,
        scalars: Sequence[Number],
        bound: Bound,
        targets: Targets,
        device: torch.device,
    ) -> list[torch.Tensor]:
        return self.way(kernel, tensors, scalars, bound, targets, self.tuning)


def cpu_backend() -> CpuBackend:
    """The one in use."""
    found = backend_for(torch.device("cpu"))
    assert isinstance(found, CpuBackend)
    return found


@contextmanager
def launched_by(way: Launch) -> Iterator[None]:
    """Have kernels for the CPU run by something else."""
    with using(_LaunchingBackend(cpu_backend().tuning, way)):
        yield


def interpreted_launch(
    kernel: Kernel,
    tensors: Tensors,
    scalars: Sequence[Number],
    bound: Bound,
    targets: Targets = MappingProxyType({}),
    tuning: CpuTuning = DEFAULT,
) -> list[torch.Tensor]:
    """What `runtime.cpu.kernels.launch` does, without machine code."""
    call, outputs = scheduled(kernel, tensors, bound, targets, tuning)
    nest = build_nest(kernel.program, call.schedule)
    room = extents(outputs, tensors, targets)
    check_bounds(nest, call, room)
    results = [torch.empty(shape, dtype=to_torch(dtype)) for shape, dtype in outputs]
    for index, target in targets.items():
        results[index] = target
    memory = [memory_of(tensor, extent) for tensor, extent in zip((*results, *tensors), room, strict=True)]
    if not interpret(nest, call, memory, scalars, seed=len(nest.text)):
        raise KernelFault
    return results


@dataclass(frozen=True)
class GpuInterpreted:
    """What `runtime.cuda.kernels.launch` does, for tensors of the processor, without a GPU."""

    own_tuning: CudaTuning = field(default_factory=CudaTuning)

    def __call__(
        self,
        kernel: Kernel,
        tensors: Tensors,
        scalars: Sequence[Number],
        bound: Bound,
        targets: Targets = MappingProxyType({}),
        tuning: CpuTuning | None = None,
    ) -> list[torch.Tensor]:
        call, outputs = cuda.scheduled(kernel, tensors, bound, targets, self.own_tuning)
        nest = build_gpu_nest(kernel.program, call.schedule)
        results = [torch.empty(shape, dtype=to_torch(dtype)) for shape, dtype in outputs]
        for index, target in targets.items():
            results[index] = target
        room = extents(outputs, tensors, targets)
        memory = [memory_of(tensor, extent) for tensor, extent in zip((*results, *tensors), room, strict=True)]
        if not interpret_on_gpu(nest, call, memory, scalars, seed=len(nest.text)):
            raise KernelFault
        return results


def shaped_launch(
    kernel: Kernel,
    tensors: Tensors,
    scalars: Sequence[Number],
    bound: Bound,
    targets: Targets = MappingProxyType({}),
    tuning: CpuTuning = DEFAULT,
) -> list[torch.Tensor]:
    """Only the schedule, and results of the right shapes: for those who want to know what would be run."""
    _, outputs = scheduled(kernel, tensors, bound, targets, tuning)
    return [torch.zeros(shape, dtype=to_torch(dtype)) for shape, dtype in outputs]
