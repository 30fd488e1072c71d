"""Kernels on the CPU, launched from Python: from tensors to a schedule, machine code and a call.

In: a cluster with its program, and tensors. Out: new result tensors, row-major. Kernels are compiled once per program
and schedule, and shared by all equal programs of the process; machine code that none of them needs any more is freed.
What a call needs besides addresses and scalars follows from types, sizes and strides alone; `prepare` gives that, for
this launcher and for any other.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import torch

from ingot.base.dumping import dump_stage
from ingot.base.environment_variables import environment
from ingot.base.errors import CodegenError
from ingot.base.logs import log
from ingot.base.numbers import Number
from ingot.base.once import OncePerKey
from ingot.base.working_directory import digest_of
from ingot.codegen.cpu.nests import CompiledKernel, compile_kernel, is_kept
from ingot.ir.torch_types import to_torch
from ingot.loops.cpu.bounds import check_bounds
from ingot.loops.cpu.schedule import Schedule
from ingot.loops.cpu.scheduling import ALIGNED, CpuCall, schedule_call
from ingot.loops.cpu.tuning import CpuTuning
from ingot.loops.kernel_arguments import FAULT, GRAIN, THREADS, WordLayout
from ingot.loops.program import Program
from ingot.runtime.disk_cache.process import StoredCode, process_code
from ingot.runtime.kernels import (
    Kernel,
    KernelFault,
    KernelOrigin,
    OutputTypes,
    address_of,
    extents,
    laid_out,
    word_of,
    words_of,
)
from ingot.runtime.native.memory.pool import empty
from ingot.runtime.threads import bind_openmp, thread_count

_TUNING = CpuTuning()
MOST_RECENT = 256
"""Compiled kernels that stay although nothing needs them at the moment: the same function may be compiled again."""


class KernelCache:
    """Compiled kernels of the process, by what they compute and how they move. Thread-safe.

    They live as long as the programs that asked for them, and records of their calls; the latest ones a little longer.
    """

    def __init__(self) -> None:
        self._alive: WeakValueDictionary[tuple[str, Schedule], CompiledKernel] = WeakValueDictionary()
        self._compiled: OncePerKey[tuple[str, Schedule], CompiledKernel] = OncePerKey(self._alive)
        self._recent: deque[CompiledKernel] = deque(maxlen=MOST_RECENT)
        self.compilations = 0
        """How many kernels this process has made so far, compiled or from the cache on disk."""

    def get(self, kernel: Kernel, schedule: Schedule) -> CompiledKernel:
        """The compiled kernel; compiled now if it is new, by one thread while others wait for it."""
        found = kernel.compiled.get(schedule)
        if found is None:
            program, key = kernel.program, (kernel.program.digest, schedule)
            log("cache", f"kernel {program.name}: {'machine code is there' if key in self._alive else 'made now'}")
            found = self._compiled.get(key, lambda: self._compile(program, schedule, kernel.origin))
            kernel.compiled[schedule] = found
        return found

    def has(self, kernel: Kernel, schedule: Schedule) -> bool:
        """Whether nothing has to be compiled for a kernel: its code is here, or on disk."""
        if schedule in kernel.compiled or (kernel.program.digest, schedule) in self._alive:
            return True
        store = _store(kernel.origin)
        return store is not None and is_kept(kernel.program, schedule, store)

    def passing(self, kernel: Kernel, schedule: Schedule) -> CompiledKernel:
        """The compiled kernel for a while: if it is new, neither this process nor the cache on disk keeps it."""
        found = kernel.compiled.get(schedule) or self._alive.get((kernel.program.digest, schedule))
        return found or _compiled(kernel.program, schedule, KernelOrigin(is_kept=False))

    def _compile(self, program: Program, schedule: Schedule, origin: KernelOrigin) -> CompiledKernel:
        start = time.perf_counter()
        made = _compiled(program, schedule, origin)
        log("perf", f"kernel {program.name} made in {(time.perf_counter() - start) * 1e3:.1f} ms")
        self.compilations += 1
        self._recent.append(made)
        return made

    def variants(self, program: Program) -> list[CompiledKernel]:
        """Every compiled form of a program, for people who want to look at it."""
        return [compiled for compiled in list(self._alive.values()) if compiled.program.digest == program.digest]


def _store(origin: KernelOrigin) -> StoredCode | None:
    return process_code(origin.owner, origin.is_common) if origin.is_kept else None


def _compiled(program: Program, schedule: Schedule, origin: KernelOrigin) -> CompiledKernel:
    bind_openmp()
    try:
        made = compile_kernel(program, schedule, _store(origin))
    except Exception as error:  # LLVM raises errors of several classes
        raise CodegenError(f"no machine code for this kernel: {error}\n{program.text}") from error
    for stage, text in CPU_STAGES.items():
        dump_stage(stage, partial(text, made), lambda: f"kernels/{program.name}/{digest_of(repr(schedule))}")
    return made


CPU_STAGES: dict[str, Callable[[CompiledKernel], str]] = {
    "schedule": lambda made: made.schedule.text(made.program),
    "nests": lambda made: f"# {made.schedule.text(made.program)}\n{made.nest.text}",
    "llvm": lambda made: made.code.llvm,
    "assembly": lambda made: made.code.assembly,
}
"""The stages that a kernel for the CPU goes through, and what prints them."""


kernels = KernelCache()


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call of a kernel for tensors of certain types, sizes and strides; addresses and scalars are still to come."""

    compiled: CompiledKernel
    words: tuple[int, ...]
    addresses: tuple[int, ...]
    """The word for each buffer's address: outputs first, then inputs."""
    scalars: tuple[int, ...]
    """The word for each scalar."""
    parallel: bool
    """Whether it is worth several threads; it then also takes long enough to let other Python threads run."""
    outputs: OutputTypes
    """Shape and type of each result, which is row-major."""

    @property
    def entry(self) -> int:
        return self.compiled.entry


def prepare(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
    tuning: CpuTuning = _TUNING,
    is_kept: bool = True,
) -> PreparedCall:
    """The call for tensors (in the order of the kernel's reads) where size symbols have these values.

    `targets` are tensors that results are written to, by their number; all others are new and row-major. Code that is
    not to be kept lives as long as the call.
    """
    program = kernel.program
    call, outputs = scheduled(kernel, tensors, bound, targets, tuning)
    compiled = kernels.get(kernel, call.schedule) if is_kept else kernels.passing(kernel, call.schedule)
    if sys.flags.dev_mode or "bounds" in environment().check:
        check_bounds(compiled.nest, call, extents(outputs, tensors, targets))
    layout = WordLayout.of(compiled.nest)
    buffers = len(program.buffers)
    return PreparedCall(
        compiled,
        _words(call, layout, buffers),
        tuple(layout.address(buffer) for buffer in range(buffers)),
        tuple(layout.scalar(index) for index in range(len(program.scalars))),
        call.elements >= tuning.parallel_elements,
        outputs,
    )


def scheduled(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
    tuning: CpuTuning = _TUNING,
) -> tuple[CpuCall, OutputTypes]:
    """How a kernel is called for tensors, and shape and type of its results."""
    space, strides, outputs = laid_out(kernel, tensors, bound, targets)
    # New memory is aligned; what is written in place may begin anywhere.
    is_aligned = all(_is_aligned(target) for target in targets.values())
    index_axes = kernel.lowered.index_axes
    call = schedule_call(kernel.program, space, strides, kernel.cluster.reduced, index_axes, is_aligned, tuning)
    return call, outputs


def _is_aligned(target: torch.Tensor) -> bool:
    """Whether a tensor begins where vectors may; new memory does, so for tensors without memory the offset decides."""
    return address_of(target) % ALIGNED == 0


def launch(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    scalars: Sequence[Number],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
    tuning: CpuTuning = _TUNING,
) -> list[torch.Tensor]:
    """Run a kernel; the results are new, except those that have a target."""
    prepared = prepare(kernel, tensors, bound, targets, tuning)
    outputs = [
        targets[index] if index in targets else empty(shape, to_torch(dtype))
        for index, (shape, dtype) in enumerate(prepared.outputs)
    ]
    words = words_for(prepared, [tensor.data_ptr() for tensor in (*outputs, *tensors)], scalars)
    ENTRY(prepared.entry)(words)
    if words[FAULT]:
        raise KernelFault
    return outputs


def words_for(prepared: PreparedCall, addresses: Sequence[int], scalars: Sequence[Number]) -> ctypes.Array[Any]:
    """What a prepared call's entry takes: its words with the addresses of buffers, outputs first, and scalars."""
    words = (ctypes.c_int64 * len(prepared.words))(*prepared.words)
    words[THREADS] = thread_count() if prepared.parallel else 1
    for place, address in zip(prepared.addresses, addresses, strict=True):
        words[place] = address
    for place, value, dtype in zip(prepared.scalars, scalars, prepared.compiled.program.scalars, strict=True):
        words[place] = word_of(value, dtype)
    return words


ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
"""The type of entries. Calls through it release the GIL."""


def _words(call: CpuCall, layout: WordLayout, buffers: int) -> tuple[int, ...]:
    words = words_of(call, layout, buffers)
    words[THREADS], words[GRAIN] = 1, call.grain
    return tuple(words)
