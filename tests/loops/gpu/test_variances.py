"""Variances of bfloat16 that are read once, as a GPU computes them: in float32, a few elements at a time."""

from __future__ import annotations

import math

import pytest
import torch

from ingot import DataType, GraphBuilder
from ingot.fusion.rules import FusionRules
from ingot.loops.gpu.nesting import build_gpu_nest
from ingot.loops.gpu.schedule import ThreadGroups
from ingot.runtime.cuda.kernels import scheduled
from ingot.runtime.plan import Plan
from tests.loops.running import GpuInterpreted, launched_by

COUNT = 16_384 * 3


def plan_for(shape: tuple[int, ...], dtype: DataType) -> Plan:
    builder = GraphBuilder()
    builder.output(builder.ops.cast(builder.ops.var(builder.input(shape, dtype), [0]), dtype))
    return Plan(builder.build(), FusionRules(strategy="aggressive"))


def variance(x: torch.Tensor) -> torch.Tensor:
    """Of all elements, by the interpreter of nests for GPUs."""
    with launched_by(GpuInterpreted()):
        (result,) = plan_for(tuple(x.shape), DataType.BFloat16).run([x])
    return result


def numbers(*values: float) -> torch.Tensor:
    """Those, again and again."""
    return torch.tensor(values, dtype=torch.bfloat16).repeat(COUNT // len(values) + 1)[:COUNT].contiguous()


def with_one(value: float, others: torch.Tensor) -> torch.Tensor:
    others[COUNT // 2] = value
    return others


CASES = {
    "normal": torch.randn(COUNT, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16),
    "far from 0": numbers(1000.0, 1004.0, 1008.0),
    "nearly alike": with_one(1.0078125, numbers(1.0)),
    "one of another size": with_one(1e4, numbers(0.01, 0.02)),
    "of all sizes": numbers(*(2.0**exponent for exponent in range(-30, 31))),
    "so large that float32 cannot hold their squares": numbers(2.0**64, 2.0**64 + 2.0**57),
    "small": numbers(1e-18, 3e-18),
}


@pytest.mark.parametrize("name", CASES)
def test_they_are_right_to_the_last_digit(name: str):
    x = CASES[name]
    expected = x.double().var()
    assert abs(variance(x).double() - expected) <= 2.0**-8.9 * expected


@pytest.mark.parametrize("value", [0.0, 1.0, -1e-30, 3e38, 1e25])
def test_what_is_all_alike_does_not_vary(value: float):
    assert variance(numbers(value)) == 0


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_no_number_has_no_variance(value: float):
    assert variance(with_one(value, numbers(1.0, 2.0))).isnan()
    assert variance(with_one(value, numbers(3e38, -3e38))).isnan()


@pytest.mark.parametrize(
    ("dtype", "is_short"), [(DataType.BFloat16, True), (DataType.Half, False), (DataType.Float, False)]
)
def test_only_bfloat16_has_so_few_digits(dtype: DataType, is_short: bool):
    (kernel,) = plan_for((1 << 20,), dtype).kernels()
    given = {DataType.BFloat16: torch.bfloat16, DataType.Half: torch.float16}.get(dtype, torch.float32)
    call, _ = scheduled(kernel, [torch.empty(1 << 20, dtype=given, device="meta")], {})
    assert isinstance(call.schedule, ThreadGroups) and call.schedule.one_pass
    makes_doubles = "dtype=f64" in build_gpu_nest(kernel.program, call.schedule).text.partition("finish")[0]
    assert makes_doubles != is_short
