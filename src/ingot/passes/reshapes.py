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
turn leaves fewer of those. Operands that are repeated along axes which the reshape splits or merges follow where they
can (`regrouping`).
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
from ingot.passes.layout import merge_reshapes
from ingot.passes.layout_regions import regions_of
from ingot.passes.readers import Readers, base_of, is_computed, is_movable, is_smaller, shape_of
from ingot.passes.regrouping import Group, merges_axes, regrouped, regrouped_operand, same_but_for_ones
from ingot.passes.rewriting import PassResult, Rewriter, apply, has_op, is_op, settled


@dataclass(frozen=True, slots=True)
class Reshapes:
    name: str = "reshapes"
    summary: str = "computes in the shape that leaves the fewest reshapes between kernels"
    level: int = 2

    def run(self, graph: Graph) -> PassResult:
        return settled(_turn_once, graph) if has_op(graph, "reshape") else PassResult(graph, 0)


@dataclass(slots=True)
class _Turn:
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


def _turn_once(graph: Graph) -> PassResult:
    """Turn the regions that save most, as far as they do not touch."""
    readers = Readers(graph)
    turns = [turn for region in _regions(readers) for turn in _possible_turns(region, readers)]
    turns.sort(key=lambda turn: (-turn.saved, turn.merged))
    touched: set[Node] = set()
    chosen: dict[Node, _Turn] = {}
    for turn in turns:
        if touched.isdisjoint(turn.region):
            touched.update(_neighbourhood(turn, readers))
            chosen.update(dict.fromkeys(turn.region, turn))
    return _apply(graph, chosen) if chosen else PassResult(graph, 0)


def _regions(readers: Readers) -> Iterable[list[Node]]:
    """Pointwise operations of one shape that are connected, if only through a reshape that they all read."""
    connecting = (node for node in readers.nodes if is_movable(node) or is_op(node, "reshape"))
    for region in regions_of(connecting, shape_of):
        computing = [node for node in region if is_movable(node)]
        if computing:
            yield computing


def _apply(graph: Graph, chosen: dict[Node, _Turn]) -> PassResult:
    rewriter = Rewriter(graph)
    inside: dict[Node, Node] = {}
    for old in graph.nodes:
        turn = chosen.get(old)
        if turn is None:
            node = rewriter.with_new_operands(old)
            merged = merge_reshapes(node) if is_op(node, "reshape") else None
            rewriter.put(old, merged or node)
            continue
        operands = [
            inside.get(operand) or _reshaped(rewriter.rewritten(operand), turn.operands.get(operand))
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


# --- what a turn would change -----------------------------------------------------------------------------------------


def _possible_turns(region: list[Node], readers: Readers) -> Iterable[_Turn]:
    """Turns of a region that leave fewer reshapes between kernels."""
    members = set(region)
    entering = dict.fromkeys(operand for node in region for operand in node.operands if operand not in members)
    leaving = [user for node in region for user in readers.users[node] if user not in members]
    old = shape_of(region[0])
    shapes = [shape_of(node.operands[0]) for node in entering if is_op(node, "reshape") and shape_of(node) == old]
    shapes += [shape_of(user) for user in leaving if is_op(user, "reshape")]
    for shape in dict.fromkeys(shapes):
        turn = _Turn(region, shape)
        groups = None if same_but_for_ones(old, shape) else regrouped(old, shape)
        if groups is not None and all(_enters(turn, node, old, groups, members, readers) for node in entering):
            for node in region:
                _leaves(turn, node, members, readers)
            if turn.saved > 0:
                yield turn


def _enters(
    turn: _Turn, node: Node, old: Shape, groups: tuple[Group, ...], members: set[Node], readers: Readers
) -> bool:
    """Note what becomes of a value that enters the region; False if it cannot have the shape it needs."""
    if not isinstance(node.type, TensorType):
        return True
    shape = regrouped_operand(shape_of(node), old, turn.shape, groups)
    if shape is None:
        return False
    turn.operands[node] = shape
    source = node.operands[0] if is_op(node, "reshape") else node
    if same_but_for_ones(shape_of(node), shape) or _is_computed_anywhere(source, old):
        return True
    if source is not node and is_computed(source):
        alone = node not in readers.returned and all(user in members for user in readers.users[node])
        if alone and shape_of(source) == shape:
            turn.gone.add(node)
        elif not alone and shape_of(source) != shape:
            turn.come.add(node)
    elif is_computed(node):
        turn.come.add(node)
    elif merges_axes(shape_of(node), old, groups):
        turn.merged += 1
        if is_op(node, "permute", "slice", "broadcast_in_dim"):
            turn.come.add(node)
    return True


def _leaves(turn: _Turn, node: Node, members: set[Node], readers: Readers) -> None:
    """Note what becomes of a value of the region where kernels outside read it."""
    for user in readers.users[node]:
        if user in members or not readers.is_in_kernel(user):
            continue
        if not is_op(user, "reshape"):
            turn.come.add(node)
        elif shape_of(user) == turn.shape:
            turn.gone.add(user)


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


def _neighbourhood(turn: _Turn, readers: Readers) -> set[Node]:
    """A region, what it reads and what reads it, reshapes and other views looked through."""
    found = set(turn.region)
    waiting = [operand for node in turn.region for operand in node.operands]
    while waiting:
        node = waiting.pop()
        found.add(node)
        if node.op.kind is Kind.VIEW:
            waiting.extend(node.operands)
    waiting = [user for node in turn.region for user in readers.users[node]]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            if node.op.kind is Kind.VIEW:
                waiting.extend(readers.users[node])
    return found
