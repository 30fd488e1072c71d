"""Without a GPU: random graphs have PTX under schedules of every kind, and NVIDIA's assembler takes it."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import pytest
import torch

from ingot.base.errors import CodegenError
from ingot.base.numbers import Number
from ingot.codegen.ptx.kernels import compile_gpu_kernel
from ingot.codegen.ptx.target import gpu
from ingot.fusion.rules import FusionRules
from ingot.loops.cpu.tuning import CpuTuning
from ingot.loops.gpu.schedule import WARP, GpuSchedule, ThreadGroups
from ingot.loops.gpu.tuning import CudaTuning
from ingot.runtime.backends.interface import Bound, Targets, Tensors
from ingot.runtime.cpu.kernels import launch
from ingot.runtime.cuda import kernels as cuda
from ingot.runtime.kernels import Kernel
from ingot.runtime.plan import Plan
from tests.cuda.schedules import small_gpu_tuning
from tests.loops.running import DEFAULT, launched_by
from tests.property.fused_graphs import seeded_fused
from tests.property.random_values import copied

HOPPER = (9, 0)


class Scheduling:
    """In place of a launch: the schedule for a GPU is remembered, the results are the CPU's."""

    def __init__(self) -> None:
        self.seen: list[GpuSchedule] = []
        self.own_tuning = CudaTuning()

    def __call__(
        self,
        kernel: Kernel,
        tensors: Tensors,
        scalars: Sequence[Number],
        bound: Bound,
        targets: Targets = MappingProxyType({}),
        tuning: CpuTuning = DEFAULT,
    ) -> list[torch.Tensor]:
        try:
            call, _ = cuda.scheduled(kernel, tensors, bound, targets, self.own_tuning)
        except CodegenError:
            pass  # a known limit, which such kernels meet before anything is generated
        else:
            self.look(kernel, call.schedule)
            self.seen.append(call.schedule)
        return launch(kernel, tensors, scalars, bound, targets, tuning)

    def look(self, kernel: Kernel, schedule: GpuSchedule) -> None:
        """What else is to be done with a schedule."""


class Assembling(Scheduling):
    """PTX is made for schedules, too, and assembled where there is an assembler."""

    def __init__(self, folder: Path):
        super().__init__()
        self._assembler = shutil.which("ptxas")
        self._path = folder / "kernel.ptx"

    def look(self, kernel: Kernel, schedule: GpuSchedule) -> None:
        ptx = compile_gpu_kernel(kernel.program, schedule, gpu(HOPPER)).ptx
        assert ".entry" in ptx
        if self._assembler is None:
            return
        self._path.write_text(ptx)
        command = [self._assembler, "-arch=sm_90", "-O1", "-o", "/dev/null", str(self._path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stderr}\n{kernel.program.text}\n{ptx}"


def run_small(stand_in: Scheduling, seeds: Iterable[int]) -> None:
    """Run random graphs with something in place of launches, each under small schedules of its own."""
    with launched_by(stand_in):
        for seed in seeds:
            drawn = seeded_fused(seed)
            stand_in.own_tuning = small_gpu_tuning(seed)
            strategy = ("aggressive", "conservative", "none")[seed % 3]
            Plan(drawn.graph, FusionRules(strategy=strategy)).run(copied(drawn.arguments))


@pytest.mark.parametrize("block", range(3))
def test_random_graphs_assemble_under_small_schedules(block: int, tmp_path: Path):
    assembling = Assembling(tmp_path)
    run_small(assembling, range(block * 8, (block + 1) * 8))
    assert len(assembling.seen) > 8


def test_small_schedules_reach_every_form():
    """Deterministic, so that properties that rest on them cannot quietly lose a form."""
    scheduling = Scheduling()
    run_small(scheduling, range(240))
    forms = Counter(type(schedule) for schedule in scheduling.seen)
    assert not [form for form in get_args(GpuSchedule) if not forms[form]], forms
    rows = [schedule for schedule in scheduling.seen if isinstance(schedule, ThreadGroups)]
    assert sum(not schedule.iterations for schedule in rows) >= 10, (
        "too few rows are longer than what a thread group holds"
    )
    assert sum(schedule.one_pass for schedule in rows) >= 2
    assert sum(schedule.thread_group_size > WARP for schedule in rows) >= 10
    assert sum(schedule.vector_width > 1 for schedule in scheduling.seen) >= 20
