"""Groups: clusters while they grow. What may be merged with what, and why not.

A group's operations share a space of axes. If it holds reductions, they run along the same axes, and every value is
on one of three levels:

    element   varies along all axes: computed for every element
    row       varies along the axes that remain: computed once per row
    total     what reducing row values leaves: computed once

Always holds: a group is convex (no path leaves it and comes back), and all its values fit these levels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum

from ingot.base.types import TensorType
from ingot.fusion.placement import (
    Axis,
    Placement,
    is_row_gather,
    new_placement,
    operand_placement,
    reduction_placements,
    renamed,
    shape_of,
    varies,
)
from ingot.ir.node import Node
from ingot.ops import Kind


class Level(Enum):
    """How often a value of a cluster is computed."""

    ELEMENT = "element"
    ROW = "row"
    TOTAL = "total"


class Conflict(Exception):
    """Why two groups cannot be one."""


def _places_of(group: Group) -> tuple[Placement, ...]:
    """Where its values lie, and what its reductions run along; most lie alike."""
    return tuple(dict.fromkeys((*group.reduction_inputs.values(), *group.placements.values())))


def _axes_of(places: Sequence[Placement]) -> tuple[Axis, ...]:
    longest = places[0] if len(places) == 1 else max(places, key=lambda place: len(varies(place)))
    return tuple(dict.fromkeys([axis for place in (longest, *places) for axis in place if axis is not None]))


class Group:
    """Operations that will be one kernel, or a single operation that no kernel computes."""

    def __init__(self, node: Node, position: int, grows: bool):
        self.positions = {node: position}
        """Its operations and their places in the program, in that order."""
        self.first = self.last = position
        self.grows = grows
        self.operands: set[Group] = set()
        """Groups that must run before it."""
        self.cuts: dict[str, None] = {}
        """Why others did not join it."""
        self.placements: dict[Node, Placement] = {}
        self.reduction_inputs: dict[Node, Placement] = {}
        """Of each reduction and each pick of one element per row, where what it runs along lies."""
        self.absorbed: set[Node] = set()
        """Operations that are computed here besides where they belong, because that is cheaper than reading them."""
        if not grows:
            return
        if node.op.kind is Kind.REDUCTION or is_row_gather(node):
            self.reduction_inputs[node], self.placements[node] = reduction_placements(node)
        else:
            self.placements[node] = new_placement(shape_of(node))
        self.look_again()

    def look_again(self) -> None:
        """Find out what follows from its operations and where they lie, which have changed."""
        self._places = _places_of(self)
        self.axes = _axes_of(self._places)
        """All axes, in the order of the dimensions of the value that has most of them."""
        self.operations = tuple([node for node in self.positions if node.op.kind is not Kind.VIEW])
        """Its operations without views, which cost nothing."""
        self.inputs: dict[Node, Placement] = {}
        """The tensors that it reads from outside, in the order of their first use, and where they lie."""
        for node in self.positions:
            for operand in node.operands:
                if operand not in self.placements and isinstance(operand.type, TensorType):
                    self.inputs.setdefault(operand, self.reads(node, operand))
        self._levels: dict[Node, Level] | None = None

    @property
    def nodes(self) -> Collection[Node]:
        return self.positions.keys()

    def reads(self, node: Node, operand: Node) -> Placement:
        """Where an operand of one of its operations lies."""
        return operand_placement(node, operand, self.placements[node], self.reduction_inputs.get(node))

    def runs_along(self, reduction: Node) -> frozenset[Axis]:
        """The axes along which a reduction runs."""
        return varies(self.reduction_inputs[reduction]) - varies(self.placements[reduction])

    def reduced(self) -> frozenset[Axis]:
        """The axes along which element values become row values; Conflict where reductions do not fit together."""
        along = dict.fromkeys(map(self.runs_along, self.reduction_inputs))
        if not along:
            return frozenset()
        if len(along) == 1:
            return next(iter(along))
        everything = frozenset(self.axes)
        for rows in along:
            others = [axes for axes in along if axes != rows]
            if (
                all(self._is_total(reduction, rows, everything) for reduction in self.reduction_inputs)
                and len(others) == 1
            ):
                return rows
        raise Conflict("its reductions run along different axes")

    def _is_total(self, reduction: Node, rows: frozenset[Axis], everything: frozenset[Axis]) -> bool:
        """Whether a reduction runs along the rows' axes, or adds up whole rows, which picking an element does not."""
        along = self.runs_along(reduction)
        if along == rows or is_row_gather(reduction):
            return along == rows
        return along == everything - rows and varies(self.reduction_inputs[reduction]) == along

    def levels(self) -> Mapping[Node, Level]:
        """The level of every value; Conflict where one fits none."""
        if self._levels is None:
            self._levels = self._levels_of(self.positions, {})
        return self._levels

    def _levels_of(self, nodes: Iterable[Node], before: Mapping[Node, Level]) -> dict[Node, Level]:
        """The levels of operations, added to those of the operations before them."""
        everything, reduced = frozenset(self.axes), self.reduced()
        found = dict(before)
        for node in nodes:  # operands come before their readers
            found[node] = self._level(node, reduced, everything, found)
        return found

    def _level(self, node: Node, reduced: frozenset[Axis], everything: frozenset[Axis], found: dict) -> Level:
        along = varies(self.placements[node])
        if node in self.reduction_inputs and self.runs_along(node) != reduced:
            return Level.TOTAL
        if Level.TOTAL in map(found.get, node.operands):
            if along:
                raise Conflict("a total would be needed for every element")
            return Level.TOTAL
        if along == everything:
            return Level.ELEMENT
        if along == everything - reduced:
            return Level.ROW
        if node in self.absorbed:
            return Level.ELEMENT if along & reduced or not reduced else Level.ROW
        raise Conflict(f"{node.op.name} is computed for another shape")

    # --- merging ------------------------------------------------------------------------------------------------------

    def merged_with(self, source: Group) -> Group:
        """One group in place of both; Conflict where that is impossible. Neither is changed."""
        if depends(self.operands - {source}, source) or depends(source.operands - {self}, self):
            raise Conflict("a path would leave the kernel and come back")
        mapping = {other: axis for axis, other in _same_axes(source, self).items()}
        merged = Group.__new__(Group)
        merged.grows = True
        merged.operands = (self.operands | source.operands) - {self, source}
        merged.cuts = {**source.cuts, **self.cuts}
        merged.absorbed = self.absorbed | source.absorbed
        merged.positions = {**source.positions, **self.positions}
        merged.first, merged.last = min(source.first, self.first), max(source.last, self.last)
        merged.placements = source.placements | _renamed(self.placements, mapping)
        merged.reduction_inputs = source.reduction_inputs | _renamed(self.reduction_inputs, mapping)
        if source.last < self.first:
            merged._add_up(source, self, mapping)
        else:
            merged.positions = dict(sorted(merged.positions.items(), key=lambda item: item[1]))
            merged.look_again()
        merged.levels()
        return merged

    def _add_up(self, source: Group, reader: Group, mapping: Mapping[Axis, Axis]) -> None:
        """Find out about a merged group from what is known of both, where one comes after the other in the program.

        `mapping` says which axis of the source an axis of the reader is.
        """
        self.operations = source.operations + reader.operations
        self.inputs = dict(source.inputs)
        for node, place in reader.inputs.items():
            if node not in self.placements and node not in self.inputs:
                self.inputs[node] = renamed(place, mapping)
        lies_alike = all(renamed(place, mapping) in source._places for place in reader._places)
        if lies_alike and not reader.reduction_inputs:  # as most values do that join
            self._places, self.axes = source._places, source.axes
            self._levels = self._levels_of(reader.positions, source.levels())
        else:
            self._places = _places_of(self)
            self.axes, self._levels = _axes_of(self._places), None


def _renamed(placements: dict[Node, Placement], mapping: Mapping[Axis, Axis]) -> dict[Node, Placement]:
    if not placements:
        return placements
    moved = {place: renamed(place, mapping) for place in set(placements.values())}
    return {node: moved[place] for node, place in placements.items()}


def depends(groups: Iterable[Group], target: Group) -> bool:
    """Whether any of these groups needs the target's results."""
    seen: set[Group] = set()
    waiting = list(groups)
    while waiting:
        current = waiting.pop()
        if current is target:
            return True
        # What ended before the target began cannot need it.
        if current not in seen and current.last > target.first:
            seen.add(current)
            waiting.extend(current.operands)
    return False


def _same_axes(source: Group, reader: Group) -> dict[Axis, Axis]:
    """Which axis of the source is which axis of its reader: those of the values that go from one to the other, and
    then those that only one of them uses, where a common input or an equal size says that they are the same."""
    mapping: dict[Axis, Axis] = {}

    def match(given: Placement, wanted: Placement) -> None:
        for axis, other in zip(given, wanted, strict=True):
            if (axis is None) != (other is None):
                raise Conflict("an axis of size 1 meets a longer one")
            if axis is None or other is None:
                continue
            if mapping.setdefault(axis, other) is not other:
                raise Conflict("a value is read along two orders of its axes")

    for node in reader.positions:
        for operand in node.operands:
            if operand in source.placements:
                match(source.placements[operand], reader.reads(node, operand))
    for node in source.positions if source.last > reader.first else ():
        for operand in node.operands:
            if operand in reader.placements:
                match(source.reads(node, operand), reader.placements[operand])
    if len(set(mapping.values())) != len(mapping):
        raise Conflict("a value is read along two orders of its axes")
    _match_remaining(source, reader, mapping)
    return mapping


def _match_remaining(source: Group, reader: Group, mapping: dict[Axis, Axis]) -> None:
    if len(mapping) == len(source.axes):
        return
    free = [axis for axis in reader.axes if axis not in mapping.values()]
    inputs = reader.inputs
    for node, placement in source.inputs.items():
        for axis, other in zip(placement, inputs.get(node, ()), strict=False):
            if axis is not None and axis not in mapping and other in free:
                mapping[axis] = other
                free.remove(other)
    for axis in source.axes:
        if axis not in mapping:
            other = next((candidate for candidate in free if candidate.size == axis.size), None)
            if other is not None:
                mapping[axis] = other
                free.remove(other)
