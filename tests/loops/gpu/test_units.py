"""How much each thread takes: the fewer elements, the shorter the code, as long as enough is under way from memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot import DataType, GraphBuilder
from ingot.fusion.rules import FusionRules
from ingot.ir.torch_types import to_torch
from ingot.loops.gpu.schedule import GpuSchedule, Grid, ThreadGroups
from ingot.loops.gpu.tuning import CudaTuning
from ingot.runtime.cuda.kernels import scheduled
from ingot.runtime.plan import Plan

FLOAT, BFLOAT16, DOUBLE = DataType.Float, DataType.BFloat16, DataType.Double


def schedule_of(
    body: Any, shape: tuple[int, ...], inputs: int, dtype: DataType = FLOAT, padding: int = 0
) -> GpuSchedule:
    """Of a fusion of so many tensors of one shape, whose lines are so far apart."""
    builder = GraphBuilder()
    builder.output(body(builder.ops, *(builder.input(shape, dtype) for _ in range(inputs))))
    (kernel,) = Plan(builder.build(), FusionRules(strategy="aggressive")).kernels()
    padded = torch.empty((*shape[:-1], shape[-1] + padding), dtype=to_torch(dtype), device="meta")
    tensors = [padded[..., : shape[-1]]] * inputs
    return scheduled(kernel, tensors, {})[0].schedule


def product(ops: Any, *factors: Any) -> Any:
    return factors[0] * 3.0 if len(factors) == 1 else factors[0] * product(ops, *factors[1:])


def normalized(ops: Any, x: Any) -> Any:
    return x - ops.mean(x, [1], True)


def softmax(ops: Any, x: Any) -> Any:
    return ops.softmax(x, 1)


@pytest.mark.parametrize(("dtype", "vector_width"), [(FLOAT, 4), (BFLOAT16, 8), (DOUBLE, 2)])
def test_of_three_arrays_eight_bytes_of_each_are_enough_for_arithmetic(dtype: DataType, vector_width: int):
    for inputs, expected in ((1, vector_width), (2, vector_width), (3, vector_width // 2), (4, vector_width // 2)):
        assert schedule_of(product, (1 << 20,), inputs, dtype).vector_width == expected


def test_functions_and_several_axes_need_whole_accesses():
    assert schedule_of(lambda ops, a, b, c: ops.exp(a * b * c), (1 << 20,), 3).vector_width == 4
    assert schedule_of(product, (64, 64), 3, padding=64).vector_width == 4


@pytest.mark.parametrize(("dtype", "functions", "vector_width"), [(FLOAT, 4, 4), (BFLOAT16, 4, 8), (DOUBLE, 8, 2)])
def test_many_functions_are_computed_of_half_units_in_turn(dtype: DataType, functions: int, vector_width: int):
    def waves(count: int) -> Any:
        return lambda ops, x: x if not count else ops.sin(waves(count - 1)(ops, x) + 1.0)

    much, less = (schedule_of(waves(count), (1 << 22,), 1, dtype) for count in (functions, functions - 1))
    little = schedule_of(waves(functions), (1 << 16,), 1, dtype)
    assert isinstance(much, Grid) and isinstance(less, Grid) and isinstance(little, Grid)
    assert (much.vector_width, much.at_once, much.in_turn) == (
        vector_width // 2,
        CudaTuning().function_iterations,
        True,
    )
    assert (less.vector_width, less.at_once, less.in_turn) == (vector_width, 1, False)
    assert (little.vector_width, little.at_once, little.in_turn) == (vector_width // 2, 1, False)


@pytest.mark.parametrize("columns", [2048, 4096, 8192])
def test_threads_take_two_units_of_a_row_where_they_come_out_even(columns: int):
    for dtype, vector_width in ((FLOAT, 4), (BFLOAT16, 8)):
        schedule = schedule_of(normalized, (1024, columns), 1, dtype)
        assert isinstance(schedule, ThreadGroups)
        assert (schedule.iterations, schedule.thread_group_size) == (2, columns // vector_width // 2)


@pytest.mark.parametrize(
    ("body", "columns", "dtype"),
    [(normalized, 5120, FLOAT), (softmax, 8192, FLOAT), (normalized, 8192, DOUBLE), (normalized, 256, FLOAT)],
)
def test_otherwise_they_take_sixteen_elements(body: Any, columns: int, dtype: DataType):
    schedule = schedule_of(body, (1024, columns), 1, dtype)
    assert isinstance(schedule, ThreadGroups) and 8 < schedule.iterations * schedule.vector_width <= 16
