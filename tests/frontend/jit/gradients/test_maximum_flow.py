"""Minimum cuts of random networks cost what trying all cuts finds."""

from __future__ import annotations

import itertools
import random

import pytest

from ingot.frontend.jit.gradients.maximum_flow import INFINITE, FlowNetwork


def _network(edges: list[tuple[int, int, float]], nodes: int) -> FlowNetwork:
    made = FlowNetwork()
    for _ in range(nodes):
        made.add_node()
    for edge in edges:
        made.add_edge(*edge)
    return made


def _cost(edges: list[tuple[int, int, float]], near_source: set[int]) -> float:
    return sum(capacity for tail, head, capacity in edges if tail in near_source and head not in near_source)


def _cheapest(edges: list[tuple[int, int, float]], nodes: int) -> float:
    others = range(2, nodes)
    sides = itertools.chain.from_iterable(itertools.combinations(others, count) for count in range(nodes - 1))
    return min(_cost(edges, {0, *side}) for side in sides)


@pytest.mark.parametrize("seed", range(60))
def test_cuts_are_the_cheapest(seed):
    choose, nodes = random.Random(seed), 8
    edges = [
        (tail, head, float(choose.randrange(1, 20)))
        for tail, head in itertools.permutations(range(nodes), 2)
        if choose.random() < 0.35 and head != 0 and tail != 1
    ]
    near_source = _network(edges, nodes).minimum_cut(0, 1)
    assert 0 in near_source and 1 not in near_source
    assert _cost(edges, near_source) == _cheapest(edges, nodes)


def test_of_equal_cuts_the_one_near_the_sink_is_taken():
    edges = [(0, 2, 5.0), (2, 3, 5.0), (3, 1, 5.0)]
    assert _network(edges, 4).minimum_cut(0, 1) == {0, 2, 3}


def test_edges_that_cannot_be_cut():
    edges = [(0, 2, INFINITE), (2, 3, 4.0), (3, 1, INFINITE)]
    assert _network(edges, 4).minimum_cut(0, 1) == {0, 2}
    with pytest.raises(ValueError, match="cannot be cut"):
        _network([(0, 1, INFINITE)], 2).minimum_cut(0, 1)
