"""Clusters: pointwise operations that are computed together, in one pass over memory.

In: a graph and what a backend can compute. Out: the graph's operations as steps in an order that can be executed, each
a cluster or a single operation. Always holds: a cluster is convex (no path leaves it and comes back), all its
operations have one shape, and it has at most `max_size` of them. Whatever outside needs is an output of its cluster.

    %2 = mul(%0, %1)               cluster {%2, %3}: reads %0, %1, writes %3
    %3 = exp(%2)             ->    sum(%3)
    %4 = sum(%3, axes=[1])         cluster {%5}: reads %3, %4
    %5 = div(%3, %4)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ingot.base.types import TensorType
from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.ops import Kind


@dataclass(frozen=True, slots=True)
class Cluster:
    """Operations of one kernel, in program order."""

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    """Values from outside, tensors and scalars, in the order of their first use; constants are not among them."""
    outputs: tuple[Node, ...]
    reason: str
    """Why it ends where it ends."""

    @property
    def shape(self):
        assert isinstance(self.nodes[0].type, TensorType)
        return self.nodes[0].type.shape


Step = Cluster | Node


def find_clusters(graph: Graph, supports: Callable[[Node], bool], max_size: int) -> tuple[Step, ...]:
    """The graph as steps: clusters of what a backend supports, and single operations for the rest."""
    partition = _Partition(graph, max_size)
    for node in graph.nodes:
        fusible = node.op.kind is Kind.POINTWISE and isinstance(node.type, TensorType) and supports(node)
        partition.place(node, fusible)
    return partition.steps()


class _Group:
    """A cluster that is still growing, or a single operation."""

    __slots__ = ("full", "grows", "nodes", "operands")

    def __init__(self, node: Node, grows: bool):
        self.nodes = [node]
        self.grows = grows
        self.full = False
        self.operands: set[_Group] = set()
        """Groups it reads from."""


class _Partition:
    def __init__(self, graph: Graph, max_size: int):
        self._graph = graph
        self._max_size = max_size
        self._group_of: dict[Node, _Group] = {}
        self._groups: list[_Group] = []

    def place(self, node: Node, fusible: bool) -> None:
        """Put a node into the newest group it may join, or into one of its own."""
        sources = list(dict.fromkeys(self._group_of[o] for o in node.operands if o in self._group_of))
        group = self._home(node, sources) if fusible else None
        if group is None:
            group = _Group(node, fusible)
            self._groups.append(group)
        else:
            group.nodes.append(node)
        group.operands.update(source for source in sources if source is not group)
        self._group_of[node] = group

    def _home(self, node: Node, sources: list[_Group]) -> _Group | None:
        assert isinstance(node.type, TensorType)
        for group in reversed(sources):
            if not group.grows or group.nodes[0].type.shape != node.type.shape:  # pyright: ignore
                continue
            if len(group.nodes) >= self._max_size:
                group.full = True
                continue
            if not any(other is not group and self._depends(other, group) for other in sources):
                return group
        return None

    def _depends(self, group: _Group, target: _Group) -> bool:
        """Whether a group needs the target's results: joining both would leave the cluster and come back."""
        seen: set[_Group] = set()
        waiting = [group]
        while waiting:
            current = waiting.pop()
            if current is target:
                return True
            if current not in seen:
                seen.add(current)
                waiting.extend(current.operands)
        return False

    def steps(self) -> tuple[Step, ...]:
        """Groups in an order where operands come first, effects as in the program."""
        users: dict[Node, set[_Group]] = {}
        for group in self._groups:
            for node in group.nodes:
                for operand in node.operands:
                    users.setdefault(operand, set()).add(group)
        returned = {output.node for output in self._graph.outputs}
        return tuple(self._finished(group, users, returned) for group in self._ordered())

    def _ordered(self) -> list[_Group]:
        done: dict[_Group, None] = {}
        waiting = [(group, False) for group in reversed(self._groups)]
        while waiting:
            group, operands_done = waiting.pop()
            if group in done:
                continue
            if operands_done:
                done[group] = None
            else:
                waiting.append((group, True))
                waiting.extend((operand, False) for operand in group.operands)
        return list(done)

    def _finished(self, group: _Group, users: dict[Node, set[_Group]], returned: set[Node]) -> Step:
        if not group.grows:
            return group.nodes[0]
        members = set(group.nodes)
        inputs: dict[Node, None] = {}
        for node in group.nodes:
            for operand in node.operands:
                if operand not in members and operand.constant is None:
                    inputs.setdefault(operand)
        outputs = tuple(node for node in group.nodes if node in returned or users.get(node, set()) - {group})
        readers = {user for node in outputs for user in users.get(node, set()) - {group}}
        names = sorted({user.nodes[0].op.name for user in readers})
        reason = f"{self._max_size} operations are the most" if group.full else f"read by {', '.join(names)}"
        return Cluster(tuple(group.nodes), tuple(inputs), outputs, reason if readers or group.full else "end of graph")
