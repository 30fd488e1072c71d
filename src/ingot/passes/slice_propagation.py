"""Computing a slice of a value from slices of what it is computed from.

    %2 = exp(%0): f32[8]                                            %2 = slice(%0, starts=[2], stops=[4], steps=[1])
    %3 = add(%2, %1): f32[8]                                  ->    %3 = exp(%2): f32[2]
    %4 = slice(%3, starts=[2], stops=[4], steps=[1]): f32[2]        %4 = slice(%1, starts=[2], stops=[4], steps=[1])
                                                                    %5 = add(%3, %4): f32[2]

The cone of a value holds what is computed for it alone. It is cut by several slices at once, its members. Always holds:
no element of a value in the cone is computed under two members, unless they are the same slice of it; what others read
stays outside and is sliced, which costs nothing as long as it lies in memory anyway.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ingot.base import sizes
from ingot.base.sizes import Size
from ingot.base.types import TensorType
from ingot.ir.node import Node, make
from ingot.ops.attributes import (
    AxesAttributes,
    AxisAttributes,
    BroadcastAttributes,
    PermuteAttributes,
    SliceAttributes,
)
from ingot.passes.graph_rewriting import Rewriter, apply, is_op
from ingot.passes.readers import Readers, is_computed, is_movable, is_placing, is_smaller, shape_of


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a slice takes of one axis."""

    start: Size
    stop: Size
    step: int = 1

    @property
    def size(self) -> Size:
        return sizes.divide(self.stop - self.start + (self.step - 1), self.step)

    def is_apart(self, other: Bounds) -> bool:
        """Whether certainly no element is in both."""
        if self.step == other.step and _is_number(self.start - other.start, lambda gap: gap % self.step != 0):
            return True
        return any(
            _is_number(later.start - earlier.stop, lambda gap: gap >= 0)
            for earlier, later in ((self, other), (other, self))
        )


def _is_number(size: Size, fulfils) -> bool:
    return isinstance(size, int) and fulfils(size)


Cut = tuple[Bounds | None, ...]
"""What a slice takes of each axis; None for all of it."""


def cut_of(node: Node) -> Cut:
    """What a slice takes of its operand."""
    attributes = node.attributes
    assert isinstance(attributes, SliceAttributes)
    bounds = zip(attributes.starts, attributes.stops, attributes.steps, shape_of(node.operands[0]), strict=True)
    return tuple(
        None if (start, stop, step) == (0, size, 1) else Bounds(start, stop, step) for start, stop, step, size in bounds
    )


def sliced(node: Node, cut: Cut) -> Node:
    """A slice of a value; itself where everything is taken."""
    if all(bounds is None for bounds in cut):
        return node
    whole = zip(cut, shape_of(node), strict=True)
    taken = [Bounds(0, size) if bounds is None else bounds for bounds, size in whole]
    starts, stops, steps = zip(*((bounds.start, bounds.stop, bounds.step) for bounds in taken), strict=True)
    return apply("slice", node, attributes=SliceAttributes(starts, stops, steps))


def are_apart(first: Cut, second: Cut) -> bool:
    """Whether two cuts of one value certainly have no element in common."""
    return any(a is not None and b is not None and a.is_apart(b) for a, b in zip(first, second, strict=True))


def operand_cut(node: Node, operand: Node, cut: Cut) -> Cut:
    """What is needed of an operand where only a cut of the node is needed; a repeated element is needed whole."""
    if isinstance(node.attributes, PermuteAttributes):
        return tuple(cut[node.attributes.order.index(axis)] for axis in range(len(cut)))
    if is_op(node, "squeeze"):
        assert isinstance(node.attributes, AxesAttributes)
        kept = iter(cut)
        gone = node.attributes.axes
        return tuple(None if axis in gone else next(kept) for axis in range(len(shape_of(operand))))
    shape = shape_of(node)
    if isinstance(node.attributes, BroadcastAttributes):
        places: Collection[int] = node.attributes.axes
    else:
        places = range(len(shape) - len(shape_of(operand)), len(shape))
    return tuple(
        None if size == 1 and shape[axis] != 1 else cut[axis]
        for axis, size in zip(places, shape_of(operand), strict=True)
    )


def piece_of(cat: Node, cut: Cut) -> tuple[Node, Cut] | None:
    """The operand of a cat that a cut of the result lies in, and what it takes of that; None if it takes of several."""
    assert isinstance(cat.attributes, AxisAttributes)
    axis, shape = cat.attributes.axis, shape_of(cat)
    bounds = cut[axis]
    if bounds is None:
        return None
    offset: Size = 0
    for piece in cat.operands:
        size = shape_of(piece)[axis]
        inner = Bounds(bounds.start - offset, bounds.stop - offset, bounds.step)
        if _is_number(inner.start, lambda gap: gap >= 0) and _is_number(size - inner.stop, lambda gap: gap >= 0):
            whole = (inner.start, inner.stop, inner.step) == (0, size, 1)
            # Sizes that are only assumed to be equal have different names.
            named_alike = shape_of(piece) == (*shape[:axis], size, *shape[axis + 1 :])
            return (piece, (*cut[:axis], None if whole else inner, *cut[axis + 1 :])) if named_alike else None
        offset = offset + size
    return None


# --- the cone ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Cone:
    """What can be computed in slices, users before operands, each with its cut under every member."""

    cuts: dict[Node, tuple[Cut, ...]] = field(default_factory=dict)
    reads_rows: bool = False
    """Whether it reads a value that a kernel computes, but for fewer elements."""


def find_cone(root: Node, members: tuple[Cut, ...], readers: Readers) -> Cone | None:
    """The cone of a value whose uses are taken care of; None where something that a kernel computes, of the same size,
    would have to be sliced."""
    cone = Cone()
    wanted: dict[Node, tuple[Cut, ...] | None] = {root: members}
    waiting = [(-readers.positions[root], root)]
    while waiting:
        _, node = heappop(waiting)  # the last in the program: all that want it have been seen
        cuts = wanted[node]
        if cuts is not None and (node is root or _belongs(node, cuts, cone, members, readers)) and _divides(node, cuts):
            cone.cuts[node] = cuts
            for operand in dict.fromkeys(node.operands) if not is_op(node, "cat") else ():
                if isinstance(operand.type, TensorType):
                    needed = tuple(operand_cut(node, operand, cut) for cut in cuts)
                    if operand in readers.positions and operand not in wanted:
                        heappush(waiting, (-readers.positions[operand], operand))
                    # Two different cuts of it would compute elements twice.
                    wanted[operand] = needed if wanted.get(operand, needed) == needed else None
        elif node is root or (is_computed(node) and not is_smaller(node, shape_of(root))):
            return None
        else:
            cone.reads_rows = cone.reads_rows or is_computed(node)
    return cone


def _belongs(node: Node, cuts: tuple[Cut, ...], cone: Cone, members: tuple[Cut, ...], readers: Readers) -> bool:
    """Whether nothing but the cone needs a value, and what the members take of it directly."""
    if node in readers.returned:
        return False
    return all(
        user in cone.cuts or (is_op(user, "slice") and cuts == members and cut_of(user) in members)
        for user in readers.users[node]
    )


def _divides(node: Node, cuts: tuple[Cut, ...]) -> bool:
    """Whether cuts of a value can be computed by themselves, and no element is in two of them."""
    if is_op(node, "cat"):
        return all(piece_of(node, cut) is not None for cut in cuts)
    if not is_movable(node) and not is_placing(node):
        return False
    different = list(dict.fromkeys(cuts))
    return all(are_apart(first, second) for place, first in enumerate(different) for second in different[place + 1 :])


class SlicedCone:
    """Builds the values of a cone under one of its members, operands first and each once."""

    def __init__(self, cone: Cone, member: int, rewriter: Rewriter):
        self._cuts = {node: cuts[member] for node, cuts in reversed(cone.cuts.items())}
        self._rewriter = rewriter
        self._built: dict[Node, Node] = {}

    def value(self, wanted: Node) -> Node:
        """A value of the cone, cut; all that it is computed from must have been rewritten."""
        for node, cut in self._cuts.items():
            if wanted in self._built:
                break
            if node not in self._built:
                self._built[node] = self._build(node, cut)
        return self._built[wanted]

    def _build(self, node: Node, cut: Cut) -> Node:
        if is_op(node, "cat"):
            found = piece_of(node, cut)
            assert found is not None
            return sliced(self._rewriter.rewritten(found[0]), found[1])
        operands = [self._operand(node, operand, cut) for operand in node.operands]
        attributes = node.attributes
        if isinstance(attributes, BroadcastAttributes):
            shape = (
                size if bounds is None else bounds.size for size, bounds in zip(attributes.shape, cut, strict=True)
            )
            attributes = BroadcastAttributes(tuple(shape), attributes.axes)
        return make(node.op, operands, attributes)

    def _operand(self, node: Node, operand: Node, cut: Cut) -> Node:
        if operand in self._built:
            return self._built[operand]
        new = self._rewriter.rewritten(operand)
        return sliced(new, operand_cut(node, operand, cut)) if isinstance(operand.type, TensorType) else new
