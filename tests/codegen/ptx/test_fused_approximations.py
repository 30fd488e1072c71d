"""Which functions a program on a GPU has as fused approximations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ingot import DataType, GraphBuilder
from ingot.base.errors import ParseError
from ingot.codegen.llvm.math import SUMS_WITH_ONE, TO_8_BITS
from ingot.codegen.llvm.support import supports
from ingot.codegen.ptx.accuracy import suited
from ingot.codegen.ptx.fused_approximations import with_fused_approximations
from ingot.codegen.ptx.target import gpu
from ingot.fusion.clusters import Cluster, find_clusters
from ingot.ir.parser import parse
from ingot.loops.program import lower
from ingot.ops import Op, table

FUSED_APPROXIMATIONS = [op for op in table().values() if op.is_fused_approximation]
BFLOAT, HALF, FLOAT = DataType.BFloat16, DataType.Half, DataType.Float


def functions(
    body: Callable[[Any, Any], Any],
    given: DataType = BFLOAT,
    capability: tuple[int, int] = (9, 0),
    may_approximate: bool = True,
) -> set[str]:
    """Names of the functions in a program, of one operand each."""
    builder = GraphBuilder()
    x = builder.input((8, 16), given)
    results = body(builder.ops, builder.ops.cast(x, FLOAT))
    builder.output(*(builder.ops.cast(each, given) for each in results))
    (cluster,) = (iteration for iteration in find_clusters(builder.build(), supports) if isinstance(iteration, Cluster))
    program = lower(cluster).program
    host = replace(gpu(capability), may_approximate=may_approximate)
    shortened = with_fused_approximations(program, suited(host, program))
    return {statement.op.name for statement in shortened.statements} - {"cast", "mul", "add"}


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_sums_with_one_are_functions(name: str):
    apply = lambda ops, x: getattr(ops, name)(x)
    assert f"one_and_{name}" in functions(lambda ops, x: [x * (1 + apply(ops, x))])
    assert f"one_and_{name}" in functions(lambda ops, x: [x * (apply(ops, x) + 1)], HALF)
    assert functions(lambda ops, x: [x * (2 + apply(ops, x))]) == {name}
    assert functions(lambda ops, x: [x * (1 + apply(ops, x))], FLOAT) == {name}


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_what_is_rounded_to_bfloat16_at_once_may_be_rougher(name: str):
    apply = lambda ops, x: getattr(ops, name)(x)
    assert functions(lambda ops, x: [apply(ops, x)]) == {f"{name}_to_8_bits"}
    assert functions(lambda ops, x: [apply(ops, x)], HALF) == {name}
    assert functions(lambda ops, x: [apply(ops, x)], FLOAT) == {name}
    assert functions(lambda ops, x: [apply(ops, x)], capability=(7, 0)) == {name}
    assert functions(lambda ops, x: [apply(ops, x), apply(ops, x) * 3]) == {name}, "used before it is rounded, too"


@pytest.mark.parametrize("given", [BFLOAT, HALF, FLOAT])
def test_where_eagers_rounding_is_asked_for_there_are_none(given: DataType):
    bodies = (
        lambda ops, x: [x * (1 + ops.erf(x))],
        lambda ops, x: [ops.tanh(x)],
        lambda ops, x: [ops.softmax(x, 1)],
    )
    found = set().union(*(functions(body, given, may_approximate=False) for body in bodies))
    assert found.isdisjoint(op.name for op in FUSED_APPROXIMATIONS) and {"erf", "tanh", "div"} <= found


def softmax_like(ops: Any, x: Any, shifts: bool = True, other: bool = False) -> Any:
    powers = ops.exp(x - ops.amax(x, [1], True) if shifts else x)
    return [powers / ops.sum(powers * 2.0 if other else powers, [1], True)]


def test_softmax_divides_roughly_and_nothing_else_does():
    assert "rough_div" in functions(softmax_like, FLOAT)
    assert "rough_div" in functions(lambda ops, x: [ops.softmax(x, 1)], FLOAT)
    assert "rough_div" in functions(lambda ops, x: [ops.softmax(ops.where(x > 0, x, -1.0), 1)], FLOAT)
    for changes in ({"shifts": False}, {"other": True}):
        assert "rough_div" not in functions(lambda ops, x, changes=changes: softmax_like(ops, x, **changes), FLOAT)
    assert "rough_div" not in functions(lambda ops, x: [x / ops.sum(x, [1], True)], FLOAT)
    assert "rough_div" not in functions(lambda ops, x: softmax_like(ops, ops.cast(x, DataType.Double)), FLOAT)


def test_fused_approximations_are_operators_of_the_table():
    named = {f"one_and_{name}" for name in SUMS_WITH_ONE} | {f"{name}_to_8_bits" for name in TO_8_BITS}
    assert {op.name for op in FUSED_APPROXIMATIONS} == named | {"rough_div"}


@pytest.mark.parametrize("op", FUSED_APPROXIMATIONS, ids=lambda op: op.name)
def test_no_graph_holds_a_fused_approximation(op: Op):
    operands = "%0, %0" if op.name == "rough_div" else "%0"
    with pytest.raises(ParseError, match="stands in kernels alone"):
        parse(f"graph(%0: f32[4]) {{\n  %1 = {op.name}({operands}): f32[4]\n  return %1\n}}")
