"""Remainders of floating-point division: fmod and remainder, exact for all finite numbers.

A remainder is exact wherever the quotient is a whole number of fewer than 52 bits: x - n y has no more digits than its
operands. The nearest n may be one too large, which shows in the sign. Where the quotient is larger, the remainder by y
times a power of two comes first, as often as it takes, in steps of 49 bits or more; single precision, computed in
double, rarely needs one.
"""

from __future__ import annotations

from ingot.codegen.llvm.math.control import repeated
from ingot.codegen.llvm.math.formats import INFINITY, NAN
from ingot.codegen.llvm.math.words import Bits, Number, choose, choose_bits, fma, with_sign_of

_STEP = 50
_TINY = 2.0**-900


def _reduced(x: Number, y: Number) -> Number:
    """x - n y with a whole n, in [0, y), for x < 2^51 y, both positive."""
    rounder = x.format.rounder
    n = (x / y + rounder) - rounder
    rest = fma(n, -y, x)
    return choose(rest < 0.0, rest + y, rest)


def _exponent(x: Number) -> Bits:
    """The exponent of a positive number, with its bias; denormal numbers count down from there."""
    normal = choose(x < _TINY, x * 2.0**54, x)
    exponent = normal.bits() >> x.format.fraction_bits
    return choose_bits(x < _TINY, exponent - 54, exponent)


def _times_power_of_two(x: Number, exponent: Bits) -> Number:
    """x 2^exponent for exponents that may be twice the largest."""
    half = exponent >> 1
    factor = lambda part: ((part + x.format.bias) << x.format.fraction_bits).as_number()
    return x * factor(half) * factor(exponent - half)


def _remainder_of_positive(x: Number, y: Number) -> Number:
    """For double-precision numbers, x finite and y neither zero nor infinite."""
    limit = y * 2.0**_STEP
    y_exponent = _exponent(y)

    def step(x: Number) -> tuple[Number]:
        going = x >= limit
        excess = choose_bits(going, _exponent(x) - y_exponent - _STEP, y_exponent.constant(0))
        return (choose(going, _reduced(x, _times_power_of_two(y, excess)), x),)

    (x,) = repeated(lambda x: x >= limit, step, x)
    return _reduced(x, y)


def fmod(x: Number, y: Number) -> Number:
    """x - n y with n cut off towards zero: the sign of x, zeros too. NaN for infinite x and for y = 0."""
    single = x.is_single
    across, by = (abs(x.widened()), abs(y.widened())) if single else (abs(x), abs(y))
    defined = (across < INFINITY) & (by > 0.0)
    usual = defined & (by < INFINITY)
    rest = _remainder_of_positive(choose(usual, across, 0.0), choose(usual, by, 1.0))
    rest = choose(usual, rest, choose(defined, across, NAN))
    return with_sign_of(rest.narrowed() if single else rest, x)


def remainder(x: Number, y: Number) -> Number:
    """x - n y with n rounded down: the sign of y, as Python's %. It is y added to fmod where their signs differ."""
    rest = fmod(x, y)
    differ = (rest < 0.0) & (y > 0.0) | (rest > 0.0) & (y < 0.0)
    return choose(differ, rest + y, rest)
