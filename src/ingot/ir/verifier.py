"""Checks that a graph keeps its own rules. Frontends and passes may have bugs; this is where they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingot.base import sizes
from ingot.base.errors import IngotError, VerificationError
from ingot.base.types import ScalarType, TensorType, TupleType
from ingot.ir.attribute_rules import check_attributes
from ingot.ir.node import Node, is_structure
from ingot.ops.attributes import InputAttributes

if TYPE_CHECKING:
    from ingot.ir.graph import Graph, Output


def verify(graph: Graph) -> None:
    """Raise VerificationError, with the graph's text, at the first rule that is broken."""
    try:
        _check_inputs(graph)
        _check_nodes(graph)
        _check_assumptions(graph)
        if not graph.outputs:
            raise VerificationError("a graph needs at least one output")
        known = {*graph.nodes, *graph.inputs}
        for output in graph.outputs:
            _check_output(graph, output, known)
    except IngotError as error:
        raise VerificationError(f"{error}\n{graph.text}") from error


def _check_inputs(graph: Graph) -> None:
    for position, node in enumerate(graph.inputs):
        if not is_structure(node, "input"):
            raise VerificationError(f"input {position} is {node!r}, not an input")
        assert isinstance(node.attributes, InputAttributes)
        if node.attributes.index != position:
            raise VerificationError(f"input {position} is numbered {node.attributes.index}")


def _check_nodes(graph: Graph) -> None:
    known = set(graph.inputs)
    for node in graph.nodes:
        if is_structure(node, "input") or is_structure(node, "constant") or node in known:
            raise VerificationError(f"{node!r} is listed where only operations, each once, may be")
        for operand in node.operands:
            if operand not in known and not is_structure(operand, "constant"):
                raise VerificationError(f"{node!r} uses {operand!r} before it is defined")
        _check_type(node)
        known.add(node)


def _check_type(node: Node) -> None:
    """Work the type out anew: a node made in any other way than by `make` would show here."""
    assert node.op.infer is not None
    check_attributes(node.op, [operand.type for operand in node.operands], node.attributes)
    inferred = node.op.infer([operand.type for operand in node.operands], node.attributes, lambda *_: None)
    if inferred != node.type:
        raise VerificationError(f"{node!r} should have the type {inferred}")
    if node.op.is_public and node.op.promotion is not None and node.operands:
        last = node.operands[-1].type  # for `where` the first is the condition
        if isinstance(last, TupleType):
            return
        computes = last.dtype in node.op.dtypes or (last.dtype.is_complex and node.op.of_complex is not None)
        if not computes:
            raise VerificationError(f"{node.op.name} does not compute in {last.dtype.text}")


def _check_assumptions(graph: Graph) -> None:
    bound = set(_bound_symbols(graph))
    needed: set[str] = set()
    for node in (*graph.inputs, *graph.nodes):
        types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
        for type_ in types:
            if isinstance(type_, TensorType):
                needed.update(*(sizes.symbols(size) for size in type_.shape))
    for assumption in graph.assumptions:
        needed |= sizes.symbols(assumption.left) | sizes.symbols(assumption.right)
    if needed - bound:
        raise VerificationError(f"no input gives the sizes {', '.join(sorted(needed - bound))}")


def _bound_symbols(graph: Graph):
    for position, node in enumerate(graph.inputs):
        if isinstance(node.type, TensorType):
            yield from (str(size) for size in node.type.shape if sizes.is_symbol(size))
        elif isinstance(node.type, ScalarType) and node.type.dtype.is_integer:
            yield f"n{position}"


def _check_output(graph: Graph, output: Output, known: set[Node]) -> None:
    node = output.node
    if isinstance(node.type, TupleType):
        raise VerificationError(f"{node!r} has several results and cannot be an output itself")
    if node not in known and not is_structure(node, "constant"):
        raise VerificationError(f"the output {node!r} is not part of the graph")
    if output.alias_input is not None:
        if not 0 <= output.alias_input < len(graph.inputs):
            raise VerificationError(f"there is no input {output.alias_input} to write into")
        target = graph.inputs[output.alias_input].type
        if not isinstance(target, TensorType) or target.dtype is not output.type.dtype:
            raise VerificationError(f"{node.type} cannot be written into the input {target}")
    if output.stride_order is not None:
        rank = len(node.type.shape) if isinstance(node.type, TensorType) else -1
        if sorted(output.stride_order) != list(range(rank)):
            raise VerificationError(f"strides {list(output.stride_order)} are no order of the axes of {node.type}")
