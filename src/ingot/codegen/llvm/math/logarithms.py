"""Logarithms: log, log2, log10, log1p.

The argument is m 2^e with sqrt(1/2) <= m < sqrt(2), and f = m - 1. Single precision takes log(1 + f) - f from a
polynomial in f; double precision has s = f / (2 + f) and log(1 + f) = 2 artanh(s), whose series in s^2 converges twice
as fast. The polynomials were fitted by the Remez exchange algorithm in 300-bit arithmetic; the single-precision
coefficients were rounded one by one, lowest first, and the rest fitted again.
"""

from __future__ import annotations

from fractions import Fraction

from ingot.codegen.llvm.math.dsl.formats import INFINITY, LN2, LOG2_E, LOG10_2, LOG10_E, NAN, Format, parts
from ingot.codegen.llvm.math.dsl.vocabulary import Bits, Number, choose, fma, polynomial

# (log(1 + f) - f) / f^2; relative error of log(1 + f) below 2^-30.
_LOG_SINGLE = (
    -0.5,
    0.3333331346511841,
    -0.25000008940696716,
    0.20002074539661407,
    -0.16667994856834412,
    0.142202690243721,
    -0.1240602657198906,
    0.11884160339832306,
    -0.11671838164329529,
    0.06749900430440903,
)

# (2 artanh(s) / s - 2) / s^2 in powers of s^2; relative error of the logarithm below 2^-61.
_LOG_DOUBLE = (
    0.6666666666666666,
    0.40000000000006325,
    0.28571428569061075,
    0.22222222650558576,
    0.18181775362692112,
    0.15387104070095825,
    0.13249816446721022,
    0.13254085355170517,
)

_SQRT_HALF_BITS = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}


def log_near_one(f: Number) -> Number:
    """log(1 + f) - f for sqrt(1/2) <= 1 + f <= sqrt(2)."""
    if f.is_single:
        return f * f * polynomial(f, _LOG_SINGLE)
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    # 2 artanh(s) = f - s f + s R, and s f = f^2 / 2 - s f^2 / 2: the large term is then exact but for one rounding.
    return fma(s, fma(polynomial(z, _LOG_DOUBLE), z, half_square), -half_square)


def biased(x: Number) -> Bits:
    """The bits of x moved so that the exponent field counts from sqrt(1/2) instead of 1."""
    format = x.format
    return x.bits() + (format.one_bits - _SQRT_HALF_BITS[format.fraction_bits])


def exponent_of(moved: Bits, format: Format, extra: Number | float = 0.0) -> Number:
    """The exponent e in `moved`, less `extra`: read as the low bits of 2^fraction_bits + e, without any conversion."""
    whole = 2.0**format.fraction_bits
    number = (
        (moved >> format.fraction_bits) | ((format.bias + format.fraction_bits) << format.fraction_bits)
    ).as_number()
    return number - (extra + (whole + format.bias) if isinstance(extra, Number) else whole + format.bias + extra)


def mantissa_of(moved: Bits, format: Format) -> Number:
    """f in `moved`: the mantissa less 1."""
    return ((moved & format.fraction_mask) + _SQRT_HALF_BITS[format.fraction_bits]).as_number() - 1.0


def split_normal(x: Number, extra: Number | float = 0.0) -> tuple[Number, Number]:
    """f and e with x 2^-extra = (1 + f) 2^e, for positive x that are neither denormal nor infinite."""
    moved = biased(x)
    exponent = exponent_of(moved, x.format, extra)
    return mantissa_of(moved, x.format), exponent


def split(x: Number) -> tuple[Number, Number]:
    """f and e with x = (1 + f) 2^e, for positive finite x, denormal ones too."""
    format = x.format
    denormal = x < format.smallest_normal
    lift = format.fraction_bits + 1
    return split_normal(choose(denormal, x * 2.0**lift, x), choose(denormal, x.constant(lift), 0.0))


def with_specials(result: Number, x: Number) -> Number:
    """A logarithm's values at the ends of its domain: log(0) = -inf, log(inf) = inf, NaN below 0 and for NaN."""
    result = choose(x < INFINITY, result, x)
    return choose(x > 0.0, result, choose(x.equals(0.0), x.constant(-INFINITY), NAN))


def combined(f: Number, exponent: Number, per_unit: Fraction, per_octave: Fraction) -> Number:
    """per_octave e + per_unit log(1 + f): small terms first, the exact products last."""
    rest = log_near_one(f)
    octave_high, octave_low = parts(f.format, per_octave)
    if per_unit == 1:
        return fma(exponent, octave_high, fma(exponent, octave_low, rest) + f)
    unit_high, unit_low = parts(f.format, per_unit)
    mantissa_part = fma(f, unit_high, fma(rest, unit_high, f * unit_low))
    if per_octave == 1:
        return exponent + mantissa_part
    return fma(exponent, octave_high, fma(exponent, octave_low, mantissa_part))


def _logarithm(x: Number, per_unit: Fraction, per_octave: Fraction) -> Number:
    f, exponent = split(x)
    return with_specials(combined(f, exponent, per_unit, per_octave), x)


def log(x: Number) -> Number:
    """Natural logarithm. Error below 1 ulp in both formats."""
    return _logarithm(x, Fraction(1), LN2)


def log2(x: Number) -> Number:
    """Logarithm to base 2. Error below 2 ulp in both formats; exact at powers of two."""
    return _logarithm(x, LOG2_E, Fraction(1))


def log10(x: Number) -> Number:
    """Logarithm to base 10. Error below 2 ulp in both formats."""
    return _logarithm(x, LOG10_E, LOG10_2)


def log1p_inside(x: Number) -> Number:
    """log(1 + x) for finite x > -1. The exponent e comes from the rounded sum 1 + x, the mantissa from x itself.

    f = x 2^-e + (2^-e - 1) is one fused operation, so what the sum lost does not matter. 2^(2-e) stands in for 2^-e,
    which would be denormal for the largest x.
    """
    format = x.format
    moved = biased(x + 1.0)
    quarter = (((2 * format.bias + 2) << format.fraction_bits) - (moved & format.exponent_mask)).as_number()
    f = fma(x * 0.25, quarter, fma(quarter, 0.25, -1.0))
    return combined(f, exponent_of(moved, format), Fraction(1), LN2)


def itself_if_tiny(x: Number, result: Number) -> Number:
    """x instead of log(1 + x) where they are equal to the last bit, -0 among them."""
    return choose(abs(x) < 2.0 ** -(x.format.fraction_bits + 2), x, result)


def log1p(x: Number) -> Number:
    """log(1 + x). Error below 2 ulp in both formats."""
    return itself_if_tiny(x, with_specials(log1p_inside(x), x + 1.0))
