"""What algebra makes simpler keeps every bit, and what only looks like an identity stays."""

import pytest

from tests.passes.written_graphs import after, unary

IDENTITIES = [
    ("f32", "add(%0, -0.0:f32)"),
    ("f32", "add(-0.0:f32, %0)"),
    ("i32", "add(%0, 0:i32)"),
    ("bool", "add(%0, false:bool)"),
    ("f32", "sub(%0, 0.0:f32)"),
    ("i64", "sub(%0, 0:i64)"),
    ("f64", "mul(%0, 1.0:f64)"),
    ("i8", "mul(1:i8, %0)"),
    ("bool", "mul(%0, true:bool)"),
    ("f32", "div(%0, 1.0:f32)"),
    ("i32", "div(%0, 1:i32)"),
    ("f32", "maximum(%0, %0)"),
    ("i32", "minimum(%0, %0)"),
    ("i32", "bitwise_and(%0, %0)"),
    ("i32", "bitwise_or(%0, %0)"),
    ("i32", "bitwise_or(%0, 0:i32)"),
    ("i32", "bitwise_xor(0:i32, %0)"),
    ("i32", "bitwise_and(%0, -1:i32)"),
    ("u8", "bitwise_and(%0, 255:u8)"),
    ("bool", "bitwise_and(%0, true:bool)"),
    ("i32", "floor(%0)"),
    ("u8", "abs(%0)"),
    ("f32", "cast(%0, dtype=f32)"),
    ("bool", "eq(%0, true:bool)"),
    ("bool", "ne(false:bool, %0)"),
    ("f32", "where(true:bool, %0, 3.0:f32)"),
    ("f32", "where(false:bool, 3.0:f32, %0)"),
]


@pytest.mark.parametrize(("dtype", "expression"), IDENTITIES)
def test_identity_leaves_the_value_itself(dtype, expression):
    assert after("algebraic_simplification", f"%0: {dtype}[4]", unary(dtype, expression)) == ["return %0"]


NOT_IDENTITIES = [
    ("f32", "add(%0, 0.0:f32)", None),  # -0.0 + 0.0 is 0.0
    ("f32", "sub(%0, -0.0:f32)", None),  # -0.0 - -0.0 is 0.0
    ("f32", "sub(%0, %0)", None),  # inf - inf is NaN
    ("f32", "mul(%0, 0.0:f32)", None),  # NaN, inf and -0.0
    ("f32", "div(%0, %0)", None),  # NaN, inf and 0
    ("i32", "div(%0, %0)", None),  # division by zero is an error
    ("f32", "eq(%0, %0)", "bool"),  # NaN differs from itself
    ("f32", "ne(%0, %0)", "bool"),
    ("f32", "le(%0, %0)", "bool"),
    ("f32", "floor(%0)", None),
    ("f32", "isnan(%0)", "bool"),
    ("i32", "abs(%0)", None),
]


@pytest.mark.parametrize(("dtype", "expression", "result"), NOT_IDENTITIES)
def test_what_is_no_identity_stays(dtype, expression, result):
    lines = after("algebraic_simplification", f"%0: {dtype}[4]", unary(dtype, expression, result))
    assert lines == [f"%1 = {expression}: {result or dtype}[4]", "return %1"]


@pytest.mark.parametrize(
    ("dtype", "expression", "value", "result"),
    [
        ("i32", "sub(%0, %0)", "0:i32", "i32"),
        ("i32", "mul(%0, 0:i32)", "0:i32", "i32"),
        ("bool", "bitwise_xor(%0, %0)", "false:bool", "bool"),
        ("i32", "bitwise_or(%0, -1:i32)", "-1:i32", "i32"),
        ("f32", "lt(%0, %0)", "false:bool", "bool"),
        ("i32", "ge(%0, %0)", "true:bool", "bool"),
        ("i32", "ne(%0, %0)", "false:bool", "bool"),
        ("i32", "isfinite(%0)", "true:bool", "bool"),
        ("bool", "isnan(%0)", "false:bool", "bool"),
    ],
)
def test_known_result_fills_the_shape(dtype, expression, value, result):
    lines = after("algebraic_simplification", f"%0: {dtype}[4]", unary(dtype, expression, result))
    assert lines == [f"%1 = full({value}, shape=[4]): {result}[4]", "return %1"]


REWRITES = [
    ("%2 = neg(%1): f32[4]\n%3 = add(%0, %2): f32[4]", "sub(%0, %1): f32[4]"),
    ("%2 = neg(%0): f32[4]\n%3 = add(%2, %1): f32[4]", "sub(%1, %0): f32[4]"),
    ("%2 = neg(%1): f32[4]\n%3 = sub(%0, %2): f32[4]", "add(%0, %1): f32[4]"),
    ("%2 = neg(%0): f32[4]\n%4 = neg(%1): f32[4]\n%3 = mul(%2, %4): f32[4]", "mul(%0, %1): f32[4]"),
    ("%2 = neg(%0): f32[4]\n%4 = neg(%1): f32[4]\n%3 = div(%2, %4): f32[4]", "div(%0, %1): f32[4]"),
    ("%2 = abs(%0): f32[4]\n%3 = mul(%2, %2): f32[4]", "mul(%0, %0): f32[4]"),
    ("%2 = neg(%0): f32[4]\n%3 = abs(%2): f32[4]", "abs(%0): f32[4]"),
    ("%2 = abs(%0): f32[4]\n%3 = abs(%2): f32[4]", "abs(%0): f32[4]"),
    ("%2 = ceil(%0): f32[4]\n%3 = floor(%2): f32[4]", "ceil(%0): f32[4]"),
    ("%2 = eq(%0, %1): bool[4]\n%3 = bitwise_not(%2): bool[4]", "ne(%0, %1): bool[4]"),
]


@pytest.mark.parametrize(("text", "expected"), REWRITES)
def test_rewrite_gives_the_simpler_operation(text, expected):
    lines = after("algebraic_simplification", "%0: f32[4], %1: f32[4]", f"{text}\nreturn %3")
    assert lines == [f"%2 = {expected}", "return %2"]


@pytest.mark.parametrize(
    "text",
    [
        "%2 = sub(%0, %1): f32[4]\n%3 = neg(%2): f32[4]",  # -(x - x) is -0.0, x - x is 0.0
        "%2 = lt(%0, %1): bool[4]\n%3 = bitwise_not(%2): bool[4]",  # not (NaN < 1), yet not NaN >= 1
        "%2 = floor(%0): f32[4]\n%3 = abs(%2): f32[4]",
        "%2 = sign(%0): f32[4]\n%3 = abs(%2): f32[4]",
    ],
)
def test_what_only_looks_like_a_rule_stays(text):
    assert len(after("algebraic_simplification", "%0: f32[4], %1: f32[4]", f"{text}\nreturn %3")) == 3


def test_double_negation_goes_and_choices_are_simplified():
    text = "%2 = neg(%0): f32[4]\n%3 = neg(%2): f32[4]\nreturn %3"
    assert after("algebraic_simplification", "%0: f32[4]", text) == ["return %0"]
    text = "%2 = bitwise_not(%0): bool[4]\n%3 = where(%2, %1, 2.0:f32): f32[4]\nreturn %3"
    lines = after("algebraic_simplification", "%0: bool[4], %1: f32[4]", text)
    assert lines == ["%2 = where(%0, 2.0:f32, %1): f32[4]", "return %2"]
    text = "%2 = where(%0, true:bool, false:bool): bool[4]\nreturn %2"
    assert after("algebraic_simplification", "%0: bool[4]", text) == ["return %0"]


def test_choice_of_equal_values_keeps_the_shape_the_condition_gives():
    text = "%2 = where(%0, %1, %1): f32[3, 4]\nreturn %2"
    lines = after("algebraic_simplification", "%0: bool[3, 4], %1: f32[4]", text)
    assert lines == ["%2 = where(%0, %1, %1): f32[3, 4]", "return %2"]


def test_multiplying_by_a_tensor_of_ones_keeps_the_larger_shape():
    text = "%1 = full(1.0:f32, shape=[3, 4]): f32[3, 4]\n%2 = mul(%0, %1): f32[3, 4]\nreturn %2"
    assert len(after("algebraic_simplification", "%0: f32[4]", text)) == 3
    text = "%1 = full(1.0:f32, shape=[1, 4]): f32[1, 4]\n%2 = mul(%0, %1): f32[3, 4]\nreturn %2"
    assert after("algebraic_simplification", "%0: f32[3, 4]", text) == ["return %0"]


@pytest.mark.parametrize(
    ("source", "between", "target", "expected"),
    [
        ("bf16", "f32", "bf16", None),
        ("f32", "f64", "f32", None),
        ("i32", "i64", "i32", None),
        ("bool", "f32", "bool", None),
        ("f16", "f32", "f64", "f64"),
        ("i8", "i64", "u8", "u8"),
        ("u8", "bf16", "i16", "i16"),
        ("i16", "f32", "f64", "f64"),
    ],
)
def test_cast_through_a_wider_type_is_skipped(source, between, target, expected):
    text = f"%1 = cast(%0, dtype={between}): {between}[4]\n%2 = cast(%1, dtype={target}): {target}[4]\nreturn %2"
    lines = after("algebraic_simplification", f"%0: {source}[4]", text)
    cast = [f"%1 = cast(%0, dtype={expected}): {expected}[4]", "return %1"]
    assert lines == (["return %0"] if expected is None else cast)


@pytest.mark.parametrize(
    ("source", "between", "target"),
    [
        ("f32", "bf16", "f32"),  # rounds
        ("f32", "f16", "f32"),
        ("f16", "bf16", "f16"),
        ("i64", "f64", "i64"),  # 2**53 + 1 has no double
        ("i32", "f32", "i32"),
        ("i32", "i8", "i32"),  # wraps around
        ("f32", "i32", "f32"),  # cuts off
        ("f32", "f64", "i32"),  # out of range is the machine's own business
        ("i8", "u8", "i16"),  # -1 becomes 255
        ("i8", "f32", "u8"),  # a negative float has no defined unsigned value
        ("i32", "bool", "i32"),
    ],
)
def test_cast_that_changes_values_stays(source, between, target):
    text = f"%1 = cast(%0, dtype={between}): {between}[4]\n%2 = cast(%1, dtype={target}): {target}[4]\nreturn %2"
    assert len(after("algebraic_simplification", f"%0: {source}[4]", text)) == 3


def test_extremum_over_axes_of_size_one_is_a_view():
    text = "%1 = amax(%0, axes=[1]): f32[4]\nreturn %1"
    lines = after("algebraic_simplification", "%0: f32[4, 1]", text)
    assert lines == ["%1 = squeeze(%0, axes=[1]): f32[4]", "return %1"]
    text = "%1 = sum(%0, axes=[1]): f32[4]\nreturn %1"  # sum(-0.0) is 0.0
    assert after("algebraic_simplification", "%0: f32[4, 1]", text)[0].startswith("%1 = sum")
