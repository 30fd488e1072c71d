"""Slices: what is sliced away is not computed, and a slice of a computed value cuts no kernel.

    %1 = exp(%0): f32[4, 8]                                                      %1 = slice(%0, ...): f32[4, 3]
    %2 = slice(%1, starts=[0, 2], stops=[4, 5], steps=[1, 1]): f32[4, 3]   ->    %2 = exp(%1): f32[4, 3]

A value may be taken apart by several slices, such as the gates of an LSTM cell, where no element is in two of them.
Nothing is computed that was not computed before, and kernels do not become more: all slices but one must be read by
kernels, which then compute what they need themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.passes.graph_rewriting import PassResult, Rewriter, has_op, is_op, settled
from ingot.passes.readers import Readers, is_computed
from ingot.passes.slice_propagation import Cone, Cut, SlicedCone, cut_of, find_cone

MOST_SLICES = 8
"""The most slices of one value: each adds as many tensors to the kernels that read it as the value is computed from."""


@dataclass(frozen=True, slots=True)
class Slices:
    name: str = "slices"
    summary: str = "slices operands instead of results, so that less is computed and kernels are not cut"
    level: int = 2

    def run(self, graph: Graph) -> PassResult:
        return settled(_move_slices, graph) if has_op(graph, "slice") else PassResult(graph, 0)


def _move_slices(graph: Graph) -> PassResult:
    """Move the slices of all values that do not depend on each other's."""
    readers, rewriter = Readers(graph), Rewriter(graph)
    moved: set[Node] = set()
    replaced: dict[Node, SlicedCone] = {}
    for root in reversed(readers.nodes):
        cone = None if root in moved else _cone_of(root, readers)
        if cone is None or not moved.isdisjoint(cone.cuts):
            continue
        moved.update(cone.cuts)
        members = [SlicedCone(cone, member, rewriter) for member in range(len(cone.cuts[root]))]
        for node in cone.cuts:
            for user in readers.users[node]:
                if user not in cone.cuts:
                    replaced[user] = members[cone.cuts[root].index(cut_of(user))]
    if not replaced:
        return PassResult(graph, 0)
    for old in graph.nodes:
        if old in replaced:
            new = replaced[old].value(old.operands[0])
            assert new.type == old.type
            rewriter.changed += 1
            rewriter.put(old, new)
        elif old not in moved:
            rewriter.put(old, rewriter.with_new_operands(old))
    return rewriter.finish()


def _cone_of(root: Node, readers: Readers) -> Cone | None:
    """What is computed in slices if a value is; None where its slices stay."""
    slices = readers.users[root]
    if root in readers.returned or not 0 < len(slices) <= MOST_SLICES or not is_computed(root):
        return None
    if not all(is_op(user, "slice") for user in slices):
        return None
    members: tuple[Cut, ...] = tuple(map(cut_of, slices))
    cone = find_cone(root, members, readers)
    if cone is None:
        return None
    # Each of these is one more kernel in place of the one that computes the value.
    unread = sum(not readers.feeds_kernel(node) for node in slices)
    return cone if unread + cone.reads_rows <= 1 else None
