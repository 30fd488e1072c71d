"""Clusters: operations that are computed together, in one kernel.

In: a graph, what a backend can compute, and rules. Out: the graph's operations as steps in an order that can be
executed, each a cluster or a single operation. Always holds: a cluster is convex (no path leaves it and comes back) and
its values fit the levels of `fusion.groups`. Every value that is read outside is an output of its cluster.

    %1 = amax(%0, axes=[1]): f32[s0]
    %2 = broadcast_in_dim(%1, shape=[s0, 1], axes=[0]): f32[s0, 1]
    %3 = sub(%0, %2): f32[s0, s1]                                       one cluster: reads %0, writes %7;
    %4 = exp(%3): f32[s0, s1]                                   ->      space (s0, s1), reduced along s1
    %5 = sum(%4, axes=[1]): f32[s0]
    %6 = broadcast_in_dim(%5, shape=[s0, 1], axes=[0]): f32[s0, 1]
    %7 = div(%4, %6): f32[s0, s1]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ingot.base.sizes import Shape
from ingot.base.types import ScalarType, TensorType
from ingot.fusion.absorption import absorb
from ingot.fusion.groups import Conflict, Group, Level
from ingot.fusion.placement import Placement, is_row_gather, reduction_placements, varies
from ingot.fusion.rules import FusionRules
from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.ir.printer import operand_text
from ingot.ops import Kind
from ingot.passes.readers import is_placing

Place = tuple[int | None, ...]
"""Per dimension of a value the number of its axis in the cluster's space, or None for size 1."""


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor from outside and how it lies in the space. One tensor may be read along several placements."""

    node: Node
    place: Place


Source = Node | Read
"""Where an operand comes from: another operation of the cluster, a scalar or constant; or a tensor from outside."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Operations of one kernel, in program order."""

    nodes: tuple[Node, ...]
    space: Shape
    reduced: frozenset[int]
    """Axes of the space along which its reductions run."""
    levels: Mapping[Node, Level]
    places: Mapping[Node, Place]
    sources: Mapping[Node, tuple[Source, ...]]
    """The operands of each operation, views inside the cluster looked through."""
    inputs: tuple[Node, ...]
    """Values from outside, tensors and scalars, in the order of their first use; constants are not among them."""
    outputs: tuple[Node, ...]
    reason: str
    """Why it ends where it ends."""

    @property
    def text(self) -> str:
        """Its operations, with operands as they are once views are looked through, and how often each is computed."""
        names = {node: f"%{number}" for number, node in enumerate((*self.inputs, *self.nodes))}
        reads = ", ".join(f"{names[node]}: {node.type}" for node in self.inputs)
        reduced = f", reduced along {', '.join(f'i{axis}' for axis in sorted(self.reduced))}" if self.reduced else ""
        lines = [f"cluster({reads}) over [{', '.join(map(str, self.space))}]{reduced} {{"]
        for node in self.nodes:
            sources = [source.node if isinstance(source, Read) else source for source in self.sources[node]]
            given = [operand_text(source, names) for source in sources]
            given += [node.attributes.text] if node.attributes.text else []
            lines.append(
                f"  {names[node]} = {node.op.name}({', '.join(given)}): {node.type}  # {self.levels[node].value}"
            )
        lines.append(f"  return {', '.join(names[node] for node in self.outputs)}")
        return "\n".join([*lines, f"}}  # ends here: {self.reason}"])


Step = Cluster | Node


def find_clusters(graph: Graph, supports: Callable[[Node], bool], rules: FusionRules | None = None) -> tuple[Step, ...]:
    """The graph as steps: clusters of what a backend supports, and single operations for the rest."""
    partition = _Partition(graph, supports, rules or FusionRules())
    for position, node in enumerate(graph.nodes):
        partition.place(node, position)
    partition.join_parts()
    if partition.rules.strategy == "aggressive":
        partition.join_siblings()
    return partition.steps()


class _Partition:
    def __init__(self, graph: Graph, supports: Callable[[Node], bool], rules: FusionRules):
        self._graph = graph
        self._supports = supports
        self.rules = rules
        self._group_of: dict[Node, Group] = {}
        self._groups: dict[Group, None] = {}
        self._last_effect: Group | None = None

    def place(self, node: Node, position: int) -> None:
        """Give a node a group of its own, then merge that with those it reads from, as far as rules allow."""
        grows = self._is_fusible(node)
        group = Group(node, position, grows)
        group.operands = {self._group_of[operand] for operand in node.operands if operand in self._group_of}
        if node.has_effect:
            # Draws of random numbers keep their order.
            group.operands |= {self._last_effect} if self._last_effect is not None else set()
            self._last_effect = group
        self._groups[group] = None
        self._group_of[node] = group
        if grows:
            for source in sorted(group.operands, key=lambda source: -source.last):
                group = self._merge(group, source, node)
            if node.op.kind is Kind.VIEW and len(group.nodes) == 1:
                group.grows = False

    def _is_fusible(self, node: Node) -> bool:
        if not isinstance(node.type, TensorType):
            return False
        if node.op.kind is Kind.VIEW:
            source = self._group_of.get(node.operands[0])
            return is_placing(node) and source is not None and source.grows
        if node.op.kind is Kind.REDUCTION or is_row_gather(node):
            input_placement, kept = reduction_placements(node)
            return self._supports(node) and varies(input_placement) != varies(kept)
        return node.op.kind is Kind.POINTWISE and self._supports(node)

    def _merge(self, group: Group, source: Group, node: Node) -> Group:
        """One group in place of two where nothing speaks against it; otherwise the reason is kept."""
        if not source.grows:
            return group
        try:
            merged = group.merged_with(source)
            self.rules.check(source, group, merged)
        except Conflict as conflict:
            source.cuts.setdefault(f"{node.op.name} does not join: {conflict}")
            return group
        self._replace(group, source, merged)
        return merged

    def join_parts(self) -> None:
        """Merge groups that read the same tensor and make parts of one concatenation, into which both will write."""
        for node in self._graph.nodes:
            if node.op.name != "cat":
                continue
            groups = {self._group_of[operand] for operand in node.operands if operand in self._group_of}
            joined: Group | None = None
            for group in sorted((group for group in groups if group.grows), key=lambda group: group.last):
                joined = group if joined is None else self._joined(joined, group)

    def join_siblings(self) -> None:
        """Merge groups that read the same tensor but not each other: it is then read once."""
        for first in list(self._groups):
            for second in list(self._groups):
                if first in self._groups and first is not second and first.grows and second.grows:
                    first = self._joined(first, second)

    def _joined(self, first: Group, second: Group) -> Group:
        if first.inputs.keys().isdisjoint(second.inputs) or first.last > second.last:
            return first
        try:
            merged = second.merged_with(first)
            self.rules.check(first, second, merged)
        except Conflict:
            return first
        self._replace(first, second, merged)
        return merged

    def _replace(self, first: Group, second: Group, merged: Group) -> None:
        del self._groups[first], self._groups[second]
        self._groups[merged] = None
        self._group_of.update(dict.fromkeys(merged.nodes, merged))
        for group in self._groups:
            if first in group.operands or second in group.operands:
                group.operands = group.operands - {first, second} | {merged}
        if self._last_effect in (first, second):
            self._last_effect = merged

    # --- from groups to steps -----------------------------------------------------------------------------------------

    def steps(self) -> tuple[Step, ...]:
        """Clusters and single operations in an order where operands come first, effects as in the program."""
        returned = {output.node for output in self._graph.outputs}
        absorb(list(self._groups), self._supports, self.rules)
        needed = _needed_outside(self._groups, returned)
        steps: list[Step] = []
        for group in self._ordered():
            if not group.grows:
                steps.extend(group.nodes)
                continue
            outputs = tuple(node for node in group.operations if node in needed[group])
            if outputs:
                steps.append(_cluster(group, outputs, self._reason(group, needed)))
                steps.extend(node for node in group.nodes if node.op.kind is Kind.VIEW and node in needed[group])
        return _without_unused(steps, returned)

    def _ordered(self) -> list[Group]:
        made_by = {node: group for group in self._groups for node in group.nodes if node not in group.absorbed}
        before = {
            group: {made_by[o] for n in group.nodes for o in n.operands if o in made_by and o not in group.positions}
            | {operand for operand in group.operands if not group.grows}
            for group in self._groups
        }
        done: dict[Group, None] = {}
        waiting = [(group, False) for group in sorted(self._groups, key=lambda group: -group.first)]
        while waiting:
            group, operands_done = waiting.pop()
            if group in done:
                continue
            if operands_done:
                done[group] = None
            else:
                waiting.append((group, True))
                waiting.extend((operand, False) for operand in before[group])
        return list(done)

    def _reason(self, group: Group, needed: Mapping[Group, set[Node]]) -> str:
        if group.cuts:
            return "; ".join(group.cuts)
        readers = {
            node.op.name
            for other in self._groups
            if other is not group
            for node in other.nodes
            if any(operand in needed[group] and operand in group.positions for operand in node.operands)
        }
        return f"read by {', '.join(sorted(readers))}" if readers else "end of graph"


def _without_unused(steps: list[Step], returned: set[Node]) -> tuple[Step, ...]:
    """Leave out what is not needed any more because its readers compute it themselves."""
    used = set(returned)
    kept: list[Step] = []
    for step in reversed(steps):
        makes, reads = (step.outputs, step.inputs) if isinstance(step, Cluster) else ((step,), step.operands)
        if used.isdisjoint(makes) and not (isinstance(step, Node) and step.has_effect):
            continue
        used.update(reads)
        kept.append(step)
    return tuple(reversed(kept))


def _needed_outside(groups: Mapping[Group, None], returned: set[Node]) -> dict[Group, set[Node]]:
    """Per group what others read or the graph returns, with what views of it stand on."""
    read: dict[Node, set[Group]] = {}
    for group in groups:
        for node in group.nodes:
            for operand in node.operands:
                read.setdefault(operand, set()).add(group)
    found: dict[Group, set[Node]] = {}
    for group in groups:
        needed: set[Node] = set()
        views = [node for node in group.nodes if node.op.kind is Kind.VIEW]
        for node in reversed(group.positions):
            if node in group.absorbed:
                continue
            others = {reader for reader in read.get(node, ()) if reader is not group and node not in reader.absorbed}
            under_view = any(view in needed and node in view.operands for view in views)
            if node in returned or others or under_view:
                needed.add(node)
        found[group] = needed
    return found


def _cluster(group: Group, outputs: tuple[Node, ...], reason: str) -> Cluster:
    axes = group.axes
    number = {axis: position for position, axis in enumerate(axes)}

    def place(placement: Placement) -> Place:
        return tuple(None if axis is None else number[axis] for axis in placement)

    operations = tuple(group.operations)
    sources = {node: tuple(_source(group, node, operand, place) for operand in node.operands) for node in operations}
    inputs: dict[Node, None] = {}
    for found in sources.values():
        for source in found:
            node = source.node if isinstance(source, Read) else source
            if isinstance(source, Read) or (isinstance(node.type, ScalarType) and node.constant is None):
                inputs.setdefault(node)
    levels = group.levels()
    return Cluster(
        operations,
        tuple(axis.size for axis in axes),
        frozenset(number[axis] for axis in group.reduced()),
        {node: levels[node] for node in operations},
        {node: place(group.placements[node]) for node in operations},
        sources,
        tuple(inputs),
        outputs,
        reason,
    )


def _source(group: Group, node: Node, operand: Node, place: Callable[[Placement], Place]) -> Source:
    """What an operand is: views inside the group are looked through."""
    while operand.op.kind is Kind.VIEW and operand in group.positions:
        node, operand = operand, operand.operands[0]
    if operand in group.positions or isinstance(operand.type, ScalarType):
        return operand
    return Read(operand, place(group.reads(node, operand)))
