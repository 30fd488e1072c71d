"""The inverse of the error function: erfinv.

With w = -log((1 - x)(1 + x)), erfinv(x) / x is a smooth function of w: one polynomial in w for w < 5, which is
|x| < 0.9966, then two in sqrt(w), split at w = 16. Polynomials by the Remez exchange algorithm in 160-bit arithmetic,
the values by Halley's iteration on erfc.
"""

from __future__ import annotations

from ingot.codegen.llvm.math.dsl.formats import INFINITY
from ingot.codegen.llvm.math.dsl.vocabulary import Number, choose, in_double, polynomial, square_root, with_sign_of
from ingot.codegen.llvm.math.logarithms import log

# erfinv(x) / x in powers of w - 2.5 for w <= 5; relative error below 2^-53, from rounding the coefficients.
_CENTRE = (
    1.501409351110792,
    0.246640276744167,
    -0.004177317724383611,
    -0.0012527079078110146,
    0.00021825026434398056,
    -4.996079598910879e-06,
    -3.416619596361926e-06,
    4.787252186207547e-07,
    1.341680349307957e-08,
    -1.0861169023232853e-08,
    9.07303846721731e-10,
    1.1960703292734542e-10,
    -3.1102879111086436e-11,
    9.11551266420388e-13,
    5.35662099359258e-13,
    -7.612361416206128e-14,
    -2.8864749759481107e-15,
    1.8963365007295865e-15,
    -1.359764402016589e-16,
    -2.680058552308683e-17,
    4.865889483835145e-18,
    1.6923205596403458e-19,
    -6.763637551837088e-20,
)

# In powers of sqrt(w) - 3.115 for 2.23 <= sqrt(w) <= 4; relative error below 2^-54.
_MIDDLE = (
    2.9482836734501325,
    1.0035761285019538,
    0.007209216776670487,
    -0.005455332619741058,
    0.003922316594107046,
    -0.0025962078860397456,
    0.001283413915231284,
    -0.00032100088399290123,
    -0.0001020677042620766,
    0.00014199977084222362,
    -5.9016781631266214e-05,
    7.661679092018154e-07,
    1.222855239906153e-05,
    -6.387143222250412e-06,
    7.697273362659323e-07,
    8.351999344004198e-07,
    -5.560935917963198e-07,
    1.2902015051099236e-07,
    4.023092755469023e-08,
    -4.91821437183931e-08,
    1.3877573604545644e-08,
    4.4780190132988514e-09,
    -2.696880095896934e-09,
)

# In powers of sqrt(w) - 5.05 for 4 <= sqrt(w) <= 6.1, which is where the doubles below 1 end; error below 2^-53.
_TAIL = (
    4.90042105144364,
    1.0102850175977711,
    -0.00016985809149405175,
    -0.00020031200663182355,
    7.124031543805007e-05,
    -1.8374536912238648e-05,
    4.1938536092900134e-06,
    -9.070804162868911e-07,
    2.0161972651023853e-07,
    -5.4954010897904734e-08,
    2.1820088169799657e-08,
    -1.115660612106614e-08,
    5.8085776580255895e-09,
    -2.7020585174001036e-09,
    1.0459246724856399e-09,
    -3.2800984312302045e-10,
    7.861514300109164e-11,
    2.2376411125354932e-12,
    -1.5672864911598066e-11,
    5.091594003231997e-12,
)


@in_double
def erfinv(x: Number) -> Number:
    """Infinite at -1 and 1, NaN beyond. Error below 4 ulp in double precision."""
    w = -log((1.0 - x) * (x + 1.0))
    root = square_root(w)
    outer = choose(root < 4.0, polynomial(root - 3.115, _MIDDLE), polynomial(root - 5.05, _TAIL))
    result = x * choose(w < 5.0, polynomial(w - 2.5, _CENTRE), outer)
    return choose(abs(x).equals(1.0), with_sign_of(x.constant(INFINITY), x), result)
