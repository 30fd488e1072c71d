"""The logarithm of |gamma|: lgamma, in double precision.

Near 2, lgamma(2 + z) = z Q(z) for |z| <= 1/2. Other arguments below 7.5 come there by whole steps, each of which puts a
factor into one logarithm: gamma(x + 1) = x gamma(x). Larger ones have Stirling's series, those below -1/2 the reflection
formula. Polynomials by the Remez exchange algorithm in 160-bit arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

from ingot.codegen.llvm.math.logarithms import log
from ingot.codegen.llvm.math.words import INFINITY, Number, choose, fma, in_double, polynomial, rounded

# lgamma(2 + z) / z for |z| <= 1/2; relative error below 2^-55.
_NEAR_TWO = (
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319814,
    0.020580808427784928,
    -0.007385551028668358,
    0.002890510330713489,
    -0.00119275391199276,
    0.0005096695256929664,
    -0.00022315475091198565,
    9.945749510424655e-05,
    -4.49263492136327e-05,
    2.0507409857382203e-05,
    -9.438471295043805e-06,
    4.373498673023193e-06,
    -2.044871378874312e-06,
    9.61069674143892e-07,
    -4.304577960967952e-07,
    1.966438828513014e-07,
    -1.3403948111249595e-07,
    6.918131150863706e-08,
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
    whole = rounded(x)
    z = x - whole
    raised = x.constant(1.0)
    for step in range(1, 6):
        raised = raised * choose(whole >= step + 2.0, x - float(step), 1.0)
    low = whole <= 1.0
    lowered = abs(x) * choose(whole <= 0.0, x + 1.0, 1.0)
    large = x >= 7.5
    logarithm = log(choose(large, x, choose(low, lowered, raised)))
    inverse = 1.0 / x
    stirling = fma(
        x - 0.5, logarithm - 1.0, (_HALF_LOG_TURN - Fraction(1, 2)) + inverse * polynomial(inverse * inverse, _STIRLING)
    )
    return choose(large, stirling, fma(z, polynomial(z, _NEAR_TWO), choose(low, -logarithm, logarithm)))


@in_double
def lgamma(x: Number) -> Number:
    """log |gamma(x)|, +inf at 0 and the negative whole numbers, and at both infinities.

    Single precision goes through double and is right to 1 ulp. Double precision: below 5 ulp for x > -1/2, the roots 1
    and 2 included; for smaller x the reflection log(pi / |x sin(pi x)|) - lgamma(|x|) keeps the ABSOLUTE error below
    5 ulp of the larger term, which near the roots between negative whole numbers is many ulp of the small result.
    """
    reflected = x <= -0.5
    upper = _upper(choose(reflected, -x, x))
    r = x - rounded(x)
    sine = abs(r * polynomial(r * r, _SINE_OF_TURN))
    lower = (_LOG_PI - log(abs(x) * sine)) - upper
    lower = choose(sine > 0.0, lower, INFINITY)
    return choose(x.is_nan(), x, choose(reflected, lower, upper))
