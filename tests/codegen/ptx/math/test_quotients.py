"""Quotients that share what depends on their divisor, tried on this processor; and which kernels have them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy
import pytest

from ingot import DataType
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, HostModule
from ingot.codegen.llvm.instructions import Instructions, TypedValue
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.codegen.llvm.math.dsl.definitions import emitter
from ingot.codegen.llvm.math.dsl.vocabulary import Number
from ingot.codegen.llvm.math.gpu import ptx_instructions
from ingot.codegen.llvm.math.gpu.quotients import Divisor
from ingot.loops.gpu.schedule import Grid, ThreadGroups
from tests.codegen.math_kernels import ARITY, evaluate
from tests.codegen.ptx.fusions import Fusion
from tests.codegen.ptx.math.simulated import ACCURATE, APPROXIMATE, instruction
from tests.codegen.test_math import SINGLE_EXTREMES, SPECIALS, generator

COUNT = 1_000_000


def shared_quotient(x: Number, y: Number) -> Number:
    return Divisor.of(y).quotient(x)


@pytest.fixture
def divided(simulated, monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "shared_quotient", emitter(shared_quotient))
    monkeypatch.setitem(ARITY, "shared_quotient", 2)
    return lambda x, y: evaluate("shared_quotient", x, y, width=8, host=ACCURATE)


@pytest.fixture
def simulated(monkeypatch):
    monkeypatch.setattr(ptx_instructions, "instruction", instruction)


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


def test_any_quotient_of_bfloat16_is_rounded_as_well_as_one_of_float32(simulated):
    module = HostModule(APPROXIMATE)
    words = ir.PointerType(ir.VectorType(ir.IntType(16), 4))
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [words] * 3), "divide")
    builder: Any = ir.IRBuilder(function)
    x, y, result = function.arguments
    x, y = (TypedValue(builder.load(place, align=2), DataType.BFloat16) for place in (x, y))
    quotient = Instructions(builder, 4).quotient_of_bfloat16(x, y)
    builder.store(quotient.code, builder.bitcast(result, ir.PointerType(quotient.code.type)), align=4)
    builder.ret_void()
    compiled = Compiled(lambda: module)
    divide = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(compiled.address("divide"))
    specials = numpy.array([0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 1, 0x7F, 0x80, 0x7F7F, 0xFF7F, 0x3F80], numpy.uint16)
    some = generator("bfloat16").integers(0, 2**16, (2, 40_000), dtype=numpy.uint16)
    pairs = [
        numpy.concatenate([a, b.ravel()[:120]]) for a, b in zip(some, numpy.meshgrid(specials, specials), strict=True)
    ]
    got = numpy.empty(pairs[0].size, numpy.float32)
    for start in range(0, got.size, 4):
        divide(*(array[start:].ctypes.data for array in (*pairs, got)))
    dividend, divisor = ((bits.astype(numpy.uint32) << 16).view(numpy.float32) for bits in pairs)
    exact = exactly_rounded(dividend, divisor)
    assert numpy.array_equal(numpy.isnan(got), numpy.isnan(exact))
    known = ~numpy.isnan(exact) & (abs(exact) >= 2.0**-126)
    assert abs(in_order(got[known]) - in_order(exact[known])).max() <= 3
    tiny = abs(exact) < 2.0**-126
    assert abs(got[tiny] - exact[tiny]).max() <= 2.0**-133, "the least bfloat16"
    zero = exact == 0
    assert numpy.array_equal(numpy.signbit(got[zero]), numpy.signbit(exact[zero]))


@pytest.mark.parametrize(
    "fusion, reciprocals",
    [
        (Fusion(Grid, lambda ops, x: x / 255.0, ((1024, 1024),)), 0),
        (Fusion(ThreadGroups, lambda ops, x: ops.softmax(x, -1), ((512, 1024),)), 1),
        (Fusion(Grid, lambda ops, x, y: x / y, ((1024, 1024), (1024, 1024))), 4),
    ],
    ids=["by a constant", "by a sum", "by elements"],
)
def test_only_elements_are_divided_one_by_one(fusion: Fusion, reciprocals: int):
    kernel, _ = fusion.kernel()
    assert kernel.ptx.count("rcp.approx") == reciprocals
    assert "div.rn" not in kernel.ptx
