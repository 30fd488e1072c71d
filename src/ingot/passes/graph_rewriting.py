"""What all passes share: their shape, their report, and the engine that applies rules to a whole graph.

A rule looks at one node, whose operands have already been rewritten, and returns the node to put in its place or None.
The engine refuses a replacement of another type, so no rule can change a dtype or a shape by accident.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from ingot.base.dtypes import DataType
from ingot.base.numbers import Number, convert_number
from ingot.base.types import ScalarType, TensorType
from ingot.ir.graph import Graph, is_leaf, operations_of
from ingot.ir.node import Assumption, Node, make
from ingot.ops import lookup
from ingot.ops.attributes import NONE, Attributes, ConstantAttributes, ShapeAttributes

Rule = Callable[[Node], Node | None]
_OPERATORS: dict[Rule, frozenset[str]] = {}


def on(*operators: str) -> Callable[[Rule], Rule]:
    """Says which operators a rule is for: it is asked about no other nodes. One without this is asked about all."""

    def note(rule: Rule) -> Rule:
        _OPERATORS[rule] = frozenset(operators)
        return rule

    return note


def operators_of(rule: Rule) -> frozenset[str] | None:
    """The operators a rule is for; None if it is for all."""
    return _OPERATORS.get(rule)


class Rules:
    """Rules in the order they are tried, found by the operator of a node."""

    def __init__(self, *rules: Rule):
        self._rules = rules
        self._by_operator: dict[str, tuple[Rule, ...]] = {}

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def better(self, node: Node) -> Node | None:
        """The replacement of a node by the first rule that has one."""
        rules = self._by_operator.get(node.op.name)
        if rules is None:
            rules = tuple(rule for rule in self._rules if node.op.name in (operators_of(rule) or (node.op.name,)))
            self._by_operator[node.op.name] = rules
        for rule in rules:
            better = rule(node)
            if better is not None and better is not node and better.type == node.type and not node.has_effect:
                return better
        return None


@dataclass(frozen=True, slots=True)
class PassResult:
    graph: Graph
    changed: int
    """How many nodes were replaced or removed."""


def settled(step: Callable[[Graph], PassResult], graph: Graph) -> PassResult:
    """A rewrite repeated until it finds nothing to do."""
    changed = 0
    while (result := step(graph)).changed:
        graph = result.graph
        changed += result.changed
    return PassResult(graph, changed)


class Pass(Protocol):
    """One rewrite of a graph that keeps every result, bit for bit."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def level(self) -> int:
        """The lowest graph_opt_level at which it runs."""
        ...

    def run(self, graph: Graph) -> PassResult: ...


class Rewriter:
    """Rebuilds a graph node by node, in program order, after the first nodes, which stay as they are."""

    def __init__(self, graph: Graph, unchanged: int = 0):
        self.graph = graph
        self.changed = 0
        self._new: dict[Node, Node] = {}
        """What nodes that were replaced have become."""
        self._listed: dict[Node, None] = {}
        self._assumptions: dict[Assumption, None] = dict.fromkeys(graph.assumptions)
        for node in graph.nodes[:unchanged]:
            self._list(node)

    def rewritten(self, node: Node) -> Node:
        """What a node of the old graph has become."""
        return self._new.get(node, node)

    def with_new_operands(self, node: Node) -> Node:
        """The node over what its operands have become; itself if none of them changed."""
        become = self._new
        if not become:
            return node
        operands = tuple([become.get(operand, operand) for operand in node.operands])
        return node if operands == node.operands else make(node.op, operands, node.attributes)

    def put(self, old: Node, new: Node) -> None:
        """Record what an old node becomes, with everything new below it."""
        if new is not old:
            self._new[old] = new
        if new in self._listed:
            return
        for node in list(operations_of([new], known=self._listed)) if self._brings_others(new) else (new,):
            self._list(node)

    def _brings_others(self, node: Node) -> bool:
        """Whether a node is not simply the next in the list, as most are."""
        for operand in node.operands:
            if operand not in self._listed and not is_leaf(operand):
                return True
        return is_leaf(node)

    def _list(self, node: Node) -> None:
        self._listed[node] = None
        for assumption in node.assumptions:
            self._assumptions.setdefault(assumption)

    def finish(self) -> PassResult:
        if not self.changed:
            return PassResult(self.graph, 0)
        outputs = tuple(replace(output, node=self.rewritten(output.node)) for output in self.graph.outputs)
        graph = Graph(self.graph.inputs, tuple(self._listed), outputs, tuple(self._assumptions))
        return PassResult(graph, self.changed)


def apply_rules(graph: Graph, rules: Rules) -> PassResult:
    """Apply rules to every node until none of them changes it any more."""
    rewriter: Rewriter | None = None
    for position, old in enumerate(graph.nodes):
        node = old if rewriter is None else rewriter.with_new_operands(old)
        while (better := rules.better(node)) is not None:
            rewriter = rewriter or Rewriter(graph, position)
            rewriter.changed += 1
            node = better
        if rewriter is not None:
            rewriter.put(old, node)
    return PassResult(graph, 0) if rewriter is None else rewriter.finish()


# --- the words rules are written in -----------------------------------------------------------------------------------


def apply(name: str, *operands: Node, attributes: Attributes = NONE) -> Node:
    """A node of a primitive."""
    return make(lookup(name), operands, attributes)


def constant(value: Number, dtype: DataType) -> Node:
    return make(lookup("constant"), (), ConstantAttributes(convert_number(value, dtype), dtype))


def filled_like(node: Node, value: Number) -> Node:
    """The same number everywhere, in the type of a node."""
    if isinstance(node.type, TensorType):
        return apply("full", constant(value, node.type.dtype), attributes=ShapeAttributes(node.type.shape))
    return constant(value, dtype_of(node))


def dtype_of(node: Node) -> DataType:
    assert isinstance(node.type, TensorType | ScalarType)
    return node.type.dtype


def is_op(node: Node, *names: str) -> bool:
    return node.op.name in names


def has_op(graph: Graph, *names: str) -> bool:
    """Whether a graph has a node of one of these operators."""
    return any(node.op.name in names for node in graph.nodes)


def uniform_value(node: Node) -> Number | None:
    """The number a node is known to hold everywhere, or None."""
    return node.operands[0].constant if is_op(node, "full") else node.constant


def is_number(node: Node, value: Number) -> bool:
    """Whether a node is known to hold exactly this number everywhere; 0.0 and -0.0 are different numbers."""
    held = uniform_value(node)
    if held is None or held != value:
        return False
    return not isinstance(held, float) or math.copysign(1.0, held) == math.copysign(1.0, float(value))
