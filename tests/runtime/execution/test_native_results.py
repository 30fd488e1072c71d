"""What execute gives natively is what Python computes, in memory of its own or in that of the inputs it overwrites."""

import pytest
import torch

from ingot import DataType, FusionDefinition, JitCompiler, memory
from ingot.ir.interpreter import Interpreter
from ingot.ir.torch_types import from_torch
from tests.runtime.execution.fusions import CASES, check, define, is_native, native_calls


@pytest.mark.parametrize(("make", "declared", "inputs"), CASES.values(), ids=CASES.keys())
def test_native_calls_give_the_same_bits_and_cost_the_same(make, declared, inputs):
    fd = define(make, *declared)
    check(fd, inputs)
    assert is_native(fd)


def aliased():
    with FusionDefinition() as fd:
        x = fd.define_tensor(1)
        fd.add_output(x + 1.0, alias_input=x)
        fd.add_output(x * 2.0)
    return fd


def test_results_share_no_memory_with_each_other_or_with_inputs():
    fd = define(lambda fd, x: (lambda y: [y, y, fd.ops.slice(y, [1], [3]), x])(x + 1.0), 1)
    for count in range(3):
        x = torch.ones(4)
        results = fd.execute([x])
        for position, result in enumerate(results):
            result.fill_(10.0 + position)
        assert [result.tolist() for result in results] == [[10.0] * 4, [11.0] * 4, [12.0] * 2, [13.0] * 4]
        assert x.tolist() == [1.0] * 4
        assert native_calls(fd) == count


MOVED = {
    torch.float32: torch.tensor([0x7FA00001, -0x5FFFFF, 0, 1, 2, 3], dtype=torch.int32).view(torch.float32),
    torch.bfloat16: torch.tensor([0x7FA1, -0x5F, 0, 1, 2, 3], dtype=torch.int16).view(torch.bfloat16),
    torch.float16: torch.tensor([0x7D01, -0x2FF, 0, 1, 2, 3], dtype=torch.int16).view(torch.float16),
    torch.float64: torch.tensor([0x7FF4000000000001, -1, 0, 1, 2, 3]).view(torch.float64),
    torch.int64: torch.tensor([2**63 - 1, -(2**63), 0, 1, 2, 3]),
    torch.int32: torch.arange(6, dtype=torch.int32) - 3,
    torch.uint8: torch.tensor([255, 0, 1, 2, 3, 128], dtype=torch.uint8),
    torch.bool: torch.tensor([True, False, False, True, True, False]),
}
"""NaNs that arithmetic would make quiet among them."""


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_copies_keep_every_bit(dtype):
    x = MOVED[dtype].reshape(2, 3)
    declared = from_torch(dtype)
    assert declared is not None
    with FusionDefinition() as fd:
        given = fd.define_tensor(shape=[-1, -1], dtype=declared)
        fd.add_output(given)
        fd.add_output(fd.ops.permute(given, [1, 0]))
        fd.add_output(fd.ops.broadcast_in_dim(given, [4, 2, 3], [1, 2]))
    for results in (fd.execute([x]), check(fd, [x])):
        for result, expected in zip(results, (x, x.t(), x.expand(4, 2, 3)), strict=True):
            assert result.is_contiguous() and result.shape == expected.shape
            assert bytes(result.view(torch.uint8).numpy()) == bytes(expected.contiguous().view(torch.uint8).numpy())


CONSTANT_OR_EMPTY = {
    "a constant": (lambda fd, x: [fd.ops.full([2, 3], 7.5, DataType.Float), x + 1.0], (4, 6)),
    "a constant twice": (lambda fd, x: (lambda y: [y, y, fd.ops.exp(x)])(fd.ops.full([3], True)), (4, 6)),
    "joined with a constant": (lambda fd, x: [fd.ops.cat([x, fd.ops.full([4, 2], -0.0, DataType.Float)], 1)], (4, 6)),
    "nothing": (lambda fd, x: (lambda y: [y + 1.0, y, x])(fd.ops.slice(x, [0, 2], [4, 2])), (4, 6)),
    "sums of nothing that are nothing": (lambda fd, x: [fd.ops.sum(fd.ops.slice(x, [1, 0], [1, 6]), [1])], (4, 6)),
    "joined with nothing": (lambda fd, x: [fd.ops.cat([fd.ops.slice(x, [0, 3], [4, 3]), x], 1)], (4, 6)),
}


@pytest.mark.parametrize(("make", "shape"), CONSTANT_OR_EMPTY.values(), ids=CONSTANT_OR_EMPTY.keys())
def test_constants_and_results_without_elements_are_native(make, shape):
    fd = define(make, 2)
    for count in range(3):
        x = torch.randn(shape)
        expected, found = Interpreter(fd.module.graph).run([x]), fd.execute([x])
        assert [one.shape for one in found] == [one.shape for one in expected]
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        assert all(one.is_contiguous() for one in found)
        for result in found:
            result.fill_(3)
        assert native_calls(fd) == count


def overwriting(make, *declared):
    """A fusion that writes results over its inputs, by position."""
    with FusionDefinition() as fd:
        inputs = [fd.define_tensor(rank) for rank in declared]
        for position, output in make(fd, *inputs).items():
            fd.add_output(output, alias_input=inputs[position])
    return fd


OVERWRITTEN = {
    "swapped": (lambda fd, x, y: {0: y, 1: x}, (2, 2)),
    "in a circle": (lambda fd, x, y, z: {0: y, 1: z, 2: x}, (2, 2, 2)),
    "transposed in place": (lambda fd, x: {0: fd.ops.permute(x, [1, 0])}, (2,)),
    "one value over two": (lambda fd, x, y: (lambda z: {0: z, 1: z})(x * y), (2, 2)),
    "a value and a view of it": (lambda fd, x, y: (lambda z: {0: z, 1: fd.ops.permute(z, [1, 0])})(x * y), (2, 2)),
    "repeated": (lambda fd, x, y: {1: fd.ops.broadcast_in_dim(fd.ops.sum(x, [0]), [4, 4], [1])}, (2, 2)),
    "what another one was": (lambda fd, x, y: {0: x + 1.0, 1: fd.ops.permute(x, [1, 0])}, (2, 2)),
    "read in part after it is computed": (
        lambda fd, x, y: (
            lambda z: {
                0: z,
                1: fd.ops.cat([fd.ops.slice(x, [0, 2], [4, 4]), fd.ops.slice(x, [0, 0], [4, 2])], 1) * fd.ops.sum(z),
            }
        )(x + 1.0),
        (2, 2),
    ),
}


@pytest.mark.parametrize("is_strided", [False, True])
@pytest.mark.parametrize(("make", "declared"), OVERWRITTEN.values(), ids=OVERWRITTEN.keys())
def test_inputs_are_overwritten_with_what_was_computed_before(make, declared, is_strided):
    """Also what lies between the elements of inputs: it stays."""
    fd = overwriting(make, *declared)
    inside = lambda memory: memory.t()[1:9:2, ::2] if is_strided else memory
    for is_private in (False, True):
        module = JitCompiler().compile(fd.module.graph, is_private)
        for count in range(3):
            found = [torch.randn(8, 12) if is_strided else torch.randn(4, 4) for _ in declared]
            expected = [memory.clone() for memory in found]
            Interpreter(fd.module.graph).run([inside(memory) for memory in expected])
            assert module.execute([inside(memory) for memory in found]) == []
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
            assert module._runner._native.executions == count


def test_aliased_inputs_are_overwritten_at_every_call():
    fd, x = aliased(), torch.zeros(5)
    for count in range(1, 4):
        (double,) = fd.execute([x])
        assert x.tolist() == [float(count)] * 5
        assert double.tolist() == [2.0 * (count - 1)] * 5


def test_native_results_come_from_the_pool():
    fd = define(lambda fd, x: [x * 2.0], 1)
    fd.execute([torch.ones(1000)])
    before = memory.stats()
    results = fd.execute([torch.ones(1000)])
    after = memory.stats()
    assert after.allocations - before.allocations == 1
    assert after.bytes_in_use - before.bytes_in_use == 4096
    del results
    assert memory.stats().bytes_in_use == before.bytes_in_use
