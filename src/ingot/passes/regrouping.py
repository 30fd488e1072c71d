"""How the axes of a shape become those of another when a tensor is reshaped.

A reshape splits and merges neighbouring axes. Groups of axes that have the same number of elements on both sides can be
looked at one by one:

    [2, 6, 4, 5] -> [2, 3, 2, 20]       [2] -> [2], [6] -> [3, 2], [4, 5] -> [20]

An operand that is repeated along all axes of a group is repeated along all that they become, and one that has all axes
of a group is reshaped itself. One that has only some of them could not be reshaped without being repeated first.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.base.sizes import Shape, Size


@dataclass(frozen=True, slots=True)
class AxisGroup:
    """Neighbouring axes and the neighbouring axes they become; either may be none where sizes are 1."""

    old: range
    new: range


def regrouped(old: Shape, new: Shape) -> tuple[AxisGroup, ...] | None:
    """The smallest groups of a reshape; None where they cannot be told, because sizes are 0 or not known."""
    if 0 in old or 0 in new:
        return None
    groups: list[AxisGroup] = []
    first, second = 0, 0
    while first < len(old) or second < len(new):
        found = _next_group(old, new, first, second)
        if found is None:
            return None
        groups.append(found)
        first, second = found.old.stop, found.new.stop
    return tuple(groups)


def _next_group(old: Shape, new: Shape, first: int, second: int) -> AxisGroup | None:
    left, right = old[first : first + 1], new[second : second + 1]
    if left != right:
        if left == (1,):
            return AxisGroup(range(first, first + 1), range(second, second))
        if right == (1,):
            return AxisGroup(range(first, first), range(second, second + 1))
    ends: dict[Size, int] = {}
    count: Size = 1
    for end in range(second, len(new)):
        count = count * new[end]
        ends.setdefault(count, end + 1)
    count = 1
    for end in range(first, len(old)):
        count = count * old[end]
        if count in ends:
            return AxisGroup(range(first, end + 1), range(second, ends[count]))
    return None


def regrouped_operand(operand: Shape, old: Shape, new: Shape, groups: tuple[AxisGroup, ...]) -> Shape | None:
    """The shape in which an operand of the old shape, perhaps repeated, is an operand of the new one; None if it has
    only some axes of a group."""
    aligned = (1,) * (len(old) - len(operand)) + operand
    found: list[Size] = []
    for group in groups:
        repeated = [aligned[axis] == 1 and old[axis] != 1 for axis in group.old]
        if any(repeated):
            if any(aligned[axis] != 1 for axis in group.old):
                return None
            found.extend(1 for _ in group.new)
        else:
            found.extend(new[axis] for axis in group.new)
    return tuple(found)


def merges_axes(operand: Shape, old: Shape, groups: tuple[AxisGroup, ...]) -> bool:
    """Whether an operand has axes that become one: only where it lies in memory in order is that no copy."""
    aligned = (1,) * (len(old) - len(operand)) + operand
    return any(
        sum(aligned[axis] != 1 for axis in group.old) > 1 and len(group.new) < len(group.old) for group in groups
    )


def same_but_for_ones(first: Shape, second: Shape) -> bool:
    """Whether two shapes differ at most in axes of size 1."""
    return [size for size in first if size != 1] == [size for size in second if size != 1]
