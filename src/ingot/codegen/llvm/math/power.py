"""Powers: pow and rsqrt.

x^y = e^(y log x), where y multiplies the logarithm's error by up to 745: single precision takes it in double precision,
double precision in pairs of doubles whose sum carries about 65 bits. The signs, zeros, infinities and NaNs of C99 are
chosen afterwards. Polynomials by the Remez exchange algorithm in 300-bit arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

from ingot.codegen.llvm.math import exponentials, logarithms
from ingot.codegen.llvm.math.dsl.formats import INFINITY, LN2, LOG2_E, NAN, parts
from ingot.codegen.llvm.math.dsl.vocabulary import (
    Number,
    at_least,
    at_most,
    choose,
    fma,
    polynomial,
    rounded,
    square_root,
)

Pair = tuple[Number, Number]

# (2 artanh(s) / s - 2) / s^2 in powers of s^2, for single precision; relative error of the logarithm below 2^-37.
_LOG_ROUGH = (0.6666666563760593, 0.4000033710347153, 0.28537179100066157, 0.23584749096124144)

# ((2 artanh(s) / s - 2) / s^2 - 2/3) / s^2 in powers of s^2; error of the logarithm below 2^-66.
_LOG_TAIL = (
    0.39999999999999974,
    0.2857142857144531,
    0.22222222217487098,
    0.18181818876377462,
    0.15384556456902287,
    0.13336333370928946,
    0.11674494254468791,
    0.11991717368089398,
)


def _sum_of_sorted(a: Number, b: Number) -> Pair:
    """a + b rounded and what that lost, for |a| >= |b| or a = 0."""
    total = a + b
    return total, b - (total - a)


def _product(a: Pair, b: Pair) -> Pair:
    high = a[0] * b[0]
    return high, fma(a[0], b[0], -high) + fma(a[0], b[1], a[1] * b[0])


def _precise_log(x: Number) -> Pair:
    """log(x) for positive finite double-precision x, as a pair good to 2^-64."""
    f, exponent = logarithms.split(x)
    below = f + 2.0
    lost = f - (below - 2.0)
    s = f / below
    s_pair = s, fma(-s, lost, fma(-s, below, f)) / below
    square = _product(s_pair, s_pair)
    two_thirds, two_thirds_low = parts(x.format, Fraction(2, 3))
    factor, factor_low = _sum_of_sorted(x.constant(two_thirds), square[0] * polynomial(square[0], _LOG_TAIL))
    cubic = _product(_product(s_pair, square), (factor, factor_low + two_thirds_low))
    near, near_low = _sum_of_sorted(s + s, cubic[0])
    near_low = near_low + (cubic[1] + (s_pair[1] + s_pair[1]))
    # Ten bits of room make the exponent's product with the high part exact.
    octave_high, octave_low = parts(x.format, LN2, 2, spare=11)
    total, total_low = _sum_of_sorted(exponent * octave_high, near)
    return _sum_of_sorted(total, total_low + fma(exponent, octave_low, near_low))


def _magnitude_double(x: Number, y: Number) -> Number:
    """|x|^y with |x| positive."""
    magnitude = abs(x)
    log_high, log_low = _precise_log(magnitude)
    log_high = choose(magnitude.equals(0.0), -INFINITY, choose(magnitude.equals(INFINITY), magnitude, log_high))
    exponent = y * log_high
    rest = fma(y, log_high, -exponent) + y * log_low
    rest = choose(abs(exponent) < 1000.0, rest, 0.0)
    expm1_r, n, n_rounder = exponentials.reduced(at_least(at_most(exponent, 720.0), -760.0))
    return exponentials.scaled(fma(rest, expm1_r + 1.0, expm1_r) + 1.0, n, n_rounder)


def _magnitude_single(x: Number, y: Number) -> Number:
    """The same for single-precision numbers held in double precision: there are no denormals among them."""
    magnitude = abs(x)
    moved = logarithms.biased(magnitude)
    f = logarithms.mantissa_of(moved, x.format)
    s = f / (f + 2.0)
    square = s * s
    log2 = fma(s * LOG2_E, fma(polynomial(square, _LOG_ROUGH), square, 2.0), logarithms.exponent_of(moved, x.format))
    log2 = choose(magnitude.equals(0.0), -INFINITY, choose(magnitude.equals(INFINITY), magnitude, log2))
    exponent = at_least(at_most(y * log2, 200.0), -200.0)
    # In double precision, but to the single-precision polynomial's 2^-28.
    return exponentials.exp2_of_moderate(exponent, exponentials.EXP2.single)


def pow(x: Number, y: Number) -> Number:
    """x^y with C99's special cases: 1 for y = 0 and for x = 1, also if the other is NaN.

    Error below 1 ulp in single, 2 ulp in double precision.
    """
    single = x.is_single
    if single:
        x, y = x.widened(), y.widened()
    magnitude = abs(x)
    result = (_magnitude_single if single else _magnitude_double)(x, y)
    half = y * 0.5
    whole = rounded(y).equals(y)
    odd = whole & ~rounded(half).equals(half)
    negative = x.has_minus_sign()
    result = choose(negative & odd, -result, result)
    result = choose((x < 0.0) & (magnitude < INFINITY) & ~whole, NAN, result)
    result = choose(x.equals(-1.0) & abs(y).equals(INFINITY), 1.0, result)
    result = choose(x.is_nan() | y.is_nan(), x + y, result)
    result = choose(y.equals(0.0) | x.equals(1.0), 1.0, result)
    return result.narrowed() if single else result


def rsqrt(x: Number) -> Number:
    """1 / sqrt(x). Error below 2 ulp in both formats."""
    return 1.0 / square_root(x)
