"""Mathematical functions on numpy arrays, for the loop interpreter: computed in float64, then rounded to the type.

In: arrays of one floating-point type, or of one signed integer type. Out: an array of the same type. Nothing here is
shared with the functions that generated code uses, so that each can be judged by the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy

Array = Any
"""numpy's own annotations make more of arrays than helps here."""


def function_of_floats(name: str, operands: tuple[Array, ...]) -> Array:
    """A function by the name it has in the words of `ops.emission`."""
    dtype = operands[0].dtype
    if name in _EXACT:
        return _EXACT[name](*operands)
    wide = [numpy.asarray(operand, numpy.float64) for operand in operands]
    found = _IN_DOUBLE.get(name) or getattr(numpy, name)
    return numpy.asarray(found(*wide)).astype(dtype)


def function_of_integers(name: str, operands: tuple[Array, ...]) -> Array:
    dtype = operands[0].dtype
    if name == "gcd":  # by wrapped magnitudes: the lowest number is its own
        operands = tuple(numpy.abs(operand) for operand in operands)
    return _wrapped(numpy.frompyfunc(_OF_INTEGERS[name], 2, 1)(*(x.astype(object) for x in operands)), dtype)


def _wrapped(values: Any, dtype: numpy.dtype) -> Array:
    """Python's integers as those of a type, which wrap around."""
    low_bits = numpy.frompyfunc(lambda value: value & (1 << 8 * dtype.itemsize) - 1, 1, 1)(values)
    return numpy.asarray(low_bits).astype(f"uint{8 * dtype.itemsize}").view(dtype)


def _gcd(x: int, y: int) -> int:
    """By Euclid, with remainders that have the sign of what is divided, as in C."""
    while x:
        x, y = (abs(y) % abs(x)) * (1 if y > 0 else -1), x
    return y


def _integer_power(x: int, y: int) -> int:
    """For negative exponents what is left of the quotient when it is cut off."""
    if y >= 0:
        return pow(x, y, 1 << 64)
    return {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python's math module on every element; NaN stays NaN."""

    def apply(x: float) -> float:
        return x if x != x else function(x)

    return lambda array: numpy.asarray(numpy.frompyfunc(apply, 1, 1)(array)).astype(numpy.float64)


def _logarithm_of_gamma(x: float) -> float:
    if math.isinf(x) or (x <= 0.0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


def _inverse_error_function(x: float) -> float:
    """A closed approximation, then Newton's iteration; near 1 on erfc, where erf has lost its digits."""
    if abs(x) >= 1.0:
        return math.copysign(math.inf, x) if abs(x) == 1.0 else math.nan
    if x == 0.0:
        return x
    rest = 1.0 - abs(x)
    logarithm = math.log(rest) + math.log1p(abs(x))
    middle = 2.0 / (math.pi * 0.147) + logarithm / 2.0
    y = math.sqrt(math.sqrt(middle * middle - logarithm / 0.147) - middle)
    for _ in range(6):
        error = math.erf(y) - abs(x) if rest > 0.5 else rest - math.erfc(y)
        slope = 2.0 / math.sqrt(math.pi) * math.exp(-y * y)
        y -= error / (slope + error * y)
    return math.copysign(y, x)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + numpy.exp(-x))


def _remainder(x: Array, y: Array) -> Array:
    """fmod with the sign of y."""
    rest = numpy.fmod(x, y)
    return numpy.where((rest < 0) & (y > 0) | (rest > 0) & (y < 0), rest + y, rest)


def _fused_sum(x: Array, y: Array, z: Array) -> Array:
    """x * y + z of float32 by exact fractions; what is infinite or NaN in double precision is that."""
    total = numpy.asarray(x, numpy.float64) * y + z
    return numpy.asarray(numpy.frompyfunc(_rounded_once, 4, 1)(x, y, z, total)).astype(numpy.float32)


def _rounded_once(x: float, y: float, z: float, total: float) -> numpy.float32:
    """The float32 nearest to x * y + z, even where two are; `total` is the sum in double precision."""
    if not math.isfinite(total) or total == 0.0:
        return numpy.float32(total)
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    near = numpy.float32(total)
    below, above = numpy.nextafter(near, numpy.float32(-math.inf)), numpy.nextafter(near, numpy.float32(math.inf))
    candidates = [one for one in (near, below, above) if math.isfinite(one)] if math.isfinite(near) else [near]
    return min(candidates, key=lambda one: (_distance(one, exact), int(one.view(numpy.int32)) & 1))


def _distance(number: numpy.float32, exact: Fraction) -> Fraction:
    return Fraction(0) if math.isinf(number) else abs(Fraction(float(number)) - exact)


_OF_INTEGERS: dict[str, Callable[[int, int], int]] = {"gcd": _gcd, "pow": _integer_power}
_EXACT: dict[str, Callable[..., Array]] = {
    "fmod": numpy.fmod,
    "remainder": _remainder,
    "fused_sum": _fused_sum,
}
_IN_DOUBLE: dict[str, Callable[..., Array]] = {
    "sigmoid": _sigmoid,
    "rsqrt": lambda x: 1.0 / numpy.sqrt(x),
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "erfinv": _each(_inverse_error_function),
    "lgamma": _each(_logarithm_of_gamma),
    "asin": numpy.arcsin,
    "acos": numpy.arccos,
    "atan": numpy.arctan,
    "atan2": numpy.arctan2,
    "asinh": numpy.arcsinh,
    "acosh": numpy.arccosh,
    "atanh": numpy.arctanh,
    "pow": numpy.power,
}
