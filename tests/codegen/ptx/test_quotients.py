"""Quotients that share what depends on their divisor, tried on this processor; and which kernels have them."""

from __future__ import annotations

import numpy
import pytest

from ingot import DataType
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.codegen.llvm.math.definitions import emitter
from ingot.codegen.llvm.math.gpu.quotients import Divisor
from ingot.codegen.llvm.math.words import Number
from ingot.loops.gpu.schedule import GpuForm
from tests.codegen.math_kernels import ARITY, evaluate
from tests.codegen.ptx.fusions import Fusion
from tests.codegen.ptx.simulated import ACCURATE
from tests.codegen.test_math import SINGLE_EXTREMES, SPECIALS, generator

COUNT = 1_000_000


def shared_quotient(x: Number, y: Number) -> Number:
    return Divisor.of(y).quotient(x)


@pytest.fixture
def divided(monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "shared_quotient", emitter(shared_quotient))
    monkeypatch.setitem(ARITY, "shared_quotient", 2)
    return lambda x, y: evaluate("shared_quotient", x, y, width=8, host=ACCURATE)


def exactly_rounded(x: numpy.ndarray, y: numpy.ndarray) -> numpy.ndarray:
    with numpy.errstate(all="ignore"):
        return x / y


def in_order(x: numpy.ndarray) -> numpy.ndarray:
    """Whole numbers, of which neighbouring numbers have neighbouring ones; both zeros have 0."""
    bits = x.view(numpy.int32).astype(numpy.int64)
    return numpy.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def test_ordinary_quotients_are_rounded_exactly(divided):
    random = generator("quotient")
    x, y = (random.normal(0, 100, COUNT).astype(numpy.float32) for _ in range(2))
    assert numpy.array_equal(divided(x, y), exactly_rounded(x, y))
    bytes = numpy.tile(numpy.arange(256, dtype=numpy.float32), 8)
    assert numpy.array_equal(divided(bytes, bytes * 0 + 255), exactly_rounded(bytes, bytes * 0 + 255))


def test_any_quotient_is_at_most_one_number_away(divided):
    x, y = generator("any").integers(0, 2**32, (2, COUNT), dtype=numpy.uint32).view(numpy.float32)
    got, exact = divided(x, y), exactly_rounded(x, y)
    assert numpy.array_equal(numpy.isnan(got), numpy.isnan(exact))
    some = ~numpy.isnan(exact)
    assert abs(in_order(got[some]) - in_order(exact[some])).max() <= 1
    with numpy.errstate(all="ignore"):
        ordinary = (abs(exact) >= 2.0**-124) & (abs(x) >= 2.0**-36) & (abs(exact) < 2.0**127)
    assert ordinary.mean() > 0.2
    assert numpy.array_equal(got[ordinary], exact[ordinary])


def test_kinds_and_signs_are_those_of_a_division(divided):
    numbers = numpy.array([*SPECIALS, *SINGLE_EXTREMES, 255.0, -3.0, 1e-20, 2.0**100, 5e-42], numpy.float32)
    x, y = (grid.ravel() for grid in numpy.meshgrid(numbers, numbers))
    got, exact = divided(x, y), exactly_rounded(x, y)
    assert numpy.array_equal(numpy.isnan(got), numpy.isnan(exact))
    some = ~numpy.isnan(exact)
    assert numpy.array_equal(numpy.signbit(got[some]), numpy.signbit(exact[some]))
    assert abs(in_order(got[some]) - in_order(exact[some])).max() <= 1
    assert numpy.array_equal(numpy.isinf(got), numpy.isinf(exact))


@pytest.mark.parametrize(
    "fusion, divides",
    [
        (Fusion(GpuForm.GRID, lambda ops, x: x / 255.0, ((1024, 1024),)), False),
        (Fusion(GpuForm.TEAMS, lambda ops, x: ops.softmax(x, -1), ((512, 1024),)), False),
        (Fusion(GpuForm.GRID, lambda ops, x, y: x / y, ((1024, 1024), (1024, 1024))), True),
        (Fusion(GpuForm.GRID, lambda ops, x: x / 255.0, ((1024, 1024),), DataType.Double), True),
    ],
    ids=["by a constant", "by a sum", "by elements", "in float64"],
)
def test_only_elements_are_divided_one_by_one(fusion: Fusion, divides: bool):
    kernel, _ = fusion.kernel()
    assert ("div.rn" in kernel.ptx) == divides
