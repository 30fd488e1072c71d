"""The cheapest cut of a graph: Dinic's algorithm.

In: edges with capacities between numbered nodes. Out: the nodes on the source's side of a minimum cut. Nodes that are
as far towards the sink as possible are chosen where several cuts cost the same.
"""

from __future__ import annotations

import math
from collections import deque

INFINITE = math.inf


class FlowNetwork:
    """Edges come in pairs: each with its reverse, at its index with the last bit flipped."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = []
        """The edges that leave each node."""
        self._heads: list[int] = []
        self._capacities: list[float] = []

    def add_node(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def add_edge(self, tail: int, head: int, capacity: float) -> None:
        for one, other, room in ((tail, head, capacity), (head, tail, 0.0)):
            self._edges[one].append(len(self._heads))
            self._heads.append(other)
            self._capacities.append(room)

    def minimum_cut(self, source: int, sink: int) -> set[int]:
        """The nodes that are cut off from the sink, the source among them."""
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                break
            remaining = [0] * len(self._edges)
            while self._augment(source, sink, levels, remaining) > 0:
                pass
        reaches_sink = self._reaching(sink)
        return {node for node in range(len(self._edges)) if node not in reaches_sink}

    def _levels(self, source: int) -> list[int]:
        levels = [-1] * len(self._edges)
        levels[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for edge in self._edges[node]:
                head = self._heads[edge]
                if self._capacities[edge] > 0 and levels[head] < 0:
                    levels[head] = levels[node] + 1
                    queue.append(head)
        return levels

    def _augment(self, source: int, sink: int, levels: list[int], next_edge: list[int]) -> float:
        """Send flow along one shortest path; how much."""
        path: list[int] = []
        node = source
        while node != sink:
            edges = self._edges[node]
            while next_edge[node] < len(edges):
                edge = edges[next_edge[node]]
                if self._capacities[edge] > 0 and levels[self._heads[edge]] == levels[node] + 1:
                    break
                next_edge[node] += 1
            else:
                if not path:
                    return 0.0
                node = self._heads[path.pop() ^ 1]  # a dead end: back, and on with the next edge
                next_edge[node] += 1
                continue
            path.append(edge)
            node = self._heads[edge]
        flow = min(self._capacities[edge] for edge in path)
        if math.isinf(flow):
            raise ValueError("the source and the sink are joined by edges that cannot be cut")
        for edge in path:
            self._capacities[edge] -= flow
            self._capacities[edge ^ 1] += flow
        return flow

    def _reaching(self, sink: int) -> set[int]:
        """The nodes from which more flow could reach the sink."""
        found, queue = {sink}, deque([sink])
        while queue:
            for edge in self._edges[queue.popleft()]:
                tail = self._heads[edge]
                if self._capacities[edge ^ 1] > 0 and tail not in found:
                    found.add(tail)
                    queue.append(tail)
        return found
