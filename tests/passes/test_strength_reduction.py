"""A cheaper operation takes the place of another one where it has the same bits, and nowhere else."""

import pytest

from tests.passes.written_graphs import after, unary


@pytest.mark.parametrize(
    ("dtype", "expression", "expected"),
    [
        ("f32", "pow(%0, 0.0:f32)", ["full(1.0:f32, shape=[4])"]),
        ("f32", "pow(%0, 2.0:f32)", ["mul(%0, %0)"]),
        ("f32", "pow(%0, 3.0:f32)", ["mul(%0, %0)", "mul(%1, %0)"]),
        ("f64", "pow(%0, 0.5:f64)", ["sqrt(%0)"]),
        ("f32", "pow(%0, -0.5:f32)", ["rsqrt(%0)"]),
        ("f32", "pow(%0, -1.0:f32)", ["reciprocal(%0)"]),
        ("f32", "pow(%0, -2.0:f32)", ["mul(%0, %0)", "reciprocal(%1)"]),
        ("i32", "pow(%0, 5:i32)", ["mul(%0, %0)", "mul(%1, %1)", "mul(%0, %2)"]),
        ("f32", "div(%0, 8.0:f32)", ["mul(%0, 0.125:f32)"]),
        ("f64", "div(%0, -0.25:f64)", ["mul(%0, -4.0:f64)"]),
        ("f32", "div(1.0:f32, %0)", ["reciprocal(%0)"]),
        ("f32", "mul(%0, -1.0:f32)", ["neg(%0)"]),
        ("i16", "mul(-1:i16, %0)", ["neg(%0)"]),
        ("i32", "remainder(%0, 8:i32)", ["bitwise_and(%0, 7:i32)"]),
        ("u8", "fmod(%0, 8:u8)", ["bitwise_and(%0, 7:u8)"]),
        ("u8", "div(%0, 8:u8)", ["bitwise_right_shift(%0, 3:u8)"]),
    ],
)
def test_cheaper_operation_takes_its_place(dtype, expression, expected):
    lines = after("strength_reduction", f"%0: {dtype}[4]", unary(dtype, expression))
    assert lines[:-1] == [f"%{number} = {text}: {dtype}[4]" for number, text in enumerate(expected, start=1)]


@pytest.mark.parametrize(
    ("dtype", "expression"),
    [
        ("f32", "pow(%0, 4.0:f32)"),
        ("f32", "div(%0, 3.0:f32)"),
        ("f32", "div(%0, 0.0:f32)"),
        ("f32", "div(%0, inf:f32)"),
        ("f32", "div(%0, nan:f32)"),
        ("f32", "div(%0, 1.7014118346046923e+38:f32)"),  # 2**127: its reciprocal is denormal
        ("i32", "div(%0, 8:i32)"),  # -1 / 8 is 0, -1 >> 3 is -1
        ("i32", "fmod(%0, 8:i32)"),
        ("i32", "remainder(%0, -8:i32)"),
        ("i32", "remainder(%0, 6:i32)"),
        ("i32", "pow(%0, -1:i32)"),
        ("f32", "remainder(%0, 8.0:f32)"),
    ],
)
def test_no_cheaper_operation_has_the_same_bits(dtype, expression):
    lines = after("strength_reduction", f"%0: {dtype}[4]", unary(dtype, expression))
    assert lines == [f"%1 = {expression}: {dtype}[4]", "return %1"]


def test_power_with_a_tensor_of_exponents_stays():
    text = "%1 = full(2.0:f32, shape=[4]): f32[4]\n%2 = pow(%0, %1): f32[4]\nreturn %2"
    assert len(after("strength_reduction", "%0: f32[4]", text)) == 3
    assert len(after("constant_folding", "%0: f32[4]", text)) == 3
