"""Random graphs as generated kernels and as loops: where everything is exact, every bit is the interpreter's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import given, settings

from ingot.base.errors import ExecutionError
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.codegen.llvm.support import supports
from ingot.fusion.rules import FusionRules
from ingot.ir.node import Node
from ingot.passes.graph_passes import optimize
from ingot.runtime import plan as plan_module
from ingot.runtime.cpu.kernels import launch
from ingot.runtime.plan import Plan
from tests.loops.cpu.schedules import small_schedules
from tests.loops.running import interpreted_launch, launched_by
from tests.property.conftest import EXAMPLES
from tests.property.outcomes import Outcome, difference, run
from tests.property.random_graphs import Drawn, drawn_graphs
from tests.property.random_values import copied


def is_exact(node: Node) -> bool:
    """What generated code computes without rounding of its own; functions are compared one by one elsewhere."""
    if not supports(node) or node.op.name in FUNCTIONS or node.op.name == "sqrt":
        return False
    # Which of +0.0 and -0.0 is the smaller one depends on their order.
    adds_floats = node.op.name in ("sum", "prod", "amax", "amin") and getattr(node.type, "dtype").is_float  # noqa: B009
    return not adds_floats


def outcome_of(plan: Plan, given: Sequence[Any]) -> Outcome:
    arguments = copied(given)
    torch.manual_seed(20)
    try:
        results = plan.run(arguments)
    except ExecutionError:
        return Outcome((), tuple(arguments), refused=True)
    return Outcome(tuple(results), tuple(arguments))


@settings(settings.get_profile("random graphs"), max_examples=max(EXAMPLES // 5, 1))  # each compiles many kernels
@given(drawn_graphs())
def test_kernels_give_every_bit_the_interpreter_gives(drawn: Drawn):
    before = plan_module.supports
    plan_module.supports = is_exact
    try:
        for graph, size in ((drawn.graph, 4), (optimize(drawn.graph).graph, 64)):
            plan, expected = Plan(graph, FusionRules(max_size=size)), run(graph, drawn.arguments)
            for way in (launch, interpreted_launch):
                with launched_by(way), small_schedules(len(graph.text)):
                    wrong = difference(expected, outcome_of(plan, drawn.arguments))
                assert wrong is None, f"{way.__name__}: {wrong}\n{graph.text}"
    finally:
        plan_module.supports = before
