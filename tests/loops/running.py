"""Kernels run through the loop interpreter, in place of their machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy
import torch

from ingot.base.numbers import Number
from ingot.ir.torch_types import to_torch
from ingot.loops.bounds import check_bounds
from ingot.loops.gpu.interpreter import interpret_on_gpu
from ingot.loops.gpu.nesting import build_gpu_nest
from ingot.loops.interpreter import interpret
from ingot.loops.nesting import build_nest
from ingot.runtime import devices
from ingot.runtime.cuda import kernels as cuda
from ingot.runtime.devices import Launch
from ingot.runtime.kernels import Kernel, KernelFault, extents, scheduled


def memory_of(tensor: torch.Tensor, extent: int) -> Any:
    """The bytes of a tensor from its first element on, as they lie in memory."""
    if not extent:
        return numpy.empty(0, numpy.uint8)
    return numpy.ctypeslib.as_array((ctypes.c_uint8 * extent).from_address(tensor.data_ptr()))


Targets = Mapping[int, torch.Tensor]


@contextmanager
def launched_by(launch: Launch) -> Iterator[None]:
    """Have kernels for the processor run by something else."""
    with patch.object(devices, "_CPU", replace(devices._CPU, launch=launch)):
        yield


def interpreted_launch(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    scalars: Sequence[Number],
    bound: Mapping[str, int],
    targets: Targets = MappingProxyType({}),
) -> list[torch.Tensor]:
    """What `runtime.kernels.launch` does, without machine code."""
    call, outputs = scheduled(kernel, tensors, bound, targets)
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


def gpu_interpreted_launch(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    scalars: Sequence[Number],
    bound: Mapping[str, int],
    targets: Targets = MappingProxyType({}),
) -> list[torch.Tensor]:
    """What `runtime.cuda.kernels.launch` does, for tensors of the processor, without a GPU."""
    call, outputs = cuda.scheduled(kernel, tensors, bound, targets)
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
    tensors: Sequence[torch.Tensor],
    scalars: Sequence[Number],
    bound: Mapping[str, int],
    targets: Targets = MappingProxyType({}),
) -> list[torch.Tensor]:
    """Only the schedule, and results of the right shapes: for those who want to know what would be run."""
    _, outputs = scheduled(kernel, tensors, bound, targets)
    return [torch.zeros(shape, dtype=to_torch(dtype)) for shape, dtype in outputs]
