"""The backend for the CPU: LLVM in this process, memory from a pool, threads of torch's OpenMP runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from ingot.base.numbers import Number
from ingot.codegen.cpu.nests import CompiledKernel
from ingot.codegen.llvm.host import host
from ingot.loops.cpu.tuning import CpuTuning
from ingot.loops.program import Program
from ingot.runtime.backends.interface import Backend, Bound, Features, KernelCall, NativeSite, Targets, Tensors
from ingot.runtime.cpu.kernels import CPU_STAGES, kernels, launch, prepare, scheduled
from ingot.runtime.kernels import Kernel, OutputTypes
from ingot.runtime.native.launch.records import Step
from ingot.runtime.native.memory import pool, pool_routines


@dataclass(frozen=True)
class CpuBackend(Backend):
    name: ClassVar[str] = "cpu"
    device_type: ClassVar[str] = "cpu"
    features: ClassVar[Features] = Features(
        reductions="yes",
        binary_cache="on disk",
        kernel_reuse="by broadcast pattern",
        non_contiguous_input="in place",
    )
    allocates_plain: ClassVar[bool] = True
    tunes: ClassVar[bool] = True
    tuning: CpuTuning = field(default_factory=CpuTuning)
    """What chooses schedules."""

    @property
    def platform(self) -> str:
        processor = host()
        return f"{processor.triple.partition('-')[0]}, {processor.name}, vectors of {processor.vector_bits} bits"

    def why_unavailable(self) -> str | None:
        return None

    def compile(
        self, kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets, device: torch.device
    ) -> tuple[Callable[[], object] | None, OutputTypes]:
        # Several threads compile at once, and would disturb each other's measurements.
        tuning = self._tuned(kernel, tensors, bound, targets, may_measure=False)
        call, outputs = scheduled(kernel, tensors, bound, targets, tuning)
        is_at_hand = kernels.has(kernel, call.schedule)
        return None if is_at_hand else lambda: kernels.get(kernel, call.schedule), outputs

    def launch(
        self,
        kernel: Kernel,
        tensors: Tensors,
        scalars: Sequence[Number],
        bound: Bound,
        targets: Targets,
        device: torch.device,
    ) -> list[torch.Tensor]:
        return launch(kernel, tensors, scalars, bound, targets, self._tuned(kernel, tensors, bound, targets))

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return pool.empty(shape, dtype)

    def native_site(self, device: torch.device) -> NativeSite | None:
        return NativeSite(device, self._call, pool_routines.ALIGNMENT, overwrites=True, copies=True)

    def _call(self, kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets) -> KernelCall:
        prepared = prepare(kernel, tensors, bound, targets, self._tuned(kernel, tensors, bound, targets))
        step = lambda words, patches: Step(prepared.entry, words, patches, prepared.parallel)
        return KernelCall(prepared, step, prepared.parallel, prepared.compiled, (1,) * len(prepared.addresses))

    def _tuned(
        self, kernel: Kernel, tensors: Tensors, bound: Bound, targets: Targets, may_measure: bool = True
    ) -> CpuTuning:
        """What chooses the schedule of a call."""
        if kernel.tuner is None:
            return self.tuning
        return kernel.tuner.tuned(kernel, tensors, bound, targets, self.tuning, may_measure)

    @property
    def stages(self) -> Mapping[str, Callable[[Program], list[str]]]:
        def each(text: Callable[[CompiledKernel], str]) -> Callable[[Program], list[str]]:
            return lambda program: [text(variant) for variant in kernels.variants(program)]

        return {stage: each(text) for stage, text in CPU_STAGES.items()}
