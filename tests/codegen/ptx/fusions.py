"""Some well-known fusions as kernels for a GPU, for tests that look at their nests and their PTX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ingot import DataType, GraphBuilder
from ingot.codegen.ptx.kernels import GpuKernel, compile_gpu_kernel
from ingot.codegen.ptx.target import gpu
from ingot.fusion.rules import FusionRules
from ingot.ir.torch_types import to_torch
from ingot.loops.gpu.schedule import Columns, GpuSchedule, Grid, ThreadGroups, Tiles
from ingot.loops.gpu.scheduling import GpuCall
from ingot.runtime.cuda.kernels import scheduled
from ingot.runtime.plan import Plan

HOPPER = (9, 0)


@dataclass(frozen=True)
class Fusion:
    """A function of operators and inputs that is one kernel, and the form it should have."""

    form: type[GpuSchedule]
    body: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: DataType = DataType.Float
    has_index: bool = False
    """Whether the last input is one."""
    is_wide: bool = True
    """Whether 16 bytes are read at a time."""

    def kernel(self) -> tuple[GpuKernel, GpuCall]:
        builder = GraphBuilder()
        dtypes = [self.dtype] * len(self.shapes)
        if self.has_index:
            dtypes[-1] = DataType.Int
        inputs = [builder.input(shape, dtype) for shape, dtype in zip(self.shapes, dtypes, strict=True)]
        builder.output(self.body(builder.ops, *inputs))
        (kernel,) = Plan(builder.build(), FusionRules(strategy="aggressive")).kernels()
        tensors = [torch.empty(shape, dtype=to_torch(dtype)) for shape, dtype in zip(self.shapes, dtypes, strict=True)]
        if self.form is Tiles:  # the last one is transposed
            tensors[-1] = tensors[-1].T.contiguous().T
        given = dict(zip((each.node for each in inputs), tensors, strict=True))
        call, _ = scheduled(kernel, [given[read.node] for read in kernel.lowered.tensors], {})
        return compile_gpu_kernel(kernel.program, call.schedule, gpu(HOPPER)), call


def _softmax(ops: Any, x: Any) -> Any:
    return ops.softmax(x, -1)


def _layer_norm(ops: Any, x: Any, weight: Any, bias: Any) -> Any:
    return ops.layer_norm(x, [x.shape[-1]], weight, bias)


def _picked(ops: Any, x: Any, index: Any) -> Any:
    return ops.take_along_axis(ops.log_softmax(x, -1), index, 1)


def _mean_of_rows(ops: Any, x: Any) -> Any:
    return ops.mean(ops.sum(ops.mul(x, x), [1]), [0])


def _waves(ops: Any, x: Any) -> Any:
    return ops.erf(ops.exp(x) * ops.log(x)) * ops.tanh(x)


HALF = DataType.BFloat16
SQUARES = ((1024, 1024), (1024, 1024))
FUSIONS = {
    "multiply_add": Fusion(Grid, lambda ops, x, y: x * y + 1, SQUARES),
    "multiply_add_odd": Fusion(Grid, lambda ops, x, y: x * y + 1, ((1_000_003,), (1_000_003,))),
    "gelu_half": Fusion(Grid, lambda ops, x, bias: ops.gelu(x + bias), ((1024, 1024), (1024,)), HALF),
    "functions_in_turn": Fusion(Grid, _waves, ((1 << 21,),), is_wide=False),
    "transposed": Fusion(Tiles, lambda ops, x, y: x + y, SQUARES),
    "transposed_half": Fusion(Tiles, lambda ops, x, y: x + y, SQUARES, HALF, is_wide=False),
    "transposed_odd": Fusion(Tiles, lambda ops, x, y: x + y, ((511, 513), (511, 513)), is_wide=False),
    "softmax": Fusion(ThreadGroups, _softmax, ((512, 1024),)),
    "softmax_half": Fusion(ThreadGroups, _softmax, ((512, 1024),), HALF),
    "softmax_of_long_rows": Fusion(ThreadGroups, _softmax, ((512, 100_000),)),
    "layer_norm": Fusion(ThreadGroups, _layer_norm, ((512, 1024), (1024,), (1024,))),
    "layer_norm_half": Fusion(ThreadGroups, _layer_norm, ((64, 8192), (8192,), (8192,)), HALF),
    "picked": Fusion(ThreadGroups, _picked, ((512, 1024), (512, 1)), has_index=True),
    "sum_of_columns": Fusion(Columns, lambda ops, x: ops.sum(x, [0]), ((4096, 4096),)),
    "sum_of_all_half": Fusion(ThreadGroups, lambda ops, x: ops.sum(x, [0, 1]), ((4096, 4096),), HALF),
    "mean_of_rows": Fusion(ThreadGroups, _mean_of_rows, ((4096, 1024),)),
}
