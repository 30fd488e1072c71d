"""Reshapes: pointwise operations are computed in the shape that leaves the fewest reshapes between kernels.

A region is a set of pointwise operations of one shape, connected through their operands. All of it can be computed in
another shape at once, before the reshape or after it:

    %2 = add(%0, %1): f32[5, 32]                            %2 = reshape(%0, shape=[5, 4, 8]): f32[5, 4, 8]
    %3 = reshape(%2, shape=[5, 4, 8]): f32[5, 4, 8]    ->   %3 = reshape(%1, shape=[4, 8]): f32[4, 8]
    %4 = sum(%3, axes=[2]): f32[5, 4]                       %4 = add(%2, %3): f32[5, 4, 8]
                                                            %5 = sum(%4, axes=[2]): f32[5, 4]

    %3 = mul(%0, %2): f32[5, 4, 8]                          %3 = mul(%0, %2): f32[5, 4, 8]
    %4 = reshape(%3, shape=[5, 32]): f32[5, 32]        ->   %4 = reshape(%1, shape=[4, 8]): f32[4, 8]
    %5 = add(%4, %1): f32[5, 32]                            %5 = add(%3, %4): f32[5, 4, 8]
    return %5                                               %6 = reshape(%5, shape=[5, 32]): f32[5, 32]
                                                            return %6

Reshapes of inputs and results cost nothing; one between two kernels means that a value is written and read again. Every
region that changes its shape leaves fewer of those. Operands that are repeated along axes which the reshape splits or
merges follow where they can (`regrouping`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ingot.base.sizes import Shape
from ingot.base.types import TensorType
from ingot.ir.graph import Graph
from ingot.ir.node import Node, make
from ingot.ops import Kind
from ingot.ops.attributes import ShapeAttributes
from ingot.passes.graph_rewriting import PassResult, Rewriter, apply, has_op, is_op, settled
from ingot.passes.layout import merge_reshapes
from ingot.passes.layout_regions import regions_of
from ingot.passes.readers import Readers, base_of, is_computed, is_movable, is_smaller, shape_of
from ingot.passes.regrouping import AxisGroup, merges_axes, regrouped, regrouped_operand, same_but_for_ones


@dataclass(frozen=True, slots=True)
class Reshapes:
    name: str = "reshapes"
    summary: str = "computes in the shape that leaves the fewest reshapes between kernels"
    level: int = 2

    def run(self, graph: Graph) -> PassResult:
        return settled(_reshape_regions, graph) if has_op(graph, "reshape") else PassResult(graph, 0)


@dataclass(slots=True)
class _RegionReshape:
    """A region, the shape it would be computed in, and what that would change."""

    region: list[Node]
    shape: Shape
    operands: dict[Node, Shape] = field(default_factory=dict)
    """What enters the region, and the shape it must have."""
    gone: set[Node] = field(default_factory=set)
    """Values that a reshape would no longer hand from kernel to kernel."""
    come: set[Node] = field(default_factory=set)
    """Values that a reshape would, or that PyTorch would have to copy."""
    merged: int = 0
    """Operands that are reshaped without a copy only if they lie in memory in order."""

    @property
    def saved(self) -> int:
        return len(self.gone) - len(self.come)


def _reshape_regions(graph: Graph) -> PassResult:
    """Compute the regions that save most in another shape, as far as they do not touch."""
    readers = Readers(graph)
    candidates = [candidate for region in _regions(readers) for candidate in _possible_reshapes(region, readers)]
    candidates.sort(key=lambda candidate: (-candidate.saved, candidate.merged))
    touched: set[Node] = set()
    chosen: dict[Node, _RegionReshape] = {}
    for candidate in candidates:
        if touched.isdisjoint(candidate.region):
            touched.update(_neighbourhood(candidate, readers))
            chosen.update(dict.fromkeys(candidate.region, candidate))
    return _apply(graph, chosen) if chosen else PassResult(graph, 0)


def _regions(readers: Readers) -> Iterable[list[Node]]:
    """Pointwise operations of one shape that are connected, if only through a reshape that they all read."""
    connecting = (node for node in readers.nodes if is_movable(node) or is_op(node, "reshape"))
    for region in regions_of(connecting, shape_of):
        computing = [node for node in region if is_movable(node)]
        if computing:
            yield computing


def _apply(graph: Graph, chosen: dict[Node, _RegionReshape]) -> PassResult:
    rewriter = Rewriter(graph)
    inside: dict[Node, Node] = {}
    for old in graph.nodes:
        candidate = chosen.get(old)
        if candidate is None:
            node = rewriter.with_new_operands(old)
            merged = merge_reshapes(node) if is_op(node, "reshape") else None
            rewriter.put(old, merged or node)
            continue
        operands = [
            inside.get(operand) or _reshaped(rewriter.rewritten(operand), candidate.operands.get(operand))
            for operand in old.operands
        ]
        inside[old] = make(old.op, operands, old.attributes)
        rewriter.changed += 1
        rewriter.put(old, _reshaped(inside[old], shape_of(old)))
    return rewriter.finish()


def _reshaped(node: Node, shape: Shape | None) -> Node:
    """A value in another shape; itself where that is its own, or where it is a scalar."""
    if shape is None or shape_of(node) == shape:
        return node
    reshape = apply("reshape", node, attributes=ShapeAttributes(shape))
    return merge_reshapes(reshape) or reshape


# --- what a reshaped region would change ------------------------------------------------------------------------------


def _possible_reshapes(region: list[Node], readers: Readers) -> Iterable[_RegionReshape]:
    """Other shapes of a region that leave fewer reshapes between kernels."""
    members = set(region)
    entering = dict.fromkeys(operand for node in region for operand in node.operands if operand not in members)
    leaving = [user for node in region for user in readers.users[node] if user not in members]
    old = shape_of(region[0])
    shapes = [shape_of(node.operands[0]) for node in entering if is_op(node, "reshape") and shape_of(node) == old]
    shapes += [shape_of(user) for user in leaving if is_op(user, "reshape")]
    for shape in dict.fromkeys(shapes):
        candidate = _RegionReshape(region, shape)
        groups = None if same_but_for_ones(old, shape) else regrouped(old, shape)
        if groups is not None and all(_enters(candidate, node, old, groups, members, readers) for node in entering):
            for node in region:
                _leaves(candidate, node, members, readers)
            if candidate.saved > 0:
                yield candidate


def _enters(
    candidate: _RegionReshape,
    node: Node,
    old: Shape,
    groups: tuple[AxisGroup, ...],
    members: set[Node],
    readers: Readers,
) -> bool:
    """Note what becomes of a value that enters the region; False if it cannot have the shape it needs."""
    if not isinstance(node.type, TensorType):
        return True
    shape = regrouped_operand(shape_of(node), old, candidate.shape, groups)
    if shape is None:
        return False
    candidate.operands[node] = shape
    source = node.operands[0] if is_op(node, "reshape") else node
    if same_but_for_ones(shape_of(node), shape) or _is_computed_anywhere(source, old):
        return True
    if source is not node and (is_computed(source) or _is_copied(node)):
        alone = node not in readers.returned and all(user in members for user in readers.users[node])
        if alone and shape_of(source) == shape:
            candidate.gone.add(node)
        elif not alone and shape_of(source) != shape:
            candidate.come.add(node)
    elif is_computed(node):
        candidate.come.add(node)
    elif merges_axes(shape_of(node), old, groups):
        candidate.merged += 1
        if is_op(node, "permute", "slice", "broadcast_in_dim"):
            candidate.come.add(node)
    return True


def _is_copied(reshape: Node) -> bool:
    """Whether PyTorch would write a reshape's elements to memory: it takes axes together along which they repeat."""
    (source,) = reshape.operands
    merges = len(shape_of(reshape)) < len(shape_of(source))
    return is_op(source, "broadcast_in_dim") and merges and is_smaller(source.operands[0], shape_of(source))


def _leaves(candidate: _RegionReshape, node: Node, members: set[Node], readers: Readers) -> None:
    """Note what becomes of a value of the region where kernels outside read it."""
    for user in readers.users[node]:
        if user in members or not readers.is_in_kernel(user):
            continue
        if not is_op(user, "reshape"):
            candidate.come.add(node)
        elif shape_of(user) == candidate.shape:
            candidate.gone.add(user)


def _is_computed_anywhere(node: Node, shape: Shape) -> bool:
    """Whether a value is computed from memory alone and smaller than a shape: any kernel can compute it for itself."""
    if not is_computed(node) or not is_smaller(node, shape):
        return False
    seen: set[Node] = set()
    waiting = [base_of(node)]
    while waiting:
        current = waiting.pop()
        if current.op.kind is Kind.REDUCTION:
            return False
        if is_movable(current) and current not in seen:
            seen.add(current)
            waiting.extend(base_of(operand) for operand in current.operands)
    return True


def _neighbourhood(candidate: _RegionReshape, readers: Readers) -> set[Node]:
    """A region, what it reads and what reads it, reshapes and other views looked through."""
    found = set(candidate.region)
    waiting = [operand for node in candidate.region for operand in node.operands]
    while waiting:
        node = waiting.pop()
        found.add(node)
        if node.op.kind is Kind.VIEW:
            waiting.extend(node.operands)
    waiting = [user for node in candidate.region for user in readers.users[node]]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            if node.op.kind is Kind.VIEW:
                waiting.extend(readers.users[node])
    return found
