"""Operators as code for this processor, for the oldest of its kind and for others: the same bits everywhere."""

from __future__ import annotations

import math
import platform
from typing import Any

import mpmath
import numpy
import pytest
import torch

from ingot.base.dtypes import COMPUTED, INTEGERS, DataType, in_order
from ingot.codegen.llvm.host import Host, assembly_of
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.loops.numpy_functions import function_of_floats
from ingot.ops import Kind, Op, table
from tests.codegen.hosts import AARCH64, BASELINE, GPU, NATIVE
from tests.codegen.math_kernels import ARITY, double_error, evaluate, single_errors
from tests.codegen.math_references import EXACT, PRECISION_BITS, in_double
from tests.codegen.operator_kernels import ARRAYS, OperatorModule, evaluate_operator
from tests.codegen.test_math import DOUBLE_LIMIT, SINGLE_LIMIT, double_samples, pairs_for, single_samples

OF_PARTS = ("complex", "real", "imag")
"""Operators that move the parts of complex numbers and compute nothing: kernels are what they are tested in."""
POINTWISE = [
    op
    for op in table().values()
    if op.kind is Kind.POINTWISE and op.emit is not None and op.samples is not None and op.name not in OF_PARTS
]
EXACTLY_COMPUTED = [op for op in POINTWISE if op.name not in FUNCTIONS]
runs_baseline = pytest.mark.skipif(platform.machine() != "x86_64", reason="code for x86")


def operand_types(op: Op) -> list[tuple[tuple[DataType, ...], dict[str, Any]]]:
    """Every combination of operand types and attributes that a node of this operator can have."""
    assert op.signature is not None
    if op.name == "cast":
        return [((source,), {"dtype": target}) for source in in_order(COMPUTED) for target in in_order(COMPUTED)]
    count = len(op.signature.parameters)
    if op.name == "where":
        return [((DataType.Bool, dtype, dtype), {}) for dtype in in_order(op.dtypes)]
    return [((dtype,) * count, {}) for dtype in in_order(op.dtypes)]


def divides(op: Op, dtype: DataType) -> bool:
    return op.name in ("div", "fmod", "remainder") and not dtype.is_float


def edges(dtype: DataType) -> numpy.ndarray:
    """Numbers around which operators change their ways; bfloat16 as bits."""
    if dtype is DataType.Bool:
        return numpy.array([False, True])
    if dtype.is_integer:
        limits = numpy.iinfo(ARRAYS[dtype])
        values = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, 6, 7, 8, 15, 31, 63, 64, 100, 12]
        return numpy.array([v for v in [*values, -1, -2, -3, -7, -12] if limits.min <= v <= limits.max], ARRAYS[dtype])
    values = [0.0, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 3.0, 7.25, 100.0, 255.5, 65504.0, 1e-7, 6e-8, 1e-40, 5e-324]
    values += [2.0**23 + 0.5, 2.0**23 + 1, 2.0**52 - 0.5, 2.0**52 + 1, 2.0**31, 2.0**62, 2.0**63, 1e30, 1e300, math.inf]
    with numpy.errstate(all="ignore"):
        both = numpy.array([*values, *(-value for value in values), math.nan])
        if dtype is DataType.BFloat16:
            return (both.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)
        return both.astype(ARRAYS[dtype])


def edge_grid(dtypes: tuple[DataType, ...], lanes: int) -> list[numpy.ndarray]:
    """Every combination of edges, filled up to whole vectors."""
    grids = numpy.meshgrid(*(edges(dtype) for dtype in dtypes[:2]), indexing="ij")
    columns = [grid.ravel() for grid in grids] + [grids[1].ravel()[::-1] for _ in dtypes[2:]]
    size = -(-columns[0].size // lanes) * lanes
    return [numpy.resize(column, size) for column in columns]


def same_bits(first: numpy.ndarray, second: numpy.ndarray) -> bool:
    """Equal to the last bit, but for which NaN it is."""
    if first.dtype.kind == "f":
        both_nan = numpy.isnan(first) & numpy.isnan(second)
        return bool(numpy.all(both_nan | ((first == second) & (numpy.signbit(first) == numpy.signbit(second)))))
    return numpy.array_equal(first, second)


@runs_baseline
@pytest.mark.parametrize("op", EXACTLY_COMPUTED, ids=lambda op: op.name)
def test_the_oldest_processor_and_single_elements_give_the_same_bits(op: Op):
    for dtypes, attributes in operand_types(op):
        if DataType.Half in (*dtypes, attributes.get("dtype")):
            continue  # it has no instruction for that, and no code is generated
        inputs = edge_grid(dtypes, 8)
        known = 7 if divides(op, dtypes[0]) else None
        inputs = inputs[:1] if known else inputs
        vectors, singles, baseline = (
            evaluate_operator(op, dtypes, *inputs, host=host, lanes=lanes, known=known, **attributes)
            for host, lanes in ((NATIVE, 8), (NATIVE, 1), (BASELINE, 8))
        )
        assert same_bits(vectors, singles), dtypes
        assert same_bits(vectors, baseline), dtypes


@runs_baseline
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_keep_their_bounds_on_the_oldest_processor(name: str):
    if name in ARITY:
        inputs, doubles = pairs_for(name, 10_000, numpy.float32), pairs_for(name, 300, numpy.float64)
        doubles = tuple(values[-300:] for values in doubles)
    else:
        inputs, doubles = (single_samples(name)[::7],), (double_samples(name)[::5],)
    with numpy.errstate(all="ignore"):
        exact = in_double(name)(*(values.astype(numpy.float64) for values in inputs))
    assert single_errors(evaluate(name, *inputs, width=8, host=BASELINE), exact).max() <= SINGLE_LIMIT
    got = evaluate(name, *doubles, width=4, host=BASELINE)
    with mpmath.workprec(PRECISION_BITS):
        points = zip(*doubles, strict=True)
        expected = [EXACT[name](*(mpmath.mpf(float(value)) for value in point)) for point in points]
        assert max(double_error(float(a), b) for a, b in zip(got, expected, strict=True)) <= DOUBLE_LIMIT


@pytest.mark.parametrize(
    ("host", "lanes", "call"),
    [(AARCH64, 4, "\tbl\t"), (BASELINE, 4, "call"), (GPU, 1, "call")],
    ids=["aarch64", "x86-64", "gpu"],
)
@pytest.mark.parametrize("op", EXACTLY_COMPUTED, ids=lambda op: op.name)
def test_code_for_other_processors_needs_no_library(op: Op, host: Host, lanes: int, call: str):
    for dtypes, attributes in operand_types(op):
        if DataType.Half in (*dtypes, attributes.get("dtype")) and not host.converts_half:
            continue
        known = 7 if divides(op, dtypes[0]) else None
        module = OperatorModule(op, dtypes, host, lanes, known, **attributes).module
        assert call not in assembly_of(str(module), host), dtypes


# --- exact functions --------------------------------------------------------------------------------------------------


def pairs_of_all_sizes(dtype: type, count: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Random bits, with exponents as far apart as they can be; ordinary numbers; the extremes with each other."""
    random = numpy.random.default_rng(7)
    integer = numpy.uint32 if dtype is numpy.float32 else numpy.uint64
    wild = random.integers(0, numpy.iinfo(integer).max, count, dtype=integer, endpoint=True).view(dtype)
    tame = (random.standard_normal(count) * numpy.exp2(random.uniform(-20, 20, count))).astype(dtype)
    limits = numpy.finfo(dtype)
    extremes = numpy.array([limits.max, limits.smallest_subnormal, limits.tiny, limits.eps, 1, 3, 0, numpy.inf], dtype)
    across, up = (grid.ravel() for grid in numpy.meshgrid(extremes, -extremes))
    x = numpy.concatenate([wild, tame, across])
    y = numpy.concatenate([random.permutation(wild), random.permutation(tame), up])
    return numpy.concatenate([x, y]), numpy.concatenate([y, x])


@pytest.mark.parametrize(("host", "lanes"), [(NATIVE, 1), (NATIVE, 8), pytest.param(BASELINE, 4, marks=runs_baseline)])
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double], ids=lambda dtype: dtype.text)
@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_are_exact_for_every_quotient(name: str, dtype: DataType, host: Host, lanes: int):
    x, y = pairs_of_all_sizes(ARRAYS[dtype], 40_000)
    got = evaluate_operator(table()[name], (dtype, dtype), x, y, host=host, lanes=lanes)
    with numpy.errstate(all="ignore"):
        rest = numpy.fmod(x.astype(numpy.float64), y.astype(numpy.float64)).astype(ARRAYS[dtype])
        differ = (rest != 0) & ((rest < 0) != (y < 0)) if name == "remainder" else numpy.zeros(x.size, bool)
        expected = numpy.where(differ, rest + y, rest)
    assert same_bits(got, expected)


@pytest.mark.parametrize(("host", "lanes"), [(NATIVE, 1), (NATIVE, 8), pytest.param(BASELINE, 4, marks=runs_baseline)])
def test_fused_sums_are_rounded_once(host: Host, lanes: int):
    x, y = pairs_of_all_sizes(numpy.float32, 4_000)
    random = numpy.random.default_rng(8)
    with numpy.errstate(all="ignore"):
        near = -(x * y) * (1 + random.integers(-2, 3, x.size).astype(numpy.float32) * numpy.float32(2.0**-22))
        z = numpy.where(random.random(x.size) < 0.5, near, random.permutation(y))
        got = evaluate_operator(table()["fused_sum"], (DataType.Float,) * 3, x, y, z, host=host, lanes=lanes)
        expected = function_of_floats("fused_sum", (x, y, z))
    assert same_bits(got, expected)


def torch_result(name: str, *inputs: numpy.ndarray) -> numpy.ndarray:
    return getattr(torch, name)(*(torch.from_numpy(array) for array in inputs)).numpy()


@pytest.mark.parametrize("dtype", in_order(INTEGERS), ids=lambda dtype: dtype.text)
@pytest.mark.parametrize("name", ["gcd", "pow"])
def test_integer_functions_agree_with_pytorch_to_the_last_bit(name: str, dtype: DataType):
    if dtype.bits == 8:  # all pairs
        values = numpy.arange(256).astype(numpy.uint8).view(ARRAYS[dtype])
        x, y = (grid.ravel().copy() for grid in numpy.meshgrid(values, values))
    else:
        x, y = edge_grid((dtype, dtype), 8)
    got = evaluate_operator(table()[name], (dtype, dtype), x, y, host=NATIVE, lanes=8)
    assert numpy.array_equal(got, torch_result(name, x, y))


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Half, DataType.Float, DataType.Double], ids=str)
def test_nextafter_agrees_with_pytorch_to_the_last_bit(dtype: DataType):
    x, y = edge_grid((dtype, dtype), 8)
    got = evaluate_operator(table()["nextafter"], (dtype, dtype), x, y, host=NATIVE, lanes=8)
    as_tensor = lambda array: torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    tensors = [as_tensor(array) if dtype is DataType.BFloat16 else torch.from_numpy(array) for array in (x, y)]
    expected = torch.nextafter(*tensors)
    found = as_tensor(got) if dtype is DataType.BFloat16 else torch.from_numpy(got)
    assert torch.equal(torch.nan_to_num(found, nan=0.0), torch.nan_to_num(expected, nan=0.0))
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.signbit() & ~found.isnan(), expected.signbit() & ~expected.isnan())


@pytest.mark.parametrize("divisor", [1, -1, 2, -3, 7, 100, -128])
@pytest.mark.parametrize("dtype", in_order(INTEGERS), ids=lambda dtype: dtype.text)
@pytest.mark.parametrize("name", ["div", "fmod", "remainder"])
def test_integer_division_by_a_known_number(name: str, dtype: DataType, divisor: int):
    """Of the lowest number by -1, too, where the processor's own instruction ends the process."""
    if divisor < 0 and not dtype.is_signed:
        pytest.skip("no such number")
    x = numpy.resize(edges(dtype), 24)
    got = evaluate_operator(table()[name], (dtype, dtype), x, host=NATIVE, lanes=8, known=divisor)
    for value, result in zip(x.tolist(), got.tolist(), strict=True):
        quotient = abs(value) // abs(divisor) * (1 if (value < 0) == (divisor < 0) else -1)
        expected = {"div": quotient, "fmod": value - quotient * divisor, "remainder": value % divisor}[name]
        assert result == numpy.array(expected).astype(ARRAYS[dtype]), (value, divisor)
