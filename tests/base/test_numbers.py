"""Python numbers converted to data types: exactly as PyTorch stores them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ingot.base.dtypes import FLOATS, HALVES, INTEGERS, DataType, in_order
from ingot.base.errors import DTypeError
from ingot.base.numbers import convert_number
from ingot.ir.torch_types import to_torch


@pytest.mark.parametrize("dtype", in_order(FLOATS | HALVES))
@given(value=st.floats())
def test_floats_are_rounded_like_torch(dtype, value):
    expected = torch.tensor([value], dtype=torch.float64).to(to_torch(dtype)).item()
    converted = convert_number(value, dtype)
    assert converted == expected or (math.isnan(converted) and math.isnan(expected))
    assert math.isnan(value) or math.copysign(1, converted) == math.copysign(1, expected)


@pytest.mark.parametrize("dtype", in_order(INTEGERS))
@given(value=st.integers(-(2**63), 2**63 - 1))
def test_integers_wrap_around_like_torch(dtype, value):
    assert convert_number(value, dtype) == torch.tensor([value]).to(to_torch(dtype)).item()


def test_numbers_without_a_value_are_refused():
    with pytest.raises(DTypeError, match="nan has no value as i64"):
        convert_number(math.nan, DataType.Int)
