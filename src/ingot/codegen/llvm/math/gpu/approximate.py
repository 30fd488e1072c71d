"""Functions for programs whose results have 16 bits: right to about 2^-18, in as few instructions as that takes.

Eager PyTorch rounds every intermediate result of such a program to 9 or 12 bits, so that these are still far better.
Special values are exact, and so is the kind of every result: what is finite, infinite, zero or NaN is so here, too, but
for results below the least normal number of float32, which may be zero. Errors are relative, but absolute for log near
1: below 2^-22. Signs of zeros are kept by products with x, where a sum would lose them.
"""

from __future__ import annotations

from ingot.codegen.llvm.math.dsl.formats import LN2, LOG2_E, LOG10_2
from ingot.codegen.llvm.math.dsl.vocabulary import Number, choose, fma, polynomial, with_sign_of
from ingot.codegen.llvm.math.gpu.ptx_instructions import binary_logarithm, hyperbolic_tangent, power_of_two, reciprocal

# Polynomials by Lawson's iteration on 1500 Chebyshev points, rounded one by one, lowest first, the rest fitted again.

# log2(erfc(x)) for 0.36 <= x; absolute error of erf below 2^-21. It decreases from there on, without end.
_LOG2_ERFC = (
    -0.00014106817252468318,
    -1.626879096031189,
    -0.9211215376853943,
    -0.1456141322851181,
    0.02797084115445614,
    -0.002629523165524006,
)
# The same for 0 <= x <= 4, for sums with erf(-x); relative error of erfc below 2^-18. It decreases beyond, too.
_LOG2_ERFC_OF_TAIL = (
    4.628629540093243e-06,
    -1.6281121969223022,
    -0.9169430136680603,
    -0.15259453654289246,
    0.03400690108537674,
    -0.005252820905297995,
    0.0004903966328129172,
    -2.055871118500363e-05,
)
# erf(x) / x in powers of x^2 for |x| <= 0.36; relative error below 2^-19.
_ERF = (1.1283774375915527, -0.3758814036846161, 0.10775350779294968)
# (tanh(x) / x - 1) / x^2 in powers of x^2 for |x| <= 0.25; relative error of tanh below 2^-20.
_TANH = (-0.33324572443962097, 0.12876440584659576)
# artanh(erf(x)) / x in powers of x^2, for 0 <= x <= 3.3; relative error of erf below 2^-18. It increases without end.
_ARTANH_ERF = (
    1.1283749341964722,
    0.10285204648971558,
    -0.00040801806608214974,
    -0.00044632525532506406,
    3.545025901985355e-05,
)
# (log1p(x) / x - 1) / x for |x| <= 0.2; relative error of log1p below 2^-18.
_LOG1P = (-0.4999150335788727, 0.33322563767433167, -0.2585452198982239, 0.20836250483989716)
# (expm1(x) / x - 1) / x for |x| <= 0.2; relative error of expm1 below 2^-18.
_EXPM1 = (0.500001847743988, 0.16694284975528717, 0.04164738208055496)


def exp(x: Number) -> Number:
    """The product with log2(e) is off by 2^-18 at the ends of the range, and by less in between."""
    return power_of_two(x * LOG2_E, flushes=True)


def exp2(x: Number) -> Number:
    return power_of_two(x, flushes=True)


def expm1(x: Number) -> Number:
    """x P(x) below 0.2."""
    small = polynomial(x, (1.0, *_EXPM1)) * x
    return choose(abs(x) < 0.2, small, power_of_two(x * LOG2_E, flushes=True) - 1.0)


def sigmoid(x: Number) -> Number:
    """1 / (1 + e^-x)."""
    return reciprocal(power_of_two(x * -LOG2_E, flushes=True) + 1.0)


def log(x: Number) -> Number:
    return binary_logarithm(x) * LN2


def log2(x: Number) -> Number:
    return binary_logarithm(x)


def log10(x: Number) -> Number:
    return binary_logarithm(x) * LOG10_2


def log1p(x: Number) -> Number:
    """x P(x) below 0.2; above, what the sum 1 + x loses does not matter."""
    small = polynomial(x, (1.0, *_LOG1P)) * x
    return choose(abs(x) < 0.2, small, binary_logarithm(x + 1.0, flushes=True) * LN2)


def tanh(x: Number) -> Number:
    """1 - 2 / (e^2x + 1), and x P(x^2) below 0.25."""
    small = polynomial(x * x, (1.0, *_TANH)) * x
    e = power_of_two(x * (2 * LOG2_E), flushes=True)
    return choose(abs(x) < 0.25, small, fma(reciprocal(e + 1.0), -2.0, 1.0))


def erf(x: Number) -> Number:
    """1 - 2^Q(|x|), and x P(x^2) below 0.36."""
    magnitude = abs(x)
    large = 1.0 - power_of_two(polynomial(magnitude, _LOG2_ERFC), flushes=True)
    return choose(magnitude < 0.36, polynomial(x * x, _ERF) * x, with_sign_of(large, x))


def one_and_tanh(x: Number) -> Number:
    """1 + tanh(x), which is 2 / (1 + e^-2x): small where x is negative, and as good there as anywhere."""
    return reciprocal(fma(power_of_two(x * (-2 * LOG2_E), flushes=True), 0.5, 0.5))


def one_and_erf(x: Number) -> Number:
    """1 + erf(x), which is erfc(-x): p = erfc(|x|) where x is negative, 2 - p elsewhere.

    For x below -4 it is less than 2e-8, which float32 cannot tell from nothing in the sum, and has its size only.
    """
    p = power_of_two(polynomial(abs(x), _LOG2_ERFC_OF_TAIL), flushes=True)
    side = with_sign_of(x.constant(1.0), x)
    return fma(-side, p, side + 1.0)


def tanh_to_8_bits(x: Number) -> Number:
    """Right to 2^-11."""
    return hyperbolic_tangent(x)


def erf_to_8_bits(x: Number) -> Number:
    """tanh(x P(x^2)), right to 2^-11."""
    return hyperbolic_tangent(polynomial(x * x, _ARTANH_ERF) * x)
