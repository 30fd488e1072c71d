"""How the dimensions of values lie along the axes of a cluster.

A cluster loops over a space with named axes. Each value in it has a placement: one axis per dimension, or None where
the dimension has size 1. Views that only reorder, drop or repeat dimensions change placements and nothing else, so
they cost nothing inside a cluster.

    %1 = sum(%0, axes=[1]): f32[s0]                          %0 at (a, b), %1 at (a)
    %2 = broadcast_in_dim(%1, shape=[s0, 1], axes=[0])       %2 at (a, -)
    %3 = sub(%0, %2): f32[s0, s1]                            %3 at (a, b)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ingot.base.sizes import Shape, Size
from ingot.base.types import TensorType
from ingot.ir.node import Node
from ingot.ops import Kind
from ingot.ops.attributes import AxesAttributes, AxisAttributes, BroadcastAttributes, PermuteAttributes


class Axis:
    """One axis of a space; known by its identity, since two axes may have one size."""

    __slots__ = ("size",)

    def __init__(self, size: Size):
        self.size = size

    def __repr__(self) -> str:
        return f"<axis {self.size}>"


Placement = tuple[Axis | None, ...]


def shape_of(node: Node) -> Shape:
    assert isinstance(node.type, TensorType)
    return node.type.shape


def new_placement(shape: Shape) -> Placement:
    """A new axis for every dimension that is not of size 1."""
    return tuple([None if size == 1 else Axis(size) for size in shape])


@lru_cache(maxsize=4096)
def varies(placement: Placement) -> frozenset[Axis]:
    """The axes along which a value may differ."""
    return frozenset(axis for axis in placement if axis is not None)


def renamed(placement: Placement, mapping: Mapping[Axis, Axis]) -> Placement:
    return tuple([None if axis is None else mapping.get(axis, axis) for axis in placement])


def is_row_gather(node: Node) -> bool:
    """Whether an operation picks one element per row: a gather whose index has size 1 along its axis."""
    if node.op.name != "gather":
        return False
    assert isinstance(node.attributes, AxisAttributes)
    axis, (x, index) = node.attributes.axis, map(shape_of, node.operands)
    around = (x[:axis] + x[axis + 1 :], index[:axis] + index[axis + 1 :])
    return index[axis] == 1 and x[axis] != 1 and around[0] == around[1] and node.operands[0] is not node.operands[1]


def operand_placement(node: Node, operand: Node, placement: Placement, input_placement: Placement | None) -> Placement:
    """Where an operand must lie for its reader to lie at a placement.

    `input_placement` is where the operand of a reduction lies, whose own placement lacks the axes it runs along; or the
    first operand of a row gather.
    """
    shape = shape_of(operand)
    if node.op.kind is Kind.POINTWISE and shape == shape_of(node):
        return placement
    if input_placement is not None and operand is node.operands[0]:
        found = input_placement
    elif isinstance(node.attributes, BroadcastAttributes):
        found = tuple(placement[axis] for axis in node.attributes.axes)
    elif isinstance(node.attributes, PermuteAttributes):
        order = node.attributes.order
        found = tuple(placement[order.index(axis)] for axis in range(len(order)))
    elif node.op.name == "squeeze":
        assert isinstance(node.attributes, AxesAttributes)
        kept = iter(placement)
        found = tuple(None if axis in node.attributes.axes else next(kept) for axis in range(len(shape)))
    else:
        found = placement[len(placement) - len(shape) :]
    return tuple(None if size == 1 else axis for size, axis in zip(shape, found, strict=True))


def reduction_placements(node: Node) -> tuple[Placement, Placement]:
    """New placements of what a reduction runs along, or what an element is picked from, and of the result."""
    input_placement = new_placement(shape_of(node.operands[0]))
    if isinstance(node.attributes, AxisAttributes):
        picked = node.attributes.axis
        return input_placement, (*input_placement[:picked], None, *input_placement[picked + 1 :])
    assert isinstance(node.attributes, AxesAttributes)
    kept = tuple(axis for position, axis in enumerate(input_placement) if position not in node.attributes.axes)
    return input_placement, kept
