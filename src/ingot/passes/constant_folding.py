"""Constant folding: what is known is computed now, by the interpreter itself, so the bits are the same.

    add(1.0:f32, 2.0:f32)                         ->  3.0:f32
    neg(full(2.0:f32, shape=[4]))                 ->  full(-2.0:f32, shape=[4])
    permute(full(%0, shape=[2, 3]), order=[1, 0]) ->  full(%0, shape=[3, 2])

Scalars are computed on the CPU in any case. Of tensors only what has the same bits on every device is folded: on a GPU
exp(full(c)) is another number than exp(c) here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.base.errors import IngotError
from ingot.base.types import ScalarType, TensorType
from ingot.ir.graph import Graph
from ingot.ir.interpreter import evaluate_scalar
from ingot.ir.node import Node, make
from ingot.ops import Kind
from ingot.ops.attributes import PadAttributes, ShapeAttributes, SizeAttributes
from ingot.passes.graph_rewriting import (
    PassResult,
    Rules,
    apply,
    apply_rules,
    constant,
    dtype_of,
    is_op,
    on,
    uniform_value,
)


def fold_scalars(node: Node) -> Node | None:
    """add(1.0:f32, 2.0:f32) -> 3.0:f32

    Not where computing it is an error, such as an integer division by zero: that error belongs to the run.
    """
    if node.op.kind is not Kind.POINTWISE or not isinstance(node.type, ScalarType) or node.type.dtype.is_complex:
        return None  # a complex number is made of two constants, and is none itself
    if any(operand.constant is None for operand in node.operands):
        return None
    try:
        return constant(evaluate_scalar(node), node.type.dtype)
    except IngotError:
        return None


def fold_filled(node: Node) -> Node | None:
    """add(full(c, shape), full(d, shape)) -> full(c + d, shape), where all operands are known everywhere"""
    if node.op.kind is not Kind.POINTWISE or not isinstance(node.type, TensorType):
        return None
    if any(uniform_value(operand) is None for operand in node.operands):
        return None
    if not node.op.stable and not _is_exact_cast(node):
        return None
    scalars = [operand if operand.constant is not None else operand.operands[0] for operand in node.operands]
    folded = fold_scalars(make(node.op, scalars, node.attributes))
    return None if folded is None else apply("full", folded, attributes=ShapeAttributes(node.type.shape))


def _is_exact_cast(node: Node) -> bool:
    """Whether a node converts to a type that every value has a defined counterpart in, on any device."""
    return is_op(node, "cast") and (dtype_of(node).is_float or not dtype_of(node.operands[0]).is_float)


@on("broadcast_in_dim", "permute", "reshape", "squeeze", "slice")
def fold_view_of_filled(node: Node) -> Node | None:
    """permute(full(x, shape), order) -> full(x, permuted shape), and in the same way for all views of one tensor."""
    if not is_op(node.operands[0], "full"):
        return None
    assert isinstance(node.type, TensorType)
    return apply("full", node.operands[0].operands[0], attributes=ShapeAttributes(node.type.shape))


@on("cat", "pad")
def fold_join_of_filled(node: Node) -> Node | None:
    """cat(full(x, a), full(x, b)) -> full(x, a + b); pad(full(x, a), x) -> full(x, larger)"""
    if is_op(node, "cat"):
        values = {operand.operands[0] if is_op(operand, "full") else operand for operand in node.operands}
    elif isinstance(node.attributes, PadAttributes) and is_op(node.operands[0], "full"):
        values = {node.operands[0].operands[0], node.operands[1]}
    else:
        return None
    (value, *others) = values
    if others or not isinstance(value.type, ScalarType):
        return None
    assert isinstance(node.type, TensorType)
    return apply("full", value, attributes=ShapeAttributes(node.type.shape))


@on("dimension")
def fold_known_size(node: Node) -> Node | None:
    """dimension(size=3) -> 3:i64"""
    assert isinstance(node.attributes, SizeAttributes)
    size = node.attributes.size
    return constant(size, dtype_of(node)) if isinstance(size, int) else None


RULES = Rules(fold_scalars, fold_filled, fold_view_of_filled, fold_join_of_filled, fold_known_size)


@dataclass(frozen=True, slots=True)
class ConstantFolding:
    name: str = "constant_folding"
    summary: str = "computes what is known before the graph runs"
    level: int = 1

    def run(self, graph: Graph) -> PassResult:
        return apply_rules(graph, RULES)
