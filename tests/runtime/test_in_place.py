"""Results that are written into inputs: no result depends on the order in which that happens."""

from __future__ import annotations

import pytest
import torch

from ingot import GraphBuilder
from ingot.ir.graph import Graph
from ingot.runtime.plan import Plan


def difference_with_transposed() -> Graph:
    """x - y^T, written over x."""
    builder = GraphBuilder()
    x, y = (builder.input((300, 300)) for _ in range(2))
    builder.add_output(x + builder.ops.permute(builder.ops.neg(y), [1, 0]), alias_input=x)
    return builder.build()


def overwritten_and_read_later() -> Graph:
    """2 x, written over x, and then the sum of the rows of y."""
    builder = GraphBuilder()
    x, y = (builder.input((300, 300)) for _ in range(2))
    builder.add_output(x * 2, alias_input=x)
    builder.add_output(builder.ops.sum(builder.ops.exp(y / 90000), [1]))
    return builder.build()


@pytest.mark.parametrize(
    "graph", [difference_with_transposed(), overwritten_and_read_later()], ids=["transposed", "later"]
)
def test_one_tensor_may_be_the_argument_for_several_inputs(graph: Graph):
    numbers = torch.arange(90_000.0).view(300, 300)
    apart, together = numbers.clone(), numbers.clone()
    expected = Plan(graph).run([apart, numbers])
    found = Plan(graph).run([together, together])
    assert torch.equal(apart, together)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_views_of_what_is_overwritten_are_read_before_it():
    numbers = torch.arange(90_000.0).view(300, 300)
    memory = numbers.clone()
    Plan(difference_with_transposed()).run([memory, memory.T])
    assert torch.equal(memory, numbers - numbers)


def test_input_that_is_returned_and_overwritten_is_returned_as_it_was():
    builder = GraphBuilder()
    x, y = (builder.input((4,)) for _ in range(2))
    builder.add_output(x)
    builder.add_output(y * 2, alias_input=x)
    given, factor = torch.zeros(4), torch.arange(4.0)
    assert Plan(builder.build()).run([given, factor])[0].tolist() == [0.0] * 4
    assert given.tolist() == [0.0, 2.0, 4.0, 6.0]
