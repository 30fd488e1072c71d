"""Operations that give the same become one."""

import pytest

from tests.passes.written_graphs import after


@pytest.mark.parametrize(
    ("dtype", "first", "second", "result"),
    [
        ("f32", "add(%0, %1)", "add(%1, %0)", "f32"),
        ("f32", "mul(%0, %1)", "mul(%1, %0)", "f32"),
        ("f32", "lt(%0, %1)", "gt(%1, %0)", "bool"),
        ("f32", "ge(%0, %1)", "le(%1, %0)", "bool"),
        ("i32", "maximum(%0, %1)", "maximum(%1, %0)", "i32"),
    ],
)
def test_commuted_operations_become_one(dtype, first, second, result):
    text = f"%2 = {first}: {result}[4]\n%3 = {second}: {result}[4]\nreturn %2, %3"
    lines = after("common_subexpressions", f"%0: {dtype}[4], %1: {dtype}[4]", text)
    assert lines == [f"%2 = {first}: {result}[4]", "return %2, %2"]


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ("sub(%0, %1)", "sub(%1, %0)", "f32"),
        ("maximum(%0, %1)", "maximum(%1, %0)", "f32"),
        ("lt(%0, %1)", "gt(%0, %1)", "bool"),
    ],
)
def test_operations_that_do_not_commute_stay(first, second, result):
    text = f"%2 = {first}: {result}[4]\n%3 = {second}: {result}[4]\nreturn %2, %3"
    assert len(after("common_subexpressions", "%0: f32[4], %1: f32[4]", text)) == 3
