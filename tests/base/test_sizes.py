"""Size expressions: canonical, exact, and equal whenever they are equal as polynomials."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.base import sizes

A, B = sizes.symbol("a"), sizes.symbol("b")


def _combine(parts):
    operator, left, right = parts
    if operator == "//":
        return sizes.divide(left, 3)
    return {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "min": lambda: sizes.minimum(left, right),
        "max": lambda: sizes.maximum(left, right),
    }[operator]()


expressions = st.recursive(
    st.one_of(st.integers(-5, 9), st.sampled_from([A, B])),
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "min", "max", "//"]), inner, inner).map(_combine),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (A * B, "a*b"),
        (B * A, "a*b"),
        (A + 2 + A, "2*a + 2"),
        (3 - A, "-a + 3"),
        (A * (B + 1) - A * B, "a"),
        (A - A, "0"),
        (sizes.divide(A * B * 6, B * 2), "3*a"),
        (sizes.divide(A + 1, 2), "floordiv(a + 1, 2)"),
        (sizes.minimum(A, A + 1), "a"),
        (sizes.maximum(A + 1, A), "a + 1"),
        (sizes.minimum(B, A), "min(a, b)"),
    ],
)
def test_equal_sizes_have_one_text(size, text):
    assert str(size) == text


@given(expressions, expressions, st.integers(0, 20), st.integers(0, 20))
def test_arithmetic_agrees_with_evaluation(left, right, a, b):
    bindings = {"a": a, "b": b}
    x, y = sizes.evaluate(left, bindings), sizes.evaluate(right, bindings)
    assert sizes.evaluate(left + right, bindings) == x + y
    assert sizes.evaluate(left * right, bindings) == x * y
    assert sizes.evaluate(left - right, bindings) == x - y
    assert sizes.evaluate(sizes.minimum(left, right), bindings) == min(x, y)
    assert sizes.evaluate(sizes.maximum(left, right), bindings) == max(x, y)
    assert sizes.evaluate(sizes.divide(left, 4), bindings) == x // 4


@given(expressions, st.integers(0, 20), st.integers(0, 20))
def test_substituting_numbers_is_evaluating(size, a, b):
    assert sizes.substitute(size, {"a": a, "b": b}) == sizes.evaluate(size, {"a": a, "b": b})


@given(expressions)
def test_symbols_are_those_of_the_text(size):
    assert sizes.symbols(size) == {name for name in ("a", "b") if name in str(size).replace("max", "")}
