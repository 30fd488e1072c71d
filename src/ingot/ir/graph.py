"""The graph: what every frontend produces and every stage reads.

    graph  := inputs, nodes in program order, outputs, assumptions
    output := a node, perhaps written into an input (alias), perhaps laid out in a given order of strides

Always holds (`verifier.verify` checks it): operands come before their users; inputs are numbered in order; each node's
type follows from its operands. Constants are operands only and appear in no list. Nodes nothing uses may be present
until dead-code elimination removes them; nodes with an effect stay.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from ingot.base.forks import cached_property
from ingot.base.sizes import SizeExpression, symbols
from ingot.base.types import ScalarType, TensorType
from ingot.ir.node import Assumption, Node
from ingot.ir.printer import print_graph
from ingot.ops import Kind


@dataclass(frozen=True, slots=True)
class Output:
    node: Node
    alias_input: int | None = None
    """Index of the input that is overwritten with this value; such an output is not returned."""
    stride_order: tuple[int, ...] | None = None
    """Rank of each axis by stride, 0 for the fastest; None for row-major."""

    @property
    def type(self) -> TensorType | ScalarType:
        assert isinstance(self.node.type, TensorType | ScalarType)
        return self.node.type


@dataclass(frozen=True)
class Graph:
    inputs: tuple[Node, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    assumptions: tuple[Assumption, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Structural hash: equal for graphs that compute the same outputs from the same inputs in the same way.

        Dead nodes do not count, unless they have an effect.
        """
        hasher = blake2b(digest_size=16)
        for node in self.inputs:
            hasher.update(node.digest)
        for node in self.nodes:
            if node.has_effect:
                hasher.update(b"effect" + node.digest)
        for output in self.outputs:
            hasher.update(output.node.digest + f"{output.alias_input}{output.stride_order}".encode())
        for assumption in self.assumptions:
            hasher.update(str(assumption).encode())
        return hasher.hexdigest()

    @cached_property
    def sizes_from_numbers(self) -> tuple[SizeExpression, ...]:
        """Sizes of tensors that depend on numbers which a call gives, and so may turn out to be negative."""
        found: dict[SizeExpression, None] = {}
        for node in self.nodes:
            for size in node.type.shape if isinstance(node.type, TensorType) else ():
                if isinstance(size, SizeExpression) and any(re.fullmatch(r"n\d+", name) for name in symbols(size)):
                    found.setdefault(size)
        return tuple(found)

    @property
    def text(self) -> str:
        """The graph as text that `parser.parse` reads back."""
        return print_graph(self)

    def __str__(self) -> str:
        return self.text


def is_leaf(node: Node) -> bool:
    """Whether a node is an input or a constant, which are no part of a graph's list."""
    return node.op.kind is Kind.STRUCTURE and node.op.name in ("input", "constant")


def live_nodes(roots: list[Node]) -> set[Node]:
    """Everything the given nodes are computed from, themselves included."""
    found: set[Node] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.operands)
    return found


def operations_of(roots: list[Node], known: Container[Node] = frozenset()) -> Iterator[Node]:
    """Nodes below the roots that belong into a graph's list, operands before users; what is known is left out, with
    everything below it."""
    done: set[Node] = set()
    waiting = [(root, False) for root in reversed(roots)]
    while waiting:
        node, operands_done = waiting.pop()
        if node in done or node in known:
            continue
        if operands_done:
            done.add(node)
            if not is_leaf(node):
                yield node
        else:
            waiting.append((node, True))
            waiting.extend((operand, False) for operand in reversed(node.operands))
