"""Choosing the layout of a region: the part of the layout pass that moves permutes past pointwise operations.

A region is a set of pointwise operations of one rank, connected through their operands. All of it can be computed in
another order of axes at once:

    %1 = permute(%0, order=p)              %1 = exp(%0)
    %2 = exp(%1)                           %2 = neg(%1)
    %3 = neg(%2)                     ->    %3 = add(%1, %2)
    %4 = add(%2, %3)
    %5 = permute(%4, order=inverse of p)

Permutes by p that enter the region go, and so do the inverse ones that leave it; values that enter or leave it in the
old order need a new permute each. The region changes its order if more permutes go than come, so every change leaves
fewer permutes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ingot.base.types import TensorType
from ingot.ir.graph import Graph
from ingot.ir.node import Node, make
from ingot.ops import Kind
from ingot.ops.attributes import AxesAttributes, BroadcastAttributes, PermuteAttributes, ShapeAttributes
from ingot.passes.graph_rewriting import PassResult, Rewriter, apply, has_op, is_op
from ingot.passes.readers import is_movable

Order = tuple[int, ...]


def permute_regions(graph: Graph) -> PassResult:
    """Recompute each region in the order of axes that leaves the fewest permutes."""
    if not has_op(graph, "permute"):
        return PassResult(graph, 0)
    users = _users(graph)
    returned = {output.node for output in graph.outputs}
    new_orders: dict[Node, Order] = {}
    for region in regions_of((node for node in graph.nodes if is_movable(node) and _rank(node) > 1), _rank):
        order = _best_order(region, users, returned)
        if order is not None:
            new_orders.update(dict.fromkeys(region, order))
    rewriter = Rewriter(graph)
    inside: dict[Node, Node] = {}
    for old in graph.nodes:
        order = new_orders.get(old)
        if order is None:
            rewriter.put(old, rewriter.with_new_operands(old))
            continue
        operands = [inside.get(operand) or _entering(rewriter.rewritten(operand), order) for operand in old.operands]
        inside[old] = make(old.op, operands, old.attributes)
        rewriter.changed += 1
        rewriter.put(old, permuted(inside[old], order))
    return rewriter.finish()


def order_of(node: Node) -> Order:
    """How a permute orders the axes of its operand."""
    assert isinstance(node.attributes, PermuteAttributes)
    return node.attributes.order


def permuted(node: Node, order: Order) -> Node:
    """A node with its axes in another order; itself if the order is no other."""
    if order == tuple(range(len(order))):
        return node
    return apply("permute", node, attributes=PermuteAttributes(order))


def inverse(order: Order) -> Order:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def reduced_order(order: Order, axes: tuple[int, ...]) -> Order | None:
    """The permute that remains after a reduction over `axes` of a permuted value; None if elements would be taken in
    another order than before."""
    taken = [order[axis] for axis in axes]
    if taken != sorted(taken):
        return None
    kept = [axis for position, axis in enumerate(order) if position not in axes]
    return tuple(sorted(kept).index(axis) for axis in kept)


@dataclass(slots=True)
class _Balance:
    """Permutes that would go and come if a region changed its order."""

    gone: set[Node] = field(default_factory=set)
    come: set[Node] = field(default_factory=set)

    @property
    def saved(self) -> int:
        return len(self.gone) - len(self.come)


def _best_order(region: list[Node], users: Mapping[Node, list[Node]], returned: set[Node]) -> Order | None:
    members = set(region)
    entering = {operand for node in region for operand in node.operands if operand not in members}
    leaving = {user for node in region for user in users[node] if user not in members}
    candidates = {order_of(node) for node in entering if is_op(node, "permute")}
    candidates |= {inverse(order_of(node)) for node in leaving if is_op(node, "permute")}
    best, saved = None, 0
    for order in sorted(candidates):
        if any(len(order) != _rank(node) for node in region):
            continue
        balance = _balance(region, members, entering, users, returned, order)
        if balance.saved > saved:
            best, saved = order, balance.saved
    return best


def _balance(
    region: list[Node],
    members: set[Node],
    entering: Iterable[Node],
    users: Mapping[Node, list[Node]],
    returned: set[Node],
    order: Order,
) -> _Balance:
    balance = _Balance()
    for node in entering:
        if is_op(node, "permute") and order_of(node) == order:
            if node not in returned and all(user in members for user in users[node]):
                balance.gone.add(node)
        elif not _enters_freely(node, order):
            balance.come.add(node)
    for node in region:
        outside = [user for user in users[node] if user not in members]
        for user in outside:
            if is_op(user, "permute") and order_of(user) == inverse(order):
                balance.gone.add(user)
            elif not _absorbs(user, order):
                balance.come.add(node)
        if node in returned:
            balance.come.add(node)
    return balance


def _absorbs(user: Node, order: Order) -> bool:
    """Whether a permute before this operation disappears in it: in another permute, or in a reduction's axes."""
    if is_op(user, "permute"):
        return True
    if user.op.kind is not Kind.REDUCTION:
        return False
    assert isinstance(user.attributes, AxesAttributes)
    remaining = reduced_order(order, user.attributes.axes)
    return remaining is not None and list(remaining) == sorted(remaining)


def _enters_freely(node: Node, order: Order) -> bool:
    """Whether an operand can be had in the new order without a permute."""
    if is_op(node, "permute", "full") or not isinstance(node.type, TensorType):
        return True
    places = [order[axis] for axis in range(len(order) - node.type.rank, len(order))]
    return node.type.rank < len(order) and places == sorted(places)


def _entering(node: Node, order: Order) -> Node:
    """An operand from outside the region, in the order of axes the region is computed in."""
    if not isinstance(node.type, TensorType) or not node.type.shape:
        return node
    back = inverse(order)
    if is_op(node, "permute") and len(order_of(node)) == len(order):
        return permuted(node.operands[0], tuple(order_of(node)[axis] for axis in back))
    lead = len(order) - node.type.rank
    if lead:
        # Give it the full rank first, each axis where it belongs in the new order.
        places = [order[axis] for axis in range(lead, len(order))]
        node = permuted(node, tuple(sorted(range(len(places)), key=places.__getitem__)))
        assert isinstance(node.type, TensorType)
        axes = tuple(sorted(places))
        sizes = dict(zip(axes, node.type.shape, strict=True))
        shape = tuple(sizes.get(axis, 1) for axis in range(len(order)))
        return apply("broadcast_in_dim", node, attributes=BroadcastAttributes(shape, axes))
    if is_op(node, "full"):
        shape = tuple(node.type.shape[axis] for axis in back)
        return apply("full", node.operands[0], attributes=ShapeAttributes(shape))
    return permuted(node, back)


def regions_of(nodes: Iterable[Node], likeness: Callable[[Node], object]) -> list[list[Node]]:
    """Nodes that are alike, grouped by connection through operands, each group in program order."""
    leader: dict[Node, Node] = {}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for node in nodes:
        leader[node] = node
        for operand in node.operands:
            if operand in leader and likeness(operand) == likeness(node):
                leader[find(node)] = find(operand)
    groups: defaultdict[Node, list[Node]] = defaultdict(list)
    for node in leader:
        groups[find(node)].append(node)
    return list(groups.values())


def _users(graph: Graph) -> Mapping[Node, list[Node]]:
    users: defaultdict[Node, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for operand in Counter(node.operands):
            users[operand].append(node)
    return users


def _rank(node: Node) -> int:
    return len(node.type.shape) if isinstance(node.type, TensorType) else 0
