"""Launching kernels on CUDA devices from Python: from tensors to a schedule, PTX and launches.

In: a cluster with its program, and tensors of one device. Out: new result tensors, row-major, from torch's allocator,
written on torch's current stream. It is the counterpart of `runtime.cpu.kernels` and gives the same results. Kernels
are compiled once per program, schedule and generation of devices, and loaded once per device.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import torch

from ingot.base.dumping import dump_stage
from ingot.base.errors import CodegenError
from ingot.base.logs import log
from ingot.base.numbers import Number
from ingot.base.once import OncePerKey
from ingot.base.working_directory import digest_of
from ingot.codegen.llvm.host import Host
from ingot.codegen.ptx.kernels import GpuKernel, compile_gpu_kernel
from ingot.codegen.ptx.target import OLDEST, gpu
from ingot.ir.torch_types import to_torch
from ingot.loops.gpu.dividing import divisor_along, divisor_word
from ingot.loops.gpu.launches import GpuLaunch, gpu_layout, launches_of, left_by_launches, workspace_share
from ingot.loops.gpu.schedule import GpuSchedule
from ingot.loops.gpu.scheduling import GpuCall, schedule_gpu_call
from ingot.loops.gpu.tuning import CudaTuning
from ingot.loops.kernel_arguments import SPLITS, WordLayout
from ingot.loops.program import Program
from ingot.runtime.cuda.counters import counters_of
from ingot.runtime.cuda.disassembly import disassembled
from ingot.runtime.cuda.driver import device
from ingot.runtime.cuda.modules import LoadedFunction, load
from ingot.runtime.cuda.modules import launch as launch_function
from ingot.runtime.cuda.prepared import Launch, PreparedLaunches
from ingot.runtime.kernels import Kernel, OutputTypes, address_of, laid_out, word_of, words_of
from ingot.runtime.native.cuda.executables import executables_of

_TUNING = CudaTuning()


class GpuKernelCache:
    """Compiled kernels of the process, by what they compute, how they are spread, and for which GPUs. Thread-safe."""

    def __init__(self) -> None:
        self._compiled: OncePerKey[tuple[str, GpuSchedule, Host], GpuKernel] = OncePerKey()

    def get(self, program: Program, schedule: GpuSchedule, host: Host) -> GpuKernel:
        """The compiled kernel; compiled now if it is new, by one thread while others wait for it."""
        return self._compiled.get((program.digest, schedule, host), lambda: _compiled(program, schedule, host))

    def variants(self, program: Program) -> list[GpuKernel]:
        """Every compiled form of a program, for people who want to look at it."""
        return [kernel for kernel in list(self._compiled.made.values()) if kernel.program.digest == program.digest]


def _compiled(program: Program, schedule: GpuSchedule, host: Host) -> GpuKernel:
    log("cache", f"kernel {program.name}: PTX made now")
    start = time.perf_counter()
    try:
        made = compile_gpu_kernel(program, schedule, host)
    except Exception as error:  # LLVM raises errors of several classes
        raise CodegenError(f"no PTX for this kernel: {error}\n{program.text}") from error
    log("perf", f"kernel {program.name} compiled in {(time.perf_counter() - start) * 1e3:.1f} ms")
    for stage, text in GPU_STAGES.items():
        dump_stage(stage, partial(text, made), lambda: f"kernels/{program.name}/{digest_of(repr(schedule))}")
    return made


GPU_STAGES: dict[str, Callable[[GpuKernel], str]] = {
    "schedule": lambda made: made.schedule.text(made.program),
    "nests": lambda made: f"# {made.schedule.text(made.program)}\n{made.nest.text}",
    "llvm": lambda made: made.llvm,
    "ptx": lambda made: made.ptx,
    "sass": lambda made: disassembled(made.ptx, made.host.name),
}
"""The stages that a kernel for GPUs goes through, and what prints them."""


gpu_kernels = GpuKernelCache()


def prepare(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
    index: int | None = None,
    tuning: CudaTuning = _TUNING,
) -> PreparedLaunches:
    """The launches for tensors (in the order of the kernel's reads) where size symbols have these values.

    `targets` are tensors that results are written to, by their number; all others are new and row-major. `index` is
    the device's number, where the tensors do not say it because they have no memory.
    """
    if index is None:
        index = (*tensors, *targets.values())[0].device.index
    program = kernel.program
    call, outputs = scheduled(kernel, tensors, bound, targets, tuning)
    compiled = compiled_for(kernel, call, index)
    loaded = load(compiled.ptx, compiled.entries, index, kernel.name)
    layout = gpu_layout(compiled.nest, compiled.schedule)
    buffers = len(program.buffers)
    launches = launches_of(compiled.nest, compiled.schedule)
    return PreparedLaunches(
        tuple(map(partial(_launch, call), loaded, launches)),
        tuple(gpu_words(call, layout, buffers)),
        tuple(layout.address(buffer) for buffer in range(buffers)),
        tuple(layout.scalar(number) for number in range(len(program.scalars))),
        outputs,
        call.alignments,
        workspace_bytes=workspace_share(call) * len(left_by_launches(compiled.nest)),
        workspace_word=layout.workspace if layout.has_workspace else None,
        counters=max(launch.counters(call) for launch in launches),
        counters_word=layout.counters if layout.has_counters else None,
    )


def gpu_words(call: GpuCall, layout: WordLayout, buffers: int) -> list[int]:
    """The words that follow from sizes and strides."""
    words = words_of(call, layout, buffers)
    words[SPLITS] = call.splits
    if layout.has_workspace:
        words[layout.workspace_share] = workspace_share(call)
    for axis in layout.divided:
        words[layout.divisor(axis)] = divisor_word(divisor_along(axis, call.sizes[axis], call.schedule))
    return words


def _launch(call: GpuCall, function: LoadedFunction, launch: GpuLaunch) -> Launch:
    grid = launch.blocks(call), launch.lines(call), 1
    threads = launch.schedule(call.schedule).threads
    executables = executables_of(function.handle).address
    return Launch(function.handle, grid, (threads, 1, 1), executables=executables, overlaps=function.overlaps)


def compiled_for(kernel: Kernel, call: GpuCall, index: int) -> GpuKernel:
    """The compiled kernel for a call on a device."""
    capability = device(index).capability
    if capability < OLDEST:
        raise CodegenError(f"cuda:{index} is of compute capability {capability}, and {OLDEST} is the first supported")
    host = replace(gpu(capability), may_approximate=kernel.may_approximate)
    return gpu_kernels.get(kernel.program, call.schedule, host)


def scheduled(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
    tuning: CudaTuning = _TUNING,
) -> tuple[GpuCall, OutputTypes]:
    """How a kernel is called for tensors, and shape and type of its results."""
    space, strides, outputs = laid_out(kernel, tensors, bound, targets)
    addresses = [address_of(targets[number]) if number in targets else 0 for number in range(len(outputs))]
    addresses += map(address_of, tensors)
    lowered = kernel.lowered
    reduced, index_axes = kernel.cluster.reduced, lowered.index_axes
    call = schedule_gpu_call(lowered.program, space, strides, reduced, index_axes, addresses, tuning)
    return call, outputs


def launch(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    scalars: Sequence[Number],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
    where: torch.device | None = None,
    tuning: CudaTuning = _TUNING,
) -> list[torch.Tensor]:
    """Run a kernel on torch's current stream; the results are new, except those that have a target.

    `where` is the device of results that depend on no tensor.
    """
    on = (*tensors, *targets.values())[0].device if where is None else where
    prepared = prepare(kernel, tensors, bound, targets, on.index, tuning)
    outputs = [
        targets[number] if number in targets else torch.empty(shape, dtype=to_torch(dtype), device=on)
        for number, (shape, dtype) in enumerate(prepared.outputs)
    ]
    words = (ctypes.c_int64 * len(prepared.words))(*prepared.words)
    for place, tensor in zip(prepared.addresses, (*outputs, *tensors), strict=True):
        words[place] = tensor.data_ptr()
    for place, value, dtype in zip(prepared.scalars, scalars, kernel.program.scalars, strict=True):
        words[place] = word_of(value, dtype)
    workspace = torch.empty(prepared.workspace_bytes, dtype=torch.uint8, device=on)
    if prepared.workspace_word is not None:
        words[prepared.workspace_word] = workspace.data_ptr()
    stream = torch.cuda.current_stream(on).cuda_stream
    if prepared.counters_word is not None:
        words[prepared.counters_word] = counters_of(on.index).for_launch(stream, prepared.counters)
    for each in prepared.launches:
        launch_function(each.function, each.grid, each.block, words, stream)
    return outputs
