"""Calls that take elements together: sums, extrema, moments, norms, running sums."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import BOOLEAN, DataType
from ingot.frontend.aten.table import as_operator, lowers, unsupported
from ingot.ir.builder import Builder
from ingot.ops.parameters import data_type, one_axis

for operator, names in {
    "amax": "amax.default max.default",
    "amin": "amin.default min.default",
    "argmax": "argmax.default",
    "argmin": "argmin.default",
    "count_nonzero": "count_nonzero.default count_nonzero.dim_IntList",
    "logsumexp": "logsumexp.default",
    "mean": "mean.default mean.dim",
    "nansum": "nansum.default",
    "prod": "prod.default prod.dim_int",
    "sum": "sum.default sum.dim_IntList",
}.items():
    as_operator(operator, *names.split())


# --- extrema ----------------------------------------------------------------------------------------------------------


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


# --- moments ----------------------------------------------------------------------------------------------------------


for operator in ("var", "var_mean", "std", "std_mean"):

    def _moments(
        b: Builder, x: Any, dim: Any, correction: float | None, keepdim: bool, operator: str = operator
    ) -> Any:
        return b.call(operator, (x, dim, 1 if correction is None else correction, keepdim))

    lowers(f"{operator}.correction")(_moments)


# --- norms ------------------------------------------------------------------------------------------------------------


@lowers("linalg_vector_norm.default")
def _vector_norm(b: Builder, x: Any, order: float, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return b.vector_norm(x, dim, keepdim, order, dtype)


@lowers("norm.ScalarOpt_dim")
def _norm_over(b: Builder, x: Any, order: float | None, dim: Any, keepdim: bool) -> Any:
    return b.vector_norm(x, dim, keepdim, 2 if order is None else order)


@lowers("norm.Scalar")
def _norm_of_all(b: Builder, x: Any, order: float) -> Any:
    return b.vector_norm(x, None, False, order)


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
