"""Which programs may be computed roughly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ingot import DataType, GraphBuilder
from ingot.codegen.llvm.host import Host
from ingot.codegen.llvm.support import supports
from ingot.codegen.ptx.accuracy import suited
from ingot.codegen.ptx.target import gpu
from ingot.fusion.clusters import Cluster, find_clusters
from ingot.loops.program import Program, lower

HALF, FLOAT = DataType.BFloat16, DataType.Float


def program_of(body: Callable[..., Any], *given: DataType) -> Program:
    """What a kernel computes, where inputs have these types."""
    builder = GraphBuilder()
    builder.output(body(builder.ops, *(builder.input((8, 16), dtype) for dtype in given)))
    (cluster,) = (iteration for iteration in find_clusters(builder.build(), supports) if isinstance(iteration, Cluster))
    return lower(cluster).program


def host_for(body: Callable[..., Any], *given: DataType) -> Host:
    """What a GPU is asked for, where inputs have these types."""
    return suited(gpu((9, 0)), program_of(body, *given))


def approximates(body: Callable[[Any, Any], Any], given: DataType = HALF) -> bool:
    return host_for(body, given).approximates


@pytest.mark.parametrize("half", [DataType.BFloat16, DataType.Half])
def test_results_of_16_bits_may_be_rough(half: DataType):
    assert approximates(lambda ops, x: ops.cast(ops.exp(x) / 3.0, half), half)
    assert approximates(lambda ops, x: ops.cast(ops.softmax(x, -1), half), half)


def test_nothing_is_rough_where_eagers_rounding_is_asked_for():
    exact = replace(gpu((9, 0)), may_approximate=False)
    program = program_of(lambda ops, x: ops.cast(ops.exp(x) / 3.0, HALF), HALF)
    assert suited(gpu((9, 0)), program).approximates and not suited(exact, program).approximates


def test_wider_results_and_operands_are_accurate():
    assert not approximates(lambda ops, x: ops.exp(ops.cast(x, FLOAT)))
    assert not approximates(lambda ops, x: ops.cast(ops.exp(x), HALF), FLOAT)
    assert not approximates(lambda ops, x: ops.cast(ops.cast(x, FLOAT) / 3.0, DataType.Int), DataType.Int)


@pytest.mark.parametrize(
    "body",
    [
        lambda ops, x: ops.cast(ops.floor(x / 3.0), HALF),
        lambda ops, x: ops.cast(ops.round(ops.sqrt(x) * 2.0), HALF),
        lambda ops, x: ops.ge(x / 3.0, 2.0),
        lambda ops, x: ops.where(ops.eq(ops.exp(x), 1.0), x, -x),
        lambda ops, x: ops.cast(ops.sqrt(x), DataType.Int),
    ],
)
def test_what_decides_is_accurate(body):
    assert not approximates(body)


def test_decisions_by_exact_values_do_not_matter():
    assert approximates(lambda ops, x: ops.cast(ops.where(ops.gt(x * 2.0, 1.0), ops.exp(x), ops.floor(x)), HALF))


def test_roots_are_left_to_the_assembler_beside_functions_of_elements():
    assert host_for(lambda ops, x, y: ops.exp(x) / ops.sqrt(y), FLOAT, FLOAT).leaves_roots
    assert not host_for(lambda ops, x, y: (x / y) / ops.sqrt(y), FLOAT, FLOAT).leaves_roots
    assert not host_for(lambda ops, x, y: ops.sqrt(x) / ops.exp(ops.sum(y, [1], True)), FLOAT, FLOAT).leaves_roots
