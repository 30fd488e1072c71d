"""Values where eager itself differs between machines or versions: what ingot promises for them."""

import math

import pytest
import torch

from ingot import DataType, GraphBuilder
from ingot.ir.interpreter import Interpreter

SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 2.0])


def run(build, x=SPECIAL, dtype=DataType.Float):
    builder = GraphBuilder()
    builder.output(build(builder.ops, builder.input(tuple(x.shape), dtype)))
    return Interpreter(builder.build()).run([x])[0]


@pytest.mark.parametrize("bounds", [{"min": math.nan}, {"max": math.nan}, {"min": math.nan, "max": 1.0}])
def test_clamp_with_a_bound_that_is_nan_is_nan(bounds):
    assert run(lambda ops, x: ops.clamp(x, **bounds)).isnan().all()


def test_nan_survives_maximum_minimum_and_reductions():
    for name in ("maximum", "minimum"):
        assert run(lambda ops, x, name=name: getattr(ops, name)(x, 1.0))[0].isnan()
        assert run(lambda ops, x, name=name: getattr(ops, name)(1.0, x))[0].isnan()
    for name in ("amax", "amin", "max", "min", "sum", "prod"):
        assert run(lambda ops, x, name=name: getattr(ops, name)(x)).isnan()


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_infinity_is_infinity(approximate):
    result = run(lambda ops, x: ops.gelu(x, approximate))
    assert result[0].isnan()
    assert result[1] == math.inf
    assert result[3] == 0


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_lowest_integer_divided_by_minus_one_wraps_around(dtype):
    builder = GraphBuilder()
    x, y = builder.input((3,), dtype), builder.input((3,), dtype)
    builder.output(builder.ops.div(x, y), builder.ops.div(x, -1))
    lowest = torch.iinfo(dtype).min
    inputs = [torch.tensor([lowest, 7, -7], dtype=dtype), torch.tensor([-1, -1, 2], dtype=dtype)]
    by_tensor, by_number = Interpreter(builder.build()).run(inputs)
    assert by_tensor.tolist() == [lowest, -7, -3]
    assert by_number.tolist() == [lowest, -7, 7]


@pytest.mark.parametrize("half", [DataType.Half, DataType.BFloat16])
def test_cast_to_half_and_back_rounds(half):
    x = torch.tensor([1.0009765625 + 2**-20, 3.1415927])
    result = run(lambda ops, x: ops.cast(ops.cast(x, half), DataType.Float), x)
    assert torch.equal(result, x.to(getattr(torch, half.torch_name)).float())
    assert not torch.equal(result, x)
