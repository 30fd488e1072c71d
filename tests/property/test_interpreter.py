"""The interpreter's promise: results depend on the values of the arguments, not on where in memory they lie.

Passes may move a permute past an operation only because of this, and are compared bit by bit on the strength of it.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from ingot.base.dtypes import in_order
from ingot.ir.torch_types import to_torch
from ingot.ops import Kind, Op, table
from tests.property.outcomes import difference, first_wrong_value, run, shown_difference
from tests.property.random_graphs import Drawn, drawn_graphs
from tests.property.random_values import LAYOUTS, every_pair, laid_out, same_bits


@settings(settings.get_profile("random graphs"))
@given(drawn_graphs())
def test_results_do_not_depend_on_memory_layout(drawn: Drawn) -> None:
    expected = run(drawn.graph, drawn.arguments)
    assert not expected.refused, drawn.graph.text
    for layout in LAYOUTS:
        arguments = [laid_out(argument, layout) for argument in drawn.arguments]

        def layout_matters(graph, arguments=arguments) -> str | None:
            return difference(run(graph, drawn.arguments), run(graph, arguments))

        if difference(expected, run(drawn.graph, arguments)) is not None:
            part = first_wrong_value(drawn.graph, lambda graph: layout_matters(graph) is not None)
            raise AssertionError(f"{layout} arguments: {layout_matters(part)}\n{part.text}")


_PRIMITIVES = [
    op for op in table().values() if op.kind is Kind.POINTWISE and op.signature is not None and op.name != "cast"
]


@pytest.mark.parametrize("op", [op for op in _PRIMITIVES if op.stable], ids=lambda op: op.name)
def test_stable_operators_give_the_same_bits_in_vector_and_scalar_code(op: Op) -> None:
    """torch takes vector code for long rows and scalar code for elements apart; records say for which that is one."""
    assert op.samples is not None and op.reference is not None
    placeholders = op.samples((2, 2))[0].arguments
    for dtype in in_order(op.dtypes):
        values = every_pair(dtype)
        operands = [values[position % 2] for position in range(len(placeholders))]
        for position, placeholder in enumerate(placeholders):
            if placeholder.dtype is not None:
                operands[position] = operands[position].to(to_torch(placeholder.dtype))
            elif dtype.is_integer and placeholder.domain.lowest_integer is not None:
                low, high = placeholder.domain.lowest_integer, placeholder.domain.highest_integer
                operands[position] = operands[position].clamp(low, high)
        together = op.reference(torch, *operands)
        apart = op.reference(torch, *(laid_out(operand, "strided") for operand in operands))
        assert same_bits(together, apart), f"{op.name} {dtype.text}: {shown_difference(together, apart)}"
        # A number beside a tensor takes another way through torch again.
        for number in {repr(value): value for value in operands[-1].tolist()}.values():
            constant = torch.tensor(number, dtype=operands[-1].dtype)
            together = op.reference(torch, *operands[:-1], constant)
            apart = op.reference(torch, *(laid_out(operand, "strided") for operand in operands[:-1]), constant)
            found = f"{op.name}(x, {number}) {dtype.text}: {shown_difference(together, apart)}"
            assert len(operands) == 1 or same_bits(together, apart), found
