"""Every dtype, odd sizes and every way a tensor can lie in memory, as generated kernels on a GPU.

Numbers are small integers, which all types hold exactly, so results must be equal to the interpreter's.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ingot import DataType, GraphBuilder, JitCompiler
from ingot.ir.interpreter import Interpreter
from ingot.ir.torch_types import to_torch
from ingot.runtime.compiler import CompiledModule
from tests.cuda.launches import counted_launches
from tests.ops.generation import data_type_of
from tests.property.sketch import DTYPES
from tests.runtime.test_reductions import COMPOSITES, assert_near, compiled, launched

pytestmark = pytest.mark.cuda

GPU = torch.device("cuda", 0)
SIZES = (1, 3, 7, 31, 33, 1000, 1_000_003)
LENGTHS = (1, 2, 3, 31, 32, 33, 127, 1000, 1024, 4095, 4096, 8192, 16_385, 32_768, 65_537, 131_072, 131_073)


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator(GPU).manual_seed(seed)
    low = 0 if dtype in (torch.uint8, torch.bool) else -3
    high = 2 if dtype is torch.bool else 4
    return torch.randint(low, high, shape, generator=generator, device=GPU).to(dtype)


def mixed(rank: int, dtype: torch.dtype) -> CompiledModule:
    """Arithmetic, a comparison, a choice and a change of type."""
    builder = GraphBuilder()
    x, y = (builder.input([-1] * rank, data_type_of(dtype)) for _ in range(2))
    ops = builder.ops
    larger = ops.gt(x, y)
    chosen = ops.where(larger, x, y)
    total = ops.logical_and(x, y) if dtype is torch.bool else x * y - chosen
    builder.output(larger, total, ops.cast(total, DataType.Float), ops.cast(larger, DataType.Int8))
    return JitCompiler().compile(builder.build())


def assert_right(module: CompiledModule, *arguments: Any) -> None:
    """Its results are the interpreter's, and of generated kernels, if there is anything to compute."""
    with counted_launches() as launches:
        found = module.execute(list(arguments))
    for actual, expected in zip(found, Interpreter(module.graph).run(list(arguments), GPU), strict=True):
        assert actual.dtype is expected.dtype
        assert torch.equal(actual, expected)
    assert launches.generated or not all(argument.numel() for argument in arguments)


@pytest.mark.parametrize("dtype", [to_torch(dtype) for dtype in DTYPES], ids=str)
def test_vectors_of_every_size(dtype: torch.dtype):
    for size in SIZES:
        # A module of its own for each: calls like earlier ones are answered natively, where launches are not counted.
        assert_right(mixed(1, dtype), numbers((size,), dtype), numbers((size,), dtype, 1))


@pytest.mark.parametrize("dtype", [to_torch(dtype) for dtype in DTYPES], ids=str)
@pytest.mark.parametrize("offset", [1, 2, 3, 5, 8])
def test_storage_that_begins_anywhere(dtype: torch.dtype, offset: int):
    base = numbers((4096 + 16,), dtype)
    for size in (1, 7, 4095, 4096):
        assert_right(mixed(1, dtype), base[offset : offset + size], numbers((size,), dtype, 1))
        assert_right(mixed(1, dtype), base[offset : offset + size], base[:size])  # which share memory


@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 7), (31, 33), (33, 1), (1, 1000), (257, 129), (1000, 1003)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float64], ids=str)
def test_matrices_in_every_layout(rows: int, columns: int, dtype: torch.dtype):
    x, y = numbers((rows, columns), dtype), numbers((rows, columns), dtype, 1)
    wide = numbers((rows, 2 * columns + 1), dtype, 2)
    base = numbers((rows + 2 * columns + 9,), dtype, 3)
    for other in (
        y,
        y.T.contiguous().T,
        wide[:, 1::2],
        wide[:, 1 : columns + 1],
        y[:1].expand(rows, columns),
        y[:, :1].expand(rows, columns),
        y[0, 0].expand(rows, columns),
        base.as_strided((rows, columns), (1, 2), 5),
        x,
    ):
        assert_right(mixed(2, dtype), x, other)
        assert_right(mixed(2, dtype), other, x)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1, 1), (2, 3, 4, 5, 6)])
def test_few_or_no_elements_and_many_axes(shape: tuple[int, ...]):
    x, y = numbers(shape, torch.float32), numbers(shape, torch.float32, 1)
    assert_right(mixed(len(shape), torch.float32), x, y)
    if len(shape) > 2:
        swapped = x.transpose(0, -1).contiguous().transpose(0, -1)
        assert_right(mixed(len(shape), torch.float32), swapped, y)


# --- reductions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", COMPOSITES)
def test_reductions_of_every_length(name: str, dtype: torch.dtype, length: int):
    body, expected = COMPOSITES[name]
    for shape in ((3, length), (length, 3), (1, length)) if length > 1000 else ((67, length), (length, 67)):
        generator = torch.Generator(GPU).manual_seed(length)
        x = torch.randn(shape, generator=generator, device=GPU).to(dtype)
        for found, wanted in zip(launched(compiled(body, x), x), expected(x), strict=True):
            assert_near(found, wanted, 20 if 2 in shape else 4)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("shape", [(5, 300, 7), (130, 3, 1025), (1, 1, 131_073), (4099, 2, 33)], ids=str)
def test_sums_over_several_axes_are_exact(axes: tuple[int, ...], shape: tuple[int, ...]):
    for dtype in (torch.int8, torch.int32, torch.float32):
        x = numbers(shape, dtype)
        module = compiled(lambda ops, x: (ops.sum(x, axes), ops.amax(x, axes), x - ops.amin(x, axes, keepdim=True)), x)
        for laid_out in (x, x.permute(2, 0, 1).contiguous().permute(1, 2, 0)):
            total, largest, above = launched(module, laid_out)
            assert torch.equal(total, x.sum(axes)) and torch.equal(largest, x.amax(axes))
            assert torch.equal(above, x - x.amin(axes, keepdim=True))


def test_results_are_the_same_every_time():
    x = torch.randn(4099, 1027, device=GPU)
    for axes in ([0], [1], [0, 1]):
        module = compiled(lambda ops, x, axes=axes: (ops.sum(ops.exp(x), axes), ops.var(x, axes)), x)
        first = module.execute([x])
        for _ in range(10):
            assert all(torch.equal(one, again) for one, again in zip(first, module.execute([x]), strict=True))


# --- more than 2^31 elements ------------------------------------------------------------------------------------------


@pytest.fixture
def room():
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GB of the GPU's memory")
    yield
    torch.cuda.empty_cache()


def test_matrices_with_more_than_two_billion_elements(room):
    x = torch.zeros(3, 2**30 + 5, dtype=torch.int8, device=GPU)
    x[0, 0], x[1, 2**30], x[2, -1] = 1, 2, 3
    row = torch.ones(2**30 + 5, dtype=torch.int8, device=GPU)
    (found,) = launched(compiled(lambda ops, x, y: x * 2 + y, x, row), x, row)
    assert (found[0, 0], found[1, 2**30], found[2, -1], found[1, 7]) == (3, 5, 7, 1)
    assert int(found.sum(dtype=torch.int64)) == 3 * (2**30 + 5) + 12


def test_half_sums_over_more_than_two_billion_elements(room):
    x = torch.zeros(2**31 + 40, dtype=torch.float16, device=GPU)
    x[-1], x[2**31], x[5] = 3, 2, 0.5
    assert launched(compiled(lambda ops, x: ops.sum(x), x), x)[0].item() == 5.5
    rows = x.view(8, -1)
    assert launched(compiled(lambda ops, x: ops.sum(x, [1]), rows), rows)[0].tolist() == [0.5, *[0.0] * 6, 5.0]
    columns = x.view(-1, 8)
    assert launched(compiled(lambda ops, x: ops.sum(x, [0]), columns), columns)[0].sum() == 5.5
    assert math.isclose(launched(compiled(lambda ops, x: ops.amax(x), x), x)[0].item(), 3.0)
