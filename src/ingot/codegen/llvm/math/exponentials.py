"""Exponentials: exp, exp2, expm1, sigmoid.

All of them write the argument as n ln2 + r with a whole n and |r| <= ln2 / 2, take e^r - 1 from a polynomial and put n
into the exponent. n is found by adding 1.5 * 2^fraction_bits: the sum's low bits ARE n, so there is no conversion to an
integer, which would be undefined for NaN. The polynomials were fitted by the Remez exchange algorithm in 300-bit
arithmetic; the single-precision coefficients were rounded one by one, lowest first, and the rest fitted again.
"""

from __future__ import annotations

from ingot.codegen.llvm.math.dsl.formats import LN2, LOG2_E, Coefficients, parts
from ingot.codegen.llvm.math.dsl.vocabulary import Number, at_least, at_most, choose, fma, polynomial

# (e^r - 1 - r) / r^2 on |r| <= ln2 / 2; relative error of e^r - 1 below 2^-26 in single, 2^-59 in double precision.
_EXPM1 = Coefficients(
    single=(0.4999999701976776, 0.1666654646396637, 0.04166743531823158, 0.00836627185344696, 0.0013870700495317578),
    double=(
        0.5,
        0.16666666666666677,
        0.041666666666666505,
        0.008333333333321608,
        0.0013888888888962934,
        0.00019841269886203053,
        2.480158717175336e-05,
        2.755724410954243e-06,
        2.755740303298261e-07,
        2.510907943510605e-08,
        2.0875295709020612e-09,
    ),
)

# (2^r - 1) / r on |r| <= 1/2; error of 2^r below 2^-28 and 2^-55.
EXP2 = Coefficients(
    single=(
        0.6931471824645996,
        0.24022650718688965,
        0.055503591895103455,
        0.009618067182600498,
        0.0013391174143180251,
        0.000154608758748509,
    ),
    double=(
        0.6931471805599453,
        0.24022650695910133,
        0.05550410866482174,
        0.009618129107593052,
        0.0013333558146378683,
        0.0001540353045846576,
        1.5252733867896454e-05,
        1.3215434610423129e-06,
        1.0178046309769097e-07,
        7.073897779143375e-09,
        4.457410378223461e-10,
    ),
)


def power_of_two(n_rounder: Number, offset: int = 0) -> Number:
    """2^(n + offset), from n + rounder. n + offset must lie within the normal exponents."""
    format = n_rounder.format
    return ((n_rounder.bits() << format.fraction_bits) + ((format.bias + offset) << format.fraction_bits)).as_number()


def exp2_of_moderate(x: Number, coefficients: Coefficients | tuple[float, ...] = EXP2) -> Number:
    """2^x where the result is a normal number, or NaN."""
    n_rounder = x + x.format.rounder
    r = x - (n_rounder - x.format.rounder)
    return fma(polynomial(r, coefficients), r, 1.0) * power_of_two(n_rounder)


def scaled(p: Number, n: Number, n_rounder: Number, offset: int = 0) -> Number:
    """p * 2^(n + offset) for all results, denormal and infinite ones too: two factors of half the exponent each."""
    format = p.format
    half = fma(n, 0.5, format.rounder)
    other = (n_rounder.bits() - half.bits()) << format.fraction_bits
    return p * power_of_two(half) * (other + ((format.bias + offset) << format.fraction_bits)).as_number()


def reduced(x: Number) -> tuple[Number, Number, Number]:
    """e^r - 1, n and n + rounder for x = n ln2 + r with |r| <= ln2 / 2.

    r = near - rest: n times the high part of ln2 is exact, and so is its difference from x. The rest is small; it joins
    the sum late, so that r's own rounding touches nothing but the terms from r^2 on.
    """
    rounder = x.format.rounder
    high, low = parts(x.format, LN2, 2, spare=8 if x.is_single else 11)
    n_rounder = fma(x, LOG2_E, rounder)
    n = n_rounder - rounder
    near, rest = fma(n, -high, x), n * low
    r = near - rest
    return near + fma(r * r, polynomial(r, _EXPM1), -rest), n, n_rounder


def _mantissa(x: Number) -> tuple[Number, Number, Number]:
    """e^r, n and n + rounder for the same n and r.

    In single precision r's rounding costs a sixth of an ulp, and so does Horner's rule for all terms: three
    instructions less than `reduced` spends on avoiding both.
    """
    if not x.is_single:
        expm1_r, n, n_rounder = reduced(x)
        return expm1_r + 1.0, n, n_rounder
    high, low = parts(x.format, LN2)
    n_rounder = fma(x, LOG2_E, x.format.rounder)
    n = n_rounder - x.format.rounder
    r = fma(n, -low, fma(n, -high, x))
    return polynomial(r, (1.0, 1.0, *_EXPM1.single)), n, n_rounder


def exponential(x: Number, offset: int = 0) -> Number:
    """e^x * 2^offset where x is known to be so bounded that n fits: |x| < 2 * bias."""
    return scaled(*_mantissa(x), offset)


def exp(x: Number) -> Number:
    """e^x. Error below 1 ulp in both formats.

    What is nothing, as it is for all that a mask sets to minus infinity, is chosen and not computed: some processors
    take a hundred times as long for a product that underflows.
    """
    low, high = (-104.0, 89.0) if x.is_single else (-746.0, 710.0)
    vanishes = x < low
    return choose(vanishes, 0.0, exponential(choose(vanishes, 0.0, at_most(x, high))))


def exp2(x: Number) -> Number:
    """2^x: r = x - n is exact. Error below 1 ulp in both formats."""
    low, high = (-151.0, 129.0) if x.is_single else (-1076.0, 1025.0)
    x = at_least(at_most(x, high), low)
    n_rounder = x + x.format.rounder
    n = n_rounder - x.format.rounder
    r = x - n
    return scaled(fma(polynomial(r, EXP2), r, 1.0), n, n_rounder)


def scaled_expm1(x: Number, offset: int) -> Number:
    """(e^x - 1) 2^offset: with k = n + offset, 2^k (e^r - 1) + (2^k - 2^offset). 2^k must be normal."""
    expm1_r, _, n_rounder = reduced(x)
    scale = power_of_two(n_rounder, offset)
    return fma(scale, expm1_r, scale - 2.0**offset)


def expm1(x: Number) -> Number:
    """e^x - 1. Tiny arguments, -0 among them, are their own result. Error below 2 ulp in both formats."""
    low, high, tiny = (-18.0, 89.0, 2.0**-25) if x.is_single else (-38.0, 710.0, 2.0**-54)
    half = scaled_expm1(at_least(at_most(x, high), low), -1)
    return choose(abs(x) < tiny, x, half + half)


def decay(x: Number) -> Number:
    """e^x for x <= 0: 2^(n + offset) is always normal, and the exact factor 2^-offset rounds denormal results once."""
    offset, low = (64, -104.0) if x.is_single else (512, -746.0)
    mantissa, _, n_rounder = _mantissa(at_least(x, low))
    return mantissa * power_of_two(n_rounder, offset) * 2.0**-offset


def sigmoid(x: Number) -> Number:
    """1 / (1 + e^-x), as e^x / (1 + e^x) for negative x: e^-|x| never overflows and keeps denormal results.

    The quotient is corrected by its remainder, which includes what the sum 1 + e lost; a rough 1 / (1 + e) is enough
    for that. Error below 2 ulp in both formats.
    """
    e = decay(-abs(x))
    numerator = choose(x.has_minus_sign(), e, 1.0)
    denominator = e + 1.0
    lost = e - (denominator - 1.0)
    quotient = numerator / denominator
    remainder = fma(-quotient, lost, fma(-quotient, denominator, numerator))
    return fma(remainder, fma(e, -0.5, 1.0), quotient)
