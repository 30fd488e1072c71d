"""Which operations code can be generated for. Everything else runs through PyTorch."""

from __future__ import annotations

from ingot.base.dtypes import HALVES, DataType
from ingot.base.types import TensorType
from ingot.codegen.llvm.host import host
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.fusion.placement import is_row_gather
from ingot.ir.node import Node
from ingot.ops import Kind


def supports(node: Node) -> bool:
    """Whether code can be generated for an operation."""
    if node.op.kind is Kind.REDUCTION:
        return node.op.combination is not None
    if is_row_gather(node):
        return getattr(node.type, "dtype") is not DataType.Half or host().converts_half  # noqa: B009
    if node.op.emit is None:
        return False
    dtypes = [getattr(value.type, "dtype", None) for value in (node, *node.operands)]
    if DataType.Half in dtypes and not host().converts_half:
        return False
    operand = dtypes[-1]
    assert isinstance(operand, DataType)
    if operand.is_float:
        return operand not in HALVES or node.op.name not in FUNCTIONS
    if operand.is_complex:
        return True
    return _never_refused(node)


def _never_refused(node: Node) -> bool:
    """Whether PyTorch computes an operation for all integer values: generated code cannot refuse any."""
    if node.op.name in ("div", "fmod", "remainder"):
        return node.operands[1].constant not in (None, 0)
    if node.op.name == "pow":
        exponent = node.operands[1]
        if exponent.constant is None:
            return isinstance(exponent.type, TensorType)
        return exponent.constant >= 0
    return True
