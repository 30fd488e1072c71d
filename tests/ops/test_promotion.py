"""Type promotion: operands of different dtypes and standing meet in the type, and give the value, that eager gives."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch

from ingot import DataType, IngotError
from ingot.base.numbers import number_type
from ingot.base.types import ScalarType, TensorType
from ingot.ir.torch_types import to_torch
from ingot.ops import Op, table
from ingot.ops.promotion import common_type
from ingot.ops.samples import Domain, Operand, Sample

from . import generation
from .generation import DTYPES, Refusal

NUMBERS = (True, False, 0, 1, 2, 3, -1, 300, 0.1, 0.5, 2.0, -1.5, 1e5, float("nan"), float("inf"))
pairs_of_dtypes = list(itertools.product(DTYPES, repeat=2))


def value_of(standing: Any, dtype: DataType) -> torch.Tensor | bool | int | float:
    """Something PyTorch can be asked about: a tensor with or without dimensions, or a number."""
    if standing == "number":
        return {"b": True, "i": 1, "u": 1}.get(dtype.value[0], 1.0) if not dtype.is_float else 1.0
    return torch.ones((2,) * (standing == "dimensions"), dtype=to_torch(dtype))


def type_of(value: Any) -> TensorType | ScalarType:
    if isinstance(value, torch.Tensor):
        return TensorType(generation.data_type_of(value.dtype), tuple(value.shape))
    return ScalarType(number_type(value))


STANDINGS = list(itertools.product(("dimensions", "none", "number"), repeat=2))[:-1]
"""Two numbers are left out: they are added as Python adds them, in double precision, and not as torch would."""


@pytest.mark.parametrize("standing", STANDINGS, ids="-".join)
def test_common_type_is_the_result_type_of_torch(standing: tuple[str, str]):
    for dtypes in pairs_of_dtypes:
        left, right = (value_of(one, dtype) for one, dtype in zip(standing, dtypes, strict=True))
        found = common_type([type_of(left), type_of(right)], DataType.Float)
        assert to_torch(found) is torch.result_type(left, right), (left, right)


@pytest.mark.parametrize("default", [DataType.Double, DataType.Half, DataType.BFloat16])
def test_common_type_follows_the_default_float(default: DataType):
    for dtype in DTYPES:
        types = [TensorType(dtype, (2,)), ScalarType(DataType.Double)]
        assert common_type(types, default) is (dtype if dtype.is_float else default)


# --- operators --------------------------------------------------------------------------------------------------------


def promoted_parameters(op: Op) -> list[str]:
    assert op.signature is not None
    return [parameter.name for parameter in op.signature.parameters if parameter.kind == "Operand"]


PROMOTING = [
    op
    for op in table().values()
    if op.is_public and op.promotion is not None and not op.takes_one_type and len(promoted_parameters(op)) > 1
]
every_promoting_operator = pytest.mark.parametrize("op", PROMOTING, ids=lambda op: op.name)


def mixable_samples(op: Op) -> list[tuple[dict[str, Any], str, str]]:
    """Calls with two operands of one shape, whose types can be mixed, and the names of those operands."""
    assert op.samples is not None and op.signature is not None
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for sample in op.samples((3, 4)):
        bound = op.signature.bind(sample.arguments, sample.keywords)
        names = [name for name in promoted_parameters(op) if isinstance(bound[name], Operand)]
        for pair in itertools.combinations(names, 2):
            if bound[pair[0]].shape == bound[pair[1]].shape:
                found.setdefault(pair, bound)
    return [(bound, *pair) for pair, bound in found.items()]


def fits(number: Any, domain: Domain) -> bool:
    """Whether a number may stand for an operand: a domain without specials admits no other."""
    if domain.specials:
        return True
    if isinstance(number, float):
        return domain.low <= number <= domain.high
    limits = domain.lowest_integer, domain.highest_integer
    low, high = (bound if given is None else given for given, bound in zip(limits, (-300, 300), strict=True))
    return low <= number <= high and domain.low <= number <= domain.high


WANTS_TENSOR = "must be Tensor, not|invalid combination of arguments|has no attribute 'size'"
WANTS_ONE_DTYPE = "[Ee]xpected (scalar )?(d)?type|mixed dtype|must match|same dtype|to have the same"
CHANGES = "in a future  release addcdiv will perform a true division"


def numbers_as_tensors(op: Op, sample: Sample) -> Sample:
    """Numbers for promoted operands as tensors without dimensions, which rank below all others just as numbers do."""
    assert op.signature is not None
    tensors = generation.found_in(sample, torch.Tensor)
    common = max((torch.result_type(tensors[0], tensor) for tensor in tensors), key=lambda dtype: dtype.itemsize)

    def convert(kind: str, value: Any) -> Any:
        if kind != "Operand" or not isinstance(value, bool | int | float):
            return value
        floating = isinstance(value, float)
        return torch.tensor(value, dtype=torch.result_type(value, torch.ones(1, dtype=common)) if floating else None)

    kinds = [parameter.kind for parameter in op.signature.parameters]
    return Sample(tuple(map(convert, kinds, sample.arguments)))


def check(op: Op, bound: dict[str, Any], dtype: DataType, **replaced: Any) -> None:
    """The call with some operands replaced, against eager.

    Functions of PyTorch that take no number get it as a tensor; where one wants all of one type, ingot may promote, and
    divide where PyTorch says that it will.
    """
    sample = generation.with_tensors(Sample(tuple({**bound, **replaced}.values())), dtype)
    values = ", ".join(
        f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
        for value in sample.arguments
    )
    expected = generation.attempt(lambda: generation.eager_result(op, sample), *generation.EAGER_ERRORS)
    if isinstance(expected, Refusal) and re.search(WANTS_TENSOR, str(expected.error)):
        expected = generation.attempt(
            lambda: generation.eager_result(op, numbers_as_tensors(op, sample)), *generation.EAGER_ERRORS
        )
    actual = generation.attempt(lambda: generation.run_graph(generation.graph_of(op, sample), sample), IngotError)
    if isinstance(expected, Refusal):
        extends = expected.is_missing_kernel or re.search(f"{WANTS_ONE_DTYPE}|{CHANGES}", str(expected.error))
        assert isinstance(actual, Refusal) or extends, f"eager refuses {values}: {expected.error}"
    elif isinstance(actual, Refusal):
        if op.name == "pow" and expected[0].dtype is torch.bool:
            return  # eager has no power of bools, but returns early for the exponents True and False
        raise AssertionError(f"eager accepts {values}") from actual.error
    else:
        generation.assert_all_match(op, actual, expected, f"for {values}")


@every_promoting_operator
def test_tensors_of_different_dtypes_meet_as_in_eager(op: Op):
    shapes = (((5,), (5,)), ((5,), ()), ((), (5,)))
    for number, (bound, first, second) in enumerate(mixable_samples(op)):
        generator = generation.generator_for(op.name, first, second)
        for turn, (left, right) in enumerate(pairs_of_dtypes):
            for left_shape, right_shape in [shapes[turn % 3]] if number else shapes:
                operands = {
                    first: generation.draw(left_shape, bound[first].domain, left, generator),
                    second: generation.draw(right_shape, bound[second].domain, right, generator),
                }
                others = {
                    name: Operand(left_shape, value.domain, value.dtype)
                    for name, value in bound.items()
                    if isinstance(value, Operand) and name not in operands
                }
                check(op, bound, left, **others, **operands)


@every_promoting_operator
def test_numbers_meet_tensors_as_in_eager(op: Op):
    tried: set[str] = set()
    for bound, *names in mixable_samples(op):
        for name in filter(lambda name: name not in tried, names):
            tried.add(name)
            for dtype, number in itertools.product(DTYPES, NUMBERS):
                if fits(number, bound[name].domain):
                    check(op, bound, dtype, **{name: number})
