"""Calls that take elements together: sums, extrema, moments, norms, running sums."""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import BOOLEAN, DataType
from ingot.frontend.aten.table import lowers, narrowed, require_float, result_type, unsupported
from ingot.ir.builder import Builder
from ingot.ops.parameters import data_type, one_axis, several_axes
from ingot.ops.promotion import Promotion


@lowers("sum.default")
def _sum(b: Builder, x: Any, dtype: Any) -> Any:
    return b.sum(x, None, False, dtype)


@lowers("sum.dim_IntList")
def _sum_over(b: Builder, x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return b.sum(x, dim, keepdim, dtype)


@lowers("nansum.default")
def _nansum(b: Builder, x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if x.dtype.is_float:
        x = b.where(b.isnan(x), b.constant(0.0, x.dtype), x)
    return b.sum(x, dim, keepdim, dtype)


@lowers("mean.default")
def _mean(b: Builder, x: Any, dtype: Any) -> Any:
    return b.mean(x, None, False, dtype)


@lowers("mean.dim")
def _mean_over(b: Builder, x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return b.mean(x, dim, keepdim, dtype)


@lowers("prod.default")
def _prod(b: Builder, x: Any, dtype: Any) -> Any:
    return b.prod(x, None, False, dtype)


@lowers("prod.dim_int")
def _prod_over(b: Builder, x: Any, dim: int, keepdim: bool, dtype: Any) -> Any:
    return b.prod(x, dim, keepdim, dtype)


# --- extrema ----------------------------------------------------------------------------------------------------------


@lowers("amax.default")
def _amax(b: Builder, x: Any, dim: Any, keepdim: bool) -> Any:
    return b.amax(x, dim, keepdim)


@lowers("amin.default")
def _amin(b: Builder, x: Any, dim: Any, keepdim: bool) -> Any:
    return b.amin(x, dim, keepdim)


@lowers("max.default")
def _max(b: Builder, x: Any) -> Any:
    return b.amax(x)


@lowers("min.default")
def _min(b: Builder, x: Any) -> Any:
    return b.amin(x)


@lowers("aminmax.default")
def _aminmax(b: Builder, x: Any, dim: int | None, keepdim: bool) -> Any:
    return b.amin(x, dim, keepdim), b.amax(x, dim, keepdim)


@lowers("max.dim")
def _max_over(b: Builder, x: Any, dim: int, keepdim: bool) -> Any:
    return b.amax(x, dim, keepdim), b.argmax(_counted(b, x), dim, keepdim)


@lowers("min.dim")
def _min_over(b: Builder, x: Any, dim: int, keepdim: bool) -> Any:
    return b.amin(x, dim, keepdim), b.argmin(_counted(b, x), dim, keepdim)


def _counted(b: Builder, x: Any) -> Any:
    """Bools as numbers: their order is the same."""
    return b.cast(x, DataType.UInt8) if x.dtype is DataType.Bool else x


@lowers("argmax.default")
def _argmax(b: Builder, x: Any, dim: int | None, keepdim: bool) -> Any:
    return b.argmax(x, dim, keepdim)


@lowers("argmin.default")
def _argmin(b: Builder, x: Any, dim: int | None, keepdim: bool) -> Any:
    return b.argmin(x, dim, keepdim)


# --- truth and counts -------------------------------------------------------------------------------------------------


@lowers("any.default", "any.dim", "any.dims")
def _any(b: Builder, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return b.any(x, _listed(dim), keepdim)


@lowers("all.default", "all.dim", "all.dims")
def _all(b: Builder, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return b.all(x, _listed(dim), keepdim)


def _listed(dim: Any) -> Any:
    """PyTorch takes an empty list here for no axes, elsewhere for all of them."""
    if isinstance(dim, list | tuple) and not dim:
        unsupported("a reduction over no axes is not lowered")
    return dim


@lowers("count_nonzero.default", "count_nonzero.dim_IntList")
def _count_nonzero(b: Builder, x: Any, dim: Any) -> Any:
    return b.sum(b.ne(x, 0), dim)


# --- moments ----------------------------------------------------------------------------------------------------------


@lowers("var.correction")
def _var(b: Builder, x: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    return _moments(b, x, dim, correction, keepdim)[0]


@lowers("var_mean.correction")
def _var_mean(b: Builder, x: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    return _moments(b, x, dim, correction, keepdim)


@lowers("std.correction")
def _std(b: Builder, x: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    return _moments(b, x, dim, correction, keepdim, root=True)[0]


@lowers("std_mean.correction")
def _std_mean(b: Builder, x: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    return _moments(b, x, dim, correction, keepdim, root=True)


def _moments(b: Builder, x: Any, dim: Any, correction: float | None, keepdim: bool, root: bool = False) -> Any:
    """Variance, or deviation, and mean; half types are rounded once."""
    require_float("a variance", x)
    wide = b.cast(x, x.dtype.widened)
    variance, mean = b.var_mean(wide, dim, 1 if correction is None else correction, keepdim)
    return narrowed(b, (b.sqrt(variance) if root else variance, mean), x.dtype)


@lowers("logsumexp.default")
def _logsumexp(b: Builder, x: Any, dim: Any, keepdim: bool) -> Any:
    """PyTorch rounds half types at each of these steps."""
    x = b.cast(x, result_type(b, x, promotion=Promotion.FLOAT))
    axes = several_axes(dim, len(x.shape)) or tuple(range(len(x.shape)))
    largest = b.amax(x, axes, True)
    largest = b.where(b.isinf(largest), b.constant(0.0, x.dtype), largest)
    logarithm = b.log(b.sum(b.exp(b.sub(x, largest)), axes, keepdim))
    return b.add(logarithm, largest if keepdim else b.squeeze(largest, axes))


# --- norms ------------------------------------------------------------------------------------------------------------


@lowers("linalg_vector_norm.default")
def _vector_norm(b: Builder, x: Any, order: float, dim: Any, keepdim: bool, dtype: Any) -> Any:
    require_float("a norm", x)
    result = data_type(dtype) or x.dtype
    if not result.is_float or result.bits < x.dtype.bits:
        unsupported("a norm in a narrower type is not lowered")
    wide = b.cast(x, result.widened)
    return b.cast(_norm(b, wide, float(order), dim, keepdim), result)


@lowers("norm.ScalarOpt_dim")
def _norm_over(b: Builder, x: Any, order: float | None, dim: Any, keepdim: bool) -> Any:
    return _vector_norm(b, x, 2 if order is None else order, dim, keepdim, None)


@lowers("norm.Scalar")
def _norm_of_all(b: Builder, x: Any, order: float) -> Any:
    return _vector_norm(b, x, order, None, False, None)


def _norm(b: Builder, x: Any, order: float, dim: Any, keepdim: bool) -> Any:
    axes = several_axes(dim, len(x.shape)) or range(len(x.shape))
    if order == 2 and all(x.shape[axis] == 1 for axis in axes):
        order = 1  # PyTorch takes single numbers as they are, whose squares could be too large or too small
    if order == 2:
        return b.sqrt(b.sum(x * x, dim, keepdim))
    if order == 1:
        return b.sum(b.abs(x), dim, keepdim)
    if order == 0:
        return b.sum(b.cast(b.ne(x, 0), x.dtype), dim, keepdim)
    if order == math.inf:
        return b.amax(b.abs(x), dim, keepdim)
    if order == -math.inf:
        return b.amin(b.abs(x), dim, keepdim)
    return unsupported(f"the norm of order {order} is not lowered")


# --- scans ------------------------------------------------------------------------------------------------------------


@lowers("cumsum.default")
def _cumsum(b: Builder, x: Any, dim: int, dtype: Any) -> Any:
    return _scan(b, "cumsum", x, dim, dtype)


@lowers("cumprod.default")
def _cumprod(b: Builder, x: Any, dim: int, dtype: Any) -> Any:
    return _scan(b, "cumprod", x, dim, dtype)


def _scan(b: Builder, operator: str, x: Any, dim: int, dtype: Any) -> Any:
    """In the type asked for, or in int64 for integers."""
    requested = data_type(dtype)
    if requested in BOOLEAN:
        unsupported("running sums of bools are not lowered")
    if requested is not None:
        x = b.cast(x, requested)
    one_axis(dim, len(x.shape))
    result = b.call(operator, (x, dim))
    return result if requested is None else b.cast(result, requested)
