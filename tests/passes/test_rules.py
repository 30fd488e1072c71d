"""Each rule does what its docstring says, and does nothing where it would be wrong.

Graphs are written as text: what goes in, and what should come out after the pass and dead-code elimination.
"""

import textwrap
from unittest import mock

import pytest

from ingot.ir.parser import parse
from ingot.ops import table
from ingot.passes import algebraic_simplification, constant_folding, layout, strength_reduction
from ingot.passes.graph_passes import PASSES, optimize
from ingot.passes.graph_rewriting import PassResult, operators_of

BY_NAME = {pass_.name: pass_ for pass_ in PASSES}


def body(inputs: str, text: str) -> str:
    return f"graph({inputs}) {{\n{textwrap.indent(textwrap.dedent(text).strip(), '  ')}\n}}"


def after(pass_name: str, inputs: str, text: str) -> list[str]:
    """The lines of a graph after one pass, without what nothing uses."""
    graph = BY_NAME["dead_code"].run(BY_NAME[pass_name].run(parse(body(inputs, text))).graph).graph
    return [line.strip() for line in graph.text.splitlines()[1:-1]]


def unary(dtype: str, expression: str, result: str | None = None) -> str:
    """A graph that applies one expression of %0 and returns it."""
    return f"%9 = {expression}: {result or dtype}[4]\nreturn %9"


# --- algebraic simplification -----------------------------------------------------------------------------------------

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


# --- strength reduction -----------------------------------------------------------------------------------------------


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


# --- constant folding -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%1 = add(1.0:f32, 2.0:f32): f32\n%2 = mul(%0, %1): f32[4]", ["%1 = mul(%0, 3.0:f32): f32[4]"]),
        ("%1 = add(127:i8, 1:i8): i8\n%2 = full(%1, shape=[4]): i8[4]", ["%1 = full(-128:i8, shape=[4]): i8[4]"]),
        ("%1 = div(1:i64, 0:i64): i64\n%2 = full(%1, shape=[4]): i64[4]", None),
        (
            "%1 = full(0.5:f32, shape=[2, 3]): f32[2, 3]\n%2 = neg(%1): f32[2, 3]",
            ["%1 = full(-0.5:f32, shape=[2, 3]): f32[2, 3]"],
        ),
        (
            "%1 = full(2.0:f32, shape=[2, 3]): f32[2, 3]\n%2 = permute(%1, order=[1, 0]): f32[3, 2]",
            ["%1 = full(2.0:f32, shape=[3, 2]): f32[3, 2]"],
        ),
        (
            "%1 = full(2.0:f32, shape=[2]): f32[2]\n%3 = full(2.0:f32, shape=[3]): f32[3]\n"
            "%2 = cat(%1, %3, axis=0): f32[5]",
            ["%1 = full(2.0:f32, shape=[5]): f32[5]"],
        ),
        ("%1 = dimension(size=7): i64\n%2 = full(%1, shape=[4]): i64[4]", ["%1 = full(7:i64, shape=[4]): i64[4]"]),
    ],
)
def test_known_values_are_computed_now(text, expected):
    lines = after("constant_folding", "%0: f32[4]", f"{text}\nreturn %2")
    assert len(lines) == 3 if expected is None else lines[:-1] == expected


@pytest.mark.parametrize("expression", ["exp(%1)", "maximum(%1, 0.0:f32)", "pow(%1, 2.0:f32)"])
def test_what_may_differ_between_devices_is_left_to_the_run(expression):
    text = f"%1 = full(0.5:f32, shape=[4]): f32[4]\n%2 = {expression}: f32[4]\nreturn %2"
    assert len(after("constant_folding", "%0: f32[4]", text)) == 3


# --- common subexpressions --------------------------------------------------------------------------------------------


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


# --- layout -----------------------------------------------------------------------------------------------------------


def permutes_after(inputs: str, text: str) -> int:
    return optimize(parse(body(inputs, text))).graph.text.count("= permute(")


def test_permutes_cancel_around_a_region_with_several_uses():
    text = """
    %1 = permute(%0, order=[1, 0]): f32[5, 4]
    %2 = exp(%1): f32[5, 4]
    %3 = neg(%2): f32[5, 4]
    %4 = add(%2, %3): f32[5, 4]
    %5 = permute(%4, order=[1, 0]): f32[4, 5]
    return %5
    """
    assert permutes_after("%0: f32[4, 5]", text) == 0


def test_two_permutes_become_one():
    text = """
    %2 = permute(%0, order=[1, 2, 0]): f32[5, 6, 4]
    %3 = permute(%1, order=[1, 2, 0]): f32[5, 6, 4]
    %4 = add(%2, %3): f32[5, 6, 4]
    return %4
    """
    assert permutes_after("%0: f32[4, 5, 6], %1: f32[4, 5, 6]", text) == 1


def test_bias_follows_the_region_without_a_permute():
    text = """
    %2 = permute(%0, order=[0, 2, 3, 1]): f32[2, 8, 8, 3]
    %3 = add(%2, %1): f32[2, 8, 8, 3]
    %4 = permute(%3, order=[0, 3, 1, 2]): f32[2, 3, 8, 8]
    return %4
    """
    graph = optimize(parse(body("%0: f32[2, 3, 8, 8], %1: f32[3]", text))).graph
    assert "permute" not in graph.text
    assert "broadcast_in_dim(%1, shape=[1, 3, 1, 1], axes=[1])" in graph.text


def test_permute_that_is_used_elsewhere_is_not_doubled():
    text = """
    %1 = permute(%0, order=[1, 0]): f32[5, 4]
    %2 = exp(%1): f32[5, 4]
    return %1, %2
    """
    assert permutes_after("%0: f32[4, 5]", text) == 1


def test_reduction_takes_permuted_axes_in_the_same_order():
    text = "%1 = permute(%0, order=[2, 0, 1]): f32[6, 4, 5]\n%2 = sum(%1, axes=[1, 2]): f32[6]\nreturn %2"
    lines = after("layout", "%0: f32[4, 5, 6]", text)
    assert lines == ["%1 = sum(%0, axes=[0, 1]): f32[6]", "return %1"]
    # Here the elements would be added up in another order: it stays.
    text = "%1 = permute(%0, order=[1, 0]): f32[5, 4]\n%2 = sum(%1, axes=[0, 1]): f32[]\nreturn %2"
    assert len(after("layout", "%0: f32[4, 5]", text)) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%1 = reshape(%0, shape=[20]): f32[20]\n%2 = reshape(%1, shape=[4, 5]): f32[4, 5]", []),
        (
            "%1 = reshape(%0, shape=[20]): f32[20]\n%2 = reshape(%1, shape=[5, 4]): f32[5, 4]",
            ["reshape(%0, shape=[5, 4]): f32[5, 4]"],
        ),
        (
            "%1 = broadcast_in_dim(%0, shape=[4, 1, 5], axes=[0, 2]): f32[4, 1, 5]\n"
            "%2 = squeeze(%1, axes=[1]): f32[4, 5]",
            [],
        ),
        (
            "%1 = broadcast_in_dim(%0, shape=[1, 4, 5], axes=[1, 2]): f32[1, 4, 5]\n"
            "%2 = broadcast_in_dim(%1, shape=[3, 4, 5], axes=[0, 1, 2]): f32[3, 4, 5]",
            ["broadcast_in_dim(%0, shape=[3, 4, 5], axes=[1, 2]): f32[3, 4, 5]"],
        ),
        (
            "%1 = slice(%0, starts=[1, 0], stops=[4, 5], steps=[1, 2]): f32[3, 3]\n"
            "%2 = slice(%1, starts=[1, 1], stops=[3, 3], steps=[1, 1]): f32[2, 2]",
            ["slice(%0, starts=[2, 2], stops=[4, 5], steps=[1, 2]): f32[2, 2]"],
        ),
        (
            "%1 = broadcast_in_dim(%0, shape=[9, 4, 5], axes=[1, 2]): f32[9, 4, 5]\n%2 = exp(%1): f32[9, 4, 5]",
            ["exp(%0): f32[4, 5]", "broadcast_in_dim(%1, shape=[9, 4, 5], axes=[1, 2]): f32[9, 4, 5]"],
        ),
        (
            "%2 = reshape(%0, shape=[4, 1, 5]): f32[4, 1, 5]",
            ["broadcast_in_dim(%0, shape=[4, 1, 5], axes=[0, 2]): f32[4, 1, 5]"],
        ),
        (
            "%1 = broadcast_in_dim(%0, shape=[4, 1, 5], axes=[0, 2]): f32[4, 1, 5]\n"
            "%2 = reshape(%1, shape=[20]): f32[20]",
            ["reshape(%0, shape=[20]): f32[20]"],
        ),
        (
            "%1 = broadcast_in_dim(%0, shape=[6, 4, 5], axes=[1, 2]): f32[6, 4, 5]\n"
            "%2 = reshape(%1, shape=[3, 2, 20]): f32[3, 2, 20]",
            [
                "reshape(%0, shape=[1, 1, 20]): f32[1, 1, 20]",
                "broadcast_in_dim(%1, shape=[3, 2, 20], axes=[0, 1, 2]): f32[3, 2, 20]",
            ],
        ),
        (
            "%1 = cat(%0, %0, axis=0): f32[8, 5]\n%2 = slice(%1, starts=[5, 0], stops=[8, 5], steps=[1, 1]): f32[3, 5]",
            ["slice(%0, starts=[1, 0], stops=[4, 5], steps=[1, 1]): f32[3, 5]"],
        ),
    ],
)
def test_views_are_merged(text, expected):
    lines = after("layout", "%0: f32[4, 5]", f"{text}\nreturn %2")
    assert lines[:-1] == [f"%{number} = {line}" for number, line in enumerate(expected, start=1)]


def test_what_is_repeated_not_even_once_is_not_computed_first():
    text = """
    %1 = broadcast_in_dim(%0, shape=[0, 4], axes=[1]): f32[0, 4]
    %2 = exp(%1): f32[0, 4]
    return %2
    """
    assert after("layout", "%0: f32[4]", text)[1] == "%2 = exp(%1): f32[0, 4]"


# --- all of them ------------------------------------------------------------------------------------------------------


def test_every_rule_documents_before_and_after():
    rules = [
        *algebraic_simplification.RULES,
        *constant_folding.RULES,
        *strength_reduction.RULES,
        *layout.MERGES,
        *layout.SINKS,
    ]
    for rule in rules:
        assert rule.__doc__ is not None
        assert "->" in rule.__doc__, rule.__name__


def test_rules_are_for_operators_that_there_are():
    rules = [*algebraic_simplification.RULES, *constant_folding.RULES, *strength_reduction.RULES, *layout.MERGES]
    named = set().union(*(operators_of(rule) or () for rule in rules))
    assert {"add", "cast", "reshape"} <= named <= set(table())


def test_a_graph_with_nothing_to_do_in_stays_itself():
    text = """
    %1 = reshape(%0, shape=[2, 2]): f32[2, 2]
    %2 = permute(%1, order=[1, 0]): f32[2, 2]
    %3 = slice(%2, starts=[0, 0], stops=[1, 2], steps=[1, 1]): f32[1, 2]
    %4 = cat(%3, %3, axis=0): f32[2, 2]
    return %4
    """
    graph = parse(body("%0: f32[4]", text))
    optimized = optimize(graph)
    assert optimized.graph is graph
    assert {report.name for report in optimized.reports} == set(BY_NAME)


def test_passes_run_until_none_finds_anything():
    runs = []

    class Counting:
        name, summary, level = "counting", "", 0

        def run(self, graph):
            runs.append(graph)
            return PassResult(graph, changed=len(runs) < 3)

    with mock.patch("ingot.passes.graph_passes.PASSES", (BY_NAME["dead_code"], Counting())):
        optimize(parse(body("%0: f32[4]", "%1 = exp(%0): f32[4]\nreturn %1")))
    assert len(runs) == 3


def test_levels_select_passes():
    graph = parse(body("%0: f32[4]", "%1 = mul(%0, 1.0:f32): f32[4]\nreturn %1"))
    names = {level: {report.name for report in optimize(graph, level).reports} for level in range(4)}
    local = {"constant_folding", "algebraic_simplification", "strength_reduction"}
    assert names[0] == set()
    assert names[1] == local
    whole_graph = {"layout", "slices", "reshapes", "sink_cat", "common_subexpressions", "dead_code"}
    assert names[2] == names[3] == local | whole_graph
    assert optimize(graph, 0).graph is graph
