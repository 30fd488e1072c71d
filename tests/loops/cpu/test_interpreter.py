"""The loop interpreter: nests by hand, and what it refuses that machine code would do without a word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch

from ingot import DataType, GraphBuilder, IngotError
from ingot.base.errors import LoopError
from ingot.ir.graph import Graph
from ingot.loops.cpu.interpreter import interpret
from ingot.loops.cpu.schedule import Form, Schedule
from ingot.loops.cpu.scheduling import CpuCall
from ingot.loops.elements import Element, Elements
from ingot.loops.motion import Motion
from ingot.loops.nest import (
    Accumulate,
    Accumulator,
    Begin,
    Buffer,
    Compute,
    Finish,
    Instruction,
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
from ingot.loops.program import Argument, ConstantOperand
from ingot.ops import Kind, Op, lookup, table
from ingot.ops.samples import Tolerance
from ingot.runtime.kernels import Kernel
from ingot.runtime.plan import Plan
from tests.loops.running import interpreted_launch, launched_by
from tests.ops import generation
from tests.ops.generation import Refusal
from tests.property.random_values import same_bits
from tests.runtime.test_kernels import expected_result

FLOAT = DataType.Float
REGISTERS = [Register(index, FLOAT) for index in range(4)]
BUFFERS = (Buffer("out0", FLOAT, True), Buffer("in0", FLOAT, False))


def loop(kind: LoopKind, axes: tuple[int, ...], *body: Instruction, blocked: tuple[int, ...] = ()) -> Loop:
    return Loop(kind, axes, frozenset(blocked), body)


def nest(*body: Instruction, axes: int = 1, **parts: Any) -> Nest:
    return Nest(
        axes, BUFFERS, parts.get("scalars", ()), parts.get("scratches", ()), parts.get("accumulators", ()), body
    )


def call(sizes: tuple[int, ...], strides: tuple, blocks: tuple[int, ...] | None = None, grain: int = 1) -> CpuCall:
    return CpuCall(Schedule(Form.FLAT, 0, len(sizes), (Motion.NEXT,) * 2), sizes, blocks or sizes, strides, grain)


def run(tested: Nest, numbers: CpuCall, given: Any, count: int, scalars: tuple = (), seed: int = 0) -> list[float]:
    result = numpy.zeros(count, numpy.float32)
    memory = [result.view(numpy.uint8), numpy.asarray(given, numpy.float32).view(numpy.uint8)]
    assert interpret(tested, numbers, memory, scalars, seed)
    return result.tolist()


DENSE = ((4,), (4,))
LOADED, STORED = Load(REGISTERS[0], 1), Store(0, REGISTERS[0])


def test_blocks_that_do_not_divide_an_axis_visit_each_element_once():
    tested = nest(loop(LoopKind.PARALLEL, (0,), loop(LoopKind.VECTOR, (0,), LOADED, STORED), blocked=(0,)))
    for block in (1, 3, 4, 10, 64):
        assert run(tested, call((10,), DENSE, (block,)), range(10), 10) == list(range(10))


def test_scalars_and_operators_are_those_of_the_table():
    scaled = Compute(REGISTERS[1], lookup("mul"), (REGISTERS[0], Argument(0, FLOAT)), ())
    shifted = Compute(REGISTERS[2], lookup("add"), (REGISTERS[1], ConstantOperand(0.5, FLOAT)), ())
    tested = nest(loop(LoopKind.VECTOR, (0,), LOADED, scaled, shifted, Store(0, REGISTERS[2])), scalars=(FLOAT,))
    assert run(tested, call((3,), DENSE), [1, 2, 3], 3, (2,)) == [2.5, 4.5, 6.5]


def total() -> Nest:
    accumulated = (Accumulator("acc0", lookup("sum"), DataType.Double),)
    inside = loop(LoopKind.VECTOR, (0,), LOADED, Accumulate(0, REGISTERS[0]))
    across = loop(LoopKind.PARALLEL, (0,), inside, blocked=(0,))
    return nest(Begin(0), across, Finish(REGISTERS[1], 0), Store(0, REGISTERS[1]), accumulators=accumulated)


@pytest.mark.parametrize("grain", [1, 2, 3, 100])
def test_what_grains_accumulate_does_not_depend_on_their_order(grain: int):
    numbers = [0.1, 1e9, -1e9, 0.7, 3.0, 1e-3, -2.0]
    numbers_call = call((7,), ((0,), (4,)), (2,), grain)
    results = {tuple(run(total(), numbers_call, numbers, 1, seed=seed)) for seed in range(10)}
    assert len(results) == 1
    assert abs(results.pop()[0] - 1.801) < 1e-5


def test_accumulators_with_a_value_per_position():
    accumulated = (Accumulator("acc0", lookup("amax"), FLOAT, axis=1),)
    inside = loop(LoopKind.SERIAL, (0,), loop(LoopKind.VECTOR, (1,), LOADED, Accumulate(0, REGISTERS[0])))
    last = loop(LoopKind.VECTOR, (1,), Finish(REGISTERS[1], 0), Store(0, REGISTERS[1]))
    tested = nest(loop(LoopKind.PARALLEL, (1,), Begin(0), inside, last, blocked=(1,)), axes=2, accumulators=accumulated)
    numbers = call((2, 3), ((0, 4), (12, 4)), (2, 2))
    assert run(tested, numbers, [1, 5, 3, 4, 2, 6], 3) == [4, 5, 6]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_reading_outside_a_buffer_is_refused():
    tested = nest(loop(LoopKind.VECTOR, (0,), LOADED, STORED))
    with pytest.raises(LoopError, match="load in0: bytes 0 to 40 of 0 to 36"):
        run(tested, call((10,), DENSE), range(9), 10)
    with pytest.raises(LoopError, match="store out0 = %0: bytes 0 to 40 of 0 to 32"):
        run(tested, call((10,), DENSE), range(10), 8)


def test_elements_written_twice_or_never_are_refused():
    for sizes, strides in (((3,), ((0,), (4,))), ((3,), ((4,), (0,)))):
        tested = nest(loop(LoopKind.SERIAL, (0,), LOADED, STORED))
        match = "written a second time" if strides[0] == (0,) else "elements of out0 are never written"
        with pytest.raises(LoopError, match=match):
            run(tested, call(sizes, strides), range(3), 4)
    with pytest.raises(LoopError, match="written a second time"):
        run(nest(loop(LoopKind.VECTOR, (0,), LOADED, STORED)), call((3,), ((0,), (4,))), range(3), 1)


def test_scratch_memory_is_forgotten_between_iterations():
    kept = loop(LoopKind.VECTOR, (1,), LOADED, Keep(0, REGISTERS[0]))
    recalled = loop(LoopKind.VECTOR, (1,), Recall(REGISTERS[1], 0), Store(0, REGISTERS[1]))
    scratches = (Scratch("scratch0", FLOAT, (1,)),)
    numbers = call((2, 3), ((12, 4), (12, 4)))
    together = nest(loop(LoopKind.PARALLEL, (0,), kept, recalled), axes=2, scratches=scratches)
    assert run(together, numbers, range(6), 6) == list(range(6))
    apart = nest(
        loop(LoopKind.PARALLEL, (0,), kept), loop(LoopKind.PARALLEL, (0,), recalled), axes=2, scratches=scratches
    )
    with pytest.raises(LoopError, match="recall scratch0: nothing was kept there"):
        run(apart, numbers, range(6), 6)


def test_accumulators_that_were_not_begun_are_refused():
    tested = total()
    with pytest.raises(LoopError, match="acc0 was not begun"):
        run(replace(tested, body=(loop(LoopKind.SERIAL, (0,), LOADED, Accumulate(0, REGISTERS[0])),)), *_ONE)


_ONE = (call((7,), ((0,), (4,))), range(7), 1)


def test_registers_of_a_loop_are_unknown_after_it():
    tested = nest(loop(LoopKind.SERIAL, (0,), LOADED), STORED)
    with pytest.raises(KeyError):
        run(tested, *_ONE)


# --- every operator ---------------------------------------------------------------------------------------------------


def graphs_of(op: Op) -> list[tuple[Graph, Any, DataType]]:
    """Calls of an operator for all types that kernels compute it in, with what eager gives."""
    assert op.samples is not None
    found = []
    for dtype in generation.DTYPES:
        for sample in op.samples((33,))[:4]:
            made = generation.with_tensors(sample, dtype)
            graph = generation.attempt(lambda made=made: generation.graph_of(op, made), IngotError)
            if not isinstance(graph, Refusal):
                found.append((graph, made, dtype))
    return found


@pytest.mark.parametrize(
    "op",
    [op for op in table().values() if (op.emit or op.combination) is not None and op.samples is not None],
    ids=lambda op: op.name,
)
def test_every_operator_agrees_with_eager(op: Op):
    """As in the tests of generated code, which shares nothing with this but the table."""
    assert op.kind in (Kind.POINTWISE, Kind.REDUCTION)
    if op.name == "lgamma":  # Python's own loses digits near its roots at 1 and 2
        op = replace(op, tolerance=Tolerance(ulps=8, scale=1.0))
    for graph, made, dtype in graphs_of(op):
        expected = generation.attempt(lambda made=made: expected_result(op, made), *generation.EAGER_ERRORS)
        plan = Plan(graph)
        if isinstance(expected, Refusal) or not any(isinstance(step, Kernel) for step in plan.steps):
            continue
        with launched_by(interpreted_launch):
            actual = plan.run(generation.found_in(made, torch.Tensor))
        generation.assert_all_match(op, actual, expected, f"for {dtype.text}")


def test_float32_is_rounded_to_bfloat16_as_pytorch_does_it():
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(torch.bfloat16)
    elements = Elements()
    for factor in (1.0, 1.001953125, 1.00390625, 1.005859375):  # below, at and above the middle of two neighbours
        wide = every.float() * factor
        found = elements.convert(Element(wide.numpy(), FLOAT), DataType.BFloat16)
        rounded = torch.from_numpy(found.array.view(numpy.int16)).view(torch.bfloat16)
        assert same_bits(rounded, wide.bfloat16())
        assert same_bits(torch.from_numpy(elements.convert(found, FLOAT).array), rounded.float())


def test_graphs_without_generated_code_run_the_same():
    builder = GraphBuilder()
    x = builder.input((-1, -1))
    builder.output(builder.ops.softmax(x, -1), builder.ops.sum(x, [0]))
    values = torch.randn(9, 33)
    with launched_by(interpreted_launch):
        found = Plan(builder.build()).run([values])
    torch.testing.assert_close(found[0], torch.softmax(values, -1))
    torch.testing.assert_close(found[1], values.sum(0))
