"""Every operator of the table against eager PyTorch: all dtypes, memory layouts and shapes its samples offer."""

from __future__ import annotations

import pytest
import torch

from ingot import IngotError
from ingot.base.dtypes import DataType
from ingot.base.errors import DTypeError, InputError
from ingot.ir.parser import parse
from ingot.ir.verifier import verify
from ingot.ops import Op, table
from ingot.ops.samples import Operand, Sample

from . import generation
from .generation import DTYPES, LAYOUTS, SHAPES, Refusal

PUBLIC = [op for op in table().values() if op.is_public]
every_operator = pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)


def samples_of(op: Op, shape: tuple[int, ...]) -> list[Sample]:
    assert op.samples is not None
    return op.samples(shape)


def check(op: Op, sample: Sample, about: str) -> None:
    """One call with real tensors: ingot gives what eager gives, or refuses where eager refuses on principle."""
    ours, theirs = sample, generation.copied(sample)
    expected = generation.attempt(lambda: generation.eager_result(op, theirs), *generation.EAGER_ERRORS)
    actual = generation.attempt(lambda: run(op, ours), IngotError)
    if isinstance(expected, Refusal):
        allowed = isinstance(actual, Refusal) or expected.is_missing_kernel
        assert allowed, f"eager refuses: {expected.error} {about}"
        return
    if any(isinstance(value, torch.Tensor) and value.dtype is torch.complex32 for value in expected):
        return  # complex numbers of half types are a type that ingot does not have
    if isinstance(actual, Refusal):
        # Eager looks for a kernel only when there is something to compute, and so takes any dtype of no elements.
        if isinstance(actual.error, DTypeError) and not any(tensor.numel() for tensor in tensors_of(sample)[:1]):
            return
        # Eager writes into memory that overlaps itself, and the last write wins.
        if isinstance(actual.error, InputError) and "share one place" in str(actual.error):
            return
        raise AssertionError(f"eager accepts {about}") from actual.error
    generation.assert_all_match(op, actual, expected, about)
    for left, right in zip(tensors_of(ours), tensors_of(theirs), strict=True):
        generation.assert_matches(left, right, op.tolerance, about=f"in an argument afterwards {about}")


def run(op: Op, sample: Sample) -> list:
    return generation.run_graph(generation.graph_of(op, sample), sample)


def tensors_of(sample: Sample) -> list[torch.Tensor]:
    return generation.found_in(sample, torch.Tensor)


def describe(sample: Sample, dtype: DataType, *more: object) -> str:
    """The call in a few words, for the message of a failure."""
    call = generation.replace(sample, Operand, lambda operand: f"{(operand.dtype or dtype).text}{list(operand.shape)}")
    return f"for {call.arguments} {call.keywords} {' '.join(map(str, more))}"


@every_operator
def test_agrees_with_eager_for_every_dtype_shape_and_layout(op: Op):
    for number, shape in enumerate(SHAPES):
        samples = samples_of(op, shape)
        steps = (0, 2) if len(samples) < 4 else (0,)
        for position, sample in enumerate(samples):
            for turn, dtype in enumerate(DTYPES if generation.depends_on_dtype(sample) else DTYPES[:1]):
                if len(samples) > 10 and (position // 2 + turn) % 2:
                    continue  # of many samples, which differ little, each dtype takes half
                # The layouts are dealt out among shapes, samples and dtypes: each dtype meets them all.
                for layout in [LAYOUTS[(number + position + turn + step) % len(LAYOUTS)] for step in steps]:
                    check(op, generation.with_tensors(sample, dtype, layout), describe(sample, dtype, layout))


def broadcastable(op: Op, sample: Sample) -> bool:
    """Whether a call is element by element over tensors of one shape, and so takes different ones as well."""
    assert op.signature is not None
    bound = op.signature.bind(sample.arguments, sample.keywords)
    kinds = {p.kind for p in op.signature.parameters if isinstance(bound[p.name], Operand | list)}
    shapes = [operand.shape for operand in generation.found_in(sample, Operand)]
    return kinds <= {"Operand", "Plain"} and len(shapes) > 1 and len(set(shapes)) == 1


@every_operator
def test_operands_of_different_shapes_broadcast_as_in_eager(op: Op):
    variants = [((1,), ()), ((3, 1), (2, 1, 1)), ((2, 3, 4), (4,)), ((1, 4), (3, 4)), ((0, 1), (4,)), ((), (3,))]
    for sample in filter(lambda sample: broadcastable(op, sample), samples_of(op, (3, 4))):
        for first, second in variants:
            waiting = [first, second, first]
            shaped = generation.replace(
                sample, Operand, lambda o, waiting=waiting: Operand(waiting.pop(0), o.domain, o.dtype)
            )
            for dtype in (DataType.Float, DataType.Half, DataType.Int16):
                check(op, generation.with_tensors(shaped, dtype), describe(shaped, dtype))


@every_operator
def test_graph_is_well_formed_and_its_text_reads_back(op: Op):
    for shape in ((2, 3, 5), (7,), (), (0, 3)):
        for sample in samples_of(op, shape):
            for symbolic in (False, True):
                filled = generation.with_tensors(sample, DataType.Float)
                graph = generation.attempt(
                    lambda filled=filled, symbolic=symbolic: generation.graph_of(op, filled, symbolic), IngotError
                )
                if not isinstance(graph, Refusal):
                    verify(graph)
                    assert parse(graph.text) == graph
