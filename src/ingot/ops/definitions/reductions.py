"""Reductions and scans. Primitives drop the reduced axes; `keepdim` puts them back as size 1."""

from __future__ import annotations

import math
from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import BOOLEAN, FLOATS, INTEGERS, DataType
from ingot.base.errors import ShapeError
from ingot.ops import inference
from ingot.ops.attributes import AxesAttributes
from ingot.ops.parameters import Axes, Axis, Flag, Operand, Plain, Real, Type, one_axis, several_axes
from ingot.ops.promotion import Dialect, Promotion
from ingot.ops.record import Combination, Kind, lookup, operator
from ingot.ops.samples import Domain, Tolerance, over_axes, several, with_keywords

NUMERIC = FLOATS | INTEGERS
ALL = NUMERIC | BOOLEAN
FINITE = Domain(low=-2.0, high=2.0, lowest_integer=-3, highest_integer=3, specials=False)
ORDINARY = Domain(specials=False)
_REQUESTED = (
    {"dtype": DataType.Float},
    {"dtype": DataType.Half, "axes": [0], "keepdim": True},
    {"dtype": DataType.Int},
)
SUMMED = Tolerance(ulps=64, scale=16.0, half_ulps=2)
# PyTorch rounds every partial product of half types.
MULTIPLIED = Tolerance(ulps=64, scale=1.0, half_ulps=16)


def _widest(dtype: DataType) -> DataType:
    """Sums and products of float32 are accumulated in float64: rounding stays small however many elements there are."""
    return DataType.Double if dtype.is_float else dtype


def _lowest(dtype: DataType) -> float | int:
    """What no element is below."""
    if dtype.is_float:
        return -math.inf
    return -(1 << dtype.bits - 1) if dtype.is_signed else 0


def _highest(dtype: DataType) -> float | int:
    """What no element is above."""
    if dtype.is_float:
        return math.inf
    return 1 if dtype is DataType.Bool else (1 << dtype.bits - dtype.is_signed) - 1


_SUM = Combination(lambda dtype: 0, lambda e, so_far, x: e.add(so_far, x), _widest)
_PRODUCT = Combination(lambda dtype: 1, lambda e, so_far, x: e.mul(so_far, x), _widest)


def _as_the_operator(name: str):
    """Combine as a pointwise operator does."""

    def combine(e: Any, so_far: Any, x: Any) -> Any:
        emit = lookup(name).emit
        assert emit is not None
        return emit(e, so_far, x)

    return combine


_LARGEST = Combination(_lowest, _as_the_operator("maximum"), lambda dtype: dtype)
_SMALLEST = Combination(_highest, _as_the_operator("minimum"), lambda dtype: dtype)


def reduction(reference: str, eager: Any, promotion: Promotion, dtypes: Any, infer: Any = None, **more: Any):
    """A primitive reduction; the interpreter calls the reference on a matrix, along its rows."""
    return operator(
        Kind.REDUCTION,
        infer=infer or inference.reduction(),
        attributes=AxesAttributes,
        reference=lambda torch, matrix, axes: getattr(torch, reference)(matrix, 1),
        eager=eager,
        promotion=promotion,
        dtypes=dtypes,
        **{"samples": over_axes(), **more},
    )


@reduction(
    "sum",
    lambda torch, x, axes, keepdim, dtype: torch.sum(x, axes, keepdim=keepdim, dtype=dtype),
    Promotion.ACCUMULATE,
    NUMERIC,
    samples=several(over_axes(), with_keywords(*_REQUESTED)),
    tolerance=SUMMED,
    combination=_SUM,
)
def sum_(b: Any, x: Operand, axes: Axes | None = None, keepdim: Flag = False, dtype: Type | None = None) -> Any:
    """Sum over axes; of integers in int64."""
    return _reduce(b, "sum", x, axes, keepdim)


@reduction(
    "prod",
    lambda torch, x, axes, keepdim, dtype: _one_by_one(
        x, axes, keepdim, lambda value, axis: torch.prod(value, axis, keepdim=True, dtype=dtype)
    ),
    Promotion.ACCUMULATE,
    NUMERIC,
    tolerance=MULTIPLIED,
    samples=several(over_axes(FINITE), with_keywords(*_REQUESTED, domain=FINITE)),
    combination=_PRODUCT,
)
def prod(b: Any, x: Operand, axes: Axes | None = None, keepdim: Flag = False, dtype: Type | None = None) -> Any:
    """Product over axes; of integers in int64."""
    return _reduce(b, "prod", x, axes, keepdim)


@reduction(
    "amax",
    lambda torch, x, axes, keepdim: torch.amax(x, _all_axes(x, axes), keepdim=keepdim),
    Promotion.ARITHMETIC,
    ALL,
    combination=_LARGEST,
)
def amax(b: Any, x: Operand, axes: Axes | None = None, keepdim: Flag = False) -> Any:
    """Largest element along axes; NaN if there is one."""
    return _reduce(b, "amax", x, axes, keepdim, needs_elements=True)


@reduction(
    "amin",
    lambda torch, x, axes, keepdim: torch.amin(x, _all_axes(x, axes), keepdim=keepdim),
    Promotion.ARITHMETIC,
    ALL,
    combination=_SMALLEST,
)
def amin(b: Any, x: Operand, axes: Axes | None = None, keepdim: Flag = False) -> Any:
    """Smallest element along axes; NaN if there is one."""
    return _reduce(b, "amin", x, axes, keepdim, needs_elements=True)


def _arg_reduction(name: str):
    def decorate(build: Any) -> Any:
        return reduction(
            name,
            lambda torch, x, axes, keepdim: getattr(torch, name)(x, axes, keepdim=keepdim),
            Promotion.ARITHMETIC,
            NUMERIC,
            infer=inference.reduction(DataType.Int),
            samples=lambda shape: [
                sample for sample in over_axes()(shape) if not isinstance(sample.arguments[1], list)
            ],
        )(build)

    return decorate


@_arg_reduction("argmax")
def argmax(b: Any, x: Operand, axes: Axis | None = None, keepdim: Flag = False) -> Any:
    """Index of the first largest element along one axis, or in row-major order over all of them; NaN is largest."""
    return _first_place(b, "argmax", b.amax, x, axes, keepdim)


@_arg_reduction("argmin")
def argmin(b: Any, x: Operand, axes: Axis | None = None, keepdim: Flag = False) -> Any:
    """Index of the first smallest element along one axis, or in row-major order over all of them; NaN is smallest."""
    return _first_place(b, "argmin", b.amin, x, axes, keepdim)


def _first_place(b: Any, name: str, extremum: Any, x: Any, axes: Any, keepdim: bool) -> Any:
    """Along one axis the smallest index of what equals the extremum or, where that is NaN, of what is NaN: two passes
    over a row, which fuse with what they read and with the extremum itself. The primitive counts in row-major order."""
    shape = b.tensor_type(x).shape
    if axes is None or not shape:
        return _reduce(b, name, x, axes, keepdim, needs_elements=True)
    axis = one_axis(axes, len(shape))
    size = shape[axis]
    best = extremum(x, axis, True)
    is_best = b.eq(x, best)
    if x.dtype.is_float:
        is_best = b.logical_or(is_best, b.ne(x, x))
    # As wide as the elements, so that as many go at once.
    is_narrow = x.dtype.bytes <= DataType.Int32.bytes and isinstance(size, int) and size <= _highest(DataType.Int32)
    counts = DataType.Int32 if is_narrow else DataType.Int
    places = b.broadcast_in_dim(b.iota(size, dtype=counts), shape, [axis])
    first = b.amin(b.where(is_best, places, b.constant(_highest(counts), counts)), axis, keepdim)
    return b.cast(first, DataType.Int)


# --- composites -------------------------------------------------------------------------------------------------------


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, axes, keepdim, dtype: _cast(torch.amax(x, _all_axes(x, axes), keepdim=keepdim), dtype),
    samples=several(over_axes(), with_keywords({"dtype": DataType.Double})),
)
def max_(b: Any, x: Plain, axes: Axes | None = None, keepdim: Flag = False, dtype: Type | None = None) -> Any:
    """Largest element along axes, nvFuser's name for `amax`."""
    return b.cast(b.amax(x, axes, keepdim), dtype)


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, axes, keepdim, dtype: _cast(torch.amin(x, _all_axes(x, axes), keepdim=keepdim), dtype),
    samples=several(over_axes(), with_keywords({"dtype": DataType.Double})),
)
def min_(b: Any, x: Plain, axes: Axes | None = None, keepdim: Flag = False, dtype: Type | None = None) -> Any:
    """Smallest element along axes, nvFuser's name for `amin`."""
    return b.cast(b.amin(x, axes, keepdim), dtype)


@operator(
    Kind.COMPOSITE,
    promotion=Promotion.ARITHMETIC,
    dtypes=FLOATS,
    eager=lambda torch, x, axes, keepdim, dtype: torch.mean(x, axes, keepdim=keepdim, dtype=dtype),
    samples=several(over_axes(), with_keywords(*_REQUESTED, domain=FINITE)),
    tolerance=SUMMED,
)
def mean(b: Any, x: Operand, axes: Axes | None = None, keepdim: Flag = False, dtype: Type | None = None) -> Any:
    """Arithmetic mean over axes."""
    return b.sum(x, axes, keepdim) / b.element_count(x, axes)


@operator(
    Kind.COMPOSITE,
    promotion=Promotion.ARITHMETIC,
    dtypes=FLOATS,
    eager=lambda torch, x, axes, correction, keepdim: torch.var(x, axes, correction=correction, keepdim=keepdim),
    samples=several(over_axes(), with_keywords({"correction": 0}, {"correction": 2.5}, {"axes": []})),
    tolerance=SUMMED,
)
def var(b: Any, x: Operand, axes: Axes | None = None, correction: Real = 1, keepdim: Flag = False) -> Any:
    """Variance over axes: squared distances from the mean over (count - correction)."""
    return b.var_mean(x, axes, correction, keepdim)[0]


@operator(
    Kind.COMPOSITE,
    promotion=Promotion.ARITHMETIC,
    dtypes=FLOATS,
    eager=lambda torch, x, axes, correction, keepdim: torch.var_mean(x, axes, correction=correction, keepdim=keepdim),
    # PyTorch's mean of infinities is infinite or NaN here, depending on the order in which it meets them.
    samples=several(over_axes(ORDINARY), with_keywords({"correction": 0}, {"correction": 100}, domain=ORDINARY)),
    tolerance=SUMMED,
)
def var_mean(b: Any, x: Operand, axes: Axes | None = None, correction: Real = 1, keepdim: Flag = False) -> Any:
    """Variance and mean over axes, in this order."""
    count = b.element_count(x, axes)
    mean = b.sum(x, axes, True) / count
    centered = x - mean
    # PyTorch lets a correction beyond the count divide by zero, not by a negative number.
    divisor = b.maximum(b.cast(count, x.dtype) - correction, 0)
    variance = b.sum(centered * centered, axes, keepdim) / divisor
    return variance, mean if keepdim else b.squeeze(mean, several_axes(axes, len(x.shape)))


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, axes, keepdim: torch.any(x, axes, keepdim=keepdim),
    samples=over_axes(),
)
def any_(b: Any, x: Plain, axes: Axes | None = None, keepdim: Flag = False) -> Any:
    """Whether any element along axes is not zero."""
    return _truth_like(b, x, b.ne(b.sum(b.cast(b.ne(x, 0), DataType.Int), axes, keepdim), 0))


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, x, axes, keepdim: torch.all(x, axes, keepdim=keepdim),
    samples=over_axes(),
)
def all_(b: Any, x: Plain, axes: Axes | None = None, keepdim: Flag = False) -> Any:
    """Whether no element along axes is zero."""
    return _truth_like(b, x, b.eq(b.sum(b.cast(b.eq(x, 0), DataType.Int), axes, keepdim), 0))


# --- shared -----------------------------------------------------------------------------------------------------------


def _reduce(b: Any, name: str, x: Any, axes: Any, keepdim: bool, needs_elements: bool = False) -> Any:
    rank = len(b.tensor_type(x).shape)
    chosen = tuple(sorted(several_axes(axes, rank)))
    if axes is not None and not isinstance(axes, int) and not len(axes):
        chosen = tuple(range(rank))  # PyTorch takes an empty list of axes for all of them
    if needs_elements and any(x.shape[axis] == 0 for axis in chosen):
        raise ShapeError(f"{name} needs at least one element along the axes {list(chosen)} of {x.type}")
    result = b.node(name, x, attributes=AxesAttributes(chosen))
    if not keepdim or not rank:
        return result
    shape = tuple(1 if axis in chosen else size for axis, size in enumerate(x.shape))
    return b.broadcast_in_dim(result, shape, [axis for axis in range(rank) if axis not in chosen])


def element_count(shape: sizes.Shape, axes: Any) -> sizes.Size:
    """How many elements a reduction over these axes takes together."""
    chosen = several_axes(axes, len(shape)) or tuple(range(len(shape)))
    return sizes.product(tuple(shape[axis] for axis in chosen))


def _all_axes(x: Any, axes: Any) -> Any:
    return tuple(range(x.dim())) if axes is None else axes


def _one_by_one(x: Any, axes: Any, keepdim: bool, reduce: Any) -> Any:
    """Reduce over several axes with a function of PyTorch that takes one at a time."""
    axes = sorted({axis % max(x.dim(), 1) for axis in ([axes] if isinstance(axes, int) else _all_axes(x, axes))})
    if x.dim() == 0:
        return reduce(x, 0)
    for axis in axes:
        x = reduce(x, axis)
    return x if keepdim else x.squeeze(axes)


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else x.to(dtype)


def _truth_like(b: Any, x: Any, truth: Any) -> Any:
    """PyTorch answers uint8 for uint8 here, for reasons of its history."""
    as_bytes = x.dtype is DataType.UInt8 and b.dialect is Dialect.TORCH
    return b.cast(truth, DataType.UInt8) if as_bytes else truth
