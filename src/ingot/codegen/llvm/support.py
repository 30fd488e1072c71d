"""Which operations code can be generated for. Everything else runs through PyTorch."""

from __future__ import annotations

from ingot.base.dtypes import HALVES, DataType
from ingot.codegen.llvm.host import host
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.ir.node import Node

_BY_INSTRUCTIONS = frozenset({"maximum", "minimum", "cast", "sqrt"})
"""Operators that PyTorch does not compute the same everywhere, and that need no function of the math module."""


def supports(node: Node) -> bool:
    """Whether code can be generated for an operation."""
    if node.op.emit is None:
        return False
    dtypes = [getattr(value.type, "dtype", None) for value in (node, *node.operands)]
    if DataType.Half in dtypes and not host().converts_half:
        return False
    operand = dtypes[-1]
    assert isinstance(operand, DataType)
    if node.op.name in FUNCTIONS or node.op.name == "pow":
        return node.op.name in FUNCTIONS and operand.is_float and operand not in HALVES
    if not node.op.stable and node.op.name not in _BY_INSTRUCTIONS:
        return False  # a function the math module does not have
    if node.op.name == "div" and not operand.is_float:
        divisor = node.operands[1].constant
        return divisor is not None and divisor not in (0, -1)
    return True
