"""Dead code: what no output needs is removed.

    %2 = exp(%0)          %3 = neg(%0)
    %3 = neg(%0)    ->    return %3
    return %3

Random draws stay even if nothing uses them: the draws after them would change.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.ir.graph import Graph, live_nodes
from ingot.passes.graph_rewriting import PassResult


@dataclass(frozen=True, slots=True)
class DeadCode:
    name: str = "dead_code"
    summary: str = "removes operations that no output needs"
    level: int = 2

    def run(self, graph: Graph) -> PassResult:
        roots = [output.node for output in graph.outputs] + [node for node in graph.nodes if node.has_effect]
        live = live_nodes(roots)
        nodes = tuple([node for node in graph.nodes if node in live])
        removed = len(graph.nodes) - len(nodes)
        if not removed:
            return PassResult(graph, 0)
        return PassResult(Graph(graph.inputs, nodes, graph.outputs, graph.assumptions), removed)
