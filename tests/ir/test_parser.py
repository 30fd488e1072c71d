"""Parsing: every error points at its place; nothing but ParseError and VerificationError comes out."""

import pytest

from ingot.base.errors import ParseError
from ingot.ir.parser import parse, parse_size

GOOD = """
# comments are skipped
graph(%0: f32[s0, 4], %1: i64, %7: f32[n]) {
  assume n == s0 in add
  %2 = cast(%1, dtype=f32): f32
  %3 = mul(%0, %2): f32[s0, 4]   # and here
  %4 = sum(%3, axes=[1]): f32[s0]
  %5 = add(%4, -0.0:f32): f32[s0]
  return %5, %4 -> %7, %3 strides [0, 1], nan:f64, true:bool
}
"""


def test_text_may_have_comments_and_any_names():
    graph = parse(GOOD)
    assert len(graph.inputs) == 3
    assert len(graph.nodes) == 4
    assert parse(graph.text) == graph
    assert "-0.0:f32" in graph.text
    assert "%5 -> %2" in graph.text  # values are numbered anew: %7 is the third input


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sum(%3", "summ(%3", "there is no operator 'summ'"),
        ("axes=[1]", "axs=[1]", r"sum has the attributes \['axes'\], not \['axs'\]"),
        (": f32[s0]\n  %5", ": f32[4]\n  %5", "sum gives f32\\[s0\\] here, not f32\\[4\\]"),
        ("%4 = sum", "%3 = sum", "%3 is defined twice"),
        ("sum(%3", "sum(%9", "%9 is not defined before this line"),
        ("axes=[1]", "axes=[7]", "line 7"),
        ("return %5", "return %5 5", "expected '}'"),
        ("-0.0:f32", "-0.0", "expected ':'"),
        ("-0.0:f32", '"text":f32', "a constant is a number"),
        ("f32[s0, 4], %1", "f33[s0, 4], %1", "'f33' is no data type"),
        ("mul(%0", "gelu(%0", "gelu is a composite"),
        ("graph(", "grph(", "expected 'graph'"),
        ("cast(%1", "cast(%1 ?", r"'\?' means nothing here"),
        ("mul(%0, %2)", "mul(%0, %1)", "operands must have one dtype"),
    ],
)
def test_fault_is_reported_with_its_line_and_a_caret(old, new, message):
    assert old in GOOD
    with pytest.raises(ParseError, match=message) as caught:
        parse(GOOD.replace(old, new, 1))
    assert "^" in str(caught.value)


@pytest.mark.parametrize("text", ["", "   ", "graph", "graph(", "graph() {", "graph() { return", "[" * 50_000])
def test_text_that_ends_early_is_an_error_too(text):
    with pytest.raises(ParseError):
        parse(text)


@pytest.mark.parametrize(
    "text", ["3", "s0", "2*s0 + 1", "-s0 + 3", "a*b - 2*c", "floordiv(a + 1, 2)", "3*min(a, b)", "max(-1, a)"]
)
def test_size_reads_its_own_text(text):
    assert str(parse_size(text)) == text


@pytest.mark.parametrize("text", ["", "1.5", "s0 +", "min(a)", "a b", "%0"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ParseError):
        parse_size(text)
