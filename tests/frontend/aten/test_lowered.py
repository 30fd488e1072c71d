"""Single calls as graphs that other graphs take in: the same nodes as if the call were lowered there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot import DataType, GraphBuilder
from ingot.base import sizes
from ingot.base.errors import DefinitionError
from ingot.base.types import ScalarType, TensorType
from ingot.frontend.aten import lowering_for
from ingot.frontend.aten.lowered import lowered_call

aten: Any = torch.ops.aten
ROWS = TensorType(DataType.BFloat16, (sizes.symbol("rows"), 64))


def test_an_included_call_is_the_call_lowered_in_place():
    graph = lowered_call(aten.native_layer_norm.default, "cpu", (ROWS, [64], None, None, 1e-5), {})
    assert graph is not None
    texts = []
    for is_included in (False, True):
        builder = GraphBuilder()
        x = builder.tensor_input(ROWS.shape, ROWS.dtype) * 2
        if is_included:
            made = builder.include(graph, [x])
        else:
            lowering: Any = lowering_for(aten.native_layer_norm.default)
            made = lowering(builder, [x, [64], None, None, 1e-5], {})
        builder.output(*made)
        texts.append(builder.build().text)
    assert texts[0] == texts[1]


def test_one_value_may_be_several_operands():
    graph = lowered_call(aten.add.Tensor, "cpu", (ROWS, ROWS), {"alpha": 2})
    assert graph is not None and len(graph.inputs) == 2
    builder = GraphBuilder()
    x = builder.tensor_input(ROWS.shape, ROWS.dtype)
    builder.output(*builder.include(graph, [x, x]))
    direct = GraphBuilder()
    y = direct.tensor_input(ROWS.shape, ROWS.dtype)
    lowering: Any = lowering_for(aten.add.Tensor)
    direct.output(lowering(direct, [y, y], {"alpha": 2}))
    assert builder.build().digest == direct.build().digest


def test_assumptions_come_along():
    other = TensorType(DataType.BFloat16, (sizes.symbol("others"), 64))
    graph = lowered_call(aten.add.Tensor, "cpu", (ROWS, other), {})
    assert graph is not None
    builder = GraphBuilder()
    given = [builder.tensor_input(type_.shape, type_.dtype) for type_ in (ROWS, other)]
    builder.output(*builder.include(graph, given))
    assert [str(one) for one in builder.build().assumptions] == ["others == rows in add"]


def test_operands_have_the_types_of_the_inputs():
    graph = lowered_call(aten.abs.default, "cpu", (ROWS,), {})
    assert graph is not None
    builder = GraphBuilder()
    with pytest.raises(DefinitionError, match="other types"):
        builder.include(graph, [builder.input((4, 64))])


def test_calls_are_made_once_and_told_apart_by_their_types():
    whole, real = (
        lowered_call(aten.mul.Tensor, "cpu", (ROWS, ScalarType(kind)), {}) for kind in (DataType.Int, DataType.Double)
    )
    assert whole is not None and real is not None and whole.digest != real.digest
    assert lowered_call(aten.mul.Tensor, "cpu", (ROWS, ScalarType(DataType.Int)), {}) is whole


def test_a_refused_call_has_no_graph():
    assert lowered_call(aten.bitwise_and.Tensor, "cpu", (ROWS, ROWS), {}) is None
    assert lowered_call(aten.digamma.default, "cpu", (ROWS,), {}) is None
