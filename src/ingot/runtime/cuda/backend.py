"""The backend for NVIDIA's GPUs: PTX made by LLVM and assembled by the driver, memory and streams of torch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from ingot.base.errors import CudaError
from ingot.base.numbers import Number
from ingot.codegen.ptx.kernels import GpuKernel
from ingot.codegen.ptx.target import OLDEST
from ingot.loops.gpu.tuning import CudaTuning
from ingot.loops.program import Program
from ingot.runtime.backends.interface import (
    Backend,
    Bound,
    Features,
    KernelCall,
    NativeSite,
    Stopwatch,
    Targets,
    Tensors,
)
from ingot.runtime.cuda.clock import EventStopwatch
from ingot.runtime.cuda.counters import counters_of
from ingot.runtime.cuda.driver import driver, why_unavailable
from ingot.runtime.cuda.kernels import GPU_STAGES, gpu_kernels, launch, prepare, scheduled
from ingot.runtime.cuda.prepared import PreparedLaunches
from ingot.runtime.kernels import Kernel, OutputTypes
from ingot.runtime.native.cuda.device_launching import device_launcher
from ingot.runtime.native.cuda.device_records import DeviceSite, DeviceStep

DEVICE_ALIGNMENT = 256
"""Addresses of new memory on a GPU are multiples of this; addresses of its parts should be."""


@dataclass(frozen=True)
class CudaBackend(Backend):
    name: ClassVar[str] = "cuda"
    device_type: ClassVar[str] = "cuda"
    features: ClassVar[Features] = Features(
        reductions="yes",
        binary_cache="in memory, and the driver's",
        kernel_reuse="by broadcast pattern and share of each thread",
        non_contiguous_input="in place",
    )
    captures: ClassVar[bool] = True
    tuning: CudaTuning = field(default_factory=CudaTuning)
    """What chooses schedules."""

    @property
    def platform(self) -> str:
        try:
            found = Counter(driver().device(index).capability for index in range(driver().device_count()))
        except CudaError:
            found = Counter()
        devices = [f"{count} of compute capability {major}.{minor}" for (major, minor), count in sorted(found.items())]
        return f"NVIDIA GPUs, {', '.join(devices) or 'of compute capability {}.{} and later'.format(*OLDEST)}"

    def why_unavailable(self) -> str | None:
        return why_unavailable()

    def compile(
        self, kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets, device: torch.device
    ) -> tuple[Callable[[], object] | None, OutputTypes]:
        _, outputs = scheduled(kernel, tensors, bound, targets, self.tuning)
        return lambda: prepare(kernel, tensors, bound, targets, device.index, self.tuning), outputs

    def launch(
        self,
        kernel: Kernel,
        tensors: Tensors,
        scalars: Sequence[Number],
        bound: Bound,
        targets: Targets,
        device: torch.device,
    ) -> list[torch.Tensor]:
        return launch(kernel, tensors, scalars, bound, targets, device, self.tuning)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    def native_site(self, device: torch.device) -> NativeSite | None:
        launching = device_launcher()
        if launching is None:
            return None
        try:
            context = driver().context(device.index)
        except CudaError:  # the next launch from Python fails, too, and words the error
            return None

        def call(kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets) -> KernelCall:
            return launched(prepare(kernel, tensors, bound, targets, device.index, self.tuning))

        site = DeviceSite(launching.run, device, context)
        counting_site = replace(site, counters=counters_of(device.index).table)
        return NativeSite(device, call, DEVICE_ALIGNMENT, False, False, site, counting_site)

    @property
    def stages(self) -> Mapping[str, Callable[[Program], list[str]]]:
        def each(text: Callable[[GpuKernel], str]) -> Callable[[Program], list[str]]:
            return lambda program: [text(variant) for variant in gpu_kernels.variants(program)]

        return {stage: each(text) for stage, text in GPU_STAGES.items()}

    def clock(self, device: torch.device) -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    def stopwatch(self, device: torch.device) -> Stopwatch:
        return EventStopwatch(device)

    def current(self, device: torch.device) -> AbstractContextManager[object]:
        return torch.cuda.device(device)


def launched(prepared: PreparedLaunches) -> KernelCall:
    """Launches as a call. A launch waits while a device has enough to do, perhaps for something that needs Python.

    Nothing is kept for it: modules are never unloaded.
    """
    return KernelCall(
        prepared,
        lambda words, patches: DeviceStep(prepared.launches, words, patches),
        True,
        None,
        prepared.alignments or (1,) * len(prepared.addresses),
        prepared.workspace_bytes,
        prepared.workspace_word,
        prepared.counters_word,
    )
