"""What is known is computed before the run, unless devices may differ in it."""

import pytest

from tests.passes.written_graphs import after


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
