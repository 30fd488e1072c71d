"""Clusters: what is computed together, and where it is cut."""

import textwrap

from ingot.fusion.clusters import Cluster, find_clusters
from ingot.ir.parser import parse
from ingot.ir.printer import name_values


def clusters_of(text: str, max_size: int = 64, supports=lambda node: True) -> list[str]:
    """Each step as the names of its operations; single operations outside clusters in parentheses."""
    graph = parse(textwrap.dedent(text))
    names = name_values(graph)
    found = []
    for step in find_clusters(graph, supports, max_size):
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


def test_cluster_stops_where_a_path_would_leave_and_come_back():
    text = """
    graph(%0: f32[4, 5]) {
      %1 = exp(%0): f32[4, 5]
      %2 = sum(%1, axes=[1]): f32[4]
      %3 = broadcast_in_dim(%2, shape=[4, 1], axes=[0]): f32[4, 1]
      %4 = div(%1, %3): f32[4, 5]
      %5 = neg(%4): f32[4, 5]
      return %5
    }
    """
    assert clusters_of(text) == ["%1", "(%2)", "(%3)", "%4 %5"]


def test_other_shapes_are_other_clusters():
    text = """
    graph(%0: f32[4, 5], %1: f32[5]) {
      %2 = exp(%1): f32[5]
      %3 = add(%0, %2): f32[4, 5]
      return %3
    }
    """
    assert clusters_of(text) == ["%2", "%3"]


def test_values_that_others_need_are_outputs_and_reasons_are_recorded():
    graph = parse(
        "graph(%0: f32[4, 5]) { %1 = exp(%0): f32[4, 5] %2 = neg(%1): f32[4, 5] "
        "%3 = sum(%1, axes=[0]): f32[5] return %2, %3 }"
    )
    (cluster, _) = find_clusters(graph, lambda node: True, 64)
    assert isinstance(cluster, Cluster)
    assert cluster.inputs == graph.inputs
    assert cluster.outputs == graph.nodes[:2]
    assert cluster.reason == "read by sum"


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
