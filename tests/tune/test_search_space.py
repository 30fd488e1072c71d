"""Candidates give the results of the default schedule, bit for bit, and none is there twice."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given, settings, strategies

from ingot import GraphBuilder
from ingot.fusion.rules import FusionRules
from ingot.loops.cpu.schedule import Form
from ingot.loops.cpu.tuning import CpuTuning
from ingot.runtime.plan import Plan
from ingot.tune.search_space import NEVER, SearchSpace, in_words, knobs
from tests.loops.cpu.schedules import small_schedules
from tests.loops.cpu.test_schedules import CASES, small_integers
from tests.loops.running import launched_by
from tests.property.conftest import EXAMPLES
from tests.property.fused_graphs import FusedGraph, fused_graphs
from tests.property.random_values import copied
from tests.tune.candidates import Compared, small_knobs

WIDE = {
    "wide columns": ("columns", (40, 5000)),
    "short rows": ("rows with two kept", (3300, 320)),
    "two short blocks": ("flat", (5, 4000)),
    "three blocks": ("flat", (3, 16_384)),
}
"""Shapes for which more figures make a difference."""


def planned(name: str) -> tuple[Plan, torch.Tensor]:
    """A kernel for each form of schedule, and its input."""
    case, wide = WIDE.get(name, (name, None))
    body, shape, form, _ = CASES[case]
    shape = wide or shape
    builder = GraphBuilder()
    results = body(builder.ops, builder.input((-1, -1)))
    builder.output(*(results if isinstance(results, tuple) else (results,)))
    x = torch.randn(*reversed(shape)).T if form is Form.TILED else torch.randn(*shape)
    return Plan(builder.build(), FusionRules(strategy="aggressive")), x


def space_of(name: str, tuning: CpuTuning = CpuTuning()) -> SearchSpace:  # noqa: B008 - it is frozen
    plan, x = planned(name)
    (kernel,) = plan.kernels()
    return SearchSpace(kernel, [x], {"s0": x.shape[0], "s1": x.shape[1]}, {}, tuning)


@settings(settings.get_profile("random graphs"), max_examples=max(EXAMPLES // 20, 1))
@given(fused_graphs(), strategies.integers(0, 10**6))
def test_candidates_of_random_graphs_give_the_same_bits(drawn: FusedGraph, seed: int):
    plan = Plan(drawn.graph, FusionRules(strategy="aggressive"))
    with small_knobs(), small_schedules(2 * seed), launched_by(Compared(seed)):
        plan.run(copied(drawn.arguments))


def test_every_form_has_candidates_that_give_the_same_bits():
    torch.manual_seed(3)
    seen: Counter[str] = Counter()
    names = ("flat", "streamed", "rows", "short rows", "split", "wide columns", "columns, even", "tiled")
    for seed, name in enumerate(names):
        plan, x = planned(name)
        with launched_by(Compared(seed, 8, seen)):
            plan.run([x])
    assert {knob.figure for knob in knobs()} == set(seen), seen


def test_nothing_is_added_up_in_another_order():
    """Sums of floats differ in their last bits as soon as it is: neither long rows nor totals go in other blocks."""
    torch.manual_seed(0)
    for name in ("split", "rows to a total", "one pass"):
        space = space_of(name)
        for candidate in space.around({}):
            assert candidate.call.blocks == space.default.call.blocks
            assert candidate.call.grain == space.default.call.grain
            assert candidate.call.schedule.one_pass == space.default.call.schedule.one_pass


def test_candidates_that_come_to_the_same_are_one():
    for name in CASES:
        space = space_of(name)
        signatures = [candidate.signature for candidate in space.around({})]
        assert len(set(signatures)) == len(signatures) > 0, name
        assert space.default.signature not in signatures, name


def test_a_figure_can_go_back_to_the_default():
    space = space_of("wide columns")
    changes = {"column_block": 64, "side_by_side": 8}
    found = [candidate.changes for candidate in space.around(changes)]
    assert {"side_by_side": 8} in found and {"column_block": 64} in found
    assert changes not in found


def test_what_is_no_candidate_is_refused():
    space = space_of("flat")
    assert space.candidate({"flat_block": 1024}) is not None
    for changes in (
        {"flat_block": 1000},  # streamed stores must begin at lines of the cache
        {"column_block": 64},  # of another form
        {"few_rows": 8},  # decides about the order of sums
        {"vector_bytes": 24},
        {"flat_block": 1024, "no such figure": 1},
    ):
        assert space.candidate(changes) is None, changes


def test_tiles_are_bounded_by_the_stack_of_a_thread():
    def body(ops, x, *others):
        total = x
        for other in others:
            total = total + other
        return total

    builder = GraphBuilder()
    inputs = [builder.input((-1, -1)) for _ in range(4)]
    builder.output(body(builder.ops, *inputs))
    (kernel,) = Plan(builder.build()).kernels()
    tensors = [small_integers(300, 400), *(small_integers(400, 300).T for _ in range(3))]
    space = SearchSpace(kernel, tensors, {"s0": 300, "s1": 400}, {}, CpuTuning())
    assert space.default.call.schedule.form is Form.TILED
    assert space.candidate({"tile": 64}) is not None and space.candidate({"tile": NEVER}) is not None
    assert space.candidate({"tile": 256}) is None


def test_changes_are_told_in_words():
    assert in_words({}) == ""
    assert in_words({"flat_block": 1024, "parallel_elements": NEVER}) == "blocks of 1024, one thread"
    assert in_words({"tile": NEVER, "vector_bytes": 128}) == "no tiles, vectors of 128 bytes"
