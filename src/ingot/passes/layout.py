"""Layout: views are merged, moved and cancelled so that fewer copies remain.

    permute(permute(x, [1, 0]), [1, 0])                     ->  x
    add(permute(x, p), permute(y, p))                       ->  permute(add(x, y), p)
    permute(mul(permute(x, p), y), inverse of p)            ->  mul(x, permute(y, inverse of p))
    sum(permute(x, [1, 0]), axes=[1])                       ->  sum(x, axes=[0])
    exp(broadcast_in_dim(x, shape, axes))                   ->  broadcast_in_dim(exp(x), shape, axes)
    reshape(x, [n, 1, m])                                   ->  broadcast_in_dim(x, [n, 1, m], [0, 2])
    slice(cat(x, y), within y)                              ->  slice(y)

A permute moves only where fewer permutes remain; `layout_regions` decides that for whole regions of pointwise
operations. Reductions keep the order in which they take elements, hence every bit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ingot.base import sizes
from ingot.base.sizes import Size
from ingot.base.types import TensorType
from ingot.ir.graph import Graph
from ingot.ir.node import Node, make
from ingot.ops import Kind
from ingot.ops.attributes import (
    AxesAttributes,
    AxisAttributes,
    BroadcastAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from ingot.passes.graph_rewriting import PassResult, Rewriter, Rules, apply, is_op, on
from ingot.passes.layout_regions import order_of, permute_regions, permuted, reduced_order
from ingot.passes.readers import is_placing, shape_of
from ingot.passes.regrouping import regrouped, regrouped_operand, same_but_for_ones
from ingot.passes.slice_propagation import cut_of, piece_of, sliced

# --- merging views ----------------------------------------------------------------------------------------------------


@on("permute")
def merge_permutes(node: Node) -> Node | None:
    """permute(permute(x, p), q) -> permute(x, p[q]), or x where that is no permutation at all"""
    order = order_of(node)
    inner = node.operands[0]
    if is_op(inner, "permute"):
        return permuted(inner.operands[0], tuple(order_of(inner)[axis] for axis in order))
    return inner if order == tuple(range(len(order))) else None


@on("reshape")
def merge_reshapes(node: Node) -> Node | None:
    """reshape(reshape(x, a), b) -> reshape(x, b), or x where that is its shape

    A view that only adds or removes axes of size 1 is as good as a reshape.
    """
    x = node.operands[0]
    while is_op(x, "reshape") or (is_placing(x) and _only_ones_change(x)):
        x = x.operands[0]
    if x.type == node.type:
        return x
    return None if x is node.operands[0] else apply("reshape", x, attributes=node.attributes)


def _only_ones_change(node: Node) -> bool:
    """Whether a view keeps all elements in order and at most adds or removes axes of size 1."""
    if is_op(node, "permute"):
        return False
    return same_but_for_ones(shape_of(node.operands[0]), shape_of(node))


@on("reshape")
def place_without_reshape(node: Node) -> Node | None:
    """reshape(x, [n, 1, m]) -> broadcast_in_dim(x, [n, 1, m], [0, 2]): only axes of size 1 come or go"""
    if not _only_ones_change(node):
        return None
    x, shape = node.operands[0], shape_of(node)
    ones = tuple(axis for axis, size in enumerate(shape_of(x)) if size == 1)
    if ones:
        x = apply("squeeze", x, attributes=AxesAttributes(ones))
    axes = tuple(axis for axis, size in enumerate(shape) if size != 1)
    return apply("broadcast_in_dim", x, attributes=BroadcastAttributes(shape, axes)) if len(axes) < len(shape) else x


@on("reshape")
def reshape_before_repeating(node: Node) -> Node | None:
    """reshape(broadcast_in_dim(x, [n, 6], [1]), [n, 3, 2]) -> broadcast_in_dim(reshape(x, [1, 3, 2]), [n, 3, 2])"""
    if not is_op(node.operands[0], "broadcast_in_dim"):
        return None
    inner = node.operands[0]
    assert isinstance(inner.attributes, BroadcastAttributes)
    x, old, new = inner.operands[0], shape_of(inner), shape_of(node)
    groups = regrouped(old, new)
    present: list[Size] = [1] * len(old)
    for axis, size in zip(inner.attributes.axes, shape_of(x), strict=True):
        present[axis] = size
    shape = None if groups is None else regrouped_operand(tuple(present), old, new, groups)
    if shape is None:
        return None
    reshaped = apply("reshape", x, attributes=ShapeAttributes(shape))
    return apply("broadcast_in_dim", reshaped, attributes=BroadcastAttributes(new, tuple(range(len(new)))))


@on("broadcast_in_dim")
def merge_broadcasts(node: Node) -> Node | None:
    """broadcast_in_dim(broadcast_in_dim(x, s, a), t, b) -> broadcast_in_dim(x, t, b[a])"""
    inner = node.operands[0]
    if inner.type == node.type:
        return inner
    if not is_op(inner, "broadcast_in_dim"):
        return None
    outer_attributes, inner_attributes = node.attributes, inner.attributes
    assert isinstance(outer_attributes, BroadcastAttributes) and isinstance(inner_attributes, BroadcastAttributes)
    axes = tuple(outer_attributes.axes[axis] for axis in inner_attributes.axes)
    return apply("broadcast_in_dim", inner.operands[0], attributes=BroadcastAttributes(outer_attributes.shape, axes))


@on("squeeze")
def merge_squeezes(node: Node) -> Node | None:
    """squeeze(squeeze(x, a), b) -> squeeze(x, both)"""
    if not is_op(node.operands[0], "squeeze"):
        return None
    inner = node.operands[0]
    assert isinstance(inner.type, TensorType) and isinstance(node.attributes, AxesAttributes)
    assert isinstance(inner.attributes, AxesAttributes)
    kept = [axis for axis in range(inner.type.rank + len(inner.attributes.axes)) if axis not in inner.attributes.axes]
    axes = sorted((*inner.attributes.axes, *(kept[axis] for axis in node.attributes.axes)))
    return apply("squeeze", inner.operands[0], attributes=AxesAttributes(tuple(axes)))


@on("squeeze")
def squeeze_new_axes(node: Node) -> Node | None:
    """squeeze(broadcast_in_dim(x, [n, 1], [0]), [1]) -> broadcast_in_dim(x, [n], [0]), or x: a new axis goes again"""
    if not is_op(node.operands[0], "broadcast_in_dim"):
        return None
    inner = node.operands[0]
    assert isinstance(node.attributes, AxesAttributes) and isinstance(inner.attributes, BroadcastAttributes)
    gone = node.attributes.axes
    if any(axis in inner.attributes.axes for axis in gone):
        return None
    assert isinstance(node.type, TensorType)
    axes = tuple(axis - sum(other < axis for other in gone) for axis in inner.attributes.axes)
    if inner.operands[0].type == node.type:
        return inner.operands[0]
    return apply("broadcast_in_dim", inner.operands[0], attributes=BroadcastAttributes(node.type.shape, axes))


@on("slice")
def merge_slices(node: Node) -> Node | None:
    """slice(slice(x, a), b) -> slice(x, a then b), where all bounds are numbers"""
    if not is_op(node.operands[0], "slice"):
        return None
    outer, inner = node.attributes, node.operands[0].attributes
    assert isinstance(outer, SliceAttributes) and isinstance(inner, SliceAttributes)
    assert isinstance(node.type, TensorType)
    starts, stops, steps = [], [], []
    for axis, size in enumerate(node.type.shape):
        bounds = (outer.starts[axis], outer.stops[axis], inner.starts[axis], inner.stops[axis], size)
        if not all(isinstance(bound, int) for bound in bounds):
            return None
        # Of no elements the first could lie beyond the end of x.
        start = inner.starts[axis] + outer.starts[axis] * inner.steps[axis] if size != 0 else 0
        step = inner.steps[axis] * outer.steps[axis]
        starts.append(start)
        stops.append(start + (size - 1) * step + 1 if size != 0 else 0)
        steps.append(step)
    merged = SliceAttributes(tuple(starts), tuple(stops), tuple(steps))
    return apply("slice", node.operands[0].operands[0], attributes=merged)


@on("slice")
def slice_a_piece(node: Node) -> Node | None:
    """slice(cat(x, y), within y) -> slice(y)"""
    if not is_op(node.operands[0], "cat"):
        return None
    found = piece_of(node.operands[0], cut_of(node))
    return None if found is None else sliced(*found)


def compute_before_repeating(node: Node) -> Node | None:
    """exp(broadcast_in_dim(x, shape, axes)) -> broadcast_in_dim(exp(x), shape, axes): fewer elements to compute

    Other operands must be scalars. The repeated value may be used elsewhere too: it is a view and costs nothing.
    """
    if node.op.kind is not Kind.POINTWISE:
        return None
    tensors = [operand for operand in node.operands if isinstance(operand.type, TensorType)]
    if len(tensors) != 1 or not is_op(tensors[0], "broadcast_in_dim"):
        return None
    inner = tensors[0]
    assert isinstance(node.type, TensorType) and isinstance(inner.operands[0].type, TensorType)
    if sizes.product(node.type.shape) == sizes.product(inner.operands[0].type.shape):
        return None  # it only adds axes
    if 0 in node.type.shape:
        return None  # repeated not even once
    operands = [inner.operands[0] if operand is inner else operand for operand in node.operands]
    return apply("broadcast_in_dim", make(node.op, operands, node.attributes), attributes=inner.attributes)


MERGES = Rules(
    merge_permutes,
    merge_reshapes,
    place_without_reshape,
    reshape_before_repeating,
    merge_broadcasts,
    merge_squeezes,
    squeeze_new_axes,
    merge_slices,
    slice_a_piece,
    compute_before_repeating,
)


# --- moving permutes --------------------------------------------------------------------------------------------------


def sink_through_reduction(node: Node, used_once: bool) -> Node | None:
    """sum(permute(x, p), axes) -> permute(sum(x, p[axes]), the kept part of p), if the reduced axes keep their order"""
    if node.op.kind is not Kind.REDUCTION or not is_op(node.operands[0], "permute"):
        return None
    assert isinstance(node.attributes, AxesAttributes)
    order = order_of(node.operands[0])
    remaining = reduced_order(order, node.attributes.axes)
    if remaining is None or (not used_once and list(remaining) != sorted(remaining)):
        return None  # otherwise the permute stays for its other users, and a second one appears
    axes = tuple(order[axis] for axis in node.attributes.axes)
    return permuted(make(node.op, [node.operands[0].operands[0]], AxesAttributes(axes)), remaining)


def sink_through_scan(node: Node, used_once: bool) -> Node | None:
    """cumsum(permute(x, p), axis) -> permute(cumsum(x, p[axis]), p)"""
    if node.op.kind is not Kind.SCAN or not is_op(node.operands[0], "permute") or not used_once:
        return None
    assert isinstance(node.attributes, AxisAttributes)
    order = order_of(node.operands[0])
    scanned = make(node.op, [node.operands[0].operands[0]], AxisAttributes(order[node.attributes.axis]))
    return permuted(scanned, order)


SINKS = (sink_through_reduction, sink_through_scan)


# --- the pass ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    name: str = "layout"
    summary: str = "merges, moves and cancels views so that fewer copies remain"
    level: int = 2

    def run(self, graph: Graph) -> PassResult:
        if not any(node.op.kind is Kind.VIEW for node in graph.nodes):
            return PassResult(graph, 0)
        permuted_regions = permute_regions(graph)
        merged = _merge_and_sink(permuted_regions.graph)
        return PassResult(merged.graph, permuted_regions.changed + merged.changed)


def _merge_and_sink(graph: Graph) -> PassResult:
    uses = _count_uses(graph)
    rewriter = Rewriter(graph)
    for old in graph.nodes:
        node = rewriter.with_new_operands(old)
        # A rewritten operand is used as often as the one it stands for.
        used_once = bool(old.operands) and uses[old.operands[0]] == 1
        while (better := _improve(node, used_once and node.op is old.op)) is not None:
            rewriter.changed += 1
            node = better
        rewriter.put(old, node)
    return rewriter.finish()


def _improve(node: Node, used_once: bool) -> Node | None:
    better = MERGES.better(node)
    if better is not None:
        return better
    for sink in SINKS:
        better = sink(node, used_once)
        if better is not None and better.type == node.type:
            return better
    return None


def _count_uses(graph: Graph) -> Counter[Node]:
    uses: Counter[Node] = Counter()
    for node in graph.nodes:
        uses.update(set(node.operands))
    uses.update(output.node for output in graph.outputs)
    return uses
