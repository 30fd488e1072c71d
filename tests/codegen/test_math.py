"""The vector functions against exact values: how far off they are, and what they do at the edges.

Run with `-s` to see the largest error of every function. From a million on, INGOT_TEST_EXAMPLES sets how many
single-precision arguments each function sees, evenly spread over all 2^32 (67108864 is every 64th), and the samples in
double precision are ten times larger.
"""

from __future__ import annotations

import os

import mpmath
import numpy
import pytest

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Host, assembly_of
from ingot.codegen.llvm.math import FUNCTIONS
from tests.codegen.hosts import AARCH64, BASELINE, GPU, HASWELL
from tests.codegen.math_kernels import ARITY, double_error, evaluate, kernel_module, single_errors
from tests.codegen.math_references import DOMAINS, EXACT, PRECISION_BITS, in_double

UNARY = [name for name in FUNCTIONS if name not in ARITY]
EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", "0"))
LONG_RUN = EXAMPLES >= 1_000_000
SINGLE_LIMIT, DOUBLE_LIMIT = 2.0, 4.0

# Where a function changes its method, overflows, underflows or has a root or pole.
BOUNDARIES = [
    *(0.0, 0.45, 0.47, 0.5, 0.6, 0.7071067811865476, 0.9966, 1.0, 1.25, 1.4142135623730951, 1.5, 2.0, 2.457024, 2.5),
    *(3.5, 3.94, 4.0, 7.5, 9.01, 9.2, 10.05, 14.53, 17.33, 18.0, 20.0, 26.5, 27.2, 28.0, 36.7, 44.0, 87.34, 88.72),
    *(89.0, 103.97, 104.0, 126.0, 127.0, 128.0, 149.0, 150.0, 151.0),
    *(709.78, 710.4758, 745.13, 1022.0, 1024.0, 1074.0, 1075.0),
    *(0.34657359 * k for k in range(1, 12)),
    *(0.78539816339744831 * k for k in range(1, 40)),
    *(2.0**k for k in range(-30, 64)),
]


def generator(name: str) -> numpy.random.Generator:
    return numpy.random.default_rng([ord(letter) for letter in name])


def boundary_singles() -> numpy.ndarray:
    """The boundaries of both signs and the three floats on either side of each."""
    bits = numpy.array(BOUNDARIES, numpy.float32).view(numpy.int32)
    near = (bits[:, None] + numpy.arange(-3, 4, dtype=numpy.int32)).ravel().view(numpy.float32)
    return numpy.concatenate([near, -near])


def single_samples(name: str) -> numpy.ndarray:
    """Every sign and exponent with 200 fractions each, NaNs among them; the domain; the boundaries."""
    random = generator(name)
    if LONG_RUN:
        # An odd step: every low bit of the fraction has its turn.
        spread = numpy.arange(0, 2**32, (2**32 // EXAMPLES) | 1, dtype=numpy.uint32)
    else:
        fractions = random.integers(0, 2**23, (512, 200), dtype=numpy.uint32)
        spread = ((numpy.arange(512, dtype=numpy.uint32)[:, None] << numpy.uint32(23)) | fractions).ravel()
    domain = DOMAINS[name]
    low, high = max(domain.low, -151.0), min(domain.high, 130.0)
    inside = random.uniform(low, high, 100_000).astype(numpy.float32)
    return numpy.concatenate([spread.view(numpy.float32), inside, boundary_singles()])


def describe(name: str, kind: str, errors: numpy.ndarray, *inputs: numpy.ndarray) -> str:
    worst = int(numpy.argmax(errors))
    where = ", ".join(repr(float(values[worst])) for values in inputs)
    return f"{name} {kind}: {errors[worst]:.3f} ulp at most, over {errors.size} arguments, at {where}"


@pytest.mark.parametrize("name", UNARY)
def test_single_precision_stays_within_bound(name: str):
    worst = 0.0
    for x in numpy.array_split(single_samples(name), max(1, EXAMPLES // 2**22)):
        got = evaluate(name, x, width=8)
        with numpy.errstate(all="ignore"):
            exact = in_double(name)(x.astype(numpy.float64))
        errors = single_errors(got, exact)
        worst = max(worst, errors.max())
        assert worst <= SINGLE_LIMIT, describe(name, "float32", errors, x)
    print(f"\n{name} float32: {worst:.3f} ulp", end="")


def pairs_for(name: str, count: int, dtype: type) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Arguments of a function of two: any numbers at all, and such as give ordinary results."""
    random = generator(name)
    single = dtype is numpy.float32
    integer = numpy.uint32 if single else numpy.uint64
    anything = [random.integers(0, numpy.iinfo(integer).max, count, dtype=integer).view(dtype) for _ in range(2)]
    span = 88.0 if single else 709.0
    base = numpy.exp(random.uniform(-span, span, count))
    base[::2] = random.uniform(0.5, 2.0, base[::2].size)
    low, high = (-104.0, 89.0) if single else (-745.0, 709.7)
    exponent = random.uniform(low, high, count) / numpy.log(base)
    if name == "atan2":
        with numpy.errstate(all="ignore"):
            exponent = base * numpy.exp2(random.uniform(-60, 60, count)) * random.choice([-1.0, 1.0], count)
    with numpy.errstate(all="ignore"):
        first = numpy.concatenate([anything[0], base.astype(dtype)])
        second = numpy.concatenate([anything[1], exponent.astype(dtype)])
    return first, second


@pytest.mark.parametrize("name", sorted(ARITY))
def test_single_precision_of_two_arguments_stays_within_bound(name: str):
    x, y = pairs_for(name, max(100_000, EXAMPLES // 4), numpy.float32)
    got = evaluate(name, x, y, width=8)
    with numpy.errstate(all="ignore"):
        exact = in_double(name)(x.astype(numpy.float64), y.astype(numpy.float64))
    errors = single_errors(got, exact)
    print("\n" + describe(name, "float32", errors, x, y), end="")
    assert errors.max() <= SINGLE_LIMIT, describe(name, "float32", errors, x, y)


def double_samples(name: str) -> numpy.ndarray:
    count = {"erfinv": 300, "lgamma": 600}.get(name, 1000)
    inside = DOMAINS[name].sample(count * (10 if LONG_RUN else 1), generator(name))
    edges = numpy.concatenate([numpy.array(BOUNDARIES), -numpy.array(BOUNDARIES)])
    domain = DOMAINS[name]
    outermost = max(domain.high, 2.0**domain.largest_exponent) if domain.largest_exponent < 1023 else numpy.inf
    innermost = min(domain.low, -outermost) if domain.negative else domain.low
    edges = edges[(edges > innermost) & (edges < outermost) & (edges != 0)]
    return numpy.concatenate([inside, edges, numpy.nextafter(edges, 0.0)])


@pytest.mark.parametrize("name", UNARY)
def test_double_precision_stays_within_bound(name: str):
    x = double_samples(name)
    got = evaluate(name, x, width=4)
    with mpmath.workprec(PRECISION_BITS):
        exact = (EXACT[name](mpmath.mpf(float(value))) for value in x)
        errors = numpy.array([double_error(float(a), b) for a, b in zip(got, exact, strict=True)])
    print("\n" + describe(name, "float64", errors, x), end="")
    assert errors.max() <= DOUBLE_LIMIT, describe(name, "float64", errors, x)


@pytest.mark.parametrize("name", sorted(ARITY))
def test_double_precision_of_two_arguments_stays_within_bound(name: str):
    x, y = (values[-2000:] for values in pairs_for(name, 2000, numpy.float64))
    got = evaluate(name, x, y, width=4)
    with mpmath.workprec(PRECISION_BITS):
        points = zip(x, y, strict=True)
        exact = (EXACT[name](mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in points)
        errors = numpy.array([double_error(float(a), b) for a, b in zip(got, exact, strict=True)])
    print("\n" + describe(name, "float64", errors, x, y), end="")
    assert errors.max() <= DOUBLE_LIMIT, describe(name, "float64", errors, x, y)


def test_lgamma_below_minus_a_half_is_good_absolutely():
    x = numpy.concatenate([-generator("reflection").uniform(0.5, 40.0, 400), [-2.457024738220801, -3.143580888349981]])
    got = evaluate("lgamma", x, width=4)
    with mpmath.workprec(PRECISION_BITS):
        for argument, value in zip(x, got, strict=True):
            point = mpmath.mpf(float(argument))
            scale = abs(mpmath.loggamma(-point)) + abs(mpmath.log(abs(point * mpmath.sinpi(point)))) + 1
            error = abs(mpmath.mpf(float(value)) - EXACT["lgamma"](point))
            assert error <= 2 * 2.0**-52 * scale, float(argument)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_the_hardest_angles_are_reduced_exactly(name: str):
    """Doubles and floats that lie closest to a multiple of pi/2, and the largest of all."""
    doubles = numpy.array(
        [6381956970095103.0 * 2.0**797, 2.0**1023, 1.7976931348623157e308, 1e22, 5.319372648326541e255]
    )
    doubles = numpy.concatenate([doubles, -doubles])
    with mpmath.workprec(1400):
        exact = [EXACT[name](mpmath.mpf(float(value))) for value in doubles]
        errors = [double_error(float(a), b) for a, b in zip(evaluate(name, doubles, width=4), exact, strict=True)]
    assert max(errors) <= DOUBLE_LIMIT
    singles = numpy.array([16367173.0 * 2.0**72, 3.4028235e38, 1.2e10, 2.0**100], numpy.float32)
    exact_singles = in_double(name)(singles.astype(numpy.float64))
    assert single_errors(evaluate(name, singles, width=8), exact_singles).max() <= SINGLE_LIMIT


SPECIALS = [0.0, -0.0, numpy.nan, numpy.inf, -numpy.inf, 1.0, -1.0]
EXTREMES = [5e-324, -5e-324, 1e-310, -1e-310, 1e300, -1e300, 1e-300, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0]
SINGLE_EXTREMES = [1e-45, -1e-45, 1e-40, -1e-40, 3e38, -3e38, 1e-38, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0]


def assert_same_values(name: str, got: numpy.ndarray, expected: numpy.ndarray, *inputs: numpy.ndarray) -> None:
    """Equal up to a few ulp, with the same NaNs, infinities, zeros and signs."""
    with numpy.errstate(all="ignore"):
        step = numpy.spacing(numpy.abs(expected))
        close = (got == expected) | (numpy.abs(got - expected) <= 4 * step)
        close &= numpy.signbit(got) == numpy.signbit(expected)
        close |= numpy.isnan(got) & numpy.isnan(expected)
    for index in numpy.flatnonzero(~close):
        arguments = ", ".join(str(values[index]) for values in inputs)
        pytest.fail(f"{name}({arguments}) is {got[index]}, should be {expected[index]}")


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_exact(name: str, dtype: type):
    values = SPECIALS + (SINGLE_EXTREMES if dtype is numpy.float32 else EXTREMES)
    inputs = [numpy.array(values, dtype)]
    if name in ARITY:
        inputs = [grid.ravel() for grid in numpy.meshgrid(inputs[0], inputs[0])]
    with numpy.errstate(all="ignore"):
        expected = in_double(name)(*(array.astype(numpy.float64) for array in inputs)).astype(dtype)
    for width in (None, 4):
        assert_same_values(name, evaluate(name, *inputs, width=width), expected, *inputs)


@pytest.mark.parametrize(("dtype", "width"), [(numpy.float32, 8), (numpy.float64, 4)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vectors_and_scalars_give_equal_bits(name: str, dtype: type, width: int):
    integer = numpy.uint32 if dtype is numpy.float32 else numpy.uint64
    random = generator(name)
    anything = [random.integers(0, numpy.iinfo(integer).max, 2000, dtype=integer).view(dtype) for _ in range(2)]
    usual = [random.uniform(-20, 20, 2000).astype(dtype) for _ in range(2)]
    inputs = [numpy.concatenate(both) for both in zip(anything, usual, strict=True)][: ARITY.get(name, 1)]
    scalar, vector = evaluate(name, *inputs, width=None), evaluate(name, *inputs, width=width)
    assert numpy.array_equal(scalar, vector, equal_nan=True)
    number = ~numpy.isnan(scalar)
    assert numpy.array_equal(scalar[number].view(integer), vector[number].view(integer))


@pytest.mark.parametrize("base", [-8.0, -1.0, -0.0, 0.0, -numpy.inf])
@pytest.mark.parametrize("exponent", [3.0, -3.0, 2.0, -2.0, 2.0**53 + 2, 0.5, -0.5, numpy.inf, -numpy.inf])
def test_pow_follows_c99(base: float, exponent: float):
    got = evaluate("pow", numpy.array([base]), numpy.array([exponent]), width=None)
    with numpy.errstate(all="ignore"):
        expected = numpy.power(numpy.array([base]), numpy.array([exponent]))
    assert_same_values("pow", got, expected, numpy.array([base]), numpy.array([exponent]))


@pytest.mark.parametrize("value", [numpy.nan, numpy.inf, -numpy.inf, 0.0, -2.5])
def test_pow_is_one_for_exponent_zero_and_base_one(value: float):
    x = numpy.array([value, value, 1.0])
    y = numpy.array([0.0, -0.0, value])
    assert numpy.array_equal(evaluate("pow", x, y, width=None), numpy.ones(3))


def machine_text(name: str, lane: ir.Type, width: int | None, host: Host) -> str:
    return assembly_of(str(kernel_module(name, lane, width, host)), host)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_library_is_called(name: str):
    """Inline code on every processor, and on a GPU."""
    for lane, width in ((ir.FloatType(), 8), (ir.DoubleType(), 4)):
        assert "call" not in machine_text(name, lane, width, HASWELL)
        assert "call" not in machine_text(name, lane, width, BASELINE)
        assert "\tbl\t" not in machine_text(name, lane, width, AARCH64)
        text = machine_text(name, lane, None, GPU)
        assert "call" not in text and ".extern" not in text
