"""Reductions that cross thread blocks, on a GPU: strided rows, split rows, totals, and several launches.

The lengths that every reduction is tried with are in `test_sizes`; these are the shapes that only large tensors have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot.runtime.compiler import CompiledModule
from tests.runtime.test_reductions import assert_near, compiled, launched

pytestmark = pytest.mark.cuda

GPU = torch.device("cuda", 0)
TALL = ((70_000, 24), (100_003, 9), (5000, 1001), (4096, 2048), (300, 70_001), (1 << 20, 8))
FEW_LONG = ((2, 1 << 20), (5, 300_001), (80, 100_000), (1, 3_000_001))
Expected = Callable[[torch.Tensor], torch.Tensor]


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator(GPU).manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator, device=GPU) + 2).to(dtype)


def assert_right(body: Any, expected: Expected, x: torch.Tensor, factor: float = 8.0) -> None:
    """One kernel gives what float64 gives, and the same bits every time."""
    module = compiled(body, x)
    (found,) = launched(module, x)
    assert_near(found, expected(x.double()).to(found.dtype), factor)
    for _ in range(3):
        assert torch.equal(module.execute([x])[0], found)


@pytest.mark.parametrize("shape", TALL, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_rows_across_memory(dtype: torch.dtype, shape: tuple[int, ...]):
    x = numbers(shape, dtype)
    assert_right(lambda ops, x: ops.mean(x, [0]), lambda x: x.mean(0), x)
    assert_right(lambda ops, x: ops.var(x, [0]), lambda x: x.var(0), x)
    assert_right(lambda ops, x: ops.amax(x, [0]), lambda x: x.amax(0), x)
    assert_right(lambda ops, x: ops.softmax(x, 0), lambda x: torch.softmax(x, 0), x, 16)


@pytest.mark.parametrize("shape", FEW_LONG, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_few_long_rows(dtype: torch.dtype, shape: tuple[int, ...]):
    x = numbers(shape, dtype)
    assert_right(lambda ops, x: ops.var(x, [1]), lambda x: x.var(1), x)
    assert_right(lambda ops, x: ops.softmax(x, 1), lambda x: torch.softmax(x, 1), x, 16)
    assert_right(lambda ops, x: ops.var(x, [0, 1]), lambda x: x.var(), x)
    assert_right(lambda ops, x: ops.mean(x, [0, 1]), lambda x: x.mean(), x)


@pytest.mark.parametrize("shape", [*TALL, *FEW_LONG], ids=str)
def test_totals_of_row_values(shape: tuple[int, ...]):
    x = numbers(shape, torch.float32)
    for axis in (0, 1):
        body = lambda ops, x, axis=axis: ops.mean(ops.sqrt(ops.sum(x * x, [axis])), [0])
        assert_right(body, lambda x, axis=axis: (x * x).sum(axis).sqrt().mean(), x)


def test_a_variance_far_from_zero():
    x = (torch.randn(4096, 4096, device=GPU) + 3000).float()
    for axes in ([0], [0, 1]):
        assert_right(lambda ops, x, axes=axes: ops.var(x, axes), lambda x, axes=axes: x.var(axes), x, 16)


@pytest.mark.parametrize("columns", [4, 8, 12])
def test_zeros_of_either_sign_have_the_same_one_every_time(columns: int):
    zeros = torch.zeros(4000, columns, dtype=torch.float64, device=GPU)
    zeros[torch.rand(zeros.shape, device=GPU) < 0.5] *= -1.0
    module = compiled(lambda ops, x: ops.amax(x, [0]), zeros)
    signs = {tuple(launched(module, zeros)[0].signbit().tolist()) for _ in range(20)}
    assert len(signs) == 1


def test_streams_do_not_share_what_launches_leave():
    tensors = [torch.randn(1 << 22, device=GPU) for _ in range(4)]
    module: CompiledModule = compiled(lambda ops, x: ops.var(x, [0]), tensors[0])
    expected = [module.execute([x])[0] for x in tensors]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(GPU) for _ in tensors]
    for _ in range(20):
        found = []
        for stream, x in zip(streams, tensors, strict=True):
            with torch.cuda.stream(stream):
                found.append(module.execute([x])[0])
        torch.cuda.synchronize()
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_graphs_on_several_streams_count_their_blocks_by_themselves():
    """Captured on one stream, as torch does by default, and replayed on others at the same time."""
    tensors = [torch.randn(1 << 22, device=GPU) for _ in range(4)]
    module: CompiledModule = compiled(lambda ops, x: ops.var(x, [0]), tensors[0])
    expected = [module.execute([x])[0] for x in tensors]
    found, graphs = [], []
    for x in tensors:
        torch.cuda.synchronize()
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            found.append(module.execute([module.execute([x])[0] + x])[0])
    streams = [torch.cuda.Stream(GPU) for _ in tensors]
    again = [module.execute([one + x])[0] for one, x in zip(expected, tensors, strict=True)]
    for _ in range(20):
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        meanwhile = [module.execute([x])[0] for x in tensors]
        torch.cuda.synchronize()
        assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
        assert all(torch.equal(one, other) for one, other in zip(meanwhile, expected, strict=True))
        for result in found:
            result.zero_()
        torch.cuda.synchronize()  # streams do not wait for the one that zeros are written on
