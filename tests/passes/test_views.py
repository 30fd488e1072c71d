"""Slices, reshapes and cats move past pointwise operations where that joins kernels, and stay where it would not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot import DataType, GraphBuilder, JitCompiler
from ingot.ir.parser import parse
from ingot.passes.graph_passes import optimize
from ingot.passes.regrouping import regrouped
from ingot.passes.slices import Slices
from tests.passes.written_graphs import after, body


def stays(pass_name: str, inputs: str, text: str) -> None:
    """A pass finds nothing to do."""
    lines = body(inputs, text).splitlines()[1:-1]
    assert after(pass_name, inputs, text) == [line.strip() for line in lines]


def kernels(shapes: list[tuple[int, ...]], build: Callable[..., Any], dtype: DataType = DataType.Float) -> int:
    """How many kernels a function becomes."""
    builder = GraphBuilder()
    found = build(builder.ops, *(builder.input(shape, dtype) for shape in shapes))
    builder.output(*(found if isinstance(found, tuple) else (found,)))
    module = JitCompiler().compile(builder.build())
    generator = torch.Generator().manual_seed(3)
    of_type = torch.bfloat16 if dtype is DataType.BFloat16 else torch.float32
    module.execute([torch.randn(shape, generator=generator).to(of_type) for shape in shapes])
    return module.stats().kernel_launches


# --- slices -----------------------------------------------------------------------------------------------------------


def test_slice_is_taken_before_computing():
    text = """
    %2 = exp(%0): f32[4, 8]
    %3 = add(%2, %1): f32[4, 8]
    %4 = slice(%3, starts=[0, 2], stops=[4, 5], steps=[1, 1]): f32[4, 3]
    return %4
    """
    assert after("slices", "%0: f32[4, 8], %1: f32[4, 1]", text) == [
        "%2 = slice(%0, starts=[0, 2], stops=[4, 5], steps=[1, 1]): f32[4, 3]",
        "%3 = exp(%2): f32[4, 3]",
        "%4 = add(%3, %1): f32[4, 3]",  # what is repeated is needed whole
        "return %4",
    ]


def test_slice_of_size_one_that_takes_nothing_empties_every_operand():
    text = """
    %2 = add(%0, %1): f32[1, 8]
    %3 = slice(%2, starts=[0, 0], stops=[0, 8], steps=[1, 1]): f32[0, 8]
    return %3
    """
    lines = after("slices", "%0: f32[1, 8], %1: f32[1, 1]", text)
    assert lines[-2] == "%4 = add(%2, %3): f32[0, 8]"


def test_slice_moves_through_views_that_cost_nothing():
    text = """
    %1 = exp(%0): f32[4, 8]
    %2 = permute(%1, order=[1, 0]): f32[8, 4]
    %3 = broadcast_in_dim(%2, shape=[8, 3, 4], axes=[0, 2]): f32[8, 3, 4]
    %4 = slice(%3, starts=[2, 0, 1], stops=[8, 2, 4], steps=[3, 1, 1]): f32[2, 2, 3]
    return %4
    """
    assert after("slices", "%0: f32[4, 8]", text) == [
        "%1 = slice(%0, starts=[1, 2], stops=[4, 8], steps=[1, 3]): f32[3, 2]",
        "%2 = exp(%1): f32[3, 2]",
        "%3 = permute(%2, order=[1, 0]): f32[2, 3]",
        "%4 = broadcast_in_dim(%3, shape=[2, 2, 3], axes=[0, 2]): f32[2, 2, 3]",
        "return %4",
    ]


def test_value_is_taken_apart_where_kernels_read_the_parts():
    text = """
    %1 = exp(%0): f32[8]
    %2 = slice(%1, starts=[0], stops=[8], steps=[2]): f32[4]
    %3 = slice(%1, starts=[1], stops=[8], steps=[2]): f32[4]
    %4 = mul(%2, %3): f32[4]
    return %4
    """
    assert after("slices", "%0: f32[8]", text) == [
        "%1 = slice(%0, starts=[0], stops=[8], steps=[2]): f32[4]",
        "%2 = exp(%1): f32[4]",
        "%3 = slice(%0, starts=[1], stops=[8], steps=[2]): f32[4]",
        "%4 = exp(%3): f32[4]",
        "%5 = mul(%2, %4): f32[4]",
        "return %5",
    ]


def test_parts_of_unknown_size_are_told_apart_by_their_bounds():
    builder = GraphBuilder()
    x = builder.input((-1, "width"))
    half = x.shape[1] // 2
    parts = [builder.ops.slice(builder.ops.exp(x), [0, low], [x.shape[0], high]) for low, high in
             ((0, half), (half, x.shape[1]))]  # fmt: skip
    builder.output(*map(builder.ops.neg, parts))
    graph = Slices().run(builder.build()).graph
    assert [node.op.name for node in graph.nodes] == ["slice", "exp", "slice", "exp", "neg", "neg"]


TWO_SLICES = """
%1 = exp(%0): f32[8]
%2 = slice(%1, starts=[0], stops=[{first}], steps=[1]): f32[{first}]
%3 = slice(%1, starts=[4], stops=[8], steps=[1]): f32[4]
"""


@pytest.mark.parametrize(
    "text",
    [
        TWO_SLICES.format(first=5) + "%4 = neg(%2): f32[5]\n%5 = neg(%3): f32[4]\nreturn %4, %5",  # one element in both
        TWO_SLICES.format(first=4) + "return %2, %3",  # one kernel would become two
        TWO_SLICES.format(first=4) + "%4 = neg(%2): f32[4]\n%5 = neg(%3): f32[4]\nreturn %1, %4, %5",  # needed anyway
        "%1 = random_uniform(shape=[8], dtype=f32, ordinal=0): f32[8]\n"
        "%2 = slice(%1, starts=[0], stops=[4], steps=[1]): f32[4]\n%3 = neg(%2): f32[4]\nreturn %3",
        # The exponentials would have to be written to be sliced.
        "%1 = exp(%0): f32[8]\n%2 = sum(%1, axes=[0]): f32[]\n%3 = div(%1, %2): f32[8]\n"
        "%4 = slice(%3, starts=[0], stops=[4], steps=[1]): f32[4]\n%5 = neg(%4): f32[4]\nreturn %5",
        # A square matrix and its transpose are wanted in two ways.
        "%1 = reshape(%0, shape=[2, 4]): f32[2, 4]\n"
        "%2 = slice(%1, starts=[0, 0], stops=[2, 2], steps=[1, 1]): f32[2, 2]\n"
        "%3 = exp(%2): f32[2, 2]\n%4 = permute(%3, order=[1, 0]): f32[2, 2]\n%5 = add(%3, %4): f32[2, 2]\n"
        "%6 = slice(%5, starts=[0, 0], stops=[1, 2], steps=[1, 1]): f32[1, 2]\nreturn %6",
    ],
)  # fmt: skip
def test_slice_that_would_cost_more_stays(text):
    stays("slices", "%0: f32[8]", text)


def lstm_cell(ops: Any, from_input: Any, from_state: Any, bias: Any, cell: Any) -> tuple[Any, Any]:
    gates = from_input + from_state + bias
    parts = [ops.slice(gates, [0, 8 * part], [4, 8 * part + 8]) for part in range(4)]
    new = ops.sigmoid(parts[1]) * cell + ops.sigmoid(parts[0]) * ops.tanh(parts[2])
    return ops.sigmoid(parts[3]) * ops.tanh(new), new


def test_lstm_cell_is_one_kernel():
    assert kernels([(4, 32), (4, 32), (32,), (4, 8)], lstm_cell) == 1


# --- reshapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        ((2, 6, 4, 5), (2, 3, 2, 20), [((0,), (0,)), ((1,), (1, 2)), ((2, 3), (3,))]),
        ((6, 4), (4, 6), [((0, 1), (0, 1))]),
        ((1, 6), (6, 1), [((0,), ()), ((1,), (0,)), ((), (1,))]),
        ((2, 1, 3), (6,), [((0, 1, 2), (0,))]),
        ((), (1, 1), [((), (0,)), ((), (1,))]),
    ],
)
def test_reshape_splits_and_merges_groups_of_axes(old, new, groups):
    found = regrouped(old, new)
    assert found is not None
    assert [(tuple(group.old), tuple(group.new)) for group in found] == groups


def test_sizes_of_zero_cannot_be_grouped():
    assert regrouped((0, 3), (3, 0)) is None


def test_reshape_moves_before_what_it_would_cut_off():
    text = """
    %2 = add(%0, %1): f32[s0, 32]
    %3 = reshape(%2, shape=[s0, 4, 8]): f32[s0, 4, 8]
    %4 = sum(%3, axes=[2]): f32[s0, 4]
    return %4
    """
    assert after("reshapes", "%0: f32[s0, 32], %1: f32[32]", text) == [
        "%2 = reshape(%0, shape=[s0, 4, 8]): f32[s0, 4, 8]",
        "%3 = reshape(%1, shape=[1, 4, 8]): f32[1, 4, 8]",
        "%4 = add(%2, %3): f32[s0, 4, 8]",
        "%5 = sum(%4, axes=[2]): f32[s0, 4]",
        "return %5",
    ]


def test_reshape_moves_behind_what_follows_a_reduction():
    text = """
    %2 = sum(%0, axes=[2]): f32[5, 4]
    %3 = broadcast_in_dim(%2, shape=[5, 4, 1], axes=[0, 1]): f32[5, 4, 1]
    %4 = div(%0, %3): f32[5, 4, 8]
    %5 = reshape(%4, shape=[5, 32]): f32[5, 32]
    %6 = mul(%5, %1): f32[5, 32]
    %7 = exp(%5): f32[5, 32]
    return %6, %7
    """
    assert after("reshapes", "%0: f32[5, 4, 8], %1: f32[32]", text)[3:] == [
        "%5 = reshape(%1, shape=[1, 4, 8]): f32[1, 4, 8]",
        "%6 = mul(%4, %5): f32[5, 4, 8]",
        "%7 = reshape(%6, shape=[5, 32]): f32[5, 32]",
        "%8 = exp(%4): f32[5, 4, 8]",
        "%9 = reshape(%8, shape=[5, 32]): f32[5, 32]",
        "return %7, %9",
    ]


@pytest.mark.parametrize(
    "text",
    [
        # Merged axes of which the other operand has only one.
        "%2 = mul(%0, %1): f32[5, 4, 8]\n%3 = reshape(%2, shape=[20, 8]): f32[20, 8]\n"
        "%4 = sum(%3, axes=[1]): f32[20]\nreturn %4",
        # No kernel reads it in the other shape.
        "%2 = exp(%0): f32[5, 4, 8]\n%3 = reshape(%2, shape=[20, 8]): f32[20, 8]\nreturn %3",
        # One kernel reads it in each shape: it is cut off from one of them in any case.
        "%2 = exp(%0): f32[5, 4, 8]\n%3 = reshape(%2, shape=[20, 8]): f32[20, 8]\n"
        "%4 = sum(%3, axes=[0]): f32[8]\n%5 = sum(%2, axes=[1]): f32[5, 8]\nreturn %4, %5",
        # PyTorch would have to copy the permuted tensor before it could be reshaped.
        "%2 = permute(%0, order=[1, 0, 2]): f32[4, 5, 8]\n%3 = exp(%2): f32[4, 5, 8]\n"
        "%4 = reshape(%3, shape=[20, 8]): f32[20, 8]\n%5 = sum(%4, axes=[1]): f32[20]\nreturn %5",
    ],
)
def test_reshape_that_would_cost_more_stays(text):
    stays("reshapes", "%0: f32[5, 4, 8], %1: f32[4, 1]", text)


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16], ids=lambda dtype: dtype.text)
def test_group_norm_is_one_kernel(dtype):
    shapes: list[tuple[int, ...]] = [(2, 6, 4, 4), (6,), (6,)]
    assert kernels(shapes, lambda ops, x, weight, bias: ops.group_norm(x, 3, weight, bias), dtype) == 1

    def block(ops: Any, x: Any, weight: Any, bias: Any) -> Any:
        return x + ops.silu(ops.group_norm(ops.silu(x), 3, weight, bias))

    assert kernels(shapes, block, dtype) == 1


def test_split_into_heads_is_one_kernel():
    def split(ops: Any, x: Any, bias: Any) -> Any:
        return ops.permute(ops.gelu(ops.reshape(x + bias, [2, 5, 4, 8])), [0, 2, 1, 3]) * 0.5

    assert kernels([(2, 5, 32), (32,)], split) == 1


def test_heads_split_in_one_and_taken_apart_are_one_kernel_each():
    def split(ops: Any, x: Any, bias: Any) -> Any:
        heads = ops.reshape(x + bias, [2, 5, 3, 4, 8])
        query, key, value = (
            ops.squeeze(ops.slice(heads, [0, 0, part, 0, 0], [2, 5, part + 1, 4, 8]), [2]) for part in range(3)
        )
        return ops.silu(query), ops.tanh(key), ops.softmax(value, -1)

    assert kernels([(2, 5, 96), (96,)], split) == 3


def test_heads_are_merged_without_a_second_kernel():
    def merge(ops: Any, x: Any, weight: Any, residual: Any) -> Any:
        return ops.reshape(ops.permute(ops.gelu(x), [0, 2, 1, 3]), [2, 5, 32]) * weight + residual

    assert kernels([(2, 4, 5, 8), (32,), (2, 5, 32)], merge) == 1


# --- sink_cat ---------------------------------------------------------------------------------------------------------


def test_cat_moves_behind_what_follows_it():
    text = """
    %2 = exp(%0): f32[4, 8]
    %3 = cat(%2, %0, axis=1): f32[4, 16]
    %4 = mul(%3, %1): f32[4, 16]
    %5 = add(%4, %3): f32[4, 16]
    return %5
    """
    assert after("sink_cat", "%0: f32[4, 8], %1: f32[16]", text) == [
        "%2 = exp(%0): f32[4, 8]",
        "%3 = slice(%1, starts=[0], stops=[8], steps=[1]): f32[8]",
        "%4 = mul(%2, %3): f32[4, 8]",
        "%5 = add(%4, %2): f32[4, 8]",
        "%6 = slice(%1, starts=[8], stops=[16], steps=[1]): f32[8]",
        "%7 = mul(%0, %6): f32[4, 8]",
        "%8 = add(%7, %0): f32[4, 8]",
        "%9 = cat(%5, %8, axis=1): f32[4, 16]",
        "return %9",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "%2 = cat(%0, %1, axis=0): f32[8]\n%3 = exp(%2): f32[8]\nreturn %3",  # one kernel would become two
        "%2 = exp(%0): f32[4]\n%3 = cat(%2, %1, axis=0): f32[8]\n%4 = exp(%3): f32[8]\nreturn %3, %4",  # two cats
        "%2 = exp(%0): f32[4]\n%3 = cat(%2, %1, axis=0): f32[8]\n%4 = exp(%3): f32[8]\n%5 = neg(%3): f32[8]\n"
        "return %4, %5",
        # The other operand is computed and needed whole.
        "%2 = exp(%0): f32[4]\n%3 = cat(%2, %1, axis=0): f32[8]\n%4 = cat(%0, %1, axis=0): f32[8]\n"
        "%5 = exp(%4): f32[8]\n%6 = mul(%3, %5): f32[8]\nreturn %5, %6",
    ],
)  # fmt: skip
def test_cat_that_would_cost_more_stays(text):
    stays("sink_cat", "%0: f32[4], %1: f32[4]", text)


def test_rotation_of_halves_leaves_one_cat_of_results():
    builder = GraphBuilder()
    x, cosine, sine = (builder.input(shape) for shape in [("batch", 3, 8), (3, 8), (3, 8)])
    first, second = (builder.ops.slice(x, [0, 0, start], [x.shape[0], 3, start + 4]) for start in (0, 4))
    rotated = builder.ops.cat([builder.ops.neg(second), first], -1)
    builder.output(x * cosine + rotated * sine)
    graph = optimize(builder.build()).graph
    (cat,) = [node for node in graph.nodes if node.op.name == "cat"]
    assert graph.outputs[0].node is cat
    assert {operand.op.name for operand in cat.operands} == {"add"}


# --- together ---------------------------------------------------------------------------------------------------------


def test_outputs_written_into_inputs_keep_their_meaning():
    text = """
    %1 = add(%0, 1.0:f32): f32[8]
    %2 = slice(%1, starts=[0], stops=[4], steps=[1]): f32[4]
    %3 = neg(%2): f32[4]
    return %3, %1 -> %0
    """
    stays("slices", "%0: f32[8]", text)
    assert "%1 -> %0" in optimize(parse(body("%0: f32[8]", text))).graph.text
