"""Graphs: one node per expression, stable hashes, checked structure, large sizes."""

import gc
import math
import os
import subprocess
import sys

import pytest
import torch

from ingot import DataType, GraphBuilder, JitCompiler
from ingot.base.errors import DefinitionError, DTypeError, UnsupportedError, VerificationError
from ingot.base.types import TensorType
from ingot.ir.graph import Graph, Output
from ingot.ir.interpreter import Interpreter
from ingot.ir.node import make
from ingot.ir.parser import parse
from ingot.ir.verifier import verify
from ingot.ops import lookup
from ingot.ops.attributes import ConstantAttributes, InputAttributes
from ingot.passes.graph_passes import optimize


def test_equal_expressions_are_one_node():
    builder, other = GraphBuilder(), GraphBuilder()
    x, y = builder.input((4,)), other.input((4,))
    assert (x * 2 + 1).node is (x * 2 + 1).node
    assert (x * 2 + 1).node is (y * 2 + 1).node
    assert (x * 2).node is not (x * 2.5).node


@pytest.mark.parametrize(
    ("first", "second"), [((0.0, "f32"), (-0.0, "f32")), ((1, "i64"), (1, "i32")), ((1.0, "f32"), (True, "bool"))]
)
def test_constants_that_behave_differently_are_different_nodes(first, second):
    def constant(value, dtype):
        return make(lookup("constant"), (), ConstantAttributes(value, DataType(dtype)))

    assert constant(*first) is not constant(*second)
    assert constant(float("nan"), "f32") is constant(float("nan"), "f32")


def test_nodes_die_with_their_graphs():
    from ingot.ir import node as nodes

    gc.collect()
    before = len(nodes._alive)
    builder = GraphBuilder()
    x = builder.input((123, 457))
    for _ in range(50):
        x = x + 1.25
    assert len(nodes._alive) > before + 40
    del builder, x
    gc.collect()
    assert len(nodes._alive) <= before


def test_structural_hash_is_the_same_in_every_process():
    code = (
        "from ingot import GraphBuilder\n"
        "b = GraphBuilder(); x = b.input((-1, 'n')); y = b.input(('n',))\n"
        "b.output(b.ops.layer_norm(x + y, ['n']), b.ops.gelu(x))\n"
        "print(b.build().digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(digests) == 1


def test_structural_hash_tells_graphs_apart():
    def graph(change):
        builder = GraphBuilder()
        x, y = builder.input((4, 4)), builder.input((4, 4))
        change(builder, x, y)
        return builder.build().digest

    digests = [
        graph(lambda b, x, y: b.output(x + y)),
        graph(lambda b, x, y: b.output(y + x)),
        graph(lambda b, x, y: b.output(x + y, x + y)),
        graph(lambda b, x, y: b.add_output(x + y, alias_input=x)),
        graph(lambda b, x, y: b.add_output(x + y, stride_order=[0, 1])),
        graph(lambda b, x, y: b.output(b.ops.sum(x, 0))),
        graph(lambda b, x, y: b.output(b.ops.sum(x, 1))),
        graph(lambda b, x, y: (b.ops.rand_like(x), b.output(x + y))),
    ]
    assert len(set(digests)) == len(digests)


def test_ten_thousand_nodes_build_verify_optimise_print_parse_and_run():
    builder = GraphBuilder()
    x, y = builder.input((-1, 8)), builder.input((8,))
    value = x
    for step in range(5000):
        value = value * 1.5 if step % 2 else builder.ops.sin(value)
        value = value + y
    builder.output(value)
    graph = builder.build()
    assert len(graph.nodes) == 10_000
    verify(graph)
    optimized = optimize(graph).graph
    assert parse(graph.text) == graph
    inputs = [torch.randn(2, 8), torch.randn(8)]
    assert torch.equal(Interpreter(graph).run(inputs)[0], Interpreter(optimized).run(inputs)[0])


def test_wide_and_deep_graphs_hit_no_recursion_limit():
    builder = GraphBuilder()
    value = builder.input((2,))
    for _ in range(12_000):
        value = builder.ops.neg(value)
    builder.output(value)
    graph = builder.build()
    assert len(optimize(graph).graph.nodes) == 0
    del graph, builder, value
    gc.collect()


def test_named_sizes_are_shared_and_checked():
    builder = GraphBuilder()
    x, y = builder.input(("rows", 3)), builder.input(("rows",))
    builder.output(builder.ops.reshape(x, ["3*rows"]), y)
    graph = builder.build()
    assert graph.assumptions == ()
    assert Interpreter(graph).run([torch.ones(5, 3), torch.ones(5)])[0].shape == (15,)
    with pytest.raises(DefinitionError, match="cannot name a size"):
        builder.input(("f32",))
    with pytest.raises(DefinitionError, match="no input has a size called columns"):
        builder.ops.reshape(x, ["columns"])


# --- library calls ----------------------------------------------------------------------------------------------------


def test_library_calls_run_with_recorded_arguments_and_results():
    builder = GraphBuilder()
    x, w = builder.input((2, 3, 8, 8)), builder.input((4, 3, 3, 3))
    convolved = builder.library(
        "aten.convolution.default",
        (x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        TensorType(DataType.Float, (2, 4, 8, 8)),
    )
    values, indices = builder.library(
        "aten.topk.default",
        (convolved, 2),
        TensorType(DataType.Float, (2, 4, 8, 2)),
        TensorType(DataType.Int, (2, 4, 8, 2)),
        keywords={"largest": True},
    )
    builder.output(builder.ops.relu(values), indices)
    graph = builder.build()
    assert parse(graph.text) == graph
    x, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    expected = torch.topk(torch.conv2d(x, w, padding=1), 2)
    values, indices = Interpreter(optimize(graph).graph).run([x, w])
    assert torch.equal(values, torch.relu(expected.values))
    assert torch.equal(indices, expected.indices)


def test_library_calls_that_draw_random_numbers_are_never_merged_or_removed():
    builder = GraphBuilder()
    x = builder.input((64,))
    kind = TensorType(DataType.Float, (64,))
    drawn = [builder.library("aten.bernoulli.p", (x, 0.5), kind) for _ in range(3)]
    builder.output(drawn[0], drawn[2])
    graph = optimize(builder.build()).graph
    assert len(graph.nodes) == 3
    torch.manual_seed(3)
    first, third = Interpreter(graph).run([torch.ones(64)])
    torch.manual_seed(3)
    expected = [torch.bernoulli(torch.ones(64), 0.5) for _ in range(3)]
    assert torch.equal(first, expected[0])
    assert torch.equal(third, expected[2])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("aten.add_.Tensor", "writes into its arguments"),
        ("os.system", "is no library call"),
        ("aten.nothing_of_the_kind.default", "torch.ops has no"),
        ("aten.mm.__class__", "is no library call|torch.ops has no"),
    ],
)
def test_only_functional_torch_operators_can_be_called(target, message):
    builder = GraphBuilder()
    x = builder.input((2, 2))
    with pytest.raises(UnsupportedError, match=message):
        builder.library(target, (x, x), TensorType(DataType.Float, (2, 2)))


# --- the verifier -----------------------------------------------------------------------------------------------------


def _graph():
    builder = GraphBuilder()
    x = builder.input((4,))
    builder.output(builder.ops.exp(x) + 1)
    return builder.build()


def test_verifier_accepts_what_is_right():
    verify(_graph())


@pytest.mark.parametrize(
    ("message", "broken"),
    [
        ("before it is defined", lambda g: Graph(g.inputs, g.nodes[::-1], g.outputs)),
        ("before it is defined", lambda g: Graph(g.inputs, g.nodes[1:], g.outputs)),
        ("each once", lambda g: Graph(g.inputs, g.nodes + g.nodes[:1], g.outputs)),
        ("at least one output", lambda g: Graph(g.inputs, g.nodes, ())),
        ("not part of the graph", lambda g: Graph(g.inputs, (), g.outputs)),
        ("no input 3", lambda g: Graph(g.inputs, g.nodes, (Output(g.nodes[0], alias_input=3),))),
        ("no order of the axes", lambda g: Graph(g.inputs, g.nodes, (Output(g.nodes[0], stride_order=(1,)),))),
        ("is numbered 0", lambda g: Graph((*g.inputs, *g.inputs), g.nodes, g.outputs)),
        ("not an input", lambda g: Graph((*g.inputs, g.nodes[0]), g.nodes[1:], g.outputs)),
        (
            "no input gives the sizes s7",
            lambda g: parse("graph(%0: f32[4]) {\n  assume s7 == 3 in add\n  return %0\n}"),
        ),
    ],
)
def test_verifier_names_the_broken_rule_and_prints_the_graph(message, broken):
    with pytest.raises(VerificationError, match=message) as caught:
        verify(broken(_graph()))
    assert "graph(" in str(caught.value)


def test_verifier_finds_a_type_that_does_not_follow():
    node = make(lookup("input"), (), InputAttributes(0, DataType.Bool, (4,)))
    forged = make(lookup("exp"), [node])
    with pytest.raises(VerificationError, match="exp does not compute in bool"):
        verify(Graph((node,), (forged,), (Output(forged),)))


def test_tensors_of_types_without_operators_are_refused_with_advice():
    with pytest.raises(DTypeError, match="run it through PyTorch"):
        GraphBuilder().input((2,), DataType.Float8_e5m2)


def test_the_sign_of_a_nan_is_part_of_it():
    """Folding makes negative ones, and `copysign` with a number takes its sign."""
    builder = GraphBuilder()
    x = builder.input((3,))
    for nan in (-math.nan, math.nan):
        builder.output(builder.ops.copysign(x, nan))
    graph = builder.build()
    assert "-nan" in graph.text and parse(graph.text).text == graph.text
    negative, positive = JitCompiler().compile(graph).execute([torch.ones(3)])
    assert negative.tolist() == [-1.0] * 3 and positive.tolist() == [1.0] * 3
