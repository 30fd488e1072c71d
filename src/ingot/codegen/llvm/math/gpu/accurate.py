"""Functions within 2 ulp, with exact special values and denormals, for GPUs.

What the special-function unit computes is off by up to 1.6 ulp for 2^x between 0 and 1, by 2.07 just below 0 and by 2.2
far from there, 1 ulp for 1 / x and 1.52 ulp for 1 / sqrt(x); where that is too much, it is corrected, or a polynomial
computes it, as for every other processor.
"""

from __future__ import annotations

from fractions import Fraction

from ingot.codegen.llvm.math.dsl.formats import INFINITY, LN2, LOG2_E, LOG10_2, LOG10_E, parts
from ingot.codegen.llvm.math.dsl.vocabulary import (
    Number,
    at_most,
    choose,
    choose_bits,
    fma,
    polynomial,
    with_sign_of,
)
from ingot.codegen.llvm.math.exponentials import decay
from ingot.codegen.llvm.math.gpu.ptx_instructions import (
    binary_logarithm,
    fma_within_one,
    inverse_square_root,
    power_of_two,
    reciprocal,
)
from ingot.codegen.llvm.math.logarithms import biased, combined, itself_if_tiny, log1p_inside

# (tanh(x) / x - 1) / x^2 in powers of x^2 for |x| <= 0.8; relative error of tanh below 2^-27. Lawson, rounded in turn.
_TANH = (
    -0.33333298563957214,
    0.13332241773605347,
    -0.0538535974919796,
    0.02130652591586113,
    -0.007414170075207949,
    0.0015870387433096766,
)

# (log(1 + f) / f - 1) / f for sqrt(1/2) <= 1 + f <= sqrt(2); relative error of the logarithm below 2^-24.9. These
# polynomials have as few terms as 2 ulp allow.
_LOG = (
    -0.49999991059303284,
    0.33333948254585266,
    -0.25001785159111023,
    0.19962157309055328,
    -0.165700301527977,
    0.14916762709617615,
    -0.14309868216514587,
    0.08740537613630295,
)

# erf(x) / x - 1 in powers of x^2 for |x| <= 1; relative error of erf below 2^-24.5.
_ERF = (
    0.12837912142276764,
    -0.37612324953079224,
    0.11280175298452377,
    -0.026711227372288704,
    0.004917483776807785,
    -0.0005631216336041689,
)

# log2(erfc(x)) for 1 <= x <= 3.94; relative error of erf below 2^-25.8.
_LOG2_ERFC = (
    -0.003778622252866626,
    -1.6123868227005005,
    -0.9438686370849609,
    -0.1281111240386963,
    0.021397916600108147,
    -0.001669531804509461,
)

_LOWEST, _HIGHEST = -126, 127
"""Whole powers of two that are put into the exponent."""


def _whole_power(x: Number, octaves: Fraction) -> tuple[Number, Number]:
    """-n and 2^n for the whole number n at or below x * octaves.

    n is found between 0 and 1, where an instruction saturates: beyond the reach of exponents r = x * octaves - n grows,
    and 2^r vanishes or overflows in its place, so that denormal and infinite results need nothing more. The sum with
    1.5 * 2^23 has n + 127 in its low bits. NaN makes n the lowest.
    """
    reach = _HIGHEST - _LOWEST
    share = fma_within_one(x, octaves / reach, (-_LOWEST - Fraction(1, 2)) / reach)
    lowest = x.format.rounder + (x.format.bias + _LOWEST)
    n_rounder = fma(share, float(reach), lowest)
    return (lowest - _LOWEST) - n_rounder, (n_rounder.bits() << x.format.fraction_bits).as_number()


def exp(x: Number) -> Number:
    """e^x = 2^n 2^r with x log2(e) = n + r, the logarithm in two parts, both positive, so that infinities stay.

    r is between 0 and 1, where the unit is at its best: an H200 is off by up to 1.94 ulp, and by 2.07 if n is the whole
    number next to x log2(e).
    """
    minus_n, scale = _whole_power(x, LOG2_E)
    high, low = parts(x.format, LOG2_E)
    r = fma(x, low, fma(x, high, minus_n))
    return power_of_two(r, flushes=True) * scale


def _quotient(numerator: Number, e: Number) -> Number:
    """numerator / (1 + e), rounded once, for finite e: by a reciprocal, then corrected.

    The remainder is that of 1 + e and not of its rounded sum. The numerator less the quotient is exact in what matters:
    one is between half of the other and all of it, or e is large.
    """
    inverse = reciprocal(e + 1.0)
    quotient = numerator * inverse
    remainder = fma(-quotient, e, numerator - quotient)
    return fma(remainder, inverse, quotient)


def sigmoid(x: Number) -> Number:
    """1 / (1 + e) for e = e^-|x|, and e / (1 + e) where x is negative: there e may not be off by more than 2/3 ulp, as
    one ulp of it may be two of the result's. So it comes from a polynomial."""
    e = decay(-abs(x))
    return _quotient(choose(x < 0.0, e, 1.0), e)


def tanh(x: Number) -> Number:
    """A polynomial below 0.8; above, 1 - 2 / (e^2|x| + 1), where the small quotient forgives a rough power."""
    magnitude = abs(x)
    square = x * x
    small = fma(polynomial(square, _TANH) * square, magnitude, magnitude)
    e = power_of_two(at_most(magnitude, 10.0) * (2 * LOG2_E), flushes=True)
    large = 1.0 - _quotient(x.constant(2.0), e)
    return with_sign_of(choose(magnitude < 0.8, small, large), x)


def erf(x: Number) -> Number:
    """x P(x^2) below 1; above, 1 - 2^Q(|x|), whose error is small beside the difference."""
    magnitude = abs(x)
    small = fma(polynomial(x * x, _ERF), x, x)
    large = 1.0 - power_of_two(polynomial(at_most(magnitude, 3.94), _LOG2_ERFC), flushes=True)
    return choose(magnitude < 1.0, small, with_sign_of(large, x))


def _with_specials(result: Number, x: Number) -> Number:
    """The approximate logarithm knows the ends of the domain, and is finite nowhere else. x must not be denormal."""
    special = binary_logarithm(x, flushes=True)
    return choose(abs(special) < INFINITY, result, special)


def _split(x: Number) -> tuple[Number, Number, Number]:
    """x or what is not denormal in its place, f and e with x = (1 + f) 2^(e 2^-23), for positive finite x. An
    instruction makes a number of the exponent where it stands in the bits."""
    lift = x.format.fraction_bits + 1
    small = x < x.format.smallest_normal
    lifted = choose(small, x * 2.0**lift, x)
    octaves = (biased(lifted) - x.format.one_bits) & -(x.format.fraction_mask + 1)
    f = (lifted.bits() - octaves).as_number() - 1.0
    return lifted, f, choose_bits(small, octaves - (lift << x.format.fraction_bits), octaves).as_whole_number()


def _logarithm(x: Number, per_unit: Fraction, per_octave: Fraction) -> Number:
    """As for any processor but for what is no positive number."""
    lifted, f, octaves = _split(x)
    return _with_specials(combined(f, octaves * 2.0**-x.format.fraction_bits, per_unit, per_octave), lifted)


def log(x: Number) -> Number:
    """log(1 + f) and e log(2), which may be off by 2^-28 of itself: 1.14 ulp at worst."""
    lifted, f, octaves = _split(x)
    inside = fma(f * f, polynomial(f, _LOG), f)
    return _with_specials(fma(octaves, LN2 / 2**x.format.fraction_bits, inside), lifted)


def log2(x: Number) -> Number:
    return _logarithm(x, LOG2_E, Fraction(1))


def log10(x: Number) -> Number:
    return _logarithm(x, LOG10_E, LOG10_2)


def log1p(x: Number) -> Number:
    return itself_if_tiny(x, _with_specials(log1p_inside(x), x + 1.0))


def rsqrt(x: Number) -> Number:
    """1 / sqrt(x)."""
    return inverse_square_root(x)
