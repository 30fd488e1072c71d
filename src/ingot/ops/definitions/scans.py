"""Scans: what reductions have so far, at every element along an axis."""

from __future__ import annotations

from typing import Any

from ingot.base.errors import ShapeError
from ingot.ops import inference
from ingot.ops.attributes import AxisAttributes
from ingot.ops.definitions.reductions import ALL, FINITE, MULTIPLIED, NUMERIC, ORDINARY, SUMMED
from ingot.ops.parameters import Axis, Operand, Plain, one_axis
from ingot.ops.promotion import Promotion
from ingot.ops.record import Kind, operator
from ingot.ops.samples import Domain, Sample, Samples, over_axis, several
from ingot.ops.samples import Operand as SampleOperand


def scan(reference: Any, promotion: Promotion, dtypes: Any, combined: Any, **more: Any):
    """A primitive scan; `combined` is the function of torch that adds what comes before the first element."""

    def eager(torch: Any, x: Any, axis: Any, init: Any) -> Any:
        scanned = reference(torch, x, axis)
        return scanned if init is None else combined(torch, scanned, init).to(scanned.dtype)

    return operator(
        Kind.SCAN,
        infer=inference.same,
        attributes=AxisAttributes,
        reference=reference,
        eager=eager,
        promotion=promotion,
        dtypes=dtypes,
        **{"samples": several(over_axis(), _with_init()), **more},
    )


def _with_init(domain: Domain = ORDINARY) -> Samples:
    return lambda shape: [Sample((SampleOperand(shape, domain), 0, 2)) for _ in shape[:1]]


@scan(
    lambda torch, x, axis: torch.cumsum(x, axis),
    Promotion.ACCUMULATE,
    NUMERIC,
    lambda torch, x, init: torch.add(x, init),
    tolerance=SUMMED,
)
def cumsum(b: Any, x: Operand, axis: Axis, init: Plain | None = None) -> Any:
    """Running sum along an axis, from init on; of integers in int64."""
    return _scan(b, "cumsum", x, axis, init, b.add)


@scan(
    lambda torch, x, axis: torch.cumprod(x, axis),
    Promotion.ACCUMULATE,
    NUMERIC,
    lambda torch, x, init: torch.mul(x, init),
    tolerance=MULTIPLIED,
    samples=several(over_axis(FINITE), _with_init(FINITE)),
)
def cumprod(b: Any, x: Operand, axis: Axis, init: Plain | None = None) -> Any:
    """Running product along an axis, from init on; of integers in int64."""
    return _scan(b, "cumprod", x, axis, init, b.mul)


@scan(
    lambda torch, x, axis: torch.cummax(x, axis).values,
    Promotion.ARITHMETIC,
    ALL,
    lambda torch, x, init: torch.maximum(x, torch.as_tensor(init).to(x)),
)
def cummax(b: Any, x: Operand, axis: Axis, init: Plain | None = None) -> Any:
    """Largest element so far along an axis, init among them; NaN from the first NaN on."""
    return _scan(b, "cummax", x, axis, init, b.maximum)


@scan(
    lambda torch, x, axis: torch.cummin(x, axis).values,
    Promotion.ARITHMETIC,
    ALL,
    lambda torch, x, init: torch.minimum(x, torch.as_tensor(init).to(x)),
)
def cummin(b: Any, x: Operand, axis: Axis, init: Plain | None = None) -> Any:
    """Smallest element so far along an axis, init among them; NaN from the first NaN on."""
    return _scan(b, "cummin", x, axis, init, b.minimum)


def _scan(b: Any, name: str, x: Any, axis: int, init: Any, combine: Any) -> Any:
    rank = len(b.tensor_type(x).shape)
    counted = one_axis(axis, rank)
    scanned = b.node(name, x, attributes=AxisAttributes(counted)) if rank else x
    if init is None:
        return scanned
    if init.shape:
        raise ShapeError(f"{name} starts with one number, not with {init.type}")
    return b.cast(combine(scanned, b.cast(init, scanned.dtype)), scanned.dtype)
