"""Clusters: what is computed together, and where it is cut."""

import textwrap
from typing import Any

from ingot.fusion.clusters import Cluster, find_clusters
from ingot.fusion.groups import Level
from ingot.fusion.rules import FusionRules, Pattern
from ingot.ir.parser import parse
from ingot.ir.printer import name_values


def clusters_of(text: str, supports=lambda node: True, **rules: Any) -> list[str]:
    """Each step as the names of its operations; single operations outside clusters in parentheses."""
    graph = parse(textwrap.dedent(text))
    names = name_values(graph)
    found = []
    for step in find_clusters(graph, supports, FusionRules(**rules)):
        if isinstance(step, Cluster):
            found.append(" ".join(names[node] for node in step.nodes))
        else:
            found.append(f"({names[step]})")
    return found


CHAIN = """
graph(%0: f32[4], %1: f32[4]) {
  %2 = mul(%0, %1): f32[4]
  %3 = exp(%2): f32[4]
  %4 = neg(%3): f32[4]
  %5 = add(%4, %1): f32[4]
  return %5
}
"""


def test_chain_is_one_cluster():
    assert clusters_of(CHAIN) == ["%2 %3 %4 %5"]


def test_size_is_bounded():
    assert clusters_of(CHAIN, max_size=2) == ["%2 %3", "%4 %5"]
    assert clusters_of(CHAIN, max_size=1) == ["%2", "%3", "%4", "%5"]


def test_what_is_not_supported_cuts():
    assert clusters_of(CHAIN, supports=lambda node: node.op.name != "exp") == ["%2", "(%3)", "%4 %5"]


SOFTMAX = """
graph(%0: f32[s0, s1]) {
  %1 = amax(%0, axes=[1]): f32[s0]
  %2 = broadcast_in_dim(%1, shape=[s0, 1], axes=[0]): f32[s0, 1]
  %3 = sub(%0, %2): f32[s0, s1]
  %4 = exp(%3): f32[s0, s1]
  %5 = sum(%4, axes=[1]): f32[s0]
  %6 = broadcast_in_dim(%5, shape=[s0, 1], axes=[0]): f32[s0, 1]
  %7 = div(%4, %6): f32[s0, s1]
  return %7
}
"""


def test_reductions_join_what_feeds_them_and_what_uses_them():
    assert clusters_of(SOFTMAX) == ["%1 %3 %4 %5 %7"]
    (cluster,) = find_clusters(parse(SOFTMAX), lambda node: True)
    assert isinstance(cluster, Cluster)
    assert cluster.reduced == {1}
    levels = [cluster.levels[node] for node in cluster.nodes]
    assert levels == [Level.ROW, Level.ELEMENT, Level.ELEMENT, Level.ROW, Level.ELEMENT]


def test_rules_limit_what_joins_reductions():
    apart = ["%1", "(%2)", "%3 %4", "%5", "(%6)", "%7"]
    assert clusters_of(SOFTMAX, strategy="conservative") == apart
    assert clusters_of(SOFTMAX, reductions=False) == apart
    assert clusters_of(SOFTMAX, level=1) == apart
    assert clusters_of(SOFTMAX, level=2) == ["%1", "(%2)", "%3 %4 %5", "(%6)", "%7"]
    single = ["%1", "(%2)", "%3", "%4", "%5", "(%6)", "%7"]
    assert clusters_of(SOFTMAX, level=0) == clusters_of(SOFTMAX, strategy="none") == single


def test_custom_patterns_say_what_may_join():
    pattern = Pattern("exponentials", frozenset({"sub", "exp"}))
    assert clusters_of(SOFTMAX, patterns=(pattern,)) == ["%1", "(%2)", "%3 %4", "%5", "(%6)", "%7"]
    short = Pattern("short", frozenset({"sub", "exp"}), max_size=1, priority=1)
    assert clusters_of(SOFTMAX, patterns=(pattern, short)) == ["%1", "(%2)", "%3", "%4", "%5", "(%6)", "%7"]


def test_branches_of_one_expression_are_one_cluster():
    text = """
    graph(%0: f32[4], %1: f32[4]) {
      %2 = mul(%0, %1): f32[4]
      %3 = exp(%2): f32[4]
      %4 = sub(%0, %1): f32[4]
      %5 = tanh(%4): f32[4]
      %6 = mul(%3, %5): f32[4]
      return %6
    }
    """
    assert clusters_of(text) == ["%2 %3 %4 %5 %6"]


def test_cluster_stops_where_a_path_would_leave_and_come_back():
    text = """
    graph(%0: f32[4, 5]) {
      %1 = exp(%0): f32[4, 5]
      %2 = cumsum(%1, axis=1): f32[4, 5]
      %3 = div(%1, %2): f32[4, 5]
      %4 = neg(%3): f32[4, 5]
      return %4
    }
    """
    assert clusters_of(text) == ["%1", "(%2)", "%3 %4"]
    (cluster, *_) = find_clusters(parse(text), lambda node: True)
    assert isinstance(cluster, Cluster)
    assert cluster.reason == "div does not join: a path would leave the kernel and come back"


def test_reductions_along_other_axes_are_other_clusters():
    text = """
    graph(%0: f32[4, 5]) {
      %1 = exp(%0): f32[4, 5]
      %2 = sum(%1, axes=[0]): f32[5]
      %3 = sum(%1, axes=[1]): f32[4]
      return %2, %3
    }
    """
    assert clusters_of(text) == ["%1 %2", "%3"]


def test_rows_can_be_added_up_in_the_same_cluster():
    text = """
    graph(%0: f32[4, 5]) {
      %1 = amax(%0, axes=[1]): f32[4]
      %2 = exp(%1): f32[4]
      %3 = sum(%2, axes=[0]): f32[]
      %4 = neg(%3): f32[]
      return %4
    }
    """
    assert clusters_of(text) == ["%1 %2 %3 %4"]


def test_total_is_not_spread_again_in_the_same_cluster():
    text = """
    graph(%0: f32[4, 5]) {
      %1 = amax(%0, axes=[1]): f32[4]
      %2 = sum(%1, axes=[0]): f32[]
      %3 = div(%1, %2): f32[4]
      return %3
    }
    """
    assert clusters_of(text) == ["%1 %2", "%3"]


def test_aggressive_strategy_joins_kernels_that_read_the_same_tensor():
    text = """
    graph(%0: f32[4, 5], %1: f32[4, 5], %2: f32[4, 5]) {
      %3 = exp(%0): f32[4, 5]
      %4 = mul(%0, %1): f32[4, 5]
      %5 = neg(%2): f32[4, 5]
      return %3, %4, %5
    }
    """
    assert clusters_of(text) == ["%3", "%4", "%5"]
    assert sorted(clusters_of(text, strategy="aggressive")) == ["%3 %4", "%5"]


def test_parts_of_a_concatenation_that_read_the_same_tensor_are_one_kernel():
    text = """
    graph(%0: f32[4, 5], %1: f32[4, 5], %2: f32[4, 5]) {
      %3 = exp(%0): f32[4, 5]
      %4 = mul(%0, %1): f32[4, 5]
      %5 = neg(%2): f32[4, 5]
      %6 = cat(%3, %4, %5, axis=1): f32[4, 15]
      return %6
    }
    """
    assert sorted(clusters_of(text)) == ["%3 %4", "%5", "(%6)"]


def test_value_and_its_transpose_do_not_meet_in_one_cluster():
    text = """
    graph(%0: f32[4, 4]) {
      %1 = exp(%0): f32[4, 4]
      %2 = permute(%1, order=[1, 0]): f32[4, 4]
      %3 = add(%1, %2): f32[4, 4]
      return %3
    }
    """
    assert clusters_of(text) == ["%1", "(%2)", "%3"]


def test_views_of_computed_values_cost_nothing():
    text = """
    graph(%0: f32[4, 5], %1: f32[5, 4]) {
      %2 = exp(%0): f32[4, 5]
      %3 = permute(%2, order=[1, 0]): f32[5, 4]
      %4 = mul(%3, %1): f32[5, 4]
      return %4
    }
    """
    assert clusters_of(text) == ["%2 %4"]


def test_view_that_is_needed_outside_is_taken_of_an_output():
    text = """
    graph(%0: f32[4, 5]) {
      %1 = exp(%0): f32[4, 5]
      %2 = permute(%1, order=[1, 0]): f32[5, 4]
      return %2
    }
    """
    assert clusters_of(text) == ["%1", "(%2)"]


def test_expensive_values_of_other_shapes_are_other_clusters():
    text = """
    graph(%0: f32[4, 5], %1: f32[5]) {
      %2 = exp(%1): f32[5]
      %3 = add(%0, %2): f32[4, 5]
      return %3
    }
    """
    assert clusters_of(text) == ["%2", "%3"]


def test_cheap_values_are_computed_where_they_are_needed():
    text = """
    graph(%0: f32[4, 5], %1: bf16[5]) {
      %2 = cast(%1, dtype=f32): f32[5]
      %3 = add(%0, %2): f32[4, 5]
      %4 = cumsum(%3, axis=1): f32[4, 5]
      %5 = mul(%4, %2): f32[4, 5]
      return %5
    }
    """
    assert clusters_of(text) == ["%2 %3", "(%4)", "%2 %5"]


def test_values_that_others_need_are_outputs_and_reasons_are_recorded():
    graph = parse(
        "graph(%0: f32[4, 5]) { %1 = exp(%0): f32[4, 5] %2 = neg(%1): f32[4, 5] "
        "%3 = cumsum(%1, axis=0): f32[4, 5] return %2, %3 }"
    )
    (cluster, _) = find_clusters(graph, lambda node: True)
    assert isinstance(cluster, Cluster)
    assert cluster.inputs == graph.inputs
    assert cluster.outputs == graph.nodes[:2]
    assert cluster.reason == "read by cumsum"


def test_draws_keep_their_order_however_clusters_are_arranged():
    text = """
    graph(%0: f32[4]) {
      %1 = mul(%0, %0): f32[4]
      %2 = random_uniform(shape=[4], dtype=f32, ordinal=0): f32[4]
      %3 = random_normal(shape=[4], dtype=f32, ordinal=1): f32[4]
      %4 = add(%1, %3): f32[4]
      %5 = cumsum(%2, axis=0): f32[4]
      return %4, %5
    }
    """
    order = clusters_of(text)
    assert order.index("(%2)") < order.index("(%3)")


def test_draws_keep_their_order():
    text = """
    graph(%0: f32[4]) {
      %1 = random_uniform(shape=[4], dtype=f32, ordinal=0): f32[4]
      %2 = add(%0, %1): f32[4]
      %3 = random_normal(shape=[4], dtype=f32, ordinal=1): f32[4]
      %4 = add(%2, %3): f32[4]
      return %4
    }
    """
    assert clusters_of(text) == ["(%1)", "(%3)", "%2 %4"]
