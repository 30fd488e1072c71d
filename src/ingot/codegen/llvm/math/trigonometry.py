"""Trigonometric functions and their inverses: sin, cos, tan, asin, acos, atan, atan2.

Angles are reduced to |r| <= pi/4 and a quadrant (see angles.py); sin r and cos r are polynomials in r^2. The inverse
functions are polynomials in x^2 after one step of reduction. All polynomials come from the Remez exchange algorithm in
250-bit arithmetic; single-precision coefficients were rounded one by one, lowest first, and the rest fitted again.
"""

from __future__ import annotations

from fractions import Fraction

from ingot.codegen.llvm.math import angles
from ingot.codegen.llvm.math.dsl.formats import INFINITY, PI, Coefficients, parts
from ingot.codegen.llvm.math.dsl.vocabulary import (
    Bits,
    Mask,
    Number,
    choose,
    fma,
    in_double,
    polynomial,
    square_root,
    with_sign_of,
)

# (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 in powers of r^2, |r| <= pi/4; errors below 2^-32 and 2^-57.
_SIN = Coefficients(
    single=(-0.1666666716337204, 0.008333380334079266, -0.00019853483536280692, 2.8369522624416277e-06),
    double=(
        -0.16666666666666666,
        0.008333333333333323,
        -0.0001984126984125484,
        2.755731921407005e-06,
        -2.5052104879636428e-08,
        1.605836248481967e-10,
        -7.578489097923432e-13,
    ),
)
_COS = Coefficients(
    single=(0.04166664555668831, -0.00138873013202101, 2.443066296109464e-05),
    double=(
        0.041666666666666664,
        -0.0013888888888888874,
        2.4801587301571225e-05,
        -2.7557319215257357e-07,
        2.087675433909488e-09,
        -1.1470290153936877e-11,
        4.737966872048205e-14,
    ),
)

# (asin(x) / x - 1) / x^2 in powers of x^2 for |x| <= 1/2; errors below 2^-31 and 2^-59.
_ASIN = Coefficients(
    single=(
        0.16666659712791443,
        0.0750051960349083,
        0.0445142425596714,
        0.03182859718799591,
        0.014365172013640404,
        0.03761317580938339,
    ),
    double=(
        0.16666666666666763,
        0.07499999999970099,
        0.04464285717528568,
        0.030381942675308447,
        0.022372215904736353,
        0.017351595527902646,
        0.013981018121302948,
        0.011397297056479181,
        0.010789295562768255,
        0.0036722921868133137,
        0.02179036413305491,
        -0.021116290752223172,
        0.032701878465575075,
    ),
)

# (atan(x) / x - 1) / x^2 in powers of x^2 for |x| <= 1; errors below 2^-28 and 2^-55.
_ATAN = Coefficients(
    single=(
        -0.33333298563957214,
        0.1999853104352951,
        -0.14264051616191864,
        0.10951177775859833,
        -0.08400487899780273,
        0.05790669098496437,
        -0.031126951798796654,
        0.010887179523706436,
        -0.0017874646000564098,
    ),
    double=(
        -0.33333333333333287,
        0.19999999999990434,
        -0.14285714285035753,
        0.11111111086417856,
        -0.09090908546658549,
        0.07692299703799468,
        -0.06666583648003192,
        0.058817156418286116,
        -0.05259431153362405,
        0.04744915723020141,
        -0.04286359057961816,
        0.038209298358263824,
        -0.03278398118960026,
        0.02614951554962722,
        -0.018611701103183775,
        0.011315411107756981,
        -0.005610868605033069,
        0.002150835075201361,
        -0.0005926359191356816,
        0.0001038177327980883,
        -8.648916261471014e-06,
    ),
)


def _sine_near_zero(r: Number) -> Number:
    square = r * r
    return fma(polynomial(square, _SIN), square * r, r)


def _cosine_near_zero(r: Number) -> Number:
    square = r * r
    return fma(polynomial(square, _COS), square * square, fma(square, -0.5, 1.0))


def _sine_of(r: Number, quadrant: Bits) -> Number:
    """sin(quadrant * pi/2 + r)."""
    result = choose((quadrant & 1).equals(0), _sine_near_zero(r), _cosine_near_zero(r))
    sign = (quadrant & 2) << (30 if r.is_single else 62)
    return (result.bits() ^ sign).as_number()


def _is_tiny(x: Number) -> Mask:
    """Where sin(x), tan(x), ... are x to the last bit, and have to keep the sign of zero."""
    return abs(x) < (2.0**-13 if x.is_single else 2.0**-27)


def sin(x: Number) -> Number:
    """For all finite x. Error below 2 ulp in single, 3 ulp in double precision."""
    return choose(_is_tiny(x), x, _sine_of(*angles.reduced(x)))


def cos(x: Number) -> Number:
    """For all finite x. Error below 2 ulp in single, 3 ulp in double precision."""
    r, quadrant = angles.reduced(x)
    return _sine_of(r, quadrant + 1)


def tan(x: Number) -> Number:
    """sin / cos, for all finite x; single precision in double. Error below 2 ulp in single, 4 ulp in double."""
    r, quadrant = angles.reduced_in_double(x.widened()) if x.is_single else angles.reduced(x)
    even = (quadrant & 1).equals(0)
    sine, cosine = _sine_near_zero(r), _cosine_near_zero(r)
    result = choose(even, sine, -cosine) / choose(even, cosine, sine)
    return choose(_is_tiny(x), x, result.narrowed() if x.is_single else result)


def _folded(x: Number) -> tuple[Number, Number, Mask]:
    """y and asin(y) - y, for y = |x| up to 1/2 and for y = sqrt((1 - |x|) / 2) beyond; and where |x| is beyond."""
    magnitude = abs(x)
    large = magnitude > 0.5
    square = choose(large, fma(magnitude, -0.5, 0.5), x * x)
    y = choose(large, square_root(square), magnitude)
    return y, polynomial(square, _ASIN) * (square * y), large


def _less(constant: Fraction, amount: Number) -> Number:
    """constant - amount, the constant in two parts."""
    high, low = parts(amount.format, constant)
    return high - (amount - low)


def asin(x: Number) -> Number:
    """pi/2 - 2 asin(sqrt((1 - |x|) / 2)) beyond 1/2. NaN outside [-1, 1]. Error below 2 ulp in both formats."""
    y, rest, large = _folded(x)
    high, low = parts(x.format, PI / 2)
    difference = fma(y, -2.0, high)
    lost = fma(y, -2.0, high - difference)
    beyond = difference + (fma(rest, -2.0, low) + lost)
    return with_sign_of(choose(large, beyond, y + rest), x)


def acos(x: Number) -> Number:
    """2 asin(sqrt((1 - x) / 2)) from 1/2 on, pi/2 - asin(x) in the middle. Error below 2 ulp in both formats."""
    y, rest, large = _folded(x)
    folded = y + rest
    twice = folded + folded
    return choose(large, choose(x > 0.0, twice, _less(PI, twice)), _less(PI / 2, with_sign_of(folded, x)))


def _atan_to_one(x: Number) -> Number:
    square = x * x
    return fma(polynomial(square, _ATAN), square * x, x)


def atan(x: Number) -> Number:
    """pi/2 - atan(1 / |x|) beyond 1. Error below 2 ulp in both formats."""
    magnitude = abs(x)
    large = magnitude > 1.0
    near = _atan_to_one(choose(large, 1.0 / magnitude, magnitude))
    return with_sign_of(choose(large, _less(PI / 2, near), near), x)


@in_double
def atan2(y: Number, x: Number) -> Number:
    """The angle of the point (x, y), from the quotient of the smaller by the larger coordinate.

    Zeros and infinities as in C99: the signs of zeros tell the quadrant, equal infinities are a diagonal. Error below
    1 ulp in single, 3 ulp in double precision.
    """
    across, up = abs(x), abs(y)
    steep = up > across
    small, large = choose(steep, across, up), choose(steep, up, across)
    quotient = choose(large.equals(0.0), large, choose(small.equals(INFINITY), 1.0, small / large))
    angle = _atan_to_one(quotient)
    angle = choose(steep, _less(PI / 2, angle), angle)
    leftward = x.has_minus_sign()
    angle = choose(leftward, _less(PI, angle), angle)
    return choose(x.is_nan() | y.is_nan(), x + y, with_sign_of(angle, y))
