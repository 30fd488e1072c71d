"""Tensors for random graphs: full of special values, in every memory layout, and compared bit by bit."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy
import torch

from ingot.base.dtypes import DataType, part_type
from ingot.base.numbers import Number
from ingot.ir.torch_types import to_torch
from ingot.ops.samples import ANYWHERE, Domain

LAYOUTS = ("contiguous", "transposed", "strided", "offset")

_SMALL_FLOATS = [0.0, -0.0, 0.5, 1.0, -1.0, 1.5, 2.0, -2.5, 3.0, 4.0]


def draw_tensor(random: Random, shape: Sequence[int], dtype: DataType, domain: Domain = ANYWHERE) -> torch.Tensor:
    """A tensor from a domain; where the domain allows it, special values are among its elements."""
    if dtype.is_complex:
        return torch.complex(*(draw_tensor(random, shape, part_type(dtype), domain) for _ in range(2)))
    source = numpy.random.default_rng(random.getrandbits(32))
    if dtype is DataType.Bool:
        return torch.from_numpy(source.integers(0, 2, shape).astype(bool))
    if dtype.is_integer:
        return torch.from_numpy(_integers(source, shape, dtype, domain))
    values = source.uniform(domain.low, domain.high, shape)
    values = numpy.where(source.random(shape) < 0.2, numpy.clip(numpy.round(values), domain.low, domain.high), values)
    if domain.specials:
        chosen = source.choice(special_floats(to_torch(dtype)), shape)
        values = numpy.where(source.random(shape) < 0.35, chosen, values)
    return torch.from_numpy(numpy.asarray(values)).to(to_torch(dtype))


def draw_number(random: Random, dtype: DataType) -> Number:
    """A number to call a graph with, for a scalar input of this type."""
    if dtype is DataType.Bool:
        return random.random() < 0.5
    value = draw_tensor(random, (1,), dtype).item()
    return random.choice(_SMALL_FLOATS) if dtype.is_float and random.random() < 0.5 else value


def special_floats(dtype: torch.dtype) -> list[float]:
    limits = torch.finfo(dtype)
    denormal = limits.smallest_normal / 4
    extremes = [limits.max, -limits.max, limits.smallest_normal, denormal, -denormal, limits.eps, 1 + limits.eps]
    return [
        float("nan"),
        float("inf"),
        -float("inf"),
        0.0,
        -0.0,
        *([float("nan"), 0.0, -0.0] * 2),
        1.0,
        -1.0,
        *extremes,
    ]


def special_values(dtype: DataType) -> list[Any]:
    """The values of a type that rules get wrong, and a few ordinary ones."""
    if dtype is DataType.Bool:
        return [False, True]
    if dtype.is_complex:
        parts = special_values(part_type(dtype))
        return [complex(x, y) for x, y in zip(parts, [*parts[5:], *parts[:5]], strict=True)]
    if dtype.is_float:
        distinct = {repr(value): value for value in special_floats(to_torch(dtype))}
        return [*distinct.values(), 0.1, -2.5, 3.0, 7.3, 0.5, -0.7]
    limits = torch.iinfo(to_torch(dtype))
    small = [value for value in (-7, -3, -2, -1, 0, 1, 2, 3, 6, 100) if value >= limits.min]
    return [*small, limits.min, limits.min + 1, limits.max, limits.max - 1]


def every_pair(dtype: DataType) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors that hold every special value against every other, and ordinary values of all magnitudes."""
    values = special_values(dtype)
    pairs = zip(*itertools.product(values, values), strict=True)
    columns = [[torch.tensor(column, dtype=to_torch(dtype))] for column in pairs]
    for seed, reach in itertools.product(range(2), (6.0, 1e5)):
        columns[seed].append(draw_tensor(Random(seed), (200,), dtype, Domain(low=-reach, high=reach)))
    return torch.cat(columns[0]), torch.cat(columns[1])


def _integers(source: numpy.random.Generator, shape: Sequence[int], dtype: DataType, domain: Domain) -> numpy.ndarray:
    lowest = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    highest = lowest + (1 << dtype.bits) - 1
    low = lowest if domain.lowest_integer is None else max(lowest, domain.lowest_integer)
    high = highest if domain.highest_integer is None else min(highest, domain.highest_integer)
    kind = numpy.dtype(f"{'int' if dtype.is_signed else 'uint'}{dtype.bits}")
    anywhere = source.integers(low, high, shape, dtype=kind, endpoint=True)
    near_zero = source.integers(max(low, -4), min(high, 4), shape, dtype=kind, endpoint=True)
    edges = numpy.array([low, high, min(low + 1, high), high // 2 + low // 2], dtype=kind)
    weight = source.random(shape)
    return numpy.where(weight < 0.5, near_zero, numpy.where(weight < 0.8, anywhere, source.choice(edges, shape)))


# --- memory -----------------------------------------------------------------------------------------------------------


def laid_out(value: Any, layout: str) -> Any:
    """The same values in memory arranged otherwise; numbers stay as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    if layout == "contiguous":
        return value.clone(memory_format=torch.contiguous_format)
    if layout == "transposed":
        backwards = tuple(reversed(range(value.dim())))
        return value.permute(backwards).clone(memory_format=torch.contiguous_format).permute(backwards)
    if layout == "strided":
        return torch.empty((*value.shape, 3), dtype=value.dtype)[..., 1].copy_(value)
    assert layout == "offset"
    return torch.empty(value.numel() + 3, dtype=value.dtype)[3:].view(value.shape).copy_(value)


def copied(values: Sequence[Any]) -> list[Any]:
    """The same arguments in memory of their own, strides and offsets kept: running a graph may overwrite them."""
    return [_with_storage(value, value.untyped_storage().clone()) if _is_tensor(value) else value for value in values]


def on_device(values: Sequence[Any], device: torch.device) -> list[Any]:
    """The same arguments on a device, strides and offsets kept; those that share memory share it there."""
    moved: dict[int, torch.UntypedStorage] = {}
    found: list[Any] = []
    for value in values:
        if _is_tensor(value):
            storage = value.untyped_storage()
            if storage._cdata not in moved:
                moved[storage._cdata] = storage.to(device=device)
            value = _with_storage(value, moved[storage._cdata])
        found.append(value)
    return found


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _with_storage(value: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    empty = torch.empty(0, dtype=value.dtype, device=storage.device)
    return empty.set_(storage, value.storage_offset(), value.shape, value.stride())  # type: ignore[arg-type]


# --- comparing --------------------------------------------------------------------------------------------------------

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(left: Any, right: Any) -> bool:
    """Whether two results are of one type and shape and have the same bits; every NaN counts as the same."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        if left.dtype is not right.dtype or left.shape != right.shape:
            return False
        if left.is_complex():
            return same_bits(*(torch.view_as_real(value.resolve_conj()) for value in (left, right)))
        if not left.dtype.is_floating_point:
            return torch.equal(left, right)
        is_nan = left.isnan()
        bits = _BITS[left.element_size()]
        alike = left.contiguous().view(bits) == right.contiguous().view(bits)
        return torch.equal(is_nan, right.isnan()) and bool((alike | is_nan).all())
    if type(left) is not type(right):
        return False
    if isinstance(left, complex):
        return same_bits(left.real, right.real) and same_bits(left.imag, right.imag)
    if isinstance(left, float):
        return (left != left and right != right) or struct.pack("d", left) == struct.pack("d", right)
    return left == right
