"""Which operations read a value: what passes need to know before they move a view.

In: a graph. Out: the users of each value that some output needs, and whether kernels compute or read it. A view cuts a
kernel where a kernel computes what is under it and a kernel reads it: the value is written to memory, viewed and read
again. Views of inputs and of what PyTorch computes cost nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ingot.base.sizes import Shape
from ingot.base.types import TensorType
from ingot.ir.graph import Graph, live_nodes
from ingot.ir.node import Node
from ingot.ops import Kind

PLACING_VIEWS = frozenset({"broadcast_in_dim", "permute", "squeeze"})
"""Views that only say along which axes a value lies: inside a kernel they cost nothing."""
_COMPUTING = frozenset({Kind.POINTWISE, Kind.REDUCTION})


class Readers:
    """The users of every value of a graph, dead ones left out, each once and in program order."""

    def __init__(self, graph: Graph):
        self.returned = {output.node for output in graph.outputs}
        live = live_nodes([*self.returned, *(node for node in graph.nodes if node.has_effect)])
        self.nodes = [node for node in graph.nodes if node in live]
        self.positions = {node: position for position, node in enumerate(self.nodes)}
        users: defaultdict[Node, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for operand in dict.fromkeys(node.operands):
                users[operand].append(node)
        self.users: Mapping[Node, list[Node]] = users

    def feeds_kernel(self, node: Node) -> bool:
        """Whether an operation that kernels can compute reads this value, perhaps through views of it."""
        return any(map(self.is_in_kernel, self.users[node]))

    def is_in_kernel(self, node: Node) -> bool:
        """Whether kernels can compute this operation, or it is a view that one of them reads."""
        waiting = [node]
        while waiting:
            current = waiting.pop()
            if current.op.kind in _COMPUTING:
                return True
            if current.op.kind is Kind.VIEW and len(current.operands) == 1:
                waiting.extend(self.users[current])
        return False


def is_placing(node: Node) -> bool:
    return node.op.name in PLACING_VIEWS


def base_of(node: Node) -> Node:
    """What lies under views that cost nothing."""
    while is_placing(node):
        node = node.operands[0]
    return node


def is_computed(node: Node) -> bool:
    """Whether a kernel computes this value, so that a slice or a reshape of it would end the kernel."""
    base = base_of(node)
    return base.op.kind in _COMPUTING and isinstance(base.type, TensorType)


def is_movable(node: Node) -> bool:
    """Whether a node computes each element of a tensor from the elements at the same place."""
    return node.op.kind is Kind.POINTWISE and isinstance(node.type, TensorType)


def is_smaller(node: Node, shape: Shape) -> bool:
    """Whether a value certainly varies along fewer axes than a shape has."""
    return sum(size != 1 for size in shape_of(base_of(node))) < sum(size != 1 for size in shape)


def shape_of(node: Node) -> Shape:
    assert isinstance(node.type, TensorType)
    return node.type.shape
