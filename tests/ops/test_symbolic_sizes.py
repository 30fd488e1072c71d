"""Graphs whose sizes are left open give what graphs of fixed sizes give, for every size, or say why they cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot import DataType, IngotError
from ingot.base.errors import InputError
from ingot.ops import Kind, Op, table
from ingot.ops.samples import Operand, Sample

from . import generation
from .generation import SHAPES, Refusal

PUBLIC = [op for op in table().values() if op.is_public]
every_operator = pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
OTHER_SIZES = {(3, 4): (5, 2), (2, 3, 5): (4, 1, 33), (33,): (7,), (1, 5): (3, 4)}
"""For a shape another one of the same rank, on which the same graph is tried."""
REGULAR = (Kind.POINTWISE, Kind.REDUCTION, Kind.SCAN)
"""Operators of these kinds have no reason to refuse an open size."""


def dtype_for(op: Op) -> DataType:
    """A dtype in which the operator certainly computes."""
    wanted = (DataType.Float, DataType.ComplexFloat, DataType.Int)
    return next(dtype for dtype in wanted if dtype in op.dtypes)


def plain_arguments(sample: Sample) -> Any:
    """A sample with nothing left of its operands but their number of dimensions and their dtype."""
    return generation.replace(sample, Operand, lambda operand: (len(operand.shape), operand.dtype))


def filled(op: Op, sample: Sample) -> Sample:
    return generation.with_tensors(sample, dtype_for(op))


@every_operator
def test_open_sizes_give_the_same_results_or_a_reason(op: Op):
    assert op.samples is not None
    for shape in SHAPES:
        for sample in (filled(op, sample) for sample in op.samples(shape)):
            copy = generation.copied(sample)
            expected = generation.attempt(lambda copy=copy: generation.eager_result(op, copy), *generation.EAGER_ERRORS)
            actual = generation.attempt(
                lambda sample=sample: generation.run_graph(generation.graph_of(op, sample, symbolic=True), sample),
                IngotError,
            )
            if isinstance(expected, Refusal):
                assert isinstance(actual, Refusal), f"eager refuses: {expected.error}"
            elif isinstance(actual, Refusal):
                assert op.kind not in REGULAR, f"{actual.error} for {sample}"
                assert len(str(actual.error)) > 20, "an error must say why"
            else:
                generation.assert_all_match(op, actual, expected, f"for {sample}")


@every_operator
def test_a_graph_of_open_sizes_serves_other_sizes(op: Op):
    """Wherever the same arguments make sense for another size, the graph does not have to be built again."""
    assert op.samples is not None
    for shape, other_shape in OTHER_SIZES.items():
        for sample, other in zip(op.samples(shape), op.samples(other_shape), strict=False):
            if plain_arguments(sample) != plain_arguments(other) or not generation.found_in(sample, Operand):
                continue
            graph = generation.attempt(
                lambda sample=sample: generation.graph_of(op, filled(op, sample), symbolic=True), IngotError
            )
            if isinstance(graph, Refusal):
                assert op.kind not in REGULAR, f"{graph.error} for {sample}"
                continue
            arguments = filled(op, other)
            expected = generation.eager_result(op, generation.copied(arguments))
            actual = generation.attempt(lambda graph=graph, a=arguments: generation.run_graph(graph, a), InputError)
            if isinstance(actual, Refusal):
                assert op.kind not in REGULAR and "to be equal" in str(actual.error), f"{actual.error} for {other}"
            else:
                generation.assert_all_match(op, actual, expected, f"for {other}")


def test_sizes_equal_by_assumption_alone_are_checked_when_the_graph_runs():
    for op in PUBLIC:
        if op.kind is not Kind.POINTWISE or op.signature is None or len(op.signature.parameters) != 2:
            continue
        assert op.samples is not None
        sample = op.samples((3, 4))[0]
        if len(generation.found_in(sample, Operand)) != 2:
            continue
        graph = generation.graph_of(op, filled(op, sample), symbolic=True)
        left, right = (
            generation.found_in(filled(op, op.samples(shape)[0]), torch.Tensor)[0] for shape in ((3, 4), (5, 4))
        )
        with pytest.raises(IngotError, match="to be equal"):
            generation.run_graph(graph, Sample((left, right)))
