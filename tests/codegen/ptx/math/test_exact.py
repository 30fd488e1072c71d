"""Quotients and roots as GPUs compute them, tried on this processor against its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

from ingot.codegen.llvm.math import FUNCTIONS
from ingot.codegen.llvm.math.dsl.definitions import emitter
from ingot.codegen.llvm.math.dsl.vocabulary import Number
from ingot.codegen.llvm.math.gpu import exact, ptx_instructions
from ingot.codegen.ptx.kernels import compile_gpu_kernel
from ingot.codegen.ptx.target import gpu
from ingot.loops.gpu.schedule import Grid, ThreadGroups
from tests.codegen.math_kernels import ARITY, evaluate
from tests.codegen.ptx.fusions import Fusion
from tests.codegen.ptx.math.hard_quotients import ALL_ONES, hard_quotients
from tests.codegen.ptx.math.simulated import ACCURATE, instruction
from tests.codegen.test_math import SINGLE_EXTREMES, SPECIALS, generator

COUNT = 1_000_000
NUMBERS = numpy.array([*SPECIALS, *SINGLE_EXTREMES, 255.0, -3.0, 1e-20, 2.0**100, 5e-42], numpy.float32)


@pytest.fixture
def computed(monkeypatch) -> Callable[..., numpy.ndarray]:
    monkeypatch.setattr(ptx_instructions, "instruction", instruction)

    def compute(function: Callable[..., Number], *operands: numpy.ndarray) -> numpy.ndarray:
        name = f"exact_{function.__name__}"
        monkeypatch.setitem(FUNCTIONS, name, emitter(function))
        monkeypatch.setitem(ARITY, name, len(operands))
        return evaluate(name, *operands, width=4, host=ACCURATE)

    return compute


def require_equal(got: numpy.ndarray, expected: numpy.ndarray) -> None:
    """The same bits, of NaN any."""
    assert got.dtype == expected.dtype
    assert numpy.array_equal(numpy.isnan(got), numpy.isnan(expected))
    known, whole = ~numpy.isnan(expected), f"u{got.itemsize}"
    assert numpy.array_equal(got[known].view(whole), expected[known].view(whole))


@numpy.errstate(all="ignore")
def test_any_quotient_is_rounded_exactly(computed):
    x, y = generator("exact").integers(0, 2**32, (2, COUNT), dtype=numpy.uint32).view(numpy.float32)
    require_equal(computed(exact.quotient, x, y), x / y)


@pytest.mark.parametrize("remainder", [1, -1, 3, -3])
def test_quotients_nearly_halfway_between_two_numbers_are_rounded_exactly(computed, remainder):
    for x, y in hard_quotients(remainder):
        assert x.size > 1_000_000
        # Here a reciprocal itself lies halfway: which way it is rounded depends on what the unit makes of it.
        ordinary = (y != ALL_ONES) | (numpy.frexp(x)[0] != 0.5)
        require_equal(computed(exact.quotient, x, y)[ordinary], (x / y)[ordinary])


def test_quotients_by_the_last_numbers_before_a_power_of_two_are_rounded_exactly(computed):
    x = numpy.arange((1 << 23) + 1, 1 << 24, dtype=numpy.float32)
    for y in (ALL_ONES, ALL_ONES - 1, ALL_ONES - 2):
        require_equal(computed(exact.quotient, x, numpy.full_like(x, y)), x / numpy.float32(y))


@pytest.mark.parametrize(
    "sizes", [(2.0**-140, 2.0**-20), (2.0**-149, 2.0**-130), (1.0, 2.0**-127), (2.0**127, 2.0**126)]
)
def test_quotients_of_the_smallest_and_largest_numbers_are_rounded_exactly(computed, sizes):
    ordinary = generator("size").uniform(1, 2, (2, COUNT))
    x, y = ((part * size).astype(numpy.float32) for part, size in zip(ordinary, sizes, strict=True))
    require_equal(computed(exact.quotient, x, y), x / y)


@numpy.errstate(all="ignore")
def test_denormal_quotients_are_one_unit_off_at_most_and_only_halfway(computed):
    random = generator("denormal")
    y = random.normal(0, 100, COUNT).astype(numpy.float32)
    halves = (random.integers(0, 1 << 12, COUNT) * 2 + 1).astype(numpy.float32) * numpy.float32(2.0**-75)
    for x in ((halves * y) * numpy.float32(2.0**-75), random.normal(0, 2.0**-128, COUNT).astype(numpy.float32)):
        units = x.astype(numpy.float64) / y * 2.0**149
        difference = computed(exact.quotient, x, y).astype(numpy.float64) * 2.0**149 - numpy.rint(units)
        denormal = abs(units) < 1 << 23
        assert denormal.mean() > 0.9
        assert abs(difference[denormal]).max() <= 1
        halfway = abs(units - numpy.floor(units) - 0.5) < 2.0**-20
        assert not difference[denormal & ~halfway].any()


@numpy.errstate(all="ignore")
def test_quotients_of_zeros_infinities_and_extremes_are_those_of_a_division(computed):
    x, y = (grid.ravel() for grid in numpy.meshgrid(NUMBERS, NUMBERS))
    require_equal(computed(exact.quotient, x, y), x / y)


@numpy.errstate(all="ignore")
def test_quotients_of_double_precision_are_rounded_exactly(computed):
    random = generator("double")
    x, y = random.normal(0, 100, (2, COUNT)) * 2.0 ** random.integers(-200, 200, (2, COUNT))
    require_equal(computed(exact.quotient, x, y), x / y)
    whole = random.integers(1, 1 << 40, COUNT).astype(numpy.float64)
    require_equal(computed(exact.quotient, x, whole), x / whole)
    special = numpy.array([0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1.0, -3.0, 1e200, -1e-200])
    x, y = (grid.ravel() for grid in numpy.meshgrid(special, special))
    require_equal(computed(exact.quotient, x, y)[abs(x / y) < 1e300], (x / y)[abs(x / y) < 1e300])


@numpy.errstate(all="ignore")
def test_roots_are_rounded_exactly(computed):
    x = generator("root").integers(0, 2**32, COUNT, dtype=numpy.uint32).view(numpy.float32)
    squares = numpy.arange(1, 4096, dtype=numpy.float32) ** 2
    for numbers in (x, numpy.concatenate([squares, numpy.nextafter(squares, numpy.float32(0))]), NUMBERS):
        require_equal(computed(exact.square_root, numbers), numpy.sqrt(numbers))
    tiny = generator("tiny").integers(0, 0x14000000, COUNT, dtype=numpy.uint32).view(numpy.float32)
    require_equal(computed(exact.square_root, tiny), numpy.sqrt(tiny))


def test_roots_of_all_digits_are_rounded_exactly(computed):
    """All but one: the unit is not as rough as its stand-in, and right for this one, too."""
    x = numpy.arange(0x3F800000, 0x40800000, dtype=numpy.uint32).view(numpy.float32)
    wrong = computed(exact.square_root, x) != numpy.sqrt(x)
    assert x[wrong].tolist() in ([], [3.727749347686767578125])


def test_reciprocals_are_within_half_a_unit(computed):
    y = numpy.concatenate([generator("inverse").uniform(1, 2, COUNT), [1.0, 2.0, 2.0 - 2.0**-23]]).astype(numpy.float32)
    errors = abs(computed(exact.inverse, y) - 1 / y.astype(numpy.float64)) / 2.0**-24
    assert errors.max() <= 0.51
    ends = numpy.array([0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan], numpy.float32)
    with numpy.errstate(divide="ignore"):
        require_equal(computed(exact.inverse, ends), 1 / ends)


@pytest.mark.parametrize("capability", [(9, 0), (8, 9), (7, 0)])
@pytest.mark.parametrize(
    "fusion",
    [
        Fusion(Grid, lambda ops, x, y, z, u: ops.sqrt(x) / y - z * u, ((1024, 1024),) * 4),
        Fusion(ThreadGroups, lambda ops, x: ops.var(x, [1]), ((512, 1024),)),
        Fusion(ThreadGroups, lambda ops, x: ops.softmax(x, -1), ((512, 1024),)),
    ],
    ids=["elements", "variance", "softmax"],
)
def test_no_function_of_the_assembler_is_asked_for(fusion: Fusion, capability: tuple[int, int]):
    found, call = fusion.kernel()
    ptx = compile_gpu_kernel(found.program, call.schedule, gpu(capability)).ptx
    assert not any(f"{name}.rn" in ptx for name in ("div", "rcp", "sqrt"))
