"""Operators that draw random numbers: from torch's generator, or such that depend on a seed alone."""

from __future__ import annotations

import math
from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import FLOATS, HALVES, DataType, from_torch_name, in_order
from ingot.base.errors import ArgumentError, DTypeError
from ingot.ops import inference
from ingot.ops.attributes import RandomAttributes
from ingot.ops.parameters import Plain, Sizes, Tensor, Type, data_type
from ingot.ops.record import Kind, operator, structure
from ingot.ops.samples import EXACT, Sample, Tolerance
from ingot.ops.samples import Operand as SampleOperand

FLOATING = FLOATS | HALVES

structure(
    "random_uniform",
    Kind.RANDOM,
    "Draws from [0, 1), from torch's generator.",
    infer=inference.random,
    attributes=RandomAttributes,
    reference=lambda torch, shape, dtype, ordinal, device: torch.rand(shape, dtype=dtype, device=device),
)

structure(
    "random_normal",
    Kind.RANDOM,
    "Draws from the standard normal distribution, from torch's generator.",
    infer=inference.random,
    attributes=RandomAttributes,
    reference=lambda torch, shape, dtype, ordinal, device: torch.randn(shape, dtype=dtype, device=device),
)


def _drawn(eager: Any, samples: Any, tolerance: Tolerance = EXACT):
    return operator(Kind.COMPOSITE, eager=eager, samples=samples, tolerance=tolerance)


def _settings(first: float, second: float):
    """Sample calls: without a seed, and with one for every type."""
    return lambda shape: [
        *(Sample((first, second, list(shape)), {"dtype": dtype}) for dtype in (DataType.Float, DataType.Double)),
        *(Sample((first, second, list(shape), 7, 3, dtype)) for dtype in in_order(FLOATING)),
    ]


@_drawn(
    lambda torch, low, high, shape, seed, offset, dtype: (
        torch.rand(shape, dtype=dtype) * (high - low) + low
        if seed is None
        else (eager_uniform(torch, shape, dtype, seed, offset).to(_wide(torch, dtype)) * (high - low) + low).to(dtype)
    ),
    _settings(-1.0, 2.0),
    Tolerance(ulps=2, scale=1.0, half_ulps=2),
)
def uniform(
    b: Any,
    low: Plain,
    high: Plain,
    shape: Sizes,
    rng_seed: Plain | None = None,
    rng_offset: Plain | None = None,
    dtype: Type = DataType.Float,
) -> Any:
    """Random numbers from low up to high. They come from torch's generator, whose seed gives the numbers it always
    gives; with rng_seed and rng_offset they depend on these alone."""
    drawn = _draw(b, "random_uniform", shape, dtype, rng_seed, rng_offset, uniform_bits)
    return b.cast(b.add(b.mul(drawn, b.sub(high, low)), low), drawn.dtype)


@_drawn(
    lambda torch, mean, std, shape, seed, offset, dtype: (
        torch.randn(shape, dtype=dtype) * std + mean
        if seed is None
        else (eager_normal(torch, shape, dtype, seed, offset).to(_wide(torch, dtype)) * std + mean).to(dtype)
    ),
    _settings(-1.0, 2.0),
    Tolerance(ulps=16, scale=1.0, half_ulps=2),
)
def normal(
    b: Any,
    mean: Plain,
    std: Plain,
    shape: Sizes,
    rng_seed: Plain | None = None,
    rng_offset: Plain | None = None,
    dtype: Type = DataType.Float,
) -> Any:
    """Random numbers of a normal distribution, from torch's generator; with rng_seed and rng_offset they depend on
    these alone."""
    drawn = _draw(b, "random_normal", shape, dtype, rng_seed, rng_offset, _normal_bits)
    return b.cast(b.add(b.mul(drawn, std), mean), drawn.dtype)


@_drawn(
    lambda torch, x: torch.rand(x.shape, dtype=x.dtype, device=x.device),
    lambda shape: [Sample((SampleOperand(shape, dtype=dtype),)) for dtype in in_order(FLOATING)],
)
def rand_like(b: Any, x: Tensor) -> Any:
    """Random numbers from 0 up to 1, in the shape and type of x."""
    return _draw(b, "random_uniform", x.shape, x.dtype)


@_drawn(
    lambda torch, x: torch.randn(x.shape, dtype=x.dtype, device=x.device),
    lambda shape: [Sample((SampleOperand(shape, dtype=dtype),)) for dtype in in_order(FLOATING)],
)
def randn_like(b: Any, x: Tensor) -> Any:
    """Random numbers of the standard normal distribution, in the shape and type of x."""
    return _draw(b, "random_normal", x.shape, x.dtype)


def _draw(b: Any, name: str, shape: Any, dtype: Any, seed: Any = None, offset: Any = None, seeded: Any = None) -> Any:
    target = data_type(dtype) or DataType.Float
    if target not in FLOATING:
        raise DTypeError(f"random numbers are floating point, not {target.text}")
    if (seed is None) != (offset is None):
        raise ArgumentError("rng_seed and rng_offset are given both or not at all")
    if seed is not None:
        return seeded(b, shape, target, seed, offset)
    return b.node(name, attributes=RandomAttributes(tuple(shape), target, b.next_ordinal()))


# --- numbers that depend on a seed alone ------------------------------------------------------------------------------
#
# Philox with four words of 32 bits and ten rounds, as Salmon and others describe it ("Parallel random numbers: as easy
# as 1, 2, 3"), in arithmetic of int64: the same on every device. An element's index and the offset are its counter.

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_FRACTION_BITS = {DataType.BFloat16: 8, DataType.Half: 11, DataType.Float: 24}
"""How many bits a type holds of a number from 0 up to 1, such that it is not rounded to 1."""


def philox(index: Any, seed: Any, offset: Any) -> tuple[Any, Any, Any, Any]:
    """Four random words of 32 bits for each index, all of them in int64: tensors of torch's or handles of a builder."""
    counter = (index & _WORD, (index >> 32) & _WORD, offset & _WORD, (offset >> 32) & _WORD)
    key = (seed & _WORD, (seed >> 32) & _WORD)
    for _ in range(_ROUNDS):
        first, second = counter[0] * _MULTIPLIERS[0], counter[2] * _MULTIPLIERS[1]
        counter = (
            ((second >> 32) & _WORD) ^ counter[1] ^ key[0],
            second & _WORD,
            ((first >> 32) & _WORD) ^ counter[3] ^ key[1],
            first & _WORD,
        )
        key = ((key[0] + _KEY_STEPS[0]) & _WORD, (key[1] + _KEY_STEPS[1]) & _WORD)
    return counter


def _fraction(words: tuple[Any, Any], dtype: DataType, convert: Any) -> Any:
    """A number from 0 up to 1, of the highest bits of a word, or of two for a double."""
    if dtype is DataType.Double:
        return convert((words[0] << 21) ^ (words[1] >> 11)) * 2.0**-53
    bits = _FRACTION_BITS[dtype]
    return convert(words[0] >> (32 - bits)) * 2.0**-bits


def uniform_bits(b: Any, shape: Any, dtype: DataType, seed: Any, offset: Any) -> Any:
    """Random numbers from 0 up to 1 that depend on seed and offset alone."""
    words = _words(b, shape, seed, offset)
    return b.cast(_fraction(words[:2], dtype, lambda word: b.cast(word, dtype.widened)), dtype)


def _normal_bits(b: Any, shape: Any, dtype: DataType, seed: Any, offset: Any) -> Any:
    words, wide = _words(b, shape, seed, offset), dtype.widened
    radius, angle = (_fraction(pair, wide, lambda word: b.cast(word, wide)) for pair in (words[:2], words[2:]))
    drawn = b.sqrt(b.log(1.0 - radius) * -2.0) * b.cos(angle * (2 * math.pi))
    return b.cast(drawn, dtype)


def _words(b: Any, shape: Any, seed: Any, offset: Any) -> tuple[Any, Any, Any, Any]:
    for given in (seed, offset):
        if not given.dtype.is_integer or given.shape:
            raise ArgumentError(f"rng_seed and rng_offset are whole numbers, not {given.type}")
    index = b.reshape(b.iota(sizes.product(tuple(shape))), shape)
    return philox(index, b.cast(seed, DataType.Int), b.cast(offset, DataType.Int))


def eager_uniform(torch: Any, shape: Any, dtype: Any, seed: Any, offset: Any) -> Any:
    """The numbers of `uniform_bits`, computed with PyTorch."""
    name, words = _eager_words(torch, shape, dtype, seed, offset)
    return _fraction(words[:2], name, lambda word: word.to(_wide(torch, dtype))).to(dtype)


def eager_normal(torch: Any, shape: Any, dtype: Any, seed: Any, offset: Any) -> Any:
    """The numbers that `normal` has for a seed, computed with PyTorch."""
    name, words = _eager_words(torch, shape, dtype, seed, offset)
    wide = _wide(torch, dtype)
    radius, angle = (_fraction(pair, name.widened, lambda word: word.to(wide)) for pair in (words[:2], words[2:]))
    return (torch.sqrt(torch.log(1.0 - radius) * -2.0) * torch.cos(angle * (2 * math.pi))).to(dtype)


def _eager_words(torch: Any, shape: Any, dtype: Any, seed: Any, offset: Any) -> tuple[DataType, Any]:
    name = from_torch_name(str(dtype))
    assert name is not None
    index = torch.arange(math.prod(shape)).reshape(shape)
    seed, offset = (torch.as_tensor(value, device=index.device) for value in (seed, offset))
    return name, philox(index, seed, offset)


def _wide(torch: Any, dtype: Any) -> Any:
    return torch.float64 if dtype is torch.float64 else torch.float32
