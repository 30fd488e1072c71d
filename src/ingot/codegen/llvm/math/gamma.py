"""The logarithm of |gamma|: lgamma, in double precision.

Near 2, lgamma(2 + z) = z Q(z) for -3/4 <= z <= 1/2. Other arguments below 7.5 come there by whole steps, each of which
puts a factor into one logarithm: gamma(x + 1) = x gamma(x). Larger ones have Stirling's series, those below -1/2 the
reflection formula. Polynomials by the Remez exchange algorithm in 160-bit arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

from ingot.codegen.llvm.math.dsl.formats import INFINITY
from ingot.codegen.llvm.math.dsl.vocabulary import Number, choose, fma, in_double, polynomial, rounded
from ingot.codegen.llvm.math.logarithms import log

# lgamma(2 + z) / z for -3/4 <= z <= 1/2; relative error below 2^-53, from rounding the coefficients.
_NEAR_TWO = (
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319802,
    0.0205808084277837,
    -0.007385551028683274,
    0.002890510330791655,
    -0.0011927539112583387,
    0.000509669523494082,
    -0.00022315476941395492,
    9.94575270178125e-05,
    -4.492608105343375e-05,
    2.0507164354089717e-05,
    -9.440825480899735e-06,
    4.37433652682855e-06,
    -2.0322745866902416e-06,
    9.618579699205244e-07,
    -4.696589191385733e-07,
    1.8027951823736184e-07,
    -7.408363744120162e-08,
    1.194573509747825e-07,
    -1.4245425621099302e-08,
    -5.231870994786645e-08,
    -4.712629784134597e-08,
)

# x (lgamma(x) - (x - 1/2) log x + x - log(2 pi) / 2) in powers of 1 / x^2 for x >= 7; error below 2^-63.
_STIRLING = (
    0.08333333333333322,
    -0.002777777777652138,
    0.0007936507444551825,
    -0.0005952286980998266,
    0.0008407674085184327,
    -0.0018593059134629514,
    0.00452457759564379,
)

# sin(pi r) / r in powers of r^2 for |r| <= 1/2; relative error below 2^-53.
_SINE_OF_TURN = (
    3.141592653589793,
    -5.16771278004997,
    2.5501640398773455,
    -0.5992645293207862,
    0.08214588661098035,
    -0.007370430943550587,
    0.0004663027864363176,
    -2.191524627323071e-05,
    7.948453418398683e-07,
    -2.2276125504242142e-08,
)

_LOG_PI = Fraction("1.14472988584940017414342735135305871164729481291531157151362307")
_HALF_LOG_TURN = Fraction("0.918938533204672741780329736405617639861397473637783412817151540")


def _upper(x: Number) -> Number:
    """lgamma(x) for x > -1/2."""
    # From 1.25 on the step from below 1.5 up to 2.5 would cost digits: its logarithm nearly cancels Q.
    whole = choose((x >= 1.25) & (x < 2.0), 2.0, rounded(x))
    z = x - whole
    raised = x.constant(1.0)
    for step in range(1, 6):
        raised = raised * choose(whole >= step + 2.0, x - float(step), 1.0)
    low = whole <= 1.0
    lowered = abs(x) * choose(whole <= 0.0, x + 1.0, 1.0)
    large = x >= 7.5
    logarithm = log(choose(large, x, choose(low, lowered, raised)))
    inverse = 1.0 / x
    correction = inverse * polynomial(inverse * inverse, _STIRLING)
    stirling = fma(x - 0.5, logarithm - 1.0, (_HALF_LOG_TURN - Fraction(1, 2)) + correction)
    return choose(large, stirling, fma(z, polynomial(z, _NEAR_TWO), choose(low, -logarithm, logarithm)))


@in_double
def lgamma(x: Number) -> Number:
    """log |gamma(x)|, +inf at 0 and the negative whole numbers, and at both infinities.

    Single precision goes through double and is right to 1 ulp. Double precision: below 4 ulp for x > -1/2, the roots 1
    and 2 included; for smaller x the reflection log(pi / |x sin(pi x)|) - lgamma(|x|) keeps the ABSOLUTE error below
    2 ulp of the sum of its terms' sizes, which near the roots between negative whole numbers is many ulp of the small
    result.
    """
    reflected = x <= -0.5
    upper = _upper(choose(reflected, -x, x))
    r = x - rounded(x)
    sine = abs(r * polynomial(r * r, _SINE_OF_TURN))
    lower = (_LOG_PI - log(abs(x) * sine)) - upper
    lower = choose(sine > 0.0, lower, INFINITY)
    return choose(x.is_nan(), x, choose(reflected, lower, upper))
