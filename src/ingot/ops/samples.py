"""What the generated tests need to know of an operator: sample calls, input domains, tolerances.

They live in the operator's record, so that an operator cannot be added without being tested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ingot.base.dtypes import DataType


@dataclass(frozen=True, slots=True)
class Domain:
    """Where random operands are drawn from."""

    low: float = -6.0
    high: float = 6.0
    lowest_integer: int | None = None
    highest_integer: int | None = None
    """Integers range over their whole type where no bound is given."""
    specials: bool = True
    """Whether NaN, infinities, signed zeros and extreme integers may occur."""


ANYWHERE = Domain()


@dataclass(frozen=True, slots=True)
class Operand:
    """Stands for a tensor in a sample call: the test makes one of this shape."""

    shape: tuple[int, ...]
    domain: Domain = ANYWHERE
    dtype: DataType | None = None
    """None: the dtype under test."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One call of an operator."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)


Samples = Callable[[tuple[int, ...]], list[Sample]]
"""Sample calls for a tensor of the given shape; an empty list where the operator takes no such shape."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may lie from PyTorch's: ulps * epsilon * max(|expected|, scale)."""

    ulps: float = 0.0
    scale: float = 0.0
    half_ulps: float = 1.0
    """Steps of a half type that come on top for results of that type: PyTorch may round between the steps of an
    operator, where ingot computes in float32 and rounds once. Nothing comes on top where results are exact."""


EXACT = Tolerance()


def operands(*domains: Domain) -> Samples:
    """Calls with one tensor per domain, all of the same shape."""
    return lambda shape: [Sample(tuple(Operand(shape, domain) for domain in domains))]


def over_axes(domain: Domain = ANYWHERE, **keywords: Any) -> Samples:
    """Calls of a reduction: over everything, each axis, and two axes, with and without keepdim."""

    def samples(shape: tuple[int, ...]) -> list[Sample]:
        choices: list[Any] = [None, *range(-len(shape), len(shape))]
        if len(shape) > 1:
            choices += [[0, -1], list(range(len(shape)))]
        return [
            Sample((Operand(shape, domain), axes), {"keepdim": keepdim, **keywords})
            for axes in choices
            for keepdim in (False, True)
        ]

    return samples


def over_axis(domain: Domain = ANYWHERE) -> Samples:
    """Calls of an operator that takes one tensor and one axis."""
    return lambda shape: [Sample((Operand(shape, domain), axis)) for axis in range(-len(shape), len(shape))]


def several(*choices: Samples) -> Samples:
    """All calls of several kinds."""
    return lambda shape: [sample for samples in choices for sample in samples(shape)]


def with_keywords(*choices: dict[str, Any], domain: Domain = ANYWHERE) -> Samples:
    """Calls with one tensor and each of the given sets of keywords."""
    return lambda shape: [Sample((Operand(shape, domain),), dict(choice)) for choice in choices]
