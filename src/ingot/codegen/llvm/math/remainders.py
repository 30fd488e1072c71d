"""Remainders of floating-point division: fmod and remainder, exact for all finite numbers.

A remainder is exact wherever the quotient has fewer digits than a number: x - n y has no more digits than its operands.
The nearest n may be one too large, which shows in the sign. Where the quotient is larger, the remainder by y times a
power of two comes first, as often as it takes: each time the quotient loses 19 bits or more, 48 in double precision.
"""

from __future__ import annotations

from ingot.codegen.llvm.math.dsl.formats import INFINITY, NAN
from ingot.codegen.llvm.math.dsl.lane_branches import repeated
from ingot.codegen.llvm.math.dsl.vocabulary import Bits, Number, choose, choose_bits, fma, with_sign_of


def _reduced(x: Number, y: Number) -> Number:
    """x - n y with a whole n, in [0, y), for x up to 2^(fraction_bits - 1) y, both positive."""
    if not x.host.has_fma and not x.is_single:
        # `fma` is exact then only for numbers away from the largest, and where x is large, y cannot be small.
        huge = x > 2.0**900
        factor, inverse = choose(huge, x.constant(2.0**-100), 1.0), choose(huge, x.constant(2.0**100), 1.0)
        return _remaining(x * factor, y * factor) * inverse
    return _remaining(x, y)


def _remaining(x: Number, y: Number) -> Number:
    rounder = x.format.rounder
    n = (x / y + rounder) - rounder
    rest = fma(n, -y, x)
    return choose(rest < 0.0, rest + y, rest)


def _exponent(x: Number) -> Bits:
    """The exponent of a positive number, with its bias; denormal numbers count down from there."""
    format = x.format
    denormal = x < format.smallest_normal
    lift = format.fraction_bits + 1
    exponent = choose(denormal, x * 2.0**lift, x).bits() >> format.fraction_bits
    return choose_bits(denormal, exponent - lift, exponent)


def _times_power_of_two(x: Number, exponent: Bits) -> Number:
    """x 2^exponent for exponents up to twice the largest."""
    half = exponent >> 1
    factor = lambda part: ((part + x.format.bias) << x.format.fraction_bits).as_number()
    return x * factor(half) * factor(exponent - half)


def _remainder_of_positive(x: Number, y: Number) -> Number:
    """For x finite and y neither zero nor infinite."""
    step = x.format.fraction_bits - 3
    limit = y * 2.0**step
    y_exponent = _exponent(y)
    largest = y_exponent.constant(2 * x.format.bias)

    def reduce_once(x: Number) -> tuple[Number]:
        going = x >= limit
        excess = choose_bits(going, _exponent(x) - y_exponent - step, y_exponent.constant(0))
        excess = choose_bits((excess - largest).is_negative(), excess, largest)
        return (choose(going, _reduced(x, _times_power_of_two(y, excess)), x),)

    (x,) = repeated(lambda x: x >= limit, reduce_once, x)
    return _reduced(x, y)


def fmod(x: Number, y: Number) -> Number:
    """x - n y with n cut off towards zero: the sign of x, zeros too. NaN for infinite x and for y = 0."""
    across, by = abs(x), abs(y)
    defined = (across < INFINITY) & (by > 0.0)
    usual = defined & (by < INFINITY)
    rest = _remainder_of_positive(choose(usual, across, 0.0), choose(usual, by, 1.0))
    return with_sign_of(choose(usual, rest, choose(defined, across, NAN)), x)


def remainder(x: Number, y: Number) -> Number:
    """x - n y with n rounded down: the sign of y, as Python's %. It is y added to fmod where their signs differ."""
    rest = fmod(x, y)
    differ = (rest < 0.0) & (y > 0.0) | (rest > 0.0) & (y < 0.0)
    return choose(differ, rest + y, rest)
