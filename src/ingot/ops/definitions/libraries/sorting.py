"""Operators that put elements in order."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import DataType
from ingot.base.errors import ArgumentValueError, DTypeError
from ingot.base.types import TensorType
from ingot.ops.parameters import Axis, Flag, SizeValue, Tensor, one_axis
from ingot.ops.record import Kind, operator
from ingot.ops.samples import Domain, Sample
from ingot.ops.samples import Operand as SampleOperand

DISTINCT = Domain(low=-1000.0, high=1000.0, specials=False)
"""Numbers of which hardly two are equal: which of two equal ones comes first is up to PyTorch."""


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, k, axis, largest, sorted: torch.topk(x, k, axis, largest, sorted),
    samples=lambda shape: [
        Sample((SampleOperand(shape, DISTINCT, dtype), k), {"axis": axis, "largest": largest, "sorted": True})
        for dtype in (DataType.Float, DataType.Double, DataType.Int)
        for axis in (range(-1, len(shape)) if shape else ())
        for k in sorted({0, min(1, shape[axis]), shape[axis]})
        for largest in (True, False)
    ],
)
def topk(b: Any, x: Tensor, k: SizeValue, axis: Axis = -1, largest: Flag = True, sorted: Flag = False) -> Any:
    """The k largest or smallest elements along an axis and their indices; if not sorted, in any order."""
    if x.dtype is DataType.Bool:
        raise DTypeError("topk does not order bools; cast them to a type of numbers first")
    counted = one_axis(axis, len(x.shape))
    limit = x.shape[counted] if x.shape else 1
    if isinstance(k, int) and (k < 0 or (isinstance(limit, int) and k > limit)):
        raise ArgumentValueError(f"topk cannot take {k} of the {limit} elements along axis {axis} of {x.type}")
    shape = (*x.shape[:counted], k, *x.shape[counted + 1 :]) if x.shape else ()
    results = (TensorType(x.dtype, shape), TensorType(DataType.Int, shape))
    return b.library("aten.topk.default", (x, k, counted, largest, sorted), *results)


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, axis, descending, stable: torch.argsort(x, dim=axis, descending=descending, stable=True),
    samples=lambda shape: [
        Sample((SampleOperand(shape), axis), {"descending": descending, "stable": stable})
        for axis in range(-1, max(len(shape), 1))
        for descending in (False, True)
        for stable in (False, True)
    ],
)
def argsort(b: Any, x: Tensor, axis: Axis, descending: Flag = False, stable: Flag = False) -> Any:
    """Indices that put the elements along an axis in order; equal ones keep their order, whether asked to or not."""
    keywords = {"stable": True, "dim": one_axis(axis, len(x.shape)), "descending": descending}
    return b.library("aten.argsort.stable", (x,), TensorType(DataType.Int, x.shape), keywords=keywords)
