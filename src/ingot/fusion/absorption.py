"""Computing a cheap value where it is needed, instead of writing it to memory and reading it back.

    %2 = cast(%1, dtype=f32): f32[s1]           kernel {%2}, kernel {%3}
    %3 = mul(%0, %2): f32[s0, s1]         ->    kernel {%2, %3}: converts %1 while it reads it

A chain of such operations is computed again in every kernel that reads its end, for every element, so only what costs
less than a read from memory is taken: conversions, sums, comparisons and the like, constants and counters. Where a
chain is as large as what reads it, it may read one large tensor and no more: then nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ingot.base.types import TensorType
from ingot.fusion.groups import Conflict, Group
from ingot.fusion.placement import Placement, varies
from ingot.fusion.rules import FusionRules
from ingot.ir.node import Node
from ingot.ops import Kind
from ingot.ops.samples import EXACT
from ingot.passes.readers import is_placing

LONGEST = 8
"""Operations of a chain."""
_SLOW = frozenset({"div", "reciprocal", "fmod", "remainder", "gcd", "pow"})
FACTORIES = frozenset({"full", "counter"})
"""Operators that make tensors which can be computed element by element."""


def absorb(groups: Iterable[Group], supports: Callable[[Node], bool], rules: FusionRules) -> None:
    """Let every growing group compute cheap inputs itself."""
    for group in groups:
        if not group.grows:
            continue
        for node in list(group.inputs):
            chain = _chain(node, supports)
            if chain:
                _take(group, node, chain, rules)


def _is_cheap(node: Node, supports: Callable[[Node], bool]) -> bool:
    if not isinstance(node.type, TensorType):
        return False
    if node.op.kind is Kind.POINTWISE:
        return supports(node) and node.op.tolerance == EXACT and node.op.name not in _SLOW
    return node.op.name in FACTORIES or is_placing(node)


def _chain(end: Node, supports: Callable[[Node], bool]) -> list[Node]:
    """The cheap operations that lead to a value, operands first; empty if there are none or too many."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node in found or len(found) > LONGEST or not _is_cheap(node, supports):
            return
        for operand in node.operands:
            visit(operand)
        found[node] = None

    visit(end)
    computes = any(node.op.kind is not Kind.VIEW for node in found)
    return list(found) if computes and len(found) <= LONGEST and end in found else []


def _take(group: Group, end: Node, chain: list[Node], rules: FusionRules) -> None:
    """Add a chain to a group, unless it is read along several placements or saves nothing."""
    placements: dict[Node, Placement] = {}
    for reader in group.nodes:
        if end in reader.operands and placements.setdefault(end, group.reads(reader, end)) != group.reads(reader, end):
            return
    inside = set(chain)
    loads: list[Placement] = []
    tentative = Group.__new__(Group)
    tentative.reduction_inputs, tentative.placements = {}, placements
    for node in reversed(chain):
        for operand in node.operands:
            if not isinstance(operand.type, TensorType):
                continue
            wanted = tentative.reads(node, operand)
            if operand in inside:
                if placements.setdefault(operand, wanted) != wanted:
                    return
            else:
                loads.append(wanted)
    if any(group.placements.get(node, place) != place for node, place in placements.items()):
        return
    # The group itself may read the middle of a chain, too, and elsewhere than the chain does.
    read = ((reader, operand) for reader in group.nodes for operand in reader.operands if operand in placements)
    if any(group.reads(reader, operand) != placements[operand] for reader, operand in read):
        return
    everything = frozenset(group.axes)
    large = [load for load in loads if varies(load) == everything]
    if len(large) > 1:
        return
    _add(group, chain, placements, rules)


def _add(group: Group, chain: list[Node], placements: dict[Node, Placement], rules: FusionRules) -> None:
    before = vars(group).copy()
    group.positions = {**dict.fromkeys(chain, group.first), **group.positions}
    group.placements = {**placements, **group.placements}
    group.absorbed = group.absorbed | set(chain)
    group.look_again()
    try:
        group.levels()
        rules.check_whole(group)
    except Conflict:
        vars(group).update(before)
