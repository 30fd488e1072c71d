"""From the op table to calls that can be made: tensors for sample operands, graphs, eager results, comparisons.

In: an operator's record and one of its samples. Out: real tensors in a chosen memory layout, the graph of the call, and
what PyTorch answers to the same call. Every draw comes from a generator the caller seeds.
"""

from __future__ import annotations

import copy
import math
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ingot import DataType, GraphBuilder
from ingot.base.dtypes import COMPUTED, HALVES, in_order, part_type
from ingot.ir.graph import Graph
from ingot.ir.handles import Handle, Vector
from ingot.ir.interpreter import Interpreter
from ingot.ir.torch_types import to_torch
from ingot.ops import Op
from ingot.ops.samples import EXACT, Domain, Operand, Sample, Tolerance

DTYPES = in_order(COMPUTED)
SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (2, 3, 5), (33,), (), (0, 3), (3, 0), (1, 5), (3, 1))
"""Ordinary matrices and stacks, a row longer than any vector register, no dimensions, no elements, sizes of 1."""
LAYOUTS = ("contiguous", "strided", "transposed", "expanded", "mixed")
"""How operands lie in memory; "mixed" gives each operand of a call another one of the others."""


# --- tensors ----------------------------------------------------------------------------------------------------------


def generator_for(*key: object) -> torch.Generator:
    """A generator whose seed depends on the key alone, so that a failing case fails alone as well."""
    return torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))


def make_tensor(
    operand: Operand, dtype: DataType, layout: str = "contiguous", generator: torch.Generator | None = None
) -> torch.Tensor:
    """A tensor for a placeholder: of its own dtype or else of `dtype`, drawn from its domain, laid out as asked."""
    generator = generator or generator_for(operand, dtype, layout)
    return lay_out(draw(operand.shape, operand.domain, operand.dtype or dtype, generator), layout)


def draw(shape: tuple[int, ...], domain: Domain, dtype: DataType, generator: torch.Generator) -> torch.Tensor:
    """Random values from a domain, with special values strewn in where it allows them; complex ones part by part."""
    if dtype.is_complex:
        return torch.complex(*(draw(shape, domain, part_type(dtype), generator) for _ in range(2)))
    if dtype.is_float:
        values = torch.rand(shape, generator=generator, dtype=torch.float64) * (domain.high - domain.low) + domain.low
        values = values.to(to_torch(dtype))
        specials = [torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 100.0, -100.0]
    else:
        low, high = integer_range(domain, dtype)
        values = torch.randint(low, max(high, low + 1), shape, generator=generator)
        # randint leaves out the upper end, and int64 has no number above its highest.
        values = (values + torch.randint(0, 2, shape, generator=generator)).clamp(max=high).to(to_torch(dtype))
        specials = sorted({low, high, *(value for value in (-1, 0, 1) if low <= value <= high)})
    if not domain.specials:
        return values
    choices = torch.tensor(specials, dtype=values.dtype)
    chosen = choices[torch.randint(0, len(specials), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.3, chosen, values)


def integer_range(domain: Domain, dtype: DataType) -> tuple[int, int]:
    """The lowest and the highest number of a domain that an integer type or bool holds."""
    if dtype is DataType.Bool:
        lowest, highest = 0, 1
    else:
        limits = torch.iinfo(to_torch(dtype))
        lowest, highest = limits.min, limits.max
    if domain.lowest_integer is not None:
        lowest = min(max(lowest, domain.lowest_integer), highest)
    if domain.highest_integer is not None:
        highest = max(min(highest, domain.highest_integer), lowest)
    return lowest, highest


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values (for "expanded": those of the first slice) in memory of another shape."""
    if layout == "strided":
        # Every second element of a wider buffer, from its second element on.
        if values.dim() == 0:
            return torch.stack([torch.zeros_like(values), values])[1]
        buffer = torch.zeros((*values.shape[:-1], 2 * values.shape[-1] + 1), dtype=values.dtype)
        return buffer[..., 1::2].copy_(values)
    if layout == "transposed":
        axes = tuple(reversed(range(values.dim())))
        return values.permute(axes).contiguous().permute(axes)
    if layout == "expanded":
        return values[:1].clone().expand(values.shape) if values.dim() and values.shape[0] else values
    assert layout == "contiguous"
    return values


# --- calls ------------------------------------------------------------------------------------------------------------


def replace(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """A sample or an argument with every value of a kind replaced, inside lists as well, from left to right."""
    if isinstance(value, Sample):
        arguments = tuple(replace(argument, kind, function) for argument in value.arguments)
        return Sample(arguments, {name: replace(keyword, kind, function) for name, keyword in value.keywords.items()})
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)(replace(element, kind, function) for element in value)
    return value


def found_in(sample: Sample, kind: type) -> list[Any]:
    """Every value of a kind in a sample, from left to right."""
    found: list[Any] = []
    replace(sample, kind, found.append)
    return found


def with_tensors(
    sample: Sample, dtype: DataType, layout: str = "contiguous", generator: torch.Generator | None = None
) -> Sample:
    """The sample with a tensor for every placeholder, all drawn from one generator."""
    generator = generator or generator_for(sample, dtype, layout)
    layouts = ("expanded", "contiguous", "strided", "transposed") if layout == "mixed" else (layout,)
    made = 0

    def make(operand: Operand) -> torch.Tensor:
        nonlocal made
        made += 1
        return make_tensor(operand, dtype, layouts[(made - 1) % len(layouts)], generator)

    return replace(sample, Operand, make)


def depends_on_dtype(sample: Sample) -> bool:
    """Whether a sample has operands of the dtype under test."""
    return any(operand.dtype is None for operand in found_in(sample, Operand))


def graph_of(op: Op, sample: Sample, symbolic: bool = False) -> Graph:
    """The graph of one call with the tensors of a sample as inputs, their sizes fixed or all left open."""
    builder = GraphBuilder()

    def declare(tensor: torch.Tensor) -> Handle:
        shape = [-1] * tensor.dim() if symbolic else list(tensor.shape)
        return builder.input(shape, data_type_of(tensor.dtype))

    call = replace(sample, torch.Tensor, declare)
    builder.output(*_outputs(getattr(builder.ops, op.name)(*call.arguments, **call.keywords)))
    return builder.build()


def run_graph(graph: Graph, sample: Sample) -> list[Any]:
    """The graph's results for the tensors of a sample."""
    torch.default_generator.manual_seed(0)
    return Interpreter(graph).run(found_in(sample, torch.Tensor))


def eager_result(op: Op, sample: Sample) -> list[Any]:
    """What PyTorch answers to the same call, whether it warns or not."""
    assert op.signature is not None and op.eager is not None
    bound = op.signature.bind(sample.arguments, sample.keywords)
    arguments = [replace(value, DataType, to_torch) for value in bound.values()]
    torch.default_generator.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = op.eager(torch, *arguments)
    return list(result) if isinstance(result, tuple | list) else [result]


def copied(sample: Sample) -> Sample:
    """The sample with tensors of its own in the same layout, for calls that write into their arguments."""
    return replace(sample, torch.Tensor, copy.deepcopy)


def data_type_of(dtype: torch.dtype) -> DataType:
    return DataType[str(dtype).removeprefix("torch.")]


def _outputs(result: Any) -> Iterator[Handle]:
    if isinstance(result, Vector):
        result = tuple(result[index] for index in range(len(result)))
    yield from result if isinstance(result, tuple) else (result,)


# --- comparing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """An error in place of a result."""

    error: Exception

    @property
    def is_missing_kernel(self) -> bool:
        """PyTorch only lacks a kernel for the CPU: ingot may compute the call all the same."""
        return "not implemented for" in str(self.error) or isinstance(self.error, NotImplementedError)


def attempt(call: Callable[[], Any], *errors: type[Exception]) -> Any:
    """The result of a call, or the refusal it ended in."""
    try:
        return call()
    except errors as error:
        return Refusal(error)


EAGER_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AttributeError)


def assert_all_match(op: Op, actual: Sequence[Any], expected: Sequence[Any], about: str = "") -> None:
    """Results of a call against eager's, by the operator's own tolerance."""
    assert len(actual) == len(expected), f"{len(actual)} results instead of {len(expected)} {about}"
    for ours, theirs in zip(actual, expected, strict=True):
        assert_matches(ours, theirs, op.tolerance, signed_zeros=op.stable, about=about)


def assert_matches(
    actual: Any, expected: Any, tolerance: Tolerance, *, signed_zeros: bool = True, about: str = ""
) -> None:
    """Same type, same shape, and values within a tolerance; NaN equals NaN and infinities must be the same."""
    if not isinstance(expected, torch.Tensor):
        assert type(actual) is type(expected) and actual == expected, f"{actual!r} is not {expected!r} {about}"
        return
    assert isinstance(actual, torch.Tensor), f"{actual!r} is no tensor {about}"
    assert actual.dtype is expected.dtype, f"{actual.dtype} instead of {expected.dtype} {about}"
    assert actual.shape == expected.shape, f"{list(actual.shape)} instead of {list(expected.shape)} {about}"
    if expected.is_complex():
        _assert_parts_match(actual, expected, tolerance, about)
        return
    agree = (actual == expected) | ((actual != actual) & (expected != expected))
    if expected.is_floating_point():
        if tolerance != EXACT:
            agree |= _distances(actual, expected) <= _allowed(expected, tolerance)
        elif signed_zeros:
            agree &= (torch.signbit(actual) == torch.signbit(expected)) | (expected != expected)
    if not agree.all():
        first = tuple((~agree).nonzero()[0].tolist())
        raise AssertionError(f"{actual[first].item()!r} instead of {expected[first].item()!r} at {first} {about}")


ROUNDING_OF_PARTS = 16
"""Ulps of the magnitude by which parts of a complex number may differ, however exact the operations on them are:
PyTorch rounds products once or twice, depending on where in memory a number lies."""


def _assert_parts_match(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, about: str) -> None:
    """The same NaN and infinities in both parts, and finite parts within a tolerance of the magnitude."""
    ours, theirs = torch.view_as_real(actual), torch.view_as_real(expected)
    size = theirs.double().abs().nan_to_num(posinf=math.inf).amax(-1, keepdim=True).clamp(min=tolerance.scale)
    allowed = size * (torch.finfo(theirs.dtype).eps * max(tolerance.ulps, ROUNDING_OF_PARTS))
    agree = (ours == theirs) | ((ours != ours) & (theirs != theirs)) | (_distances(ours, theirs) <= allowed)
    if not agree.all():
        first = tuple((~agree).nonzero()[0].tolist())[:-1]
        raise AssertionError(f"{actual[first].item()!r} instead of {expected[first].item()!r} at {first} {about}")


def _distances(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """How far finite values lie apart; NaN, which is within no tolerance, where one is infinite."""
    finite = actual.isfinite() & expected.isfinite()
    return torch.where(finite, (actual.double() - expected.double()).abs(), torch.nan)


def _allowed(expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """The tolerance is that of the type computed in; a half type adds steps of its own rounding.

    Below the smallest normal number steps do not get any smaller.
    """
    size = expected.double().abs()
    half = data_type_of(expected.dtype) in HALVES
    computed = torch.finfo(torch.float32 if half else expected.dtype)
    allowed = tolerance.ulps * computed.eps * size.clamp(min=max(tolerance.scale, computed.tiny))
    if half:
        information = torch.finfo(expected.dtype)
        allowed += tolerance.half_ulps * information.eps * size.clamp(min=max(tolerance.scale, information.tiny))
    return allowed
