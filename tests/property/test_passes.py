"""Passes keep every bit of every result, for any graph and any arguments: each alone, and all in a pipeline."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from ingot.ir.graph import Graph
from ingot.ir.verifier import verify
from ingot.passes.pipeline import PASSES, optimize
from tests.property.outcomes import Outcome, difference, first_wrong_value, run
from tests.property.random_graphs import Drawn, drawn_graphs

Rewrite = Callable[[Graph], Graph]


def _check(name: str, rewrite: Rewrite, drawn: Drawn, expected: Outcome) -> Graph:
    """Rewrite a graph and compare; on failure show the smallest part of it that shows the fault."""
    rewritten = rewrite(drawn.graph)
    verify(rewritten)
    found = difference(expected, run(rewritten, drawn.arguments))
    if found is None:
        return rewritten

    def is_wrong(graph: Graph) -> bool:
        return difference(run(graph, drawn.arguments), run(rewrite(graph), drawn.arguments)) is not None

    part = first_wrong_value(drawn.graph, is_wrong)
    found = difference(run(part, drawn.arguments), run(rewrite(part), drawn.arguments)) or found
    raise AssertionError(f"{name}: {found}\nbefore:\n{part.text}\nafter:\n{rewrite(part).text}")


@settings(settings.get_profile("random graphs"))
@given(drawn_graphs())
def test_each_pass_alone_keeps_every_bit(drawn: Drawn) -> None:
    expected = run(drawn.graph, drawn.arguments)
    for pass_ in PASSES:
        _check(pass_.name, lambda graph, pass_=pass_: pass_.run(graph).graph, drawn, expected)


@pytest.mark.parametrize("level", range(4))
@settings(settings.get_profile("random graphs"))
@given(drawn=drawn_graphs())
def test_pipeline_keeps_every_bit_and_settles(level: int, drawn: Drawn) -> None:
    def rewrite(graph: Graph) -> Graph:
        return optimize(graph, level).graph

    optimized = _check(f"level {level}", rewrite, drawn, run(drawn.graph, drawn.arguments))
    again = rewrite(optimized)
    assert again.text == optimized.text, f"not settled:\n{optimized.text}\nthen:\n{again.text}"


@settings(settings.get_profile("random graphs"))
@given(drawn_graphs())
def test_pipeline_never_makes_a_graph_longer(drawn: Drawn) -> None:
    """Counted without dead values, which only the higher levels remove."""
    (dead_code,) = (pass_ for pass_ in PASSES if pass_.name == "dead_code")
    before = dead_code.run(drawn.graph).graph
    after = optimize(drawn.graph).graph
    assert len(after.nodes) <= len(before.nodes), f"before:\n{before.text}\nafter:\n{after.text}"
