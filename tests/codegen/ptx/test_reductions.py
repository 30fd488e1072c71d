"""Generated reductions for a GPU, run on this processor: strided rows, split rows, totals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from ingot import GraphBuilder
from ingot.fusion.rules import FusionRules
from ingot.loops.gpu.schedule import Columns, RowSchedule, ThreadGroups
from ingot.loops.gpu.tuning import CudaTuning
from ingot.runtime.plan import Plan
from tests.codegen.ptx.on_this_processor import kernel_for, run_on_this_processor
from tests.ops.generation import data_type_of

SMALL = {
    "total_threads": 128,
    "split_threads": 64,
    "column_threads": 64,
    "column_split_threads": 64,
    "most_threads": 128,
    "enough_threads": 512,
    "enough_blocks": 4,
    "few_iterations": 1,
}
"""Of which small tensors take several blocks, and few threads are enough."""
COUNTED = {**SMALL, "most_elements": 1}
"""The same where nothing stays in registers."""
SPLITS = {**COUNTED, "enough_threads": 1 << 17, "worth_a_launch": 0, "splits": 12, "column_splits": 6}
"""The same where rows are split."""
UNCOUNTED = {"most_counters": 0, "most_counted": 0}
"""Where no block can be the last: what puts parts together is a launch of its own."""


@dataclass(frozen=True)
class Reduction:
    body: Callable[..., Any]
    expected: Callable[[torch.Tensor], torch.Tensor]
    is_corrected: bool = False
    """Whether what it divides by is an argument."""


REDUCTIONS = {
    "sum of columns": Reduction(lambda ops, x: ops.sum(x, [0]), lambda x: x.sum(0)),
    "sum of rows": Reduction(lambda ops, x: ops.sum(x, [1]), lambda x: x.sum(1)),
    "largest of columns": Reduction(lambda ops, x: ops.amax(x, [0]), lambda x: x.amax(0)),
    "variance of columns": Reduction(lambda ops, x: ops.var(x, [0]), lambda x: x.var(0), True),
    "variance of all": Reduction(lambda ops, x: ops.var(x, [0, 1]), lambda x: x.var(), True),
    "columns to 0": Reduction(lambda ops, x: x - ops.amin(x, [0], keepdim=True), lambda x: x - x.amin(0)),
    "rows to 0": Reduction(lambda ops, x: x - ops.amin(x, [1], keepdim=True), lambda x: x - x.amin(1, keepdim=True)),
    "total of columns": Reduction(lambda ops, x: ops.sum(ops.amax(x, [0]), [0]), lambda x: x.amax(0).sum()),
    "total of rows": Reduction(lambda ops, x: ops.sum(ops.amax(x, [1]), [0]), lambda x: x.amax(1).sum()),
    "middle": Reduction(lambda ops, x: ops.sum(x, [1]), lambda x: x.sum(1)),
}
CASES: list[tuple[str, tuple[int, ...], dict[str, int], type[RowSchedule], int]] = [
    ("sum of columns", (50, 64), SMALL, Columns, 1),
    ("sum of columns", (51, 63), COUNTED, Columns, 1),
    ("sum of columns", (300, 64), {**COUNTED, "access": 32}, Columns, 1),
    ("sum of columns", (90, 8), {**COUNTED, "access": 32, "most_threads": 32}, Columns, 1),
    ("largest of columns", (300, 48), {**SPLITS, "access": 32}, Columns, 1),
    ("sum of columns", (1001, 24), SPLITS, Columns, 1),
    ("sum of columns", (1001, 24), {**SPLITS, **UNCOUNTED}, Columns, 2),
    ("sum of columns", (501, 13), SPLITS, Columns, 1),
    ("largest of columns", (333, 40), SPLITS, Columns, 1),
    ("variance of columns", (300, 24), COUNTED, Columns, 1),
    ("variance of columns", (700, 24), SPLITS, Columns, 1),
    ("columns to 0", (40, 24), SMALL, Columns, 1),
    ("columns to 0", (400, 24), COUNTED, Columns, 1),
    ("columns to 0", (700, 20), SPLITS, Columns, 2),
    ("middle", (2, 900, 20), SPLITS, Columns, 1),
    ("sum of rows", (3, 3001), SPLITS, ThreadGroups, 1),
    ("sum of rows", (3, 3001), {**SPLITS, **UNCOUNTED}, ThreadGroups, 2),
    ("variance of all", (64, 513), SPLITS, ThreadGroups, 1),
    ("variance of all", (64, 513), {**SPLITS, **UNCOUNTED}, ThreadGroups, 2),
    ("rows to 0", (3, 4000), SPLITS, ThreadGroups, 2),
    ("total of columns", (50, 200), SMALL, Columns, 1),
    ("total of columns", (50, 200), {**SMALL, **UNCOUNTED}, Columns, 2),
    ("total of rows", (77, 33), SMALL, ThreadGroups, 1),
    ("total of rows", (77, 33), {**SMALL, **UNCOUNTED}, ThreadGroups, 2),
    ("total of rows", (5, 2033), SPLITS, ThreadGroups, 2),
    ("total of rows", (5, 2033), {**SPLITS, **UNCOUNTED}, ThreadGroups, 3),
]


@pytest.mark.parametrize(("name", "shape", "choice", "form", "count"), CASES)
def test_threads_put_rows_together(
    name: str, shape: tuple[int, ...], choice: dict[str, int], form: type[RowSchedule], count: int
):
    reduction = REDUCTIONS[name]
    for dtype in (torch.float32,) if reduction.is_corrected else (torch.float32, torch.int32):
        x = torch.randint(-99, 100, shape, generator=torch.Generator().manual_seed(len(name))).to(dtype)
        builder = GraphBuilder()
        builder.output(reduction.body(builder.ops, builder.input(shape, data_type_of(dtype))))
        (kernel,) = Plan(builder.build(), FusionRules(strategy="aggressive")).kernels()
        expected = reduction.expected(x)
        degrees = [x.numel() // max(expected.numel(), 1) - 1.0] if reduction.is_corrected else []
        (found,), schedule, launched = run_on_this_processor(kernel, [x], degrees, tuning=CudaTuning(**choice))
        assert isinstance(schedule, form) and schedule.is_split == ("splits" in choice) and launched == count
        torch.testing.assert_close(found, expected.to(found.dtype), rtol=1e-6 if reduction.is_corrected else 0, atol=0)


def zeros_of_either_sign(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    signs = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5
    return torch.where(signs, -0.0, 0.0).to(dtype)


def nan_of_many_kinds(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    payloads = torch.arange(1, 1 + torch.Size(shape).numel()).view(shape)
    return (torch.full(shape, torch.nan, dtype=dtype).view(torch.int64) + payloads).view(dtype)


@pytest.mark.parametrize("values", [zeros_of_either_sign, nan_of_many_kinds])
@pytest.mark.parametrize("name", ["sum", "amax", "amin"])
def test_bits_do_not_depend_on_who_writes_last(name: str, values: Any):
    kernel, tensors = kernel_for(lambda ops, x: getattr(ops, name)(x, [0]), values(300, 8, dtype=torch.float64))
    found = set()
    for _ in range(8):
        (result,), schedule, _ = run_on_this_processor(kernel, tensors, tuning=CudaTuning(**COUNTED))
        assert isinstance(schedule, Columns)
        found.add(tuple(result.view(torch.int64).tolist()))
    assert len(found) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_all_threads_see_the_same_zero(dtype: torch.dtype):
    zeros = zeros_of_either_sign(3, 300, dtype=dtype)

    def run(body: Any) -> torch.Tensor:
        kernel, tensors = kernel_for(body, zeros)
        (found,), schedule, _ = run_on_this_processor(kernel, tensors, tuning=CudaTuning(**SMALL))
        assert isinstance(schedule, ThreadGroups)
        return found

    added = run(lambda ops, x: x + ops.amax(x, [1], keepdim=True))
    assert not added.signbit().any(), "the largest is 0, and x + 0 is 0 for either zero"
    multiplied = run(lambda ops, x: x * ops.amin(x, [1], keepdim=True))
    assert torch.equal(multiplied.signbit(), ~zeros.signbit()), "the smallest is -0"
