"""Reductions that are composed of others: counts, deviations, logarithms of sums, norms."""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import COMPUTED, FLOATS, DataType
from ingot.base.errors import ArgumentValueError, DTypeError
from ingot.ops.definitions.reductions import ORDINARY, SUMMED
from ingot.ops.parameters import Axes, Flag, Operand, Plain, Real, Type, data_type, several_axes
from ingot.ops.promotion import Promotion
from ingot.ops.record import Kind, operator
from ingot.ops.samples import ANYWHERE, Sample, Samples, over_axes, several, with_keywords
from ingot.ops.samples import Operand as SampleOperand


def statistic(
    eager: Any, samples: Samples, promotion: Promotion | None = None, dtypes: Any = COMPUTED, tolerance: Any = SUMMED
):
    return operator(
        Kind.COMPOSITE, promotion=promotion, dtypes=dtypes, eager=eager, samples=samples, tolerance=tolerance
    )


@statistic(
    lambda torch, x, axes: torch.count_nonzero(x, axes),
    with_keywords({}, {"axes": 0}, {"axes": [-1]}),
)
def count_nonzero(b: Any, x: Plain, axes: Axes | None = None) -> Any:
    """How many elements along axes are not zero."""
    return b.sum(b.ne(x, 0), axes)


@statistic(
    lambda torch, x, axes, keepdim, dtype: torch.nansum(x, axes, keepdim=keepdim, dtype=dtype),
    over_axes(),
)
def nansum(b: Any, x: Plain, axes: Axes | None = None, keepdim: Flag = False, dtype: Type | None = None) -> Any:
    """Sum over axes of what is a number; of integers in int64."""
    if x.dtype.is_float:
        x = b.where(b.isnan(x), b.constant(0.0, x.dtype), x)
    return b.sum(x, axes, keepdim, dtype)


@statistic(
    lambda torch, x, axes, correction, keepdim: torch.std(x, axes, correction=correction, keepdim=keepdim),
    several(over_axes(ORDINARY), with_keywords({"correction": 0}, {"correction": 2.5}, domain=ORDINARY)),
    Promotion.ARITHMETIC,
    FLOATS,
)
def std(b: Any, x: Operand, axes: Axes | None = None, correction: Real = 1, keepdim: Flag = False) -> Any:
    """Standard deviation over axes: the root of the variance."""
    return b.sqrt(b.var(x, axes, correction, keepdim))


@statistic(
    lambda torch, x, axes, correction, keepdim: torch.std_mean(x, axes, correction=correction, keepdim=keepdim),
    several(over_axes(ORDINARY), with_keywords({"correction": 0}, domain=ORDINARY)),
    Promotion.ARITHMETIC,
    FLOATS,
)
def std_mean(b: Any, x: Operand, axes: Axes | None = None, correction: Real = 1, keepdim: Flag = False) -> Any:
    """Standard deviation and mean over axes, in this order."""
    variance, mean = b.var_mean(x, axes, correction, keepdim)
    return b.sqrt(variance), mean


@statistic(
    lambda torch, x, axes: _eager_welford(torch, x, axes),
    lambda shape: [
        Sample((SampleOperand(shape, ORDINARY), axes)) for axes in ([0], [-1], [0, -1][: len(shape)]) if shape
    ],
    Promotion.ARITHMETIC,
    FLOATS,
)
def welford(b: Any, x: Operand, axes: Axes) -> Any:
    """Mean, sum of squared distances from it, and number of elements over axes."""
    mean = b.mean(x, axes, True)
    centered = x - mean
    squares = b.sum(centered * centered, axes)
    count = b.full(squares.shape, b.element_count(x, axes), DataType.Int)
    return b.squeeze(mean, several_axes(axes, len(x.shape))), squares, count


def _eager_welford(torch: Any, x: Any, axes: Any) -> Any:
    mean = torch.mean(x, axes, keepdim=True)
    squares = ((x - mean) ** 2).sum(axes)
    count = math.prod(x.shape[axis] for axis in axes)
    return mean.squeeze(axes), squares, torch.full(squares.shape, count, dtype=torch.int64, device=x.device)


@statistic(
    lambda torch, x, axes, keepdim: torch.logsumexp(x, tuple(range(x.dim())) if axes is None else axes, keepdim),
    over_axes(),
)
def logsumexp(b: Any, x: Plain, axes: Axes | None = None, keepdim: Flag = False) -> Any:
    """Logarithm of the sum of exponentials along axes, where none overflows; half types are rounded at each step."""
    x = x if x.dtype.is_float else b.cast(x, b.default_float)
    axes = several_axes(axes, len(x.shape)) or tuple(range(len(x.shape)))
    if any(x.shape[axis] == 0 for axis in axes):
        return b.log(b.sum(x, axes, keepdim))  # of nothing
    largest = b.amax(x, axes, True)
    largest = b.where(b.isinf(largest), b.constant(0.0, x.dtype), largest)
    logarithm = b.log(b.sum(b.exp(b.sub(x, largest)), axes, keepdim))
    return b.add(logarithm, largest if keepdim else b.squeeze(largest, axes))


def _orders(*orders: float) -> Samples:
    every = [over_axes(ANYWHERE, order=order) for order in orders]
    return several(*every)


@statistic(
    lambda torch, x, axes, keepdim, order, dtype: torch.linalg.vector_norm(x, order, axes, keepdim, dtype=dtype),
    _orders(2, 1, 0, math.inf, -math.inf),
)
def vector_norm(
    b: Any,
    x: Plain,
    axes: Axes | None = None,
    keepdim: Flag = False,
    order: Real = 2,
    dtype: Type | None = None,
) -> Any:
    """Norm of the elements along axes, of the order 0, 1, 2 or infinity of either sign."""
    result = data_type(dtype) or x.dtype
    if not x.dtype.is_float or not result.is_float or result.bits < x.dtype.bits:
        raise DTypeError(f"vector_norm of {x.dtype.text} is not computed in {result.text}")
    return b.cast(_norm(b, b.cast(x, result.widened), float(order), axes, keepdim), result)


def _norm(b: Any, x: Any, order: float, axes: Any, keepdim: bool) -> Any:
    reduced = several_axes(axes, len(x.shape)) or range(len(x.shape))
    if order == 2 and all(x.shape[axis] == 1 for axis in reduced):
        order = 1  # PyTorch takes single numbers as they are, whose squares could be too large or too small
    if order == 2:
        return b.sqrt(b.sum(x * x, axes, keepdim))
    if order == 1:
        return b.sum(b.abs(x), axes, keepdim)
    if order == 0:
        return b.sum(b.cast(b.ne(x, 0), x.dtype), axes, keepdim)
    if order == math.inf:
        return b.amax(b.abs(x), axes, keepdim)
    if order == -math.inf:
        return b.amin(b.abs(x), axes, keepdim)
    raise ArgumentValueError(f"vector_norm has the orders 0, 1, 2 and infinity of either sign, not {order}")
