"""Concatenations whose parts kernels write where they belong."""

from __future__ import annotations

import pytest
import torch

from ingot import GraphBuilder, JitCompiler
from ingot.runtime.compiler import CompiledModule


def rotated(rows: int | str = 16, half: int = 32) -> CompiledModule:
    """x * c + cat(-upper half of x, lower half of x) * s, as rotary embeddings have it."""
    builder = GraphBuilder()
    x, c, s = builder.input((3, rows, 2 * half)), builder.input((rows, 2 * half)), builder.input((rows, 2 * half))
    ops = builder.ops
    lower = ops.slice(x, [0, 0, 0], [3, x.shape[1], half])
    upper = ops.slice(x, [0, 0, half], [3, x.shape[1], 2 * half])
    builder.output(x * c + ops.cat([-upper, lower], 2) * s)
    return JitCompiler().compile(builder.build())


def expected(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * c + torch.cat([-x[..., half:], x[..., :half]], -1) * s


@pytest.mark.parametrize("half", [1, 5, 32])
@pytest.mark.parametrize("rows", [1, 7, 16])
def test_parts_are_written_where_they_belong(rows: int, half: int):
    module = rotated(rows, half)
    inputs = [torch.randn(3, rows, 2 * half), torch.randn(rows, 2 * half), torch.randn(rows, 2 * half)]
    for _ in range(3):
        (result,) = module.execute(inputs)
        torch.testing.assert_close(result, expected(*inputs))
    assert module.through_torch() == []
    assert module.record_for(inputs) is not None


def test_open_sizes_are_joined_too():
    module = rotated("rows", 8)
    for rows in (4, 9):
        inputs = [torch.randn(3, rows, 16), torch.randn(rows, 16), torch.randn(rows, 16)]
        torch.testing.assert_close(module.execute(inputs)[0], expected(*inputs))


def test_empty_parts_are_joined():
    builder = GraphBuilder()
    x, y = builder.input((-1, 3)), builder.input((-1, 3))
    builder.output(builder.ops.cat([builder.ops.exp(x), y * 2], 0))
    module = JitCompiler().compile(builder.build())
    for rows in (0, 4):
        inputs = [torch.randn(rows, 3), torch.randn(5, 3)]
        torch.testing.assert_close(module.execute(inputs)[0], torch.cat([inputs[0].exp(), inputs[1] * 2]))


def test_a_part_that_is_needed_elsewhere_is_copied():
    builder = GraphBuilder()
    x, y = builder.input((4, 3)), builder.input((4, 3))
    part = builder.ops.exp(x)
    builder.output(builder.ops.cat([part, y * 2], 0), part)
    module = JitCompiler().compile(builder.build())
    inputs = [torch.randn(4, 3), torch.randn(4, 3)]
    joined, other = module.execute(inputs)
    torch.testing.assert_close(joined, torch.cat([inputs[0].exp(), inputs[1] * 2]))
    joined.zero_()
    torch.testing.assert_close(other, inputs[0].exp())
    assert [node.op.name for node in module.through_torch()] == ["cat"]


def test_the_same_part_twice_is_copied():
    builder = GraphBuilder()
    x = builder.input((4, 3))
    part = builder.ops.exp(x)
    builder.output(builder.ops.cat([part, part], 1))
    module = JitCompiler().compile(builder.build())
    x = torch.randn(4, 3)
    torch.testing.assert_close(module.execute([x])[0], torch.cat([x.exp(), x.exp()], 1))


def test_permuted_results_are_written_in_their_order():
    builder = GraphBuilder()
    x, y = builder.input((3, 5, 7)), builder.input((7,))
    builder.output(builder.ops.permute(builder.ops.exp(x) * y, (2, 0, 1)))
    module = JitCompiler().compile(builder.build())
    inputs = [torch.randn(3, 5, 7), torch.randn(7)]
    for _ in range(3):
        (result,) = module.execute(inputs)
        torch.testing.assert_close(result, (inputs[0].exp() * inputs[1]).permute(2, 0, 1))
        assert result.is_contiguous()
    assert module.record_for(inputs) is not None


def test_joined_parts_are_written_into_a_permuted_result():
    builder = GraphBuilder()
    x, y = builder.input((4, 6)), builder.input((3, 6))
    joined = builder.ops.cat([builder.ops.exp(x), y * 2], 0)
    builder.output(builder.ops.permute(joined, (1, 0)))
    module = JitCompiler().compile(builder.build())
    inputs = [torch.randn(4, 6), torch.randn(3, 6)]
    for _ in range(3):
        (result,) = module.execute(inputs)
        torch.testing.assert_close(result, torch.cat([inputs[0].exp(), inputs[1] * 2]).t())
        assert result.is_contiguous()
    assert module.record_for(inputs) is not None


def test_a_permuted_value_that_is_returned_as_it_is_too_has_memory_of_its_own():
    builder = GraphBuilder()
    x = builder.input((4, 6))
    value = builder.ops.exp(x)
    builder.output(builder.ops.permute(value, (1, 0)), value)
    module = JitCompiler().compile(builder.build())
    x = torch.randn(4, 6)
    transposed, plain = module.execute([x])
    transposed.zero_()
    torch.testing.assert_close(plain, x.exp())
