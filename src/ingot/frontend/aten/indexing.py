"""Calls that look elements up. An index beyond the end is found by PyTorch when the graph runs."""

from __future__ import annotations

from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.frontend.aten.table import lowers, unsupported
from ingot.ir.builder import Builder
from ingot.ops.parameters import one_axis


@lowers("index_select.default")
def _index_select(b: Builder, x: Any, dim: int, index: Any) -> Any:
    if not x.shape or len(index.shape) != 1:
        unsupported("index_select without dimensions is not lowered")
    return b.index_select(x, index, dim)


@lowers("gather.default")
def _gather(b: Builder, x: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    if not x.shape or len(index.shape) != len(x.shape):
        unsupported("gather without dimensions is not lowered")
    return b.gather(x, index, dim)


@lowers("take_along_dim.default")
def _take_along_dim(b: Builder, x: Any, index: Any, dim: int | None) -> Any:
    if dim is None or not x.shape:
        unsupported("take_along_dim without an axis is not lowered")
    return b.take_along_axis(x, index, dim)


@lowers("embedding.default")
def _embedding(b: Builder, weight: Any, index: Any, padding: int, scaled: bool, sparse: bool) -> Any:
    return b.embedding(index, weight)


@lowers("index.Tensor")
def _index(b: Builder, x: Any, indices: Any) -> Any:
    """One tensor of positions along one axis; negative ones count from the end."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype not in (DataType.Int, DataType.Int32) or len(indices) > len(x.shape):
        unsupported("only one index of whole numbers is lowered")
    ((axis, index),) = given
    size = x.shape[one_axis(axis, len(x.shape))]
    positions = b.cast(index, DataType.Int)
    positions = b.where(b.lt(positions, 0), b.add(positions, b.size_scalar(size)), positions)
    flat = b.index_select(x, b.reshape(positions, (sizes.product(index.shape),)), axis)
    return b.reshape(flat, (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))
