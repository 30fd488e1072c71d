"""Sinking cats: what follows a cat is computed for its pieces, so that a cat does not stand between two kernels.

    %2 = neg(%0): f32[4, 8]                                         %2 = neg(%0): f32[4, 8]
    %3 = exp(%1): f32[4, 8]                                         %3 = slice(%c, starts=[0], stops=[8], steps=[1])
    %4 = cat(%2, %3, axis=1): f32[4, 16]                      ->    %4 = mul(%2, %3): f32[4, 8]
    %5 = mul(%4, %c): f32[4, 16]                                    %5 = exp(%1): f32[4, 8]
                                                                    %6 = slice(%c, starts=[8], stops=[16], steps=[1])
                                                                    %7 = mul(%5, %6): f32[4, 8]
                                                                    %8 = cat(%4, %7, axis=1): f32[4, 16]

One cat remains, further down. All pieces but one must be computed by kernels: then there are no more kernels than
before, and the joined value is not read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ingot.base.sizes import Size
from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.ops.attributes import AxisAttributes
from ingot.passes.graph_rewriting import PassResult, Rewriter, apply, has_op, is_op, settled
from ingot.passes.readers import Readers, is_computed, is_movable, shape_of
from ingot.passes.slice_propagation import Bounds, Cone, Cut, SlicedCone, find_cone

MOST_PIECES = 8
"""The most pieces of one cat: each is computed by a kernel of its own."""


@dataclass(frozen=True, slots=True)
class SinkCat:
    name: str = "sink_cat"
    summary: str = "computes what follows a cat for its pieces, so that it does not stand between two kernels"
    level: int = 2

    def run(self, graph: Graph) -> PassResult:
        return settled(_move_cats, graph) if has_op(graph, "cat") else PassResult(graph, 0)


def _move_cats(graph: Graph) -> PassResult:
    """Move all cats whose ways down do not meet."""
    readers, rewriter = Readers(graph), Rewriter(graph)
    moved: set[Node] = set()
    ends: dict[Node, tuple[Node, list[SlicedCone]]] = {}
    for cat in readers.nodes:
        found = _way_down(cat, readers) if is_op(cat, "cat") else None
        if found is None or not moved.isdisjoint(found[1].cuts):
            continue
        end, cone = found
        moved.update(cone.cuts)
        ends[end] = cat, [SlicedCone(cone, member, rewriter) for member in range(len(cone.cuts[end]))]
    if not ends:
        return PassResult(graph, 0)
    for old in graph.nodes:
        if old in ends:
            cat, members = ends[old]
            new = apply("cat", *(member.value(old) for member in members), attributes=cat.attributes)
            assert new.type == old.type
            rewriter.changed += 1
            rewriter.put(old, new)
        elif old not in moved:
            rewriter.put(old, rewriter.with_new_operands(old))
    return rewriter.finish()


def _way_down(cat: Node, readers: Readers) -> tuple[Node, Cone] | None:
    """How far a cat can move, and what is then computed for its pieces."""
    computed = sum(map(is_computed, cat.operands))
    if not 0 < computed >= len(cat.operands) - 1 or len(cat.operands) > MOST_PIECES:
        return None
    for end in reversed(list(_ends(cat, readers))):
        cone = find_cone(end, _pieces(cat), readers)
        if cone is not None and cat in cone.cuts:
            return end, cone
    return None


def _pieces(cat: Node) -> tuple[Cut, ...]:
    """What each piece is of the whole."""
    assert isinstance(cat.attributes, AxisAttributes)
    axis, rank = cat.attributes.axis, len(shape_of(cat))
    found: list[Cut] = []
    offset: Size = 0
    for piece in cat.operands:
        end = offset + shape_of(piece)[axis]
        found.append(tuple(Bounds(offset, end) if place == axis else None for place in range(rank)))
        offset = end
    return tuple(found)


def _ends(cat: Node, readers: Readers) -> Iterator[Node]:
    """The pointwise operations that follow from a cat: every other user of it is used by them alone."""
    unseen = {cat: len(readers.users[cat]) + (cat in readers.returned)}
    open_ends = {cat}
    for node in readers.nodes[readers.positions[cat] + 1 :]:
        below = [operand for operand in dict.fromkeys(node.operands) if operand in unseen]
        if not below or not is_movable(node) or shape_of(node) != shape_of(cat):
            continue
        for operand in below:
            unseen[operand] -= 1
            if not unseen[operand]:
                open_ends.remove(operand)
        unseen[node] = len(readers.users[node]) + (node in readers.returned)
        open_ends.add(node)
        if len(open_ends) == 1:
            yield node
