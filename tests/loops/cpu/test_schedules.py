"""Each form of schedule: which calls get it, and that loops and machine code agree under it and under all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ingot import DataType, GraphBuilder
from ingot.codegen.cpu import vector_loops
from ingot.fusion.rules import FusionRules
from ingot.ir.interpreter import Interpreter
from ingot.ir.torch_types import to_torch
from ingot.loops.cpu.nesting import build_nest
from ingot.loops.cpu.schedule import Form
from ingot.loops.cpu.scheduling import CpuCall
from ingot.loops.motion import Motion
from ingot.runtime.cpu.kernels import launch, scheduled
from ingot.runtime.plan import Plan
from tests.loops.cpu.schedules import form_number
from tests.loops.running import interpreted_launch, launched_by


def small_integers(*shape: int) -> torch.Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(sum(shape))).float()


def pointwise(ops: Any, x: Any) -> Any:
    return ops.abs(x) * 3 - 1


def rows(ops: Any, x: Any) -> Any:
    """Three passes, the last of which needs what the second computed at some expense."""
    distance = ops.abs(ops.abs(x - ops.amax(x, [1], keepdim=True)) * 2 - 1) * 3 + 1
    return ops.minimum(distance, ops.sum(distance, [1], keepdim=True))


def rows_with_two_kept(ops: Any, x: Any) -> Any:
    return rows(ops, x) - rows(ops, ops.maximum(x, 0) * 2 - 1)


def columns(ops: Any, x: Any) -> Any:
    return x - ops.sum(x, [0], keepdim=True), ops.amax(x, [0])


def total_of_rows(ops: Any, x: Any) -> Any:
    return ops.sum(ops.amax(x * 2, [1]), [0])


def variance(ops: Any, x: Any) -> Any:
    return ops.var_mean(x, [1], 0)


CASES: dict[str, tuple[Callable[..., Any], tuple[int, int], Form, Callable[[CpuCall], bool]]] = {
    "flat": (pointwise, (70, 33), Form.FLAT, lambda call: not call.schedule.streaming),
    "flat, rows in groups": (
        lambda ops, x: x * ops.iota(17),
        (300, 17),
        Form.FLAT,
        lambda call: call.schedule.groups_rows and call.schedule.outer == 1,
    ),
    "streamed": (pointwise, (2100, 2560), Form.FLAT, lambda call: call.schedule.streaming),
    "rows": (rows, (70, 33), Form.ROWS, lambda call: call.schedule.keeps),
    "rows with two kept": (rows_with_two_kept, (70, 33), Form.ROWS, lambda call: call.schedule.keeps),
    "rows too long to keep": (rows, (9, 50_001), Form.ROWS, lambda call: not call.schedule.keeps),
    "rows to a total": (total_of_rows, (3001, 5), Form.ROWS, lambda call: call.grain == 3),
    "split": (rows, (2, 70_003), Form.SPLIT, lambda call: call.blocks[1] < call.sizes[1]),
    "one pass": (variance, (2, 70_003), Form.SPLIT, lambda call: call.schedule.one_pass),
    "columns": (columns, (37, 70), Form.COLUMNS, lambda call: call.blocks[0] < 70),
    "short": (rows, (70, 3), Form.SHORT, lambda call: call.schedule.row_motions[0] is Motion.NEXT),
    "short, to one element": (
        lambda ops, x: ops.sum(ops.abs(x), [1]),
        (1000, 5),
        Form.SHORT,
        lambda call: call.schedule.row_motions == (Motion.STILL, Motion.NEXT),
    ),
    "short, even": (rows_with_two_kept, (192, 4), Form.SHORT, lambda call: call.schedule.is_even),
    "too long to be short": (rows, (70, 16), Form.ROWS, lambda call: call.schedule.row_size == 0),
    "too few rows to be short": (rows, (7, 3), Form.ROWS, lambda call: call.schedule.row_size == 0),
    "tiled": (pointwise, (70, 133), Form.TILED, lambda call: call.schedule.transposed == (1,)),
    "flat, even": (pointwise, (64, 33), Form.FLAT, lambda call: call.schedule.is_even),
    "rows, even": (rows_with_two_kept, (5, 192), Form.ROWS, lambda call: call.schedule.is_even),
    "rows to a total, even": (total_of_rows, (3001, 64), Form.ROWS, lambda call: call.schedule.is_even),
    "split, even": (rows, (2, 131_136), Form.SPLIT, lambda call: call.schedule.is_even),
    "columns, even": (columns, (40, 192), Form.COLUMNS, lambda call: call.schedule.is_even),
    "columns of an odd height": (columns, (39, 192), Form.COLUMNS, lambda call: not call.schedule.is_even),
    "tiled, even": (pointwise, (192, 320), Form.TILED, lambda call: call.schedule.is_even),
    "tiled, odd across": (pointwise, (200, 320), Form.TILED, lambda call: not call.schedule.is_even),
    "tiled, odd along": (pointwise, (192, 325), Form.TILED, lambda call: not call.schedule.is_even),
}


@pytest.mark.parametrize("name", CASES)
def test_every_form_is_chosen_where_it_should_be(name: str):
    body, shape, form, holds = CASES[name]
    builder = GraphBuilder()
    results = body(builder.ops, builder.input((-1, -1)))
    builder.output(*(results if isinstance(results, tuple) else (results,)))
    x = small_integers(*reversed(shape)).T if form is Form.TILED else small_integers(*shape)
    plan = Plan(builder.build(), FusionRules(strategy="aggressive"))
    (kernel,) = plan.kernels()
    call, _ = scheduled(kernel, [x], {"s0": shape[0], "s1": shape[1]})
    assert call.schedule.form is form
    assert holds(call), call
    if form is Form.ROWS and call.schedule.keeps:
        kept = 1 + (body is rows_with_two_kept)
        assert len(build_nest(kernel.program, call.schedule).scratches) == kept
    generated, expected = plan.run([x]), Interpreter(plan.graph).run([x])
    with launched_by(interpreted_launch):
        looped = plan.run([x])
    for found, wanted, right in zip(generated, looped, expected, strict=True):
        assert torch.equal(found, wanted)
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize(
    "body", [pointwise, rows, rows_with_two_kept, columns, total_of_rows], ids=lambda body: body.__name__
)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (65, 33)], ids=str)
def test_all_forms_of_one_program_agree(body: Callable[..., Any], shape: tuple[int, int]):
    builder = GraphBuilder()
    results = body(builder.ops, builder.input((-1, -1)))
    builder.output(*(results if isinstance(results, tuple) else (results,)))
    plan = Plan(builder.build(), FusionRules(strategy="aggressive"))
    x = small_integers(*shape)
    for given in (x, x.T.contiguous().T, torch.cat([x, x], 1)[:, ::2]):
        expected = Interpreter(plan.graph).run([given])
        for form in range(4):
            for seed, way in enumerate((launch, interpreted_launch)):
                with form_number(form, seed), launched_by(way):
                    found = plan.run([given])
                assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), (form, seed)


@pytest.mark.parametrize("kind", [DataType.Float, DataType.BFloat16, DataType.Bool], ids=str)
@pytest.mark.parametrize(("size", "rows"), [(2, 8), (3, 61)])
def test_short_rows_are_read_and_written_however_they_lie(size: int, rows: int, kind: DataType):
    """Without gaps, with gaps, one row for all, one element per row, dense across, and results of every layout."""
    dtype = to_torch(kind)
    x = small_integers(3, rows, size).to(dtype)
    wide = small_integers(3, rows, size + 1).to(dtype)
    lying = {
        "gaps": wide[..., :size],
        "one row": x[:1, :1],
        "one element": x[..., :1],
        "one element with gaps": wide[..., 1:2],
        "across": small_integers(3, size, rows).to(dtype).mT,
        "every other": small_integers(3, rows, 2 * size + 1).to(dtype)[..., 1::2],
    }
    for name, other in lying.items():
        builder = GraphBuilder()
        given = [builder.input(tensor.shape, kind) for tensor in (x, other)]
        larger = builder.ops.maximum(*given)
        builder.output(builder.ops.ne(larger, given[1]), larger)
        plan = Plan(builder.build())
        (kernel,) = plan.kernels()
        assert scheduled(kernel, [x, other], {})[0].schedule.form is Form.SHORT, name
        found = plan.run([x, other])
        with launched_by(interpreted_launch):
            looped = plan.run([x, other])
        larger = torch.maximum(x, other)
        for one, two, wanted in zip(found, looped, (larger != other, larger), strict=True):
            assert torch.equal(one, wanted) and torch.equal(two, wanted), name


@pytest.mark.parametrize("quick", [False, True])
def test_leftovers_are_the_same_with_masks_and_without(quick: bool, monkeypatch: pytest.MonkeyPatch):
    """Processors without masks copy what is left over."""
    monkeypatch.setattr(vector_loops, "masks_are_quick", lambda: quick)
    for dtype in (DataType.Float, DataType.BFloat16, DataType.UInt8, DataType.Bool, DataType.Double):
        builder = GraphBuilder()
        x, y = builder.input((5, 19), dtype), builder.input((19,), dtype)
        larger = builder.ops.maximum(builder.ops.minimum(x, y), y) if quick else builder.ops.maximum(x, y)
        builder.output(larger, builder.ops.sum(builder.ops.cast(larger, DataType.Double), [1]))
        given = [small_integers(5, 19).to(to_torch(dtype)), small_integers(19).to(to_torch(dtype))]
        plan = Plan(builder.build())
        for found, wanted in zip(plan.run(given), Interpreter(plan.graph).run(given), strict=True):
            assert torch.equal(found, wanted), dtype
