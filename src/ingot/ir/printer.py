"""Graphs as text. docs/ir.md states the grammar; `parser` reads it back to the very same nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingot.base.types import literal
from ingot.ir.node import Node
from ingot.ops.attributes import ConstantAttributes

if TYPE_CHECKING:
    from ingot.ir.graph import Graph, Output


def print_graph(graph: Graph) -> str:
    """The whole graph, one operation a line."""
    names = name_values(graph)
    parameters = ", ".join(f"{names[node]}: {node.type}" for node in graph.inputs)
    lines = [f"graph({parameters}) {{"]
    lines += [f"  assume {assumption}" for assumption in graph.assumptions]
    lines += [f"  {names[node]} = {print_node(node, names)}: {node.type}" for node in graph.nodes]
    lines.append(f"  return {', '.join(_output(output, names) for output in graph.outputs)}")
    return "\n".join([*lines, "}"])


def print_node(node: Node, names: dict[Node, str]) -> str:
    """One operation with the names of its operands."""
    parts = [operand_text(operand, names) for operand in node.operands]
    if node.attributes.text:
        parts.append(node.attributes.text)
    return f"{node.op.name}({', '.join(parts)})"


def operand_text(node: Node, names: dict[Node, str]) -> str:
    """A value's name, or a constant's value with its type."""
    if isinstance(node.attributes, ConstantAttributes):
        return f"{literal(node.attributes.value)}:{node.attributes.dtype.text}"
    return names.get(node, "%?")


def name_values(graph: Graph) -> dict[Node, str]:
    """%0, %1 ... for inputs and then for operations in program order."""
    return {node: f"%{position}" for position, node in enumerate((*graph.inputs, *graph.nodes))}


def _output(output: Output, names: dict[Node, str]) -> str:
    text = operand_text(output.node, names)
    if output.alias_input is not None:
        text += f" -> %{output.alias_input}"
    if output.stride_order is not None:
        text += f" strides {literal(output.stride_order)}"
    return text
