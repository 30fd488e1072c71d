"""The random graphs themselves: they must reach the whole op table, or the other properties say little."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import torch

from ingot.base.sizes import Shape
from ingot.base.types import TensorType, ValueType
from ingot.ir.binding import bind
from ingot.ir.graph import live_nodes
from ingot.ir.torch_types import from_torch
from ingot.ir.verifier import verify
from tests.property.random_graphs import Drawn, seeded_graph
from tests.property.sketch import DTYPES, PUBLIC

GRAPHS = 1200


@cache
def _drawn() -> list[Drawn]:
    return [seeded_graph(seed) for seed in range(GRAPHS)]


def _sizes(type_: ValueType) -> Shape:
    return type_.shape if isinstance(type_, TensorType) else ()


def test_every_public_operator_and_dtype_occurs() -> None:
    operators: Counter[str] = Counter()
    dtypes: Counter[object] = Counter()
    for drawn in _drawn():
        operators.update(drawn.operators)
        dtypes.update(from_torch(value.dtype) for value in drawn.arguments if isinstance(value, torch.Tensor))
    assert not [op.name for op in PUBLIC if operators[op.name] < 3]
    assert not [dtype for dtype in DTYPES if dtypes[dtype] < 50]


def test_graphs_hold_what_passes_must_get_right() -> None:
    seen: Counter[str] = Counter()
    for drawn in _drawn():
        graph, arguments = drawn.graph, drawn.arguments
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        used = {operand for node in graph.nodes for operand in node.operands} | {o.node for o in graph.outputs}
        live = live_nodes([output.node for output in graph.outputs])
        seen["long"] += len(drawn.operators) >= 15
        seen["symbolic sizes"] += any(not isinstance(size, int) for node in graph.inputs for size in _sizes(node.type))
        seen["assumptions"] += bool(graph.assumptions)
        seen["dead values"] += any(node not in used for node in graph.nodes)
        seen["dead draws"] += any(node.has_effect and node not in live for node in graph.nodes)
        seen["written inputs"] += any(output.alias_input is not None for output in graph.outputs)
        seen["ordered strides"] += any(output.stride_order is not None for output in graph.outputs)
        seen["scattered inputs"] += any(not value.is_contiguous() for value in tensors)
        seen["no elements"] += any(value.numel() == 0 for value in tensors)
        seen["NaN"] += any(bool(value.isnan().any()) for value in tensors)
        seen["negative zero"] += any(
            bool(((value == 0) & value.signbit()).any()) for value in tensors if value.is_floating_point()
        )
        seen["numbers"] += any(isinstance(value, float) and not math.isnan(value) for value in arguments)
    expected = "long, symbolic sizes, assumptions, dead values, dead draws, written inputs, ordered strides, "
    expected += "scattered inputs, no elements, NaN, negative zero, numbers"
    assert not [kind for kind in expected.split(", ") if seen[kind] < GRAPHS // 50], seen


def test_graphs_are_well_formed_and_fit_their_arguments() -> None:
    for drawn in _drawn():
        verify(drawn.graph)
        bind(drawn.graph, drawn.arguments)
