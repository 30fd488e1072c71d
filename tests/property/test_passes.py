"""Passes keep every bit of every result, for any graph and any arguments: each alone, and all in a pipeline."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings

from ingot.ir.graph import Graph
from ingot.ir.verifier import verify
from ingot.passes.graph_passes import PASSES, optimize
from tests.property.outcomes import Outcome, difference, first_wrong_value, run
from tests.property.random_graphs import Drawn, drawn_graphs

Rewrite = Callable[[Graph], Graph]
PROFILE = settings.get_profile("random graphs")


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


@settings(PROFILE)
@given(drawn_graphs())
def test_each_pass_alone_keeps_every_bit(drawn: Drawn) -> None:
    expected = run(drawn.graph, drawn.arguments)
    for pass_ in PASSES:
        _check(pass_.name, lambda graph, pass_=pass_: pass_.run(graph).graph, drawn, expected)


def _check_level(level: int, drawn: Drawn, expected: Outcome) -> None:
    def rewrite(graph: Graph) -> Graph:
        return optimize(graph, level).graph

    optimized = _check(f"level {level}", rewrite, drawn, expected)
    again = rewrite(optimized)
    assert again.text == optimized.text, f"level {level} has not settled:\n{optimized.text}\nthen:\n{again.text}"


@settings(PROFILE)
@given(drawn=drawn_graphs())
def test_pipeline_keeps_every_bit_and_settles(drawn: Drawn) -> None:
    _check_level(3, drawn, run(drawn.graph, drawn.arguments))


@settings(PROFILE, max_examples=PROFILE.max_examples // 3)
@given(drawn=drawn_graphs())
def test_lower_levels_keep_every_bit_and_settle(drawn: Drawn) -> None:
    expected = run(drawn.graph, drawn.arguments)
    for level in range(3):
        _check_level(level, drawn, expected)


@settings(PROFILE)
@given(drawn_graphs())
def test_layout_never_adds_a_permute(drawn: Drawn) -> None:
    passes = {pass_.name: pass_ for pass_ in PASSES}
    before = passes["dead_code"].run(drawn.graph).graph
    after = passes["dead_code"].run(passes["layout"].run(before).graph).graph
    counts = [sum(node.op.name == "permute" for node in graph.nodes) for graph in (before, after)]
    assert counts[1] <= counts[0], f"before:\n{before.text}\nafter:\n{after.text}"
