"""validate: right results pass however long their sums are, and wrong ones do not."""

from __future__ import annotations

import math
import os
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import DataType, FusionDefinition
from ingot.base.errors import ValidationError
from ingot.ir.torch_types import to_torch

DTYPES = (DataType.Float, DataType.Half, DataType.BFloat16)
LENGTHS = (1, 2, 7, 64, 1000, 20_000)

# Each step is well posed: what is rounded before it is not a hundredth after it, as it would be in the sine of a large
# number.
STEPS = {
    "scale": lambda fd, x: x * 0.37,
    "shift": lambda fd, x: x + 1.75,
    "sine": lambda fd, x: fd.ops.sin(fd.ops.tanh(x) * 3.0),
    "tanh": lambda fd, x: fd.ops.tanh(x),
    "rectify": lambda fd, x: fd.ops.relu(x) + 0.125,
    "root": lambda fd, x: fd.ops.sqrt(fd.ops.abs(x)),
    "gelu": lambda fd, x: fd.ops.gelu(x) + 0.25,
    "floor": lambda fd, x: fd.ops.floor(x * 3.0 + 0.1234) + 0.5,
    "to bfloat16": lambda fd, x: fd.ops.cast(x, DataType.BFloat16),
    "to half": lambda fd, x: fd.ops.cast(x, DataType.Half),
    "softmax": lambda fd, x: fd.ops.softmax(x, -1),
    "running sum": lambda fd, x: fd.ops.tanh(fd.ops.cumsum(x, -1) * 0.05),
    "larger": lambda fd, x: fd.ops.where(x > 0.3, x, 0.3),
}
ENDS = {
    "sum": lambda fd, x: fd.ops.sum(x, [-1]),
    "mean": lambda fd, x: fd.ops.mean(x, [-1]),
    "variance": lambda fd, x: fd.ops.var(x, [0, 1], 0) + 1.0,
    "logarithm of a sum": lambda fd, x: fd.ops.logsumexp(x, [-1]) + 20.0,
    "largest": lambda fd, x: fd.ops.max(x, [-1]),
    "all": lambda fd, x: fd.ops.sum(fd.ops.abs(x)),
    "nothing": lambda fd, x: x,
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def define(dtype: DataType, steps: list[str], end: str, narrow: bool) -> FusionDefinition:
    with FusionDefinition() as fd:
        value = fd.define_tensor(2, dtype=dtype)
        for step in steps:
            value = STEPS[step](fd, value)
        value = ENDS[end](fd, value)
        fd.add_output(fd.ops.cast(value, dtype) if narrow else value)
    return fd


@settings(
    max_examples=int(os.environ.get("INGOT_TEST_EXAMPLES", "60")),
    deadline=None,
    derandomize="INGOT_TEST_EXAMPLES" not in os.environ,
    database=None,
)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.sampled_from(sorted(STEPS)), max_size=5),
    st.sampled_from(sorted(ENDS)),
    st.booleans(),
    st.sampled_from(LENGTHS),
    st.integers(0, 10**6),
)
def test_right_results_pass_and_those_off_by_a_hundredth_do_not(dtype, steps, end, narrow, length, seed):
    fd = define(dtype, steps, end, narrow)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, length, generator=generator).to(to_torch(dtype))
    (result,) = fd.validate([x])
    wrong = (result.double() * 1.01).to(result.dtype)
    if torch.equal(wrong, result) or not result.isfinite().all():
        return  # zeros, or no numbers
    with pytest.raises(ValidationError, match="result 0 differs"):
        fd.validate_with_auto_inferred_outputs([wrong], [x])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.text)
def test_one_wrong_element_among_many_is_found(dtype):
    fd = define(dtype, ["sine", "scale"], "nothing", True)
    (result,) = fd.validate([x := torch.randn(3, 1000).to(to_torch(dtype))])
    for place in random.Random(0).sample(range(1000), 8):
        wrong = result.clone()
        wrong[1, place] = wrong[1, place] * 1.5 + 0.125
        with pytest.raises(ValidationError, match="in 1 of 3000 elements"):
            fd.validate_with_auto_inferred_outputs([wrong], [x])


def test_sums_that_cancel_out_are_no_false_alarm():
    with FusionDefinition() as fd:
        x = fd.define_tensor(1)
        fd.add_output(fd.ops.sum(x - fd.ops.mean(x)))
    for seed in range(5):
        x = torch.randn(100_000, generator=torch.Generator().manual_seed(seed)) + 1000
        (result,) = fd.validate([x])
        with pytest.raises(ValidationError):
            fd.validate_with_auto_inferred_outputs([result + 1e5], [x])


def test_products_of_long_rows_are_no_false_alarm_and_a_wrong_one_is_found():
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(2), fd.define_tensor(2)
        fd.add_output(x @ y)
    inputs = [torch.rand(4, 5000), torch.rand(5000, 4)]
    (result,) = fd.validate(inputs)
    with pytest.raises(ValidationError, match="16 of 16"):
        fd.validate_with_auto_inferred_outputs([result * 1.01], inputs)


def test_numbers_are_compared_as_numbers():
    with FusionDefinition() as fd:
        n, s = fd.define_scalar(DataType.Int), fd.define_scalar()
        fd.add_output(n * 3)
        fd.add_output(fd.ops.exp(s) / 3.0)
        fd.add_output(s > 0.5)
    results = fd.validate([4, 0.7])
    assert results[0] == 12
    assert math.isclose(results[1], math.exp(0.7) / 3)
    assert results[2] is True
    for wrong in ([13, *results[1:]], [12, results[1] * 1.01, True], [12, results[1], False]):
        with pytest.raises(ValidationError):
            fd.validate_with_auto_inferred_outputs(wrong, [4, 0.7])


def test_an_element_where_two_results_meet_may_come_out_either_way():
    with FusionDefinition() as fd:
        x = fd.define_tensor(1)
        fd.add_output(fd.ops.floor(x * 0.1 * 10.0))
    x = torch.arange(1.0, 2000.0)
    (result,) = fd.validate([x])
    fd.validate_with_auto_inferred_outputs([torch.floor(x.double() * 0.1).float() * 0 + result], [x])
    with pytest.raises(ValidationError):
        fd.validate_with_auto_inferred_outputs([result + 3], [x])


def test_infinities_and_nan_are_results_like_others():
    with FusionDefinition() as fd:
        x = fd.define_tensor(1, dtype=DataType.Half)
        fd.add_output(fd.ops.cast(x * 4.0, DataType.Half))
        fd.add_output(fd.ops.log(x))
    x = torch.tensor([60000.0, 1.0, -1.0, 0.0, math.nan, math.inf]).half()
    large, logarithm = fd.validate([x])
    with pytest.raises(ValidationError, match="result 0 differs from PyTorch's in 1 of 6"):
        fd.validate_with_auto_inferred_outputs([large.nan_to_num(1.0, posinf=math.inf), logarithm], [x])
    with pytest.raises(ValidationError, match="result 1"):
        fd.validate_with_auto_inferred_outputs([large, logarithm.nan_to_num(0.0, neginf=-math.inf)], [x])


def test_a_reference_takes_the_place_of_pytorchs_results():
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor(2), [-1]))
    x = torch.randn(5, 10_000)
    fd.validate([x], reference_outputs=[x.sum(-1)])
    fd.validate([x], [x.double().sum(-1)])
    with pytest.raises(ValidationError, match="result 0 differs from its reference in 5 of 5 elements"):
        fd.validate([x], [x.sum(-1) + x.sum(-1).abs().max()])
    with pytest.raises(ValidationError, match="there are 1 results, but 2 were expected"):
        fd.validate([x], [x.sum(-1), x])


def test_random_numbers_and_inputs_written_in_place_are_compared_too():
    with FusionDefinition() as fd:
        x = fd.define_tensor(2)
        fd.add_output(fd.ops.uniform(0.0, 1.0, x.shape()) * x)
        fd.add_output(fd.ops.normal(0.0, 1.0, x.shape(), 5, 7) + x)
        fd.add_output(x + 1, x)
    x = torch.randn(30, 40)
    before = x.clone()
    assert len(fd.validate([x])) == 2
    assert torch.equal(x, before)
