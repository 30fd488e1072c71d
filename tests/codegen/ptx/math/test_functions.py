"""Functions for GPUs: PTX that NVIDIA's assembler takes, and what their methods are worth, tried on this processor."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy
import pytest

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Host
from ingot.codegen.llvm.math import FUNCTIONS, SUMS_WITH_ONE, TO_8_BITS
from ingot.codegen.llvm.math.dsl.definitions import emitter
from ingot.codegen.llvm.math.gpu import ptx_instructions
from ingot.codegen.ptx.target import gpu
from tests.codegen.math_kernels import ARITY, evaluate, single_errors
from tests.codegen.math_references import in_double
from tests.codegen.ptx.math.function_kernels import assembled, names_for, ptx_of_functions
from tests.codegen.ptx.math.simulated import ACCURATE, APPROXIMATE, instruction
from tests.codegen.test_math import (
    SINGLE_EXTREMES,
    SINGLE_LIMIT,
    SPECIALS,
    assert_same_values,
    describe,
    generator,
    single_samples,
)

HOPPER = gpu((9, 0))
LANES = (ir.FloatType(), ir.DoubleType(), *(ir.IntType(bits) for bits in (8, 16, 32, 64)))
OF_THEIR_OWN = ["exp", "sigmoid", "log", "log2", "log10", "log1p", "tanh", "erf", "rsqrt"]
"""Functions that are computed otherwise on a GPU."""


@pytest.mark.parametrize("host", [HOPPER, replace(HOPPER, approximates=True), gpu((7, 0))], ids=["9", "rough", "7"])
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("lane", LANES, ids=str)
def test_functions_become_ptx_that_assembles(lane: ir.Type, lanes: int, host: Host, tmp_path):
    ptx = ptx_of_functions(names_for(lane), lane, lanes, host)
    assert "call" not in ptx and ".extern" not in ptx
    if host is HOPPER and lanes == 4 and shutil.which("ptxas"):
        assert assembled(ptx, host.name, tmp_path) == ""


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("bits", [8, 16])
def test_short_integers_have_no_maxima_that_the_assembler_gets_wrong(bits: int, lanes: int):
    ptx = ptx_of_functions(["pow"], ir.IntType(bits), lanes, HOPPER)
    assert not re.search(r"(max|min)\.[su]16", ptx)
    assert "selp.b16" in ptx


@pytest.fixture
def simulated(monkeypatch):
    monkeypatch.setattr(ptx_instructions, "instruction", instruction)


def samples(name: str) -> numpy.ndarray:
    random = generator(name)
    spans = ((-1.0, 1.0), (-12.0, 12.0), (-110.0, 110.0))
    spread = [random.uniform(low, high, 300_000).astype(numpy.float32) for low, high in spans]
    return numpy.concatenate([single_samples(name), *spread])


@pytest.mark.parametrize("name", OF_THEIR_OWN)
def test_accurate_functions_forgive_their_instructions(name: str, simulated):
    x = samples(name)
    with numpy.errstate(all="ignore"):
        exact = in_double(name)(x.astype(numpy.float64))
    errors = single_errors(evaluate(name, x, width=8, host=ACCURATE), exact)
    print("\n" + describe(name, "on a GPU", errors, x), end="")
    assert errors.max() <= SINGLE_LIMIT, describe(name, "on a GPU", errors, x)


@pytest.mark.parametrize("name", [*OF_THEIR_OWN, "expm1"])
def test_approximate_functions_are_good_to_18_bits(name: str, simulated):
    x = samples(name)
    with numpy.errstate(all="ignore"):
        exact = in_double(name)(x.astype(numpy.float64))
        got = evaluate(name, x, width=8, host=APPROXIMATE).astype(numpy.float64)
        normal = (abs(exact) >= 2.0**-126) & (abs(exact) < 2.0**128)
        scale = numpy.maximum(abs(exact), 0.25 if name in ("log", "log2", "log10") else 0.0)
        errors = numpy.where(normal, abs(got - exact) / scale, 0.0)
    print(f"\n{name}: 2^{numpy.log2(errors.max()):.1f} at {x[errors.argmax()]}", end="")
    assert errors.max() < 1.05 * 2.0**-18
    assert numpy.array_equal(numpy.isnan(got), numpy.isnan(exact))
    assert numpy.all(numpy.isfinite(got[normal]))


@pytest.mark.parametrize("name", [*OF_THEIR_OWN, "expm1"])
def test_special_values_are_those_of_any_processor(name: str, simulated):
    x = numpy.array(SPECIALS + SINGLE_EXTREMES, numpy.float32)
    with numpy.errstate(all="ignore"):
        expected = in_double(name)(x.astype(numpy.float64)).astype(numpy.float32)
    assert_same_values(name, evaluate(name, x, width=4, host=ACCURATE), expected, x)
    got = evaluate(name, x, width=4, host=APPROXIMATE)
    known = ~numpy.isfinite(expected) | (expected == 0.0) | (x == 0.0)
    assert_same_values(name, got[known], expected[known], x[known])


SUMS = {"erf": lambda x: in_double("erfc")(-x), "tanh": lambda x: 2 * in_double("sigmoid")(2 * x)}


@pytest.mark.parametrize("name", SUMS_WITH_ONE)
def test_sums_with_one_are_good_to_17_bits_even_where_they_vanish(name: str, simulated, monkeypatch):
    monkeypatch.setitem(FUNCTIONS, f"one_and_{name}", SUMS_WITH_ONE[name])
    x = numpy.concatenate([samples(name), numpy.array(SPECIALS + SINGLE_EXTREMES, numpy.float32)])
    got = evaluate(f"one_and_{name}", x, width=8, host=APPROXIMATE).astype(numpy.float64)
    with numpy.errstate(all="ignore"):
        exact = SUMS[name](x.astype(numpy.float64))
        errors = abs(got - exact) / exact
    counts = x >= -4.0  # below, float32 cannot tell 1 + erf(x) from nothing
    assert errors[counts].max() < 1.5 * 2.0**-18
    assert got[x < -4.0].min() >= 0.0 and got[x < -4.0].max() < 2.0**-10
    assert numpy.array_equal(numpy.isnan(got), numpy.isnan(exact))
    assert numpy.all(got[x == -numpy.inf] == 0.0)


@pytest.mark.parametrize("name", TO_8_BITS)
def test_what_is_rounded_to_bfloat16_at_once_is_good_to_11_bits(name: str, simulated, monkeypatch):
    monkeypatch.setitem(FUNCTIONS, f"{name}_to_8_bits", TO_8_BITS[name])
    x = numpy.concatenate([samples(name), numpy.array(SPECIALS + SINGLE_EXTREMES, numpy.float32)])
    got = evaluate(f"{name}_to_8_bits", x, width=8, host=APPROXIMATE)
    with numpy.errstate(all="ignore"):
        exact = in_double(name)(x.astype(numpy.float64))
        errors = numpy.where(abs(exact) >= 2.0**-126, abs(got - exact) / abs(exact), 0.0)
    assert numpy.nanmax(errors) < 1.02 * 2.0**-11
    assert numpy.array_equal(numpy.isnan(got), numpy.isnan(exact))
    assert numpy.array_equal(numpy.signbit(got[x == 0.0]), numpy.signbit(x[x == 0.0]))


def test_rough_quotients_are_good_to_three_ulp(simulated, monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "quotient", emitter(ptx_instructions.quotient))
    monkeypatch.setitem(ARITY, "quotient", 2)
    patterns = generator("quotient").integers(0, 2**32, (2, 1_000_000), dtype=numpy.uint32).view(numpy.float32)
    specials = numpy.meshgrid(*[numpy.array(SPECIALS + SINGLE_EXTREMES, numpy.float32)] * 2)
    x, y = (numpy.concatenate([some, grid.ravel()]) for some, grid in zip(patterns, specials, strict=True))
    with numpy.errstate(all="ignore"):
        exact = x.astype(numpy.float64) / y.astype(numpy.float64)
    errors = single_errors(evaluate("quotient", x, y, width=8, host=APPROXIMATE), exact)
    assert errors.max() <= 3.0, describe("quotient", "on a GPU", errors, x, y)
