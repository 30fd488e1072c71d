"""Launching pointwise kernels: from tensors to loops, strides and machine code.

In: a kernel, its tensors and scalars, and the shape of the results. Out: new result tensors, row-major. The loops of a
call are as few as the tensors' strides allow; kernels are compiled once per number of loops and way of moving through
memory, and shared by all equal kernels of the process.
"""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from collections.abc import Sequence

import torch

from ingot.base.errors import CodegenError
from ingot.base.numbers import Number
from ingot.codegen.llvm.elementwise import GRAIN_ELEMENTS, CompiledKernel, compile_kernel
from ingot.ir.torch_types import to_torch
from ingot.loops.elementwise import ElementwiseKernel, Motion, Schedule
from ingot.runtime.pool import Pool
from ingot.runtime.threads import bind_openmp, thread_count

PARALLEL_ELEMENTS = 32_768
"""Below this many elements starting threads costs more than they save; torch splits at the same size."""
STREAMING_BYTES = 16 << 20
"""Results above this size do not fit the caches anyway and are written past them."""

pool = Pool()
"""Where large results of this process live."""


class KernelCache:
    """Compiled kernels of the process, by what they compute and how they move. Thread-safe."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, Schedule], CompiledKernel] = {}
        self._lock = threading.Lock()
        self._in_progress: dict[tuple[str, Schedule], threading.Lock] = {}

    def get(self, kernel: ElementwiseKernel, schedule: Schedule) -> CompiledKernel:
        """The compiled kernel; compiled now if it is new, by one thread while others wait for it."""
        key = (kernel.digest, schedule)
        found = self._compiled.get(key)
        if found is not None:
            return found
        with self._lock:
            progress = self._in_progress.setdefault(key, threading.Lock())
        with progress:
            found = self._compiled.get(key)
            if found is None:
                bind_openmp()
                try:
                    found = self._compiled[key] = compile_kernel(kernel, schedule)
                except Exception as error:  # whatever LLVM has to say
                    raise CodegenError(f"no machine code for this kernel: {error}\n{kernel.text}") from error
        return found

    def variants(self, kernel: ElementwiseKernel) -> list[CompiledKernel]:
        """Every compiled form of a kernel, for people who want to look at it."""
        return [compiled for (digest, _), compiled in list(self._compiled.items()) if digest == kernel.digest]

    def __len__(self) -> int:
        return len(self._compiled)


kernels = KernelCache()


def launch(
    kernel: ElementwiseKernel, tensors: Sequence[torch.Tensor], scalars: Sequence[Number], shape: tuple[int, ...]
) -> list[torch.Tensor]:
    """Compute a kernel for every element of a shape; tensors broadcast to it."""
    outputs = [pool.empty(shape, to_torch(output.dtype)) for output in kernel.outputs]
    if 0 in shape:
        return outputs
    inputs = [tensor.expand(shape) for tensor in tensors]
    buffers = [*outputs, *inputs]
    sizes, strides = merge_loops(shape, [tensor.stride() for tensor in buffers])
    streams = len(sizes) == 1 and sum(output.nbytes for output in outputs) > STREAMING_BYTES
    motions = tuple(_motion(moves[-1]) for moves in strides)
    compiled = kernels.get(kernel, Schedule(len(sizes), motions, streams))
    words = [*sizes]
    for tensor, moves in zip(buffers, strides, strict=True):
        words.append(tensor.data_ptr())
        words.extend(move * tensor.element_size() for move in moves)
    words.extend(map(_word, scalars))
    count, grain = (sizes[0], GRAIN_ELEMENTS) if len(sizes) == 1 else (math.prod(sizes[:-1]), 1)
    threads = thread_count() if math.prod(sizes) >= PARALLEL_ELEMENTS else 1
    array = (ctypes.c_int64 * len(words))(*words)
    _LAUNCH(compiled.entry)(array, count, grain, threads)
    return outputs


def merge_loops(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The fewest loops that visit the same elements in the same order: neighbours merge where every operand allows it.

    Sizes and per-operand strides of the loops, outermost first; at least one loop remains.
    """
    axes = [axis for axis, size in enumerate(shape) if size != 1] or ([0] if shape else [])
    sizes = [shape[axis] for axis in axes] or [1]
    moves = [[operand[axis] for axis in axes] or [0] for operand in strides]
    loop = len(sizes) - 1
    while loop > 0:
        if all(operand[loop - 1] == operand[loop] * sizes[loop] for operand in moves):
            sizes[loop - 1 : loop + 1] = [sizes[loop - 1] * sizes[loop]]
            for operand in moves:
                del operand[loop - 1]
        loop -= 1
    return sizes, moves


_LAUNCH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint32)
"""Calls through it release the GIL."""


def _motion(stride: int) -> Motion:
    return Motion.NEXT if stride == 1 else Motion.STILL if stride == 0 else Motion.STRIDED


def _word(value: Number) -> int:
    """A number as 64 bits: floats as the bits of a double."""
    return struct.unpack("<q", struct.pack("<d", value))[0] if isinstance(value, float) else int(value)
