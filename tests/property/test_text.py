"""The text of a graph: it says everything, digests depend on nothing else, and no other text can crash the parser."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingot.base.errors import ParseError, VerificationError
from ingot.ir.parser import parse
from ingot.ir.verifier import verify
from tests.property.random_graphs import Drawn, drawn_graphs, seeded_graph

ROOT = Path(__file__).parents[2]


@settings(settings.get_profile("random graphs"))
@given(drawn_graphs())
def test_text_reads_back_as_the_same_graph(drawn: Drawn) -> None:
    verify(drawn.graph)
    read = parse(drawn.graph.text)
    assert read == drawn.graph
    assert read.digest == drawn.graph.digest
    assert read.text == drawn.graph.text


def test_digests_are_the_same_in_every_process() -> None:
    program = (
        "from tests.property.random_graphs import seeded_graph\n"
        "for seed in range(40):\n"
        "    print(seeded_graph(seed).graph.digest)\n"
    )
    printed = []
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        command = [sys.executable, "-c", program]
        printed.append(subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True))
    assert printed[0].stdout == printed[1].stdout
    assert printed[0].stdout.split() == [seeded_graph(seed).graph.digest for seed in range(40)]


# --- damaged text -----------------------------------------------------------------------------------------------------

_PIECES = ["(", ")", "[", "]", "{", "}", ",", ":", "=", "==", "->", "%0", "%1", "%99", "$0", "-", "*", "1", "0", "-1"]
_PIECES += [
    "nan",
    "inf",
    "1e999",
    "99999999999999999999",
    '"',
    '"\\',
    "#",
    "\n",
    "f32",
    "f32[2]",
    "c64",
    "null",
    "none",
]
_PIECES += ["true", "graph", "return", "assume", "in", "strides", "s0", "floordiv(s0, 0)", "min(1, s0)", "axes=[9]"]
_PIECES += [
    "order=[0, 0]",
    "shape=[-1]",
    "dtype=f8e4m3",
    "input",
    "constant",
    "item",
    "library",
    "softmax",
    "é",
    "\x00",
]


@cache
def _text(seed: int) -> str:
    return seeded_graph(seed).graph.text


def _damaged(text: str, edits: list[tuple[int, int, str]]) -> str:
    for position, deleted, inserted in edits:
        start = position % (len(text) + 1)
        text = text[:start] + inserted + text[start + deleted :]
    return text


_EDITS = st.lists(
    st.tuples(
        st.integers(0, 2**20),
        st.integers(0, 6),
        st.one_of(st.just(""), st.sampled_from(_PIECES), st.text("()[]{},:=%$-+*.0123456789abefinsuxy \n", max_size=4)),
    ),
    min_size=1,
    max_size=4,
)


def _parses_or_is_refused(text: str) -> None:
    try:
        graph = parse(text)
    except (ParseError, VerificationError):
        return
    verify(graph)
    assert parse(graph.text) == graph


@settings(settings.get_profile("random graphs"), max_examples=3 * settings.get_profile("random graphs").max_examples)
@given(st.integers(0, 99), _EDITS)
def test_damaged_text_is_refused_or_means_something(seed: int, edits: list[tuple[int, int, str]]) -> None:
    _parses_or_is_refused(_damaged(_text(seed), edits))


@pytest.mark.parametrize(
    "operation",
    [
        "cast(%0, dtype=16): f32[2, 3]",
        "cast(%0, dtype=f8e4m3): f8e4m3[2, 3]",
        "add(%0): f32[2, 3]",
        "add(%0, nan:i32): f32[2, 3]",
        "add(%0, 1.0:c64): f32[2, 3]",
        "permute(%0, order=[0, 0]): f32[2, 2]",
        "permute(%0, order=[-1, 0]): f32[3, 2]",
        "sum(%0, axes=[2]): f32[2, 3]",
        "sum(%0, axes=[1, 0]): f32[]",
        "sum(%0, axes=1): f32[2]",
        "cumsum(%0, axis=true): f32[2, 3]",
        "slice(%0, starts=[0, 2], stops=[2, 1], steps=[1, 1]): f32[2, -1]",
        "slice(%0, starts=[0, 0], stops=[2, 3], steps=[1, 0]): f32[2, 3]",
        "slice(%0, starts=[0, 0], stops=[2, 4], steps=[1, 1]): f32[2, 4]",
        "pad(%0, 0.0:f32, before=[0, -1], after=[0, 0]): f32[2, 2]",
        "broadcast_in_dim(%0, shape=[3, 2], axes=[1, 0]): f32[3, 2]",
        "reshape(%0, shape=[-2, -3]): f32[-2, -3]",
        "reshape(%0, shape=[floordiv(6, 0)]): f32[6]",
        "reshape(%0, shape=[99999999999999999999]): f32[6]",
        'library(%0, target="\\q", arguments=[$0], keywords=[], results=[f32[2]], ordinal=none): f32[2]',
        'library(%0, target="aten.neg.default", arguments=[$0], keywords=[], results=[], ordinal=none): ()',
    ],
)
def test_operations_no_builder_would_make_are_refused(operation: str) -> None:
    with pytest.raises((ParseError, VerificationError)):
        parse(f"graph(%0: f32[2, 3]) {{\n  %1 = {operation}\n  return %1\n}}")


def test_constants_are_read_as_their_type_holds_them() -> None:
    graph = parse("graph(%0: u8[2]) {\n  %1 = add(%0, 300:u8): u8[2]\n  return %1, 0.1:f32\n}")
    assert graph.nodes[0].operands[1].constant == 44
    assert graph.outputs[1].node.constant == 0.10000000149011612


@settings(settings.get_profile("random graphs"))
@given(st.text(max_size=40) | st.lists(st.sampled_from(_PIECES), max_size=20).map(" ".join))
@example("")
@example("graph")
def test_any_text_is_refused_or_means_something(text: str) -> None:
    _parses_or_is_refused(text)
