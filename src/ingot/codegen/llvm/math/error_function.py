"""The error function and its complement: erf and erfc.

erf is x P(x^2) for |x| < 1. Beyond, single precision has 1 - 2^Q(|x|) with a polynomial for log2(erfc); double
precision has erfc(x) = e^-x^2 G(t) / (1 + 2x), t = (x - 4) / (x + 4), which one polynomial G covers from 0.45 to 28,
where erfc has underflowed. Polynomials by the Remez exchange algorithm in 250-bit arithmetic, the single-precision ones
rounded coefficient by coefficient, lowest first, the rest fitted again.
"""

from __future__ import annotations

from ingot.codegen.llvm.math.dsl.formats import LOG2_E, Coefficients
from ingot.codegen.llvm.math.dsl.vocabulary import Number, at_most, choose, fma, polynomial, with_sign_of
from ingot.codegen.llvm.math.exponentials import EXP2, exp2_of_moderate, exponential, power_of_two

# erf(x) / x - 1 in powers of x^2 for |x| <= 1; relative error of erf below 2^-29 and 2^-56.
_ERF_SMALL = Coefficients(
    single=(
        0.12837916612625122,
        -0.3761262595653534,
        0.11283578723669052,
        -0.026853347197175026,
        0.005187162198126316,
        -0.0007997853099368513,
        7.806903158780187e-05,
    ),
    double=(
        0.1283791670955126,
        -0.3761263890318375,
        0.11283791670954857,
        -0.0268661706450729,
        0.00522397762478091,
        -0.0008548326978744247,
        0.0001205533103695644,
        -1.4925593507847239e-05,
        1.6460972826405126e-06,
        -1.6350025265942737e-07,
        1.465787980364315e-08,
        -1.136566471145046e-09,
        5.945258036921187e-11,
    ),
)

# log2(erfc(x)) for 1 <= x <= 3.94; error of erfc below 2^-29.
LOG2_ERFC_SINGLE = (
    -0.0005105434102006257,
    -1.6259740591049194,
    -0.9207668304443359,
    -0.14864978194236755,
    0.03145751357078552,
    -0.004240702372044325,
    0.00026769752730615437,
)

# 2^r for |r| <= 1/2; error below 2^-23, which erfc(1) = 0.16 makes small enough.
_EXP2_ROUGH = (
    1.0000001192092896,
    0.6931471824645996,
    0.24021971225738525,
    0.05550337955355644,
    0.009681301191449165,
    0.0013400583993643522,
)

# (1 + 2x) e^x^2 erfc(x) in powers of t = (x - 4) / (x + 4) for 0.45 <= x <= 28; relative error below 2^-54.
_ERFC_DOUBLE = (
    1.2329951186255526,
    -0.1396211168405625,
    0.015379652102619722,
    0.06809705425468837,
    -0.10103906603630167,
    0.09373283499853546,
    -0.06633036581231691,
    0.03716751553380335,
    -0.016197734056140244,
    0.005031970018198759,
    -0.0007577733038065193,
    -0.0001992569617605186,
    0.00015062176125876933,
    -2.4398077106365017e-05,
    -1.1222339314484003e-05,
    5.706553836945904e-06,
    2.94535121167064e-07,
    -8.196107062712231e-07,
    7.358332244165896e-08,
    1.0335178382429662e-07,
    -1.7072189567054567e-08,
    -9.689114593688629e-09,
    1.5498864584808415e-09,
)


# The same in powers of (x - 3) / (x + 3) for 0.45 <= x <= 10.3, for single precision; relative error below 2^-30.
_ERFC_ROUGH = (
    1.253008058946952,
    -0.13562110463966584,
    -0.047562396661318534,
    0.129645064690592,
    -0.11927119262153935,
    0.06831015376185003,
    -0.02379154403783026,
    0.002509050026120923,
    0.001962285818001789,
    -0.0006965502722631416,
    -0.00019475062944429152,
)


def erf_near_zero(x: Number) -> Number:
    """erf for |x| < 1."""
    return fma(polynomial(x * x, _ERF_SMALL), x, x)


def _erf_large_single(x: Number) -> Number:
    """1 - erfc(x) for x >= 1."""
    exponent = polynomial(at_most(x, 3.94), LOG2_ERFC_SINGLE)
    n_rounder = exponent + x.format.rounder
    r = exponent - (n_rounder - x.format.rounder)
    return fma(-polynomial(r, _EXP2_ROUGH), power_of_two(n_rounder), 1.0)


def _erfc_double(x: Number) -> Number:
    """erfc for x >= 0.45. What x^2 loses to rounding is made good after the exponential."""
    x = at_most(x, 28.0)
    square = x * x
    e = exponential(-square)
    e = fma(e, fma(-x, x, square), e)
    t = (x - 4.0) / (x + 4.0)
    return e * (polynomial(t, _ERFC_DOUBLE) / fma(x, 2.0, 1.0))


def erf(x: Number) -> Number:
    """Error below 2 ulp in both formats."""
    magnitude = abs(x)
    large = _erf_large_single(magnitude) if x.is_single else 1.0 - _erfc_double(magnitude)
    return choose(magnitude < 1.0, erf_near_zero(x), with_sign_of(large, x))


def _erfc_of_single(x: Number) -> Number:
    """erfc, good to 2^-27, of single-precision numbers held in double precision, where their squares are exact."""
    magnitude = at_most(abs(x), 10.3)
    square = magnitude * magnitude
    e = exp2_of_moderate(square * -LOG2_E, EXP2.single)
    t = (magnitude - 3.0) / (magnitude + 3.0)
    large = e * polynomial(t, _ERFC_ROUGH) / fma(magnitude, 2.0, 1.0)
    large = choose(x < 0.0, 2.0 - large, large)
    return choose(magnitude < 0.47, 1.0 - fma(polynomial(square, _ERF_SMALL.single), x, x), large)


def erfc(x: Number) -> Number:
    """1 - erf(x) without its cancellation; denormal results from x = 26.5 on, in single precision from 9.2 on.

    Single precision goes through double. Error below 1 ulp in single, 4 ulp in double precision.
    """
    if x.is_single:
        return _erfc_of_single(x.widened()).narrowed()
    large = _erfc_double(abs(x))
    large = choose(x < 0.0, 2.0 - large, large)
    return choose(abs(x) < 0.47, 1.0 - erf_near_zero(x), large)
