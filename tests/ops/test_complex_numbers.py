"""Operators on complex numbers against eager PyTorch, and the refusal of all others."""

from __future__ import annotations

import math

import pytest
import torch

from ingot import DataType, GraphBuilder, IngotError, JitCompiler
from ingot.base.dtypes import COMPLEX, in_order
from ingot.base.errors import DTypeError
from ingot.ir.interpreter import Interpreter
from ingot.ops import Op, table
from ingot.ops.samples import Operand, Tolerance

from . import generation
from .generation import LAYOUTS, Refusal

PUBLIC = [op for op in table().values() if op.is_public]
TAKING = [op for op in PUBLIC if op.of_complex is not None and op.name not in ("pow", "full")]
SHAPES = ((3, 4), (33,), (), (0, 3), (2, 3, 5))
MOST_SAMPLES = 4
"""Samples of an operator that are tried per shape."""


def compared(op: Op, shape: tuple[int, ...], turn: int, compiler: JitCompiler | None) -> int:
    """How many calls were compared with eager's, by the interpreter or by a compiler's kernels."""
    assert op.samples is not None
    tolerance = max(op.tolerance, Tolerance(ulps=16), key=lambda tolerance: tolerance.ulps)
    samples = [sample for sample in op.samples(shape) if generation.depends_on_dtype(sample)]
    count = 0
    for number, sample in enumerate(samples[:: max(len(samples) // MOST_SAMPLES, 1)]):
        for dtype in in_order(COMPLEX):
            ours = generation.with_tensors(sample, dtype, LAYOUTS[(number + turn) % len(LAYOUTS)])
            about = f"for {op.name} of {dtype.text} {sample}"
            expected = generation.attempt(lambda ours=ours: generation.eager_result(op, ours), *generation.EAGER_ERRORS)
            graph = generation.attempt(lambda ours=ours: generation.graph_of(op, ours), IngotError)
            if isinstance(graph, Refusal):
                assert isinstance(expected, Refusal) or isinstance(graph.error, DTypeError), about
                continue
            assert not isinstance(expected, Refusal), f"eager refuses: {expected.error} {about}"
            tensors = generation.found_in(ours, torch.Tensor)
            actual = generation.run_graph(graph, ours) if compiler is None else compiler.compile(graph).execute(tensors)
            for one, other in zip(actual, expected, strict=True):
                generation.assert_matches(one, other, tolerance, about=about)
            count += 1
    return count


@pytest.mark.parametrize("op", TAKING, ids=lambda op: op.name)
def test_agrees_with_eager(op: Op):
    counts = [compared(op, shape, turn, None) for turn, shape in enumerate(SHAPES)]
    assert sum(counts), "every call was refused"


@pytest.mark.parametrize("op", TAKING, ids=lambda op: op.name)
def test_kernels_agree_with_eager(op: Op):
    compiler = JitCompiler()
    assert sum(compared(op, shape, turn, compiler) for turn, shape in enumerate(((3, 4), (33,))))


@pytest.mark.parametrize("op", [op for op in PUBLIC if op.of_complex is None], ids=lambda op: op.name)
def test_other_operators_refuse(op: Op):
    assert op.samples is not None
    for sample in op.samples((3, 4)):
        if any(operand.dtype is None for operand in generation.found_in(sample, Operand)):
            filled = generation.with_tensors(sample, DataType.ComplexFloat)
            with pytest.raises(IngotError):
                generation.graph_of(op, filled)
            break


# --- infinities, NaN, very large and very small parts -----------------------------------------------------------------

EXTREME = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 1e38, 1e-38, 89.0)


def extremes(dtype: torch.dtype) -> torch.Tensor:
    part = torch.float32 if dtype is torch.complex64 else torch.float64
    first, second = torch.meshgrid(*[torch.tensor(EXTREME, dtype=part)] * 2, indexing="ij")
    return torch.complex(first.flatten(), second.flatten())


PAIRS = {
    "mul": torch.mul,
    "truediv": torch.div,
    "add": torch.add,
    "sub": torch.sub,
    "eq": torch.eq,
    "ne": torch.ne,
}
SINGLE = {
    "reciprocal": torch.reciprocal,
    "abs": torch.abs,
    "angle": torch.angle,
    "exp": torch.exp,
    "conj": torch.conj_physical,
    "square": torch.square,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "sigmoid": torch.sigmoid,
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_extreme_values_come_out_as_in_eager(dtype: torch.dtype):
    values = extremes(dtype)
    pairs = [values.repeat_interleave(len(values)), values.repeat(len(values))]
    builder, expected = GraphBuilder(), []
    x, y, z = (builder.input((-1,), generation.data_type_of(dtype)) for _ in range(3))
    for name, function in PAIRS.items():
        builder.output(getattr(builder.ops, name)(x, y))
        expected.append(function(*pairs))
    for name, function in SINGLE.items():
        builder.output(getattr(builder.ops, name)(z))
        expected.append(function(values))
    found = JitCompiler().compile(builder.build()).execute([*pairs, values])
    for name, ours, theirs in zip((*PAIRS, *SINGLE), found, expected, strict=True):
        generation.assert_matches(ours, theirs, Tolerance(ulps=16), about=f"in {name}")


# --- numbers, types, and what has no samples --------------------------------------------------------------------------


def built(function, *tensors: torch.Tensor):
    """What a graph gives for a function of the builder and handles."""
    builder = GraphBuilder()
    handles = [builder.input(tensor.shape, generation.data_type_of(tensor.dtype)) for tensor in tensors]
    builder.output(function(builder.ops, *handles))
    return Interpreter(builder.build()).run(tensors)[0]


@pytest.mark.parametrize("exponent", [2, 3])
def test_powers(exponent: int):
    values = torch.randn(33, dtype=torch.complex64)
    torch.testing.assert_close(built(lambda ops, x: ops.pow(x, exponent), values), values**exponent)


def test_other_powers_are_refused():
    with pytest.raises(DTypeError, match="squares and cubes"):
        built(lambda ops, x: ops.pow(x, 0.5), torch.ones(3, dtype=torch.complex64))


@pytest.mark.parametrize("dtype", [None, DataType.ComplexFloat, DataType.ComplexDouble])
@pytest.mark.parametrize("value", [1 + 2j, 3, 0.5])
def test_full(dtype: DataType | None, value: complex):
    expected = torch.full((3,), value, dtype=None if dtype is None else generation.to_torch(dtype))
    torch.testing.assert_close(built(lambda ops, x: ops.full([3], value, dtype), torch.ones(1)), expected)


NUMBERS = (2, 0.5, True, 1 - 2j, complex(0, math.inf))
TENSORS = [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("dtype", TENSORS, ids=str)
def test_numbers_and_tensors_meet_as_in_eager(dtype: torch.dtype):
    values = torch.tensor([-1.5, 0.0, 2.0]).to(dtype)
    for other in (*NUMBERS, torch.tensor([1 + 1j, 2 - 1j, -3j]), torch.tensor(2 - 1j, dtype=torch.complex128)):
        given = [values, other] if isinstance(other, torch.Tensor) else [values]
        if not any(
            isinstance(value, complex) or (torch.is_tensor(value) and value.is_complex()) for value in (values, other)
        ):
            continue
        for operator in (torch.add, torch.mul, torch.sub):
            if operator is torch.sub and (dtype is torch.bool or other is True):
                continue  # bools are not subtracted

            def call(ops, x, y=other, name=operator.__name__):
                return getattr(ops, name)(x, y)

            ours, theirs = built(call, *given), operator(values, other)
            generation.assert_matches(ours, theirs, Tolerance(ulps=1), about=f"{operator.__name__} of {dtype}, {other}")


def test_complex_numbers_become_real_ones_only_by_taking_a_part():
    values = torch.tensor([1 + 2j, 0j, 2j])
    with pytest.raises(DTypeError, match="use real or imag"):
        built(lambda ops, x: ops.cast(x, DataType.Float), values)
    assert built(lambda ops, x: ops.cast(x, DataType.Bool), values).tolist() == [True, False, True]
    with pytest.raises(DTypeError, match="imaginary part"):
        built(lambda ops, x: ops.imag(x), values.real.clone())


def test_parts_that_were_joined_are_not_taken_apart_again():
    builder = GraphBuilder()
    x, y = (builder.input((4,), DataType.ComplexFloat) for _ in range(2))
    builder.output(builder.ops.real((x * y) * (x + 1j)))
    text = JitCompiler().compile(builder.build()).optimized_graph.text
    assert "c64[4] = complex" not in text and "= complex(%" not in text
