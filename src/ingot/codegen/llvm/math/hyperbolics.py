"""Hyperbolic functions and their inverses: sinh, cosh, tanh, asinh, acosh, atanh.

All but the single-precision tanh rest on expm1 and log1p in double precision, where single precision is right to 1 ulp.
"""

from __future__ import annotations

from ingot.codegen.llvm.math.dsl.formats import LN2, LOG2_E, NAN, parts
from ingot.codegen.llvm.math.dsl.vocabulary import (
    Number,
    at_most,
    choose,
    fma,
    in_double,
    polynomial,
    square_root,
    with_sign_of,
)
from ingot.codegen.llvm.math.exponentials import exponential, power_of_two, scaled_expm1
from ingot.codegen.llvm.math.logarithms import log1p

# (tanh(x) / x - 1) / x^2 in powers of x^2 for |x| <= 0.6; relative error of tanh below 2^-28. Remez, rounded in turn.
_TANH_SINGLE = (
    -0.33333298563957214,
    0.13331936299800873,
    -0.05378471687436104,
    0.02079862542450428,
    -0.005897966679185629,
)

# e^2r on |r| <= ln2 / 4 with an error below 2^-28. Remez, rounded in turn.
_EXP_OF_TWICE_SINGLE = (
    1.0,
    2.0,
    2.0,
    1.3333215713500977,
    0.6666624546051025,
    0.26780256628990173,
    0.08921947330236435,
)


def _tanh_single(x: Number) -> Number:
    """x P(x^2) below 0.6; above, 1 - 2 / (e^2|x| + 1), where the small quotient forgives a plain exponential."""
    magnitude = abs(x)
    bounded = at_most(magnitude, 10.0)
    n_rounder = fma(bounded, 2 * LOG2_E, x.format.rounder)
    n = n_rounder - x.format.rounder
    high, low = parts(x.format, LN2 / 2)
    r = fma(n, -low, fma(n, -high, bounded))
    large = 1.0 - 2.0 / fma(polynomial(r, _EXP_OF_TWICE_SINGLE), power_of_two(n_rounder), 1.0)
    square = x * x
    small = fma(polynomial(square, _TANH_SINGLE) * square, magnitude, magnitude)
    return with_sign_of(choose(magnitude < 0.6, small, large), x)


def tanh(x: Number) -> Number:
    """In double precision (e^2|x| - 1) / (e^2|x| + 1). Error below 2 ulp in single, 3 ulp in double precision."""
    if x.is_single:
        return _tanh_single(x)
    half = scaled_expm1(at_most(abs(x + x), 44.0), -1)
    return with_sign_of(half / (half + 1.0), x)


@in_double
def sinh(x: Number) -> Number:
    """h + h / (2h + 1) with h = (e^|x| - 1) / 2, which overflows only when sinh does. Error below 3 ulp in double."""
    quarter = scaled_expm1(at_most(abs(x), 710.5), -2)
    half = quarter + quarter
    finite = at_most(half, 2.0**1000)
    result = half + finite / (finite + finite + 1.0)
    return choose(abs(x) < 2.0**-28, x, with_sign_of(result, x))


@in_double
def cosh(x: Number) -> Number:
    """h + 1 / 4h with h = e^|x| / 2. Error below 2 ulp in double precision."""
    half = exponential(at_most(abs(x), 711.0), offset=-1)
    return half + 0.25 / half


# From here on x^2 would soon overflow, and x^2 + 1 has long been x^2.
_HUGE = 2.0**60


@in_double
def asinh(x: Number) -> Number:
    """log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))), and log(2 |x|) for huge x. Error below 3 ulp in double precision."""
    magnitude = abs(x)
    huge = magnitude > _HUGE
    square = x * x
    argument = magnitude + square / (square_root(square + 1.0) + 1.0)
    result = log1p(choose(huge, magnitude, argument)) + choose(huge, x.constant(LN2), 0.0)
    return with_sign_of(result, x)


@in_double
def acosh(x: Number) -> Number:
    """log1p(t + sqrt(2t + t^2)) with t = x - 1, and log(2x) for huge x. Error below 4 ulp in double precision."""
    huge = x > _HUGE
    t = x - 1.0
    argument = t + square_root(fma(t, t, t + t))
    result = log1p(choose(huge, x, argument)) + choose(huge, x.constant(LN2), 0.0)
    return choose(x < 1.0, NAN, result)


@in_double
def atanh(x: Number) -> Number:
    """log1p(2|x| / (1 - |x|)) / 2, which is infinite at 1 and NaN beyond. Error below 3 ulp in double precision."""
    magnitude = abs(x)
    argument = (magnitude + magnitude) / (1.0 - magnitude)
    return with_sign_of(log1p(argument) * 0.5, x)
