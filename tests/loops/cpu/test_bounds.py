"""The bounds check: it accepts what is inside, and names what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ingot import DataType, GraphBuilder
from ingot.base import environment_variables as environment_module
from ingot.base.environment_variables import EnvironmentVariables
from ingot.base.errors import LoopError
from ingot.ir.graph import Graph
from ingot.loops.cpu.bounds import check_bounds
from ingot.loops.cpu.nesting import build_nest
from ingot.loops.cpu.schedule import Form, Schedule
from ingot.loops.cpu.scheduling import CpuCall
from ingot.loops.motion import Motion
from ingot.loops.nest import (
    Accumulate,
    Accumulator,
    Begin,
    Buffer,
    Keep,
    Load,
    Loop,
    LoopKind,
    Nest,
    Recall,
    Register,
    Scratch,
    Store,
)
from ingot.ops import lookup
from ingot.runtime.cpu import kernels as kernels_module
from ingot.runtime.cpu.kernels import scheduled
from ingot.runtime.kernels import extents
from ingot.runtime.plan import Plan

COPY = (Load(Register(0, DataType.Float), 1), Store(0, Register(0, DataType.Float)))
BUFFERS = (Buffer("out0", DataType.Float, True), Buffer("in0", DataType.Float, False))


def loop(kind: LoopKind, axes: tuple[int, ...], *body, blocked=()) -> Loop:
    return Loop(kind, axes, frozenset(blocked), body)


def copying(*axes: int) -> Nest:
    return Nest(len(axes), BUFFERS, (), (), (), (loop(LoopKind.SERIAL, axes, *COPY),))


def call_of(sizes, strides, blocks=None) -> CpuCall:
    motions = (Motion.NEXT,) * len(strides)
    return CpuCall(Schedule(Form.FLAT, 0, len(sizes), motions), tuple(sizes), tuple(blocks or sizes), tuple(strides), 1)


@pytest.mark.parametrize(
    ("sizes", "strides", "extent"),
    [
        ((5,), (4,), 20),
        ((5,), (0,), 4),  # one element for all
        ((5, 3), (0, 4), 12),
        ((1, 3), (4000, 4), 12),  # a size of 1 is never left, whatever its stride
        ((4, 5), (4, 4), 32),  # overlapping
        ((0, 5), (20, 4), 0),
    ],
)
def test_what_fits_exactly_is_accepted_and_a_byte_less_is_not(sizes, strides, extent):
    nest = copying(*range(len(sizes)))
    call = call_of(sizes, (strides, strides))
    check_bounds(nest, call, (extent, extent))
    if extent:
        with pytest.raises(
            LoopError, match=rf"store out0 = %0: bytes 0 to {extent} of out0, which has 0 to {extent - 1}"
        ):
            check_bounds(nest, call, (extent - 1, extent))


def test_error_names_the_access_its_loops_and_the_offset():
    with pytest.raises(
        LoopError, match=r"(?s)load in0: bytes 0 to 24 of in0, which has 0 to 20.*serial for i0 in 0..n0"
    ):
        check_bounds(copying(0), call_of((6,), ((4,), (4,))), (24, 20))


def test_offsets_below_the_first_element_are_found():
    with pytest.raises(LoopError, match="bytes -16 to 4 of in0"):
        check_bounds(copying(0), call_of((5,), ((4,), (-4,))), (20, 20))


def blocked(*body, scratch_axes=(0,), accumulators=()) -> Nest:
    inner = loop(LoopKind.VECTOR, (0,), *body)
    scratch = Scratch("scratch0", DataType.Float, scratch_axes)
    around = loop(LoopKind.PARALLEL, (0,), inner, blocked=(0,))
    return Nest(1, BUFFERS, (), (scratch,), accumulators, (around,))


@pytest.mark.parametrize("block", [1, 7, 8, 10, 64])
def test_blocks_may_be_longer_than_the_axis_and_need_not_divide_it(block):
    kept = (Load(Register(0, DataType.Float), 1), Keep(0, Register(0, DataType.Float)))
    nest = blocked(*kept, Recall(Register(1, DataType.Float), 0), Store(0, Register(1, DataType.Float)))
    call = call_of((10,), ((4,), (4,)), (block,))
    check_bounds(nest, call, (40, 40))
    with pytest.raises(LoopError, match="bytes 0 to 40"):
        check_bounds(nest, call, (40, 39))


def test_blocks_without_elements_are_refused():
    with pytest.raises(LoopError, match="i0 would go in blocks of 0"):
        check_bounds(blocked(*COPY), call_of((10,), ((4,), (4,)), (0,)), (40, 40))


def test_scratch_of_a_block_does_not_hold_the_whole_axis():
    inside = loop(LoopKind.PARALLEL, (0,), loop(LoopKind.VECTOR, (0,), *COPY), blocked=(0,))
    keep = (Load(Register(0, DataType.Float), 1), Keep(0, Register(0, DataType.Float)))
    whole = loop(LoopKind.VECTOR, (0,), *keep)
    nest = Nest(1, BUFFERS, (), (Scratch("scratch0", DataType.Float, (0,)),), (), (whole, inside))
    check_bounds(nest, call_of((10,), ((4,), (4,)), (10,)), (40, 40))
    with pytest.raises(LoopError, match="keep scratch0 = %0: 9 along i0, with room for 4"):
        check_bounds(nest, call_of((10,), ((4,), (4,)), (4,)), (40, 40))


def test_accumulators_per_position_need_a_position():
    accumulators = (Accumulator("acc0", lookup("sum"), DataType.Double, axis=0),)
    body = (Begin(0), Load(Register(0, DataType.Float), 1), Accumulate(0, Register(0, DataType.Float)))
    nest = Nest(1, BUFFERS, (), (), accumulators, body)
    with pytest.raises(LoopError, match="no loop around is at a position along i0"):
        check_bounds(nest, call_of((10,), ((4,), (4,))), (40, 40))


# --- calls of the runtime ---------------------------------------------------------------------------------------------


def row_sums() -> Graph:
    builder = GraphBuilder()
    x = builder.input((-1, -1))
    builder.output(builder.ops.sum(x * 2, [1]))
    return builder.build()


def test_wrong_strides_and_sizes_of_a_real_call_are_found():
    x = torch.randn(6, 9)[:, ::2]
    plan = Plan(row_sums())
    (kernel,) = plan.kernels()
    bound = {"s0": 6, "s1": 5}
    call, outputs = scheduled(kernel, [x], bound)
    nest, room = build_nest(kernel.program, call.schedule), extents(outputs, [x])
    assert room == [24, (5 * 9 + 4 * 2 + 1) * 4]
    check_bounds(nest, call, room)
    longer = replace(call, sizes=(call.sizes[0], call.sizes[1] + 1))
    farther = replace(call, strides=(call.strides[0], tuple(stride + 4 for stride in call.strides[1])))
    for wrong in (longer, farther):
        with pytest.raises(LoopError, match="of in0"):
            check_bounds(nest, wrong, room)


def test_the_environment_turns_the_check_on(monkeypatch):
    monkeypatch.setattr(kernels_module, "environment", lambda: EnvironmentVariables.read({"INGOT_CHECK": "bounds"}))
    x = torch.randn(6, 9)
    (total,) = Plan(row_sums()).run([x])
    torch.testing.assert_close(total, (x * 2).sum(1))
    monkeypatch.setattr(kernels_module, "extents", lambda *_: [24, 6 * 9 * 4 - 1])
    with pytest.raises(LoopError, match="bytes 0 to 216 of in0, which has 0 to 215"):
        Plan(row_sums()).run([x])


def test_the_check_is_off_by_default(monkeypatch):
    assert environment_module.environment().check == frozenset()
    monkeypatch.setattr(kernels_module, "check_bounds", lambda *_: pytest.fail("it was not asked for"))
    Plan(row_sums()).run([torch.randn(6, 9)])
