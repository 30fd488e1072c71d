"""Complex numbers in nests: the interpreters of loops, for processors and for GPUs, give what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot import DataType, GraphBuilder
from ingot.runtime.plan import Plan
from tests.cuda.schedules import small_gpu_tuning
from tests.loops.running import GpuInterpreted, interpreted_launch, launched_by

TYPES = {torch.complex64: DataType.ComplexFloat, torch.complex128: DataType.ComplexDouble}
WAYS: dict[str, Callable[[], Any]] = {
    "processor": lambda: interpreted_launch,
    "GPU": lambda: GpuInterpreted(small_gpu_tuning(0)),
    "GPU, otherwise tuned": lambda: GpuInterpreted(small_gpu_tuning(3)),
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_interpreted_nests_agree_with_eager(way: str, dtype: torch.dtype):
    z, w = (torch.randn(5, 37, dtype=dtype) for _ in range(2))
    turned = torch.randn(37, 5, dtype=dtype).mT
    builder = GraphBuilder()
    ops = builder.ops
    x, y, t = (builder.input((5, 37), TYPES[dtype]) for _ in range(3))
    product = x * y + (1 - 2j)
    builder.output(product, ops.abs(product), ops.sum(product, [1]), ops.sum(product / t, [0]), ops.exp(x + t))
    expected = z * w + (1 - 2j)
    with launched_by(WAYS[way]()):
        found = Plan(builder.build()).run([z, w, turned])
    wanted = (expected, expected.abs(), expected.sum(1), (expected / turned).sum(0), torch.exp(z + turned))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
