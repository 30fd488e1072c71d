"""Loops over bfloat16 take even and odd elements apart where no result depends on it: results are where they belong."""

import pytest
import torch

from ingot import DataType, FusionDefinition
from ingot.loops.cpu.tuning import CpuTuning

HALF = DataType.BFloat16
EVERY_FLOAT = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
"""All values there are, infinities and NaN of all kinds among them."""


def run(body, *tensors):
    with FusionDefinition() as fd:
        fd.add_output(body(fd.ops, *(fd.from_pytorch(tensor) for tensor in tensors)))
    (result,) = fd.execute(list(tensors))
    return result, fd.module.inspect("llvm")


def splits_pairs(llvm):
    return "<8 x i32>" in llvm


def assert_same(result, expected):
    assert result.dtype is expected.dtype
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(result) & ~result.isnan(), torch.signbit(expected) & ~expected.isnan())


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 33, 1000, 1 << 16])
def test_every_element_is_where_it_belongs(count):
    x, y = EVERY_FLOAT[-count:].clone(), torch.randn(count).bfloat16()
    result, llvm = run(lambda ops, x, y: ops.cast(x * y + x, HALF), x, y)
    assert splits_pairs(llvm)
    assert_same(result, (x.float() * y.float() + x.float()).bfloat16())


def test_every_second_element_and_one_for_all():
    x, y = EVERY_FLOAT[::2], torch.randn(1).bfloat16()
    result, llvm = run(lambda ops, x, y: ops.cast(x - y, HALF), x, y.expand(x.numel()))
    assert splits_pairs(llvm)
    assert_same(result, (x.float() - y.float()).bfloat16())


def test_a_condition_on_both_kinds_of_elements():
    x, y = torch.randn(2, 999).bfloat16()
    result, _ = run(lambda ops, x, y: ops.where(ops.gt(x, y), x, y), x, y)
    assert_same(result, torch.where(x > y, x, y))


def test_other_types_in_memory_keep_their_order():
    x, y = torch.randn(999).bfloat16(), torch.randn(999)
    result, llvm = run(lambda ops, x, y: ops.cast(x + y, HALF), x, y)
    assert not splits_pairs(llvm)
    assert_same(result, (x.float() + y).bfloat16())
    wide, llvm = run(lambda ops, x: ops.cast(x, DataType.Float), x)
    assert not splits_pairs(llvm)
    assert_same(wide, x.float())
    is_positive, llvm = run(lambda ops, x: ops.gt(x, 0.0), x)
    assert not splits_pairs(llvm)
    assert torch.equal(is_positive, x > 0)


def test_positions_are_those_of_memory():
    x = torch.randn(999).bfloat16()
    result, llvm = run(
        lambda ops, x: ops.cast(x * ops.cast(ops.iota(999, dtype=DataType.Int), DataType.Float), HALF), x
    )
    assert not splits_pairs(llvm)
    assert_same(result, (x.float() * torch.arange(999).float()).bfloat16())


def test_narrow_elements_of_large_tensors_are_asked_for_ahead():
    small = torch.randn(1 << 10).bfloat16()
    large = torch.randn(CpuTuning().streaming_bytes // 2 + 64).bfloat16()
    wide = torch.randn(CpuTuning().streaming_bytes // 4 + 64)
    result, llvm = run(lambda ops, x: ops.cast(x * 3.0, HALF), large)
    assert "llvm.prefetch" in llvm
    assert_same(result, (large.float() * 3.0).bfloat16())
    assert "llvm.prefetch" not in run(lambda ops, x: ops.cast(x * 5.0, HALF), small)[1]
    assert "llvm.prefetch" not in run(lambda ops, x: x * 3.0, wide)[1]
