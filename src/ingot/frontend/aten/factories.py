"""Calls that make tensors from nothing. Memory without values (`empty`) and random numbers stay with PyTorch."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import DataType
from ingot.base.numbers import fits
from ingot.frontend.aten.table import filling, lowers, unsupported
from ingot.ir.builder import Builder
from ingot.ir.handles import Handle
from ingot.ops.parameters import data_type


def _filled(b: Builder, shape: Any, value: Any, dtype: DataType) -> Any:
    if not isinstance(value, Handle) and dtype.is_integer and not fits(value, dtype):
        unsupported(f"{value} does not fit {dtype.text}")
    return b.full(shape, filling(b, value, dtype), dtype)


@lowers("full.default")
def _full(b: Builder, size: Any, value: Any, dtype: Any) -> Any:
    return b.full(size, value) if dtype is None else _filled(b, size, value, _known(b, dtype))


@lowers("zeros.default")
def _zeros(b: Builder, size: Any, dtype: Any) -> Any:
    return _filled(b, size, 0, _known(b, dtype))


@lowers("ones.default")
def _ones(b: Builder, size: Any, dtype: Any) -> Any:
    return _filled(b, size, 1, _known(b, dtype))


@lowers("scalar_tensor.default")
def _scalar_tensor(b: Builder, value: Any, dtype: Any) -> Any:
    return _filled(b, (), value, _known(b, dtype))


@lowers("zeros_like.default")
def _zeros_like(b: Builder, x: Any, dtype: Any) -> Any:
    return _filled(b, x.shape, 0, data_type(dtype) or x.dtype)


@lowers("ones_like.default")
def _ones_like(b: Builder, x: Any, dtype: Any) -> Any:
    return _filled(b, x.shape, 1, data_type(dtype) or x.dtype)


@lowers("full_like.default")
def _full_like(b: Builder, x: Any, value: Any, dtype: Any) -> Any:
    return _filled(b, x.shape, value, data_type(dtype) or x.dtype)


@lowers("new_zeros.default")
def _new_zeros(b: Builder, x: Any, size: Any, dtype: Any) -> Any:
    return _filled(b, size, 0, data_type(dtype) or x.dtype)


@lowers("new_ones.default")
def _new_ones(b: Builder, x: Any, size: Any, dtype: Any) -> Any:
    return _filled(b, size, 1, data_type(dtype) or x.dtype)


@lowers("new_full.default")
def _new_full(b: Builder, x: Any, size: Any, value: Any, dtype: Any) -> Any:
    return _filled(b, size, value, data_type(dtype) or x.dtype)


@lowers("zero.default")
def _zero(b: Builder, x: Any) -> Any:
    return _filled(b, x.shape, 0, x.dtype)


@lowers("fill.Scalar")
def _fill(b: Builder, x: Any, value: Any) -> Any:
    return _filled(b, x.shape, value, x.dtype)


@lowers("fill.Tensor")
def _fill_with_tensor(b: Builder, x: Any, value: Any) -> Any:
    if value.shape:
        unsupported("a tensor is filled with one value")
    return b.expand(b.cast(value, x.dtype), x.shape)


def _known(b: Builder, dtype: Any) -> DataType:
    return data_type(dtype) or b.default_float


# --- counting ---------------------------------------------------------------------------------------------------------


@lowers("arange.default")
def _arange(b: Builder, end: Any, dtype: Any) -> Any:
    return _counting(b, 0, end, 1, dtype)


@lowers("arange.start")
def _arange_from(b: Builder, start: Any, end: Any, dtype: Any) -> Any:
    return _counting(b, start, end, 1, dtype)


@lowers("arange.start_step")
def _arange_by_steps(b: Builder, start: Any, end: Any, step: Any, dtype: Any) -> Any:
    return _counting(b, start, end, step, dtype)


def _counting(b: Builder, start: Any, end: Any, step: Any, dtype: Any) -> Any:
    """Whole numbers that every type in question holds exactly: steps of other numbers are rounded on the way."""
    numbers = (start, end, step)
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        unsupported("arange counts in whole numbers")
    target = data_type(dtype) or DataType.Int
    length = -(-(end - start) // step) if step else -1
    exact = 2**8 if target is DataType.BFloat16 else 2**11 if target is DataType.Half else 2**24
    largest = max(abs(start), abs(end), abs(step))
    if length < 0 or target is DataType.Bool or (target.is_float and largest > exact):
        unsupported("arange counts upwards or downwards to its end")
    if target.is_integer and not all(fits(number, target) for number in numbers):
        unsupported(f"{target.text} does not hold the numbers counted")
    return b.iota(length, start, step, target)


@lowers("eye.default")
def _eye(b: Builder, rows: Any, dtype: Any) -> Any:
    return _eye_of_shape(b, rows, rows, dtype)


@lowers("eye.m")
def _eye_of_shape(b: Builder, rows: Any, columns: Any, dtype: Any) -> Any:
    shape = (rows, columns)
    row, column = b.broadcast_in_dim(b.iota(rows), shape, [0]), b.broadcast_in_dim(b.iota(columns), shape, [1])
    return b.cast(b.eq(row, column), _known(b, dtype))
