"""Random graphs through the launcher: a recorded call gives every bit that Python gives for the same kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from hypothesis import given, settings

from ingot.base.errors import ExecutionError
from ingot.ir.graph import Graph, Output, operations_of
from ingot.runtime.launch_records import may_record, record_call
from ingot.runtime.native.launch.callables import CallTable, native_function
from ingot.runtime.native.launch.launcher import launcher
from ingot.runtime.native.launch.record_structs import Convention
from ingot.runtime.native.launch.records import RunStatistics
from ingot.runtime.plan import Plan, is_plain
from ingot.runtime.runner import site_for
from tests.property.conftest import EXAMPLES
from tests.property.outcomes import Outcome, difference
from tests.property.random_graphs import Drawn, drawn_graphs
from tests.property.random_values import copied

MOST_PARTS = 6
"""Parts of a drawn graph that are tried: whole graphs mostly have something in them that needs Python."""
outcomes: Counter[str] = Counter()


def parts(graph: Graph) -> Iterator[Graph]:
    """The graph, and what leads to some of its values."""
    yield graph
    for node in graph.nodes[:: max(len(graph.nodes) // MOST_PARTS, 1)]:
        operations = set(operations_of([node]))
        kept = tuple(other for other in graph.nodes if other in operations)
        yield Graph(graph.inputs, kept, (Output(node),), graph.assumptions)


def run_natively(plan: Plan, arguments: Sequence[Any]) -> Outcome | None:
    """What the launcher gives; None where the call needs Python."""
    found, statistics = launcher(), RunStatistics()
    site = site_for(torch.device("cpu"))
    assert site is not None
    is_recorded = may_record(plan) and all(map(is_plain, arguments))
    record = record_call(plan, arguments, statistics, site) if is_recorded else None
    if found is None or record is None:
        return None
    table = CallTable(found, len(arguments), len(record.results), Convention.LIST)
    table.add(record)
    results = native_function(found, table, lambda inputs: ["fallback"], "run", "(inputs)", "")(list(arguments))
    assert statistics.executions == 1
    return Outcome(tuple(results), tuple(arguments))


@settings(settings.get_profile("random graphs"), max_examples=max(EXAMPLES // 8, 1))  # each compiles many kernels
@given(drawn_graphs())
def check_drawn_graph(drawn: Drawn) -> None:
    for graph in parts(drawn.graph):
        plan, arguments = Plan(graph), copied(drawn.arguments)
        try:
            expected = Outcome(tuple(plan.run(arguments)), tuple(arguments))
        except ExecutionError:
            continue
        arguments = copied(drawn.arguments)
        found = run_natively(plan, arguments)
        outcomes["native" if found else "python"] += 1
        wrong = found and difference(expected, found)
        assert not wrong, f"{wrong}\n{graph.text}"


def test_records_give_every_bit_python_gives():
    outcomes.clear()
    check_drawn_graph()
    assert outcomes["native"] > outcomes.total() // 10, outcomes
