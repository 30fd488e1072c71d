"""The interpreter's promise: results depend on the values of the arguments, not on where in memory they lie.

Passes may move a permute past an operation only because of this, and are compared bit by bit on the strength of it.
"""

from __future__ import annotations

from hypothesis import given, settings

from tests.property.outcomes import difference, first_wrong_value, run
from tests.property.random_graphs import Drawn, drawn_graphs
from tests.property.random_values import LAYOUTS, laid_out


@settings(settings.get_profile("random graphs"))
@given(drawn_graphs())
def test_results_do_not_depend_on_memory_layout(drawn: Drawn) -> None:
    for layout in LAYOUTS:
        arguments = [laid_out(argument, layout) for argument in drawn.arguments]

        def layout_matters(graph, arguments=arguments) -> str | None:
            return difference(run(graph, drawn.arguments), run(graph, arguments))

        if layout_matters(drawn.graph) is not None:
            part = first_wrong_value(drawn.graph, lambda graph: layout_matters(graph) is not None)
            raise AssertionError(f"{layout} arguments: {layout_matters(part)}\n{part.text}")


@settings(settings.get_profile("random graphs"))
@given(drawn_graphs())
def test_nothing_a_graph_holds_is_refused_when_it_runs(drawn: Drawn) -> None:
    outcome = run(drawn.graph, drawn.arguments)
    assert not outcome.refused, drawn.graph.text
