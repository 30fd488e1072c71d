"""Common subexpressions: operations that differ only in the order of operands become one.

Equal expressions are one node from the start, so what remains are the commuted ones:

    %2 = add(%0, %1)            %2 = add(%0, %1)
    %3 = add(%1, %0)      ->    %3 = mul(%2, %2)
    %4 = mul(%2, %3)

    %2 = lt(%0, %1)             %2 = lt(%0, %1)
    %3 = gt(%1, %0)       ->    (both uses read %2)

maximum and minimum commute for integers only: which of 0.0 and -0.0 they give depends on the order.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.passes.graph_rewriting import PassResult, Rewriter, dtype_of, is_op

_MIRRORED = {"gt": "lt", "ge": "le"}
_ORDERED = (*_MIRRORED, *_MIRRORED.values())


@dataclass(frozen=True, slots=True)
class CommonSubexpressions:
    name: str = "common_subexpressions"
    summary: str = "merges operations that differ only in the order of their operands"
    level: int = 2

    def run(self, graph: Graph) -> PassResult:
        keys = [key for key in map(_order_free_key, graph.nodes) if key is not None]
        if len(set(keys)) == len(keys):
            return PassResult(graph, 0)
        rewriter = Rewriter(graph)
        first: dict[tuple[str, tuple[bytes, ...]], Node] = {}
        for old in graph.nodes:
            node = rewriter.with_new_operands(old)
            key = _order_free_key(node)
            if key is not None:
                earlier = first.setdefault(key, node)
                if earlier is not node and earlier.type == node.type:
                    rewriter.changed += 1
                    node = earlier
            rewriter.put(old, node)
        return rewriter.finish()


def _order_free_key(node: Node) -> tuple[str, tuple[bytes, ...]] | None:
    """The same for all orders of operands that give the same value; None where the order matters."""
    is_commutative = node.op.commutative or (is_op(node, "maximum", "minimum") and not dtype_of(node).is_float)
    if not is_commutative and not is_op(node, *_ORDERED):
        return None
    digests = tuple([operand.digest for operand in node.operands])
    if is_commutative:
        return node.op.name, tuple(sorted(digests))
    mirrored = _MIRRORED.get(node.op.name)
    return (node.op.name, digests) if mirrored is None else (mirrored, digests[::-1])
