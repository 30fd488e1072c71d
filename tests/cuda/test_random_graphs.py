"""Random graphs on a GPU: generated code gives what the graph interpreter gives there, within what rounding can do.

pytest tests/cuda/test_random_graphs.py                                   the same graphs every time
INGOT_TEST_EXAMPLES=5000 pytest -n 8 --dist worksteal tests/cuda          a long run: other graphs every time
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings, strategies

from ingot.base.errors import ExecutionError
from ingot.fusion.rules import FusionRules
from ingot.ir.interpreter import Interpreter
from ingot.passes.graph_passes import optimize
from ingot.runtime import plan as plan_module
from ingot.runtime.backends.registry import using
from ingot.runtime.cuda.backend import CudaBackend
from ingot.runtime.plan import Plan
from tests.cuda.launches import counted_launches
from tests.cuda.schedules import small_gpu_tuning
from tests.property.conftest import EXAMPLES
from tests.property.fused_graphs import FusedGraph, fused_graphs, seeded_fused
from tests.property.outcomes import Outcome
from tests.property.outcomes import difference as difference_in_bits
from tests.property.random_graphs import Drawn, drawn_graphs
from tests.property.random_values import copied, on_device
from tests.property.test_fused_kernels import difference
from tests.property.test_kernels import is_exact

pytestmark = pytest.mark.cuda

GPU = torch.device("cuda", 0)
STRATEGIES = ("default", "aggressive", "conservative")
PROFILE = settings.get_profile("random graphs")


def check(drawn: FusedGraph, strategy: str) -> None:
    """Compare both ways to run a graph; where the GPU lacks one of PyTorch's operations there is nothing to compare."""
    plan = Plan(drawn.graph, FusionRules(strategy=strategy))
    arguments = on_device(drawn.arguments, GPU)
    try:
        expected = Interpreter(drawn.graph).run(copied(arguments), GPU)
    except ExecutionError:
        return
    found = plan.run(copied(arguments), GPU)
    assert all(tensor.device == GPU for tensor in found)
    wrong = difference(drawn, expected, found)
    assert wrong is None, f"{wrong}\n{drawn}\n{plan.explain()}"


@settings(PROFILE, max_examples=EXAMPLES)
@given(fused_graphs(), strategies.sampled_from(STRATEGIES))
def test_generated_code_gives_what_the_interpreter_gives(drawn: FusedGraph, strategy: str):
    check(drawn, strategy)


@settings(PROFILE, max_examples=EXAMPLES)
@given(fused_graphs(), strategies.integers(0, 10**6))
def test_generated_code_gives_the_same_under_small_schedules(drawn: FusedGraph, seed: int):
    with using(CudaBackend(small_gpu_tuning(seed))):
        check(drawn, STRATEGIES[seed % len(STRATEGIES)])


@settings(PROFILE, max_examples=max(EXAMPLES // 3, 1))
@given(drawn_graphs())
def test_every_bit_is_the_interpreters_where_all_is_exact(drawn: Drawn):
    arguments = on_device(drawn.arguments, GPU)
    with patch.object(plan_module, "supports", is_exact):
        for graph, size in ((drawn.graph, 4), (optimize(drawn.graph).graph, 64)):
            expected = outcome(Interpreter(graph), arguments)
            if expected.refused:
                continue
            wrong = difference_in_bits(expected, outcome(Plan(graph, FusionRules(max_size=size)), arguments))
            assert wrong is None, f"{wrong}\n{graph.text}"


def outcome(runner: Interpreter, given: Sequence[Any]) -> Outcome:
    arguments = copied(given)
    torch.manual_seed(20)
    try:
        results = runner.run(arguments, GPU)
    except ExecutionError:
        return Outcome((), tuple(arguments), refused=True)
    return Outcome(tuple(results), tuple(arguments))


def test_random_graphs_run_as_generated_kernels():
    """The properties above could not fail if everything ran through PyTorch."""
    kernels, refused = 0, []
    with counted_launches() as launches:
        for seed in range(60):
            drawn = seeded_fused(seed)
            plan = Plan(drawn.graph, FusionRules(strategy="default"))
            plan.run(on_device(drawn.arguments, GPU), GPU)
            kernels += len(plan.kernels())
            refused += [kernel.program.text for kernel in plan.kernels() if plan.refuses(kernel, GPU.type)]
    assert not refused, "\n".join(refused)
    assert launches.generated > 0.9 * kernels


def test_arguments_share_memory_on_the_gpu_as_they_did():
    base = torch.arange(20.0)
    first, second = on_device([base[3:9], base.view(4, 5).T], GPU)
    assert torch.equal(first.cpu(), base[3:9]) and torch.equal(second.cpu(), base.view(4, 5).T)
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert second.stride() == (1, 5)
