"""Random graphs as nests for GPUs, thread by thread: what the graph interpreter gives, without a GPU."""

from __future__ import annotations

from unittest.mock import patch

import torch
from hypothesis import given, settings, strategies

from ingot import DataType, GraphBuilder
from ingot.fusion.rules import FusionRules
from ingot.ir.interpreter import Interpreter
from ingot.ir.node import Node
from ingot.runtime import plan as plan_module
from ingot.runtime.plan import Plan
from tests.cuda.schedules import small_gpu_tuning
from tests.loops.running import GpuInterpreted, launched_by
from tests.property.conftest import EXAMPLES
from tests.property.fused_graphs import FusedGraph, fused_graphs
from tests.property.outcomes import difference as difference_in_bits
from tests.property.outcomes import run
from tests.property.random_graphs import Drawn, drawn_graphs
from tests.property.random_values import copied
from tests.property.test_fused_kernels import difference
from tests.property.test_kernels import is_exact, outcome_of


@settings(settings.get_profile("random graphs"), max_examples=max(EXAMPLES // 3, 1))
@given(fused_graphs(), strategies.integers(0, 10**6))
def test_fused_graphs_agree_with_their_nests_for_gpus(drawn: FusedGraph, seed: int):
    plan = Plan(drawn.graph, FusionRules(strategy=("default", "aggressive")[seed % 2]))
    expected = Interpreter(drawn.graph).run(copied(drawn.arguments))
    with launched_by(GpuInterpreted(small_gpu_tuning(seed))):
        found = plan.run(copied(drawn.arguments))
    wrong = difference(drawn, expected, found)
    assert wrong is None, f"{wrong}\n{drawn}\n{plan.explain()}"


def _is_exact(node: Node) -> bool:
    """A float that no integer of a type is near to becomes another integer on GPUs than on CPUs."""
    if node.op.name != "cast":
        return is_exact(node)
    source, target = (getattr(one.type, "dtype") for one in (node.operands[0], node))  # noqa: B009
    return is_exact(node) and (target.is_float or not source.is_float)


@settings(settings.get_profile("random graphs"), max_examples=max(EXAMPLES // 5, 1))
@given(drawn_graphs(), strategies.integers(0, 10**6))
def test_nests_for_gpus_give_every_bit_where_all_is_exact(drawn: Drawn, seed: int):
    with patch.object(plan_module, "supports", _is_exact):
        plan, expected = Plan(drawn.graph), run(drawn.graph, drawn.arguments)
    with launched_by(GpuInterpreted(small_gpu_tuning(seed))):
        wrong = difference_in_bits(expected, outcome_of(plan, drawn.arguments))
    assert wrong is None, f"{wrong}\n{drawn.graph.text}"


def test_threads_agree_on_the_sign_of_a_zero():
    builder = GraphBuilder()
    x = builder.input((3, 200), DataType.Double)
    builder.output(builder.ops.amax(x, [1]))
    builder.output(builder.ops.amin(x, [1]))
    zeros = torch.where(torch.arange(600).view(3, 200) % 7 < 3, -0.0, 0.0).double()
    for seed in range(8):
        with launched_by(GpuInterpreted(small_gpu_tuning(seed))):
            largest, smallest = Plan(builder.build()).run([zeros.clone()])
        assert not largest.any() and not smallest.any()
