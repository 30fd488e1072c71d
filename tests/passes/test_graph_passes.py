"""All passes together: each rule says what it does, and passes run until none finds anything."""

from unittest import mock

from ingot.ir.parser import parse
from ingot.ops import table
from ingot.passes import algebraic_simplification, constant_folding, layout, strength_reduction
from ingot.passes.graph_passes import optimize
from ingot.passes.graph_rewriting import PassResult, operators_of
from tests.passes.written_graphs import BY_NAME, body


def test_every_rule_documents_before_and_after():
    rules = [
        *algebraic_simplification.RULES,
        *constant_folding.RULES,
        *strength_reduction.RULES,
        *layout.MERGES,
        *layout.SINKS,
    ]
    for rule in rules:
        assert rule.__doc__ is not None
        assert "->" in rule.__doc__, rule.__name__


def test_rules_are_for_operators_that_there_are():
    rules = [*algebraic_simplification.RULES, *constant_folding.RULES, *strength_reduction.RULES, *layout.MERGES]
    named = set().union(*(operators_of(rule) or () for rule in rules))
    assert {"add", "cast", "reshape"} <= named <= set(table())


def test_a_graph_with_nothing_to_do_in_stays_itself():
    text = """
    %1 = reshape(%0, shape=[2, 2]): f32[2, 2]
    %2 = permute(%1, order=[1, 0]): f32[2, 2]
    %3 = slice(%2, starts=[0, 0], stops=[1, 2], steps=[1, 1]): f32[1, 2]
    %4 = cat(%3, %3, axis=0): f32[2, 2]
    return %4
    """
    graph = parse(body("%0: f32[4]", text))
    optimized = optimize(graph)
    assert optimized.graph is graph
    assert {report.name for report in optimized.reports} == set(BY_NAME)


def test_passes_run_until_none_finds_anything():
    runs = []

    class Counting:
        name, summary, level = "counting", "", 0

        def run(self, graph):
            runs.append(graph)
            return PassResult(graph, changed=len(runs) < 3)

    with mock.patch("ingot.passes.graph_passes.PASSES", (BY_NAME["dead_code"], Counting())):
        optimize(parse(body("%0: f32[4]", "%1 = exp(%0): f32[4]\nreturn %1")))
    assert len(runs) == 3


def test_levels_select_passes():
    graph = parse(body("%0: f32[4]", "%1 = mul(%0, 1.0:f32): f32[4]\nreturn %1"))
    names = {level: {report.name for report in optimize(graph, level).reports} for level in range(4)}
    local = {"constant_folding", "algebraic_simplification", "strength_reduction"}
    assert names[0] == set()
    assert names[1] == local
    whole_graph = {"layout", "slices", "reshapes", "sink_cat", "common_subexpressions", "dead_code"}
    assert names[2] == names[3] == local | whole_graph
    assert optimize(graph, 0).graph is graph
