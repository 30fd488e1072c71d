"""Errors that operations raise because of values, such as an index out of range.

In: operations of a trace. Out: which of them may raise such an error, and which have effects that last. What always
holds: an operation that is not known to accept all values may refuse some.
"""

from __future__ import annotations

from collections.abc import Container

from ingot.codegen.llvm.support import supports
from ingot.frontend.jit.trace.ssa import PRODUCTS, Operation, OperationKind
from ingot.frontend.jit.trace.trace import TraceValue, draws_numbers, written_arguments
from ingot.ir.node import Node
from ingot.ops import Kind

_ACCEPT_ALL_VALUES = PRODUCTS | frozenset(
    [
        "convolution_backward",
        "native_batch_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_no_training",
        "native_batch_norm_backward",
        "native_layer_norm_backward",
        "native_group_norm",
        "native_group_norm_backward",
        "max_pool2d_with_indices",
        "avg_pool2d",
        "_adaptive_avg_pool2d",
        "upsample_nearest2d",
        "upsample_bilinear2d",
        "_scaled_dot_product_flash_attention_for_cpu",
        "scaled_dot_product_attention",
        "native_dropout",
        "lstm",
        "gru",
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "empty",
        "empty_like",
        "zeros",
        "ones",
        "full",
        "arange",
        "copy_",
        "clone",
        "_to_copy",
        "cat",
        "stack",
        "zero_",
        "fill_",
    ]
)
"""Operators of PyTorch that compute something for any values of tensors. Others cost a program no more than that its
writes are not put off beyond them."""


def may_raise(operation: Operation) -> bool:
    """Whether an operation may refuse values of its operands."""
    if operation.kind is OperationKind.VIEW:
        return False
    if operation.kind is OperationKind.CALL:
        return operation.target.overloadpacket.__name__ not in _ACCEPT_ALL_VALUES
    assert operation.graph is not None
    return any(map(_may_refuse, operation.graph.nodes))


def _may_refuse(node: Node) -> bool:
    """Whether an operation of a graph may refuse values: generated code refuses indices alone, PyTorch other values,
    too."""
    if node.op.kind in (Kind.VIEW, Kind.STRUCTURE, Kind.FACTORY):
        return False
    return node.op.kind is Kind.GATHER or not supports(node)


def has_lasting_effect(operation: Operation, written: Container[TraceValue]) -> bool:
    """Whether an operation writes into memory from before the call, whose registers are `written`, or draws random
    numbers. What a call writes may be the call's own: it is taken for a lasting effect, too."""
    if operation.kind is OperationKind.CALL:
        writes = written_arguments(operation.target, operation.arguments, operation.keywords)
        return bool(writes) or draws_numbers(operation.target)
    return operation.kind is OperationKind.PURE and any(made.register in written for made in operation.products)
