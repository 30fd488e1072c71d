"""Permutes cancel and views are merged, without a change in the order in which elements are added."""

import pytest

from ingot.ir.parser import parse
from ingot.passes.graph_passes import optimize
from tests.passes.written_graphs import after, body


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
