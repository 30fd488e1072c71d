"""Arithmetic of half types by instructions of their own: where it is the same, and where it is not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from ingot import DataType, GraphBuilder
from ingot.base.dtypes import HALVES
from ingot.loops.gpu.halves import in_halves
from ingot.runtime.plan import Plan


def narrow_operations(body: Any, dtype: DataType) -> list[str]:
    """What is computed in a half type, of a graph of two inputs of it, without a warning."""
    builder = GraphBuilder()
    builder.output(body(builder.input((64,), dtype), builder.input((64,), dtype)))
    (kernel,) = Plan(builder.build()).kernels()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = in_halves(kernel.program)
    return [each.op.name for each in program.statements if each.dtype in HALVES and each.op.name != "cast"]


@pytest.mark.parametrize("dtype", sorted(HALVES, key=str), ids=str)
def test_sums_differences_and_products_are(dtype: DataType):
    assert narrow_operations(lambda x, y: (x + y) * (x - y), dtype) == ["add", "sub", "mul"]
    assert narrow_operations(lambda x, y: x / y, dtype) == []


@pytest.mark.parametrize("dtype", sorted(HALVES, key=str), ids=str)
def test_constants_are_where_the_type_has_them(dtype: DataType):
    assert narrow_operations(lambda x, y: x * 0.5 + y, dtype) == ["mul", "add"]
    assert narrow_operations(lambda x, y: x * 0.1 + y, dtype) == ["add"]


@pytest.mark.parametrize(("number", "halves"), [(2.0**127, {DataType.BFloat16}), (65504.0, {DataType.Half})])
def test_constants_that_only_one_of_the_types_has(number: float, halves: set[DataType]):
    found = {dtype for dtype in HALVES if narrow_operations(lambda x, y: x * number, dtype) == ["mul"]}
    assert found == halves
