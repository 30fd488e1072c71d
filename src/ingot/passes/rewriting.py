"""What all passes share: their shape, their report, and the engine that applies rules to a whole graph.

A rule looks at one node, whose operands have already been rewritten, and returns the node to put in its place or None.
The engine refuses a replacement of another type, so no rule can change a dtype or a shape by accident.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    """Rebuilds a graph node by node, in program order."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.changed = 0
        self._new: dict[Node, Node] = {node: node for node in graph.inputs}
        self._listed: dict[Node, None] = {}
        self._assumptions: dict[Assumption, None] = dict.fromkeys(graph.assumptions)

    def rewritten(self, node: Node) -> Node:
        """What a node of the old graph has become."""
        return self._new.get(node, node)

    def with_new_operands(self, node: Node) -> Node:
        """The node over what its operands have become; itself if none of them changed."""
        become = self._new
        operands = tuple([become.get(operand, operand) for operand in node.operands])
        return node if operands == node.operands else make(node.op, operands, node.attributes)

    def put(self, old: Node, new: Node) -> None:
        """Record what an old node becomes, with everything new below it."""
        self._new[old] = new
        if new in self._listed:
            return
        if all(operand in self._listed or is_leaf(operand) for operand in new.operands) and not is_leaf(new):
            self._list(new)  # as most nodes stay what they are
            return
        for node in list(operations_of([new], known=self._listed)):
            self._list(node)

    def _list(self, node: Node) -> None:
        self._listed[node] = None
        for assumption in node.assumptions:
            self._assumptions.setdefault(assumption)

    def finish(self) -> PassResult:
        outputs = tuple(replace(output, node=self.rewritten(output.node)) for output in self.graph.outputs)
        graph = Graph(self.graph.inputs, tuple(self._listed), outputs, tuple(self._assumptions))
        return PassResult(graph, self.changed)


def apply_rules(graph: Graph, rules: Sequence[Rule]) -> PassResult:
    """Apply rules to every node until none of them changes it any more."""
    rewriter = Rewriter(graph)
    for old in graph.nodes:
        node = rewriter.with_new_operands(old)
        while (better := _first(rules, node)) is not None:
            rewriter.changed += 1
            node = better
        rewriter.put(old, node)
    return rewriter.finish()


def _first(rules: Sequence[Rule], node: Node) -> Node | None:
    if node.has_effect:
        return None
    for rule in rules:
        better = rule(node)
        if better is not None and better is not node and better.type == node.type:
            return better
    return None


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


def uniform_value(node: Node) -> Number | None:
    """The number a node is known to hold everywhere, or None."""
    return node.operands[0].constant if is_op(node, "full") else node.constant


def is_number(node: Node, value: Number) -> bool:
    """Whether a node is known to hold exactly this number everywhere; 0.0 and -0.0 are different numbers."""
    held = uniform_value(node)
    if held is None or held != value:
        return False
    return not isinstance(held, float) or math.copysign(1.0, held) == math.copysign(1.0, float(value))
