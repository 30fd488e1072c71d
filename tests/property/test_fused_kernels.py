"""Fused kernels four ways: graph interpreter, loop interpreter, generated code, eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import given, settings, strategies

import ingot
from ingot.base.dtypes import DataType
from ingot.fusion.rules import FusionRules
from ingot.ir.interpreter import Interpreter
from ingot.ir.torch_types import to_torch
from ingot.loops.cpu.schedule import Form
from ingot.runtime.cpu.kernels import launch
from ingot.runtime.plan import Plan
from tests.loops.cpu.schedules import Seen, form_number, small_schedules
from tests.loops.running import interpreted_launch, launched_by, shaped_launch
from tests.property.conftest import CI_EXAMPLES, EXAMPLES
from tests.property.fused_graphs import FusedGraph, fused_graphs, seeded_fused
from tests.property.random_values import copied

ROUNDING = {DataType.Double: 1e-10, DataType.Float: 2e-5, DataType.Half: 5e-3, DataType.BFloat16: 4e-2}
"""How far apart results may lie that were rounded in a type on the way, in parts of the largest."""


def check_four_ways(drawn: FusedGraph, seed: int, seen: Seen | None = None) -> None:
    strategy = ("default", "aggressive", "default", "conservative")[seed % 4]
    plan = Plan(drawn.graph, FusionRules(strategy=strategy))
    interpreted = Interpreter(drawn.graph).run(copied(drawn.arguments))
    with small_schedules(seed, seen):
        generated = plan.run(copied(drawn.arguments))
        with launched_by(interpreted_launch):
            looped = plan.run(copied(drawn.arguments))
    eager = interpreted if drawn.has_specials else drawn.expected
    for name, results in (("the loops", looped), ("generated code", generated), ("eager", eager)):
        wrong = difference(drawn, interpreted, results)
        assert wrong is None, f"{name}: {wrong}\n{drawn}\n{plan.explain()}"


def difference(drawn: FusedGraph, expected: Sequence[Any], found: Sequence[Any]) -> str | None:
    """Where results differ by more than rounding explains; None where they agree."""
    rounding = max(ROUNDING.get(dtype, 0.0) for dtype in drawn.dtypes | {DataType.Double})
    for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if ours.dtype is not theirs.dtype or ours.shape != theirs.shape:
            return f"result {index} is {ours.dtype} {list(ours.shape)}, not {theirs.dtype} {list(theirs.shape)}"
        agree = (ours == theirs) | (ours.isnan() & theirs.isnan())
        if not drawn.is_exact and ours.is_floating_point():
            noise = (drawn.expected[index].double() - drawn.precise[index]).abs().nan_to_num(0.0, 0.0, 0.0)
            scale = drawn.precise[index].abs().nan_to_num(0.0, 0.0, 0.0)
            largest = (float(noise.max()), float(scale.max())) if noise.numel() else (0.0, 0.0)
            allowed = 32 * largest[0] + rounding * max(1.0, largest[1])
            agree |= (ours.double() - theirs.double()).abs() <= allowed
            # Infinity times what rounding may or may not leave of a difference is infinite or not a number.
            agree |= ~ours.isfinite() & ~theirs.isfinite() & drawn.has_specials
        if not agree.all():
            place = tuple((~agree).nonzero()[0].tolist())
            count = int((~agree).sum())
            return f"result {index} at {place}: {ours[place].item()} instead of {theirs[place].item()}, {count} such"
    return None


@settings(settings.get_profile("random graphs"), max_examples=EXAMPLES if EXAMPLES > CI_EXAMPLES else 200)
@given(fused_graphs(), strategies.integers(0, 10**6))
def test_four_ways_to_run_a_graph_agree(drawn: FusedGraph, seed: int):
    check_four_ways(drawn, seed)


@settings(settings.get_profile("random graphs"), max_examples=max(EXAMPLES // 10, 1))
@given(fused_graphs(), strategies.integers(0, 10**6))
def test_every_legal_schedule_gives_the_same(drawn: FusedGraph, seed: int):
    """One program in every form it can have, whether sensible or not."""
    plan = Plan(drawn.graph, FusionRules(strategy="aggressive"))
    expected: list[Any] | None = None
    for form in range(4):  # a kernel that has fewer forms runs in one of them again
        for way in (launch, interpreted_launch):
            with form_number(form, seed), launched_by(way):
                found = plan.run(copied(drawn.arguments))
            expected = expected or found
            wrong = difference(drawn, expected, found)
            assert wrong is None, f"form {form} by {way.__name__}: {wrong}\n{drawn}\n{plan.explain()}"


def test_vectors_of_a_million_elements_and_three():
    """Real blocks and thresholds, and a length that nothing divides."""
    for seed, dtype in enumerate((DataType.Float, DataType.BFloat16, DataType.Int8)):
        builder = ingot.GraphBuilder()
        x, y = (builder.input((-1,), dtype) for _ in range(2))
        ops = builder.ops
        small = ops.minimum(ops.maximum(x - y, -3), 3)
        builder.output(small, ops.sum(small), ops.amax(x * y), ops.where(ops.eq(x, ops.amax(x)), y, x))
        generator = torch.Generator().manual_seed(seed)
        arguments = [torch.randint(-3, 4, (1_000_003,), generator=generator).to(to_torch(dtype)) for _ in range(2)]
        plan = Plan(builder.build())
        expected = Interpreter(plan.graph).run(arguments)
        with launched_by(interpreted_launch):
            looped = plan.run(arguments)
        for results in (plan.run(arguments), looped):
            assert all(torch.equal(found, wanted) for found, wanted in zip(results, expected, strict=True))


class Wrapped(torch.Tensor):
    """A subclass, whose memory kernels must not read."""


def test_tensors_that_are_not_their_memory_run_through_the_interpreter():
    for seed in range(12):
        drawn = seeded_fused(seed)
        for change in (_negated, _subclass, _zero):
            arguments = [change(a) if isinstance(a, torch.Tensor) else a for a in drawn.arguments]
            expected = Interpreter(drawn.graph).run(arguments)
            for found, wanted in zip(Plan(drawn.graph).run(arguments), expected, strict=True):
                assert torch.equal(found.nan_to_num(), wanted.nan_to_num())


def _negated(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, which PyTorch negates when it reads them."""
    return torch._neg_view(-tensor) if tensor.is_floating_point() else tensor


def _subclass(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_subclass(Wrapped)


def _zero(tensor: torch.Tensor) -> torch.Tensor:
    return torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype)


def test_random_graphs_reach_every_form_of_schedule():
    """Deterministic, so that the property above cannot quietly lose a form."""
    seen = Seen()
    for seed in range(150):
        drawn = seeded_fused(seed)
        with small_schedules(seed, seen), launched_by(shaped_launch):
            Plan(drawn.graph, FusionRules(strategy="aggressive")).run(copied(drawn.arguments))
    assert not [form for form in Form if not seen.forms[form]], seen
    assert min(seen.streaming, seen.keeping, seen.partial, seen.one_pass) >= 5, seen
