"""execute as a builtin: what it answers natively is what Python computes, and what it cannot answer Python does."""

import gc
import inspect
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from ingot import DataType, FusionDefinition, GraphBuilder, JitCompiler, memory
from ingot.base.errors import ArgumentError, InputError
from ingot.ir.interpreter import Interpreter
from ingot.ir.torch_types import from_torch
from ingot.runtime.native.launch.launcher import launcher
from ingot.runtime.native.launch.record_structs import MOST_RECORDS
from tests.property.random_values import same_bits


def define(make, *declared, **settings):
    """A fusion of inputs that are tensors of these ranks, or numbers of these types."""
    with FusionDefinition(**settings) as fd:
        inputs = [
            fd.define_scalar(dtype=what) if isinstance(what, DataType) else fd.define_tensor(what) for what in declared
        ]
        for output in make(fd, *inputs):
            fd.add_output(output)
    return fd


def is_native(fd):
    return inspect.isbuiltin(fd.execute)


def native_calls(fd):
    """How many calls of a fusion ran natively."""
    return fd.module._runner._native.executions


def costs(fd):
    stats = fd.module.stats()
    return stats.executions, stats.kernel_launches, stats.memory_transferred


def check(fd, inputs, natively=True):
    """Execute twice: the second call runs natively, or not, and gives the same bits and costs the same."""
    before = costs(fd)
    first = fd.execute(inputs)
    between, natives = costs(fd), native_calls(fd)
    second = fd.execute(inputs)
    after = costs(fd)
    assert native_calls(fd) - natives == natively
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert same_bits(one, other)
        assert one.stride() == other.stride()
        assert not other.requires_grad
    spent = [(later - earlier, last - later) for earlier, later, last in zip(before, between, after, strict=True)]
    assert spent[0] == (1, 1)
    assert all(one == other for one, other in spent)
    return second


def test_there_is_a_launcher_where_the_tests_run():
    assert launcher() is not None


def test_the_second_call_is_native():
    fd = define(lambda fd, a, b, c: [a * b + c], 2, 2, 2)
    a, b, c = (torch.randn(32, 64) for _ in range(3))
    assert not is_native(fd)
    (result,) = check(fd, [a, b, c])
    torch.testing.assert_close(result, a * b + c)
    assert is_native(fd)
    assert inspect.isbuiltin(fd.module.execute)
    assert fd.execute.__doc__ == FusionDefinition.execute.__doc__
    written = list(inspect.signature(FusionDefinition.execute).parameters.values())[1:-1]
    assert list(inspect.signature(fd.execute).parameters) == [parameter.name for parameter in written]
    assert str(inspect.signature(fd.module.execute)) == "(inputs, device=None)"


def test_modules_are_native_too():
    builder = GraphBuilder()
    builder.output(builder.ops.exp(builder.input((-1, 8)) * 2.0))
    module = JitCompiler().compile(builder.build())
    x = torch.randn(5, 8)
    (first,), (second,) = module.execute([x]), module.execute((x,))
    assert inspect.isbuiltin(module.execute)
    assert torch.equal(first, second)
    assert module.stats().executions == 2


def test_methods_taken_before_the_first_call_are_native_later():
    fd, x = define(lambda fd, x: [x * 2.0 + 1.0], 1), torch.randn(64)
    for execute in (fd.execute, fd.module.execute):
        assert not inspect.isbuiltin(execute)
        before = native_calls(fd)
        execute([x])
        (result,) = execute((x,))
        assert torch.equal(result, fd.execute([x])[0])
        assert native_calls(fd) >= before + 2
        assert torch.equal(execute([x[::2]])[0], x[::2] * 2.0 + 1.0), "which no record covers yet"
        with pytest.raises(ArgumentError):
            execute(x)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InputError):
            execute([x[None]])


def outlived(fd, x):
    """A value that is read again after another one has come and gone."""
    first = fd.ops.softmax(x, -1)
    second = fd.ops.softmax(fd.ops.permute(first, [1, 0]), -1)
    third = fd.ops.softmax(fd.ops.permute(second, [1, 0]), -1)
    return [third * first]


CASES = {
    "intermediate values that live together": (outlived, (2,), [torch.randn(6, 35)]),
    "several results": (lambda fd, x: [x + 1.0, x * 2.0, fd.ops.exp(x)], (2,), [torch.randn(7, 9)]),
    "softmax": (lambda fd, x: [fd.ops.softmax(x, -1)], (2,), [torch.randn(5, 33)]),
    "reduction to a number": (lambda fd, x: [fd.ops.sum(x * x)], (2,), [torch.randn(5, 33)]),
    "mean, whose divisor is a size": (lambda fd, x: [fd.ops.mean(x)], (2,), [torch.randn(5, 33)]),
    "chain of kernels": (
        lambda fd, x: [fd.ops.softmax(fd.ops.permute(fd.ops.softmax(x, -1), [1, 0]), -1)],
        (2,),
        [torch.randn(6, 35)],
    ),
    "result that others read": (
        lambda fd, x: (lambda y: [y, fd.ops.softmax(fd.ops.permute(y, [1, 0]), -1)])(fd.ops.softmax(x, -1)),
        (2,),
        [torch.randn(6, 35)],
    ),
    "result seen in another shape": (
        lambda fd, x: [fd.ops.reshape(fd.ops.softmax(x, -1), [30, 7])],
        (2,),
        [torch.randn(6, 35)],
    ),
    "strided input": (lambda fd, x: [x + 1.0], (2,), [torch.randn(40, 30).t()[::2, 3:20]]),
    "expanded input": (lambda fd, x: [x + 1.0], (2,), [torch.randn(30).expand(5, 30)]),
    "no dimensions": (lambda fd, x: [x + 1.0], (0,), [torch.tensor(2.0)]),
    "broadcast bias": (lambda fd, x, b: [fd.ops.gelu(x + b)], (2, 1), [torch.randn(4, 8), torch.randn(8)]),
    "float": (lambda fd, x, s: [x * s], (1, DataType.Double), [torch.randn(9), 0.1]),
    "int for a float": (lambda fd, x, s: [x * s], (1, DataType.Double), [torch.randn(9), 3]),
    "bool for a float": (lambda fd, x, s: [x * s], (1, DataType.Double), [torch.randn(9), True]),
    "single precision float": (lambda fd, x, s: [x * s], (1, DataType.Float), [torch.randn(9), 0.1]),
    "int": (lambda fd, x, s: [x * s], (1, DataType.Int), [torch.randn(9), -7]),
    "bool": (lambda fd, x, s: [fd.ops.where(s, x, -x)], (1, DataType.Bool), [torch.randn(9), False]),
    "int as a float and as itself": (
        lambda fd, x, s: [x * s, fd.ops.cast(x, DataType.Int) + s],
        (1, DataType.Int),
        [torch.randn(9) * 10, 5],
    ),
    "half results": (
        lambda fd, x: [fd.ops.cast(x, DataType.BFloat16), fd.ops.cast(x, DataType.Half), x > 0.0],
        (2,),
        [torch.randn(3, 11)],
    ),
    "large": (lambda fd, x: [fd.ops.tanh(x) * x], (1,), [torch.randn(1_000_003)]),
    "an input as a result": (lambda fd, x: [x, x + 1.0], (2,), [torch.randn(4, 6)]),
    "a strided input as a result": (lambda fd, x: [x + 1.0, x], (2,), [torch.randn(9, 6).t()[::2, 1:]]),
    "a view of an input as a result": (lambda fd, x: [fd.ops.permute(x, [1, 0]), x + 1.0], (2,), [torch.randn(4, 6)]),
    "a result and a view of it": (
        lambda fd, x: (lambda y: [y, fd.ops.permute(y, [1, 0])])(fd.ops.softmax(x, -1)),
        (2,),
        [torch.randn(4, 6)],
    ),
    "a repeated value": (lambda fd, x: [fd.ops.broadcast_in_dim(x + 1.0, [3, 4, 5], [1])], (1,), [torch.randn(4)]),
    "parts of a value": (
        lambda fd, x: (lambda y: [fd.ops.slice(y, [0, 1], [4, 3]), fd.ops.slice(y, [1, 0], [3, 6], [2, 3])])(x * 2.0),
        (2,),
        [torch.randn(4, 6)],
    ),
    "a value twice": (lambda fd, x: (lambda y: [y, y, y])(x + 1.0), (2,), [torch.randn(4, 6)]),
    "a number seen in several shapes": (
        lambda fd, x: (lambda y: [y, fd.ops.broadcast_in_dim(y, [2, 3], [])])(fd.ops.sum(x)),
        (1,),
        [torch.randn(9)],
    ),
    "tensors joined as they are": (
        lambda fd, x, y: [fd.ops.cat([x, y, x], 1), x + y],
        (2, 2),
        [torch.randn(4, 6), torch.randn(6, 4).t()],
    ),
    "elements that a new shape needs elsewhere": (
        lambda fd, x: [fd.ops.reshape(fd.ops.permute(x, [1, 0]), [3, 8]), x + 1.0],
        (2,),
        [torch.randn(4, 6)],
    ),
    "a large view": (lambda fd, x: [fd.ops.permute(fd.ops.exp(x), [1, 0]), x], (2,), [torch.randn(700, 900)]),
}


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


LEFT_TO_PYTHON = {
    "matmul": lambda: define(lambda fd, x: [fd.ops.matmul(x, x) + 1.0], 2),
    "profiling": lambda: define(lambda fd, x: [x + 1.0], 2, config={"enable_profiling": True}),
    "nothing generated": lambda: define(lambda fd, x: [x + 1.0], 2, config={"graph_opt_level": 2}),
}


@pytest.mark.parametrize("make", LEFT_TO_PYTHON.values(), ids=LEFT_TO_PYTHON.keys())
def test_what_needs_python_stays_there(make):
    fd = make()
    check(fd, [torch.randn(4, 4)], natively=False)
    assert not is_native(fd)


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


def test_arguments_without_elements_are_native():
    builder = GraphBuilder()
    x = builder.input((-1, 6))
    for output in (x * 2.0, builder.ops.permute(x, [1, 0]), x, builder.ops.softmax(x, -1), builder.ops.sum(x, [1])):
        builder.output(output)
    module, empty = JitCompiler().compile(builder.build()), torch.randn(0, 6)
    for count in range(3):
        results = module.execute([empty])
        assert [tuple(result.shape) for result in results] == [(0, 6), (6, 0), (0, 6), (0, 6), (0,)]
        assert module._runner._native.executions == count


def test_sums_of_nothing_are_left_to_python():
    fd = define(lambda fd, x: [fd.ops.sum(fd.ops.slice(x, [1, 0], [1, 3]), [0]), x + 1.0], 2)
    for _ in range(3):
        assert fd.execute([torch.randn(2, 3)])[0].tolist() == [0.0] * 3
    assert native_calls(fd) == 0


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


def test_every_shape_has_its_record():
    fd = define(lambda fd, x, y: [x * y], 2, 2)
    for size in [*range(2, MOST_RECORDS + 6), *range(2, MOST_RECORDS + 6)]:
        x, y = torch.randn(size, 3), torch.randn(size, 3)
        assert torch.equal(fd.execute([x, y])[0], x * y)
    stats = fd.module.stats()
    assert stats.executions == stats.kernel_launches == 2 * (MOST_RECORDS + 4)


def test_sizes_of_one_and_zero_mean_what_they_mean_to_pytorch():
    fd = define(lambda fd, x, y: [x * y], 2, 2)
    for _ in range(3):
        for left, right in (((4, 5), (4, 5)), ((4, 1), (4, 5)), ((1, 1), (4, 5)), ((0, 5), (0, 5)), ((4, 5), (1, 5))):
            x, y = torch.randn(left), torch.randn(right)
            assert torch.equal(fd.execute([x, y])[0], x * y)


def test_numbers_that_decide_sizes_are_not_confused():
    with FusionDefinition() as fd:
        x, n = fd.define_tensor(1), fd.define_scalar(dtype=DataType.Int)
        fd.add_output(fd.ops.broadcast_in_dim(x, [n, 3], [1]) + 1.0)
    for _ in range(3):
        for rows in (2, 5, 2):
            assert fd.execute([torch.zeros(3), rows])[0].tolist() == [[1.0] * 3] * rows


def test_numbers_that_must_equal_a_size_are_checked_at_every_call():
    with FusionDefinition() as fd:
        x, y, n = fd.define_tensor(1), fd.define_tensor(2), fd.define_scalar(dtype=DataType.Int)
        fd.add_output(fd.ops.broadcast_in_dim(x, [n, 3], [1]) * y)
    inputs = [torch.ones(3), torch.ones(2, 3), 2]
    check(fd, inputs)
    with pytest.raises(InputError, match="to be equal"):
        fd.execute([*inputs[:2], 5])


def test_whole_numbers_that_no_double_holds_are_rounded_once():
    fd = define(lambda fd, x, n: [x * n], 1, DataType.Int)
    for number in (3, 2**53, (1 << 60) + (1 << 36) + 1, -(2**63), 3):
        expected = torch.tensor(number).to(torch.float32)
        assert fd.execute([torch.ones(2), number])[0][0] == expected


def test_odd_inputs_still_go_the_right_way():
    fd = define(lambda fd, x: [x + 1.0], 2)
    fd.execute([torch.randn(4, 8)])
    assert is_native(fd)
    complex_ = torch.randn(4, 8, dtype=torch.complex64)
    for odd in (complex_.conj().imag, torch._efficientzerotensor(4, 8), torch.randn(4, 8)._neg_view()):
        natives = native_calls(fd)
        assert torch.equal(fd.execute([odd])[0], odd + 1.0)
        assert native_calls(fd) == natives
    batch = torch.randn(3, 4, 8)
    assert torch.equal(torch.func.vmap(lambda x: fd.execute([x])[0])(batch), batch + 1.0)


def test_errors_are_the_same_as_without_records():
    fd = define(lambda fd, x: [x + 1.0], 2)
    fd.execute([torch.randn(4, 8)])
    assert is_native(fd)
    with pytest.raises(InputError, match="expected 1 inputs"):
        fd.execute([])
    with pytest.raises(InputError, match="must have the dtype f32"):
        fd.execute([torch.zeros(4, 8, dtype=torch.int64)])
    with pytest.raises(InputError, match="meta tensor"):
        fd.execute([torch.empty(4, 8, device="meta")])
    with pytest.raises(InputError, match="only strided tensors"):
        fd.execute([torch.zeros(4, 8).to_sparse()])
    execute: Any = fd.execute
    with pytest.raises(ArgumentError, match="a list or tuple"):
        execute(torch.zeros(4, 8))
    with pytest.raises(TypeError):
        execute([torch.randn(4, 8)], "cpu")
    with pytest.raises(TypeError):
        execute()
    assert fd.execute(inputs=[torch.zeros(4, 8)], device="cpu")[0].sum() == 32


def test_modes_see_what_a_call_does():
    class Seen(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.count = 0

        def __torch_function__(self, function, types, arguments=(), keywords=None):
            self.count += 1
            return function(*arguments, **(keywords or {}))

    fd = define(lambda fd, x: [x + 1.0], 1)
    x = torch.randn(4)
    fd.execute([x])
    natives = native_calls(fd)
    with Seen() as seen:
        fd.execute([x])
    assert seen.count > 0
    assert native_calls(fd) == natives


def test_a_subclass_keeps_its_own_execute():
    class Doubled(FusionDefinition):
        def execute(self, inputs, **keywords):
            return [2 * result for result in super().execute(inputs, **keywords)]

    with Doubled() as fd:
        fd.add_output(fd.define_tensor(1) + 1.0)
    for _ in range(3):
        assert fd.execute([torch.zeros(2)])[0].tolist() == [2.0, 2.0]


def test_a_definition_and_its_builtin_are_collected():
    fd = define(lambda fd, x: [x + 3.25], 1, config={"enable_caching": False})
    fd.execute([torch.zeros(2)])
    execute, gone = fd.execute, [weakref.ref(fd), weakref.ref(fd.module)]
    del fd
    define(lambda fd, x: [x], 1)  # the manager remembers the last one
    gc.collect()
    assert execute([torch.zeros(3)])[0].tolist() == [3.25] * 3
    assert execute([torch.zeros(2)])[0].tolist() == [3.25] * 2
    del execute
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


@pytest.mark.parametrize("shape", [(32, 64), (300, 1000)], ids=["short", "long"])
def test_threads_share_a_definition(shape):
    fd = define(lambda fd, x, y: [fd.ops.softmax(x * y, -1)], 2, 2)
    start = threading.Barrier(8)

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        start.wait()
        for step in range(30):
            size = (shape[0] + (step + seed) % 3, shape[1])
            x, y = torch.randn(size, generator=generator), torch.randn(size, generator=generator)
            if not torch.allclose(fd.execute([x, y])[0], torch.softmax(x * y, -1), atol=1e-6):
                return False
        return True

    before = fd.module.stats().executions
    with ThreadPoolExecutor(8) as executor:
        assert all(executor.map(work, range(8)))
    assert fd.module.stats().executions - before == 8 * 30


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_goes_on():
    fd = define(lambda fd, x: [x * 2.0], 1)
    small, large = torch.ones(100), torch.ones(1_000_000)
    for x in (small, large):
        fd.execute([x])
    before = native_calls(fd)  # other tests may share the module
    child = os.fork()
    if child == 0:
        is_right = fd.execute([small])[0][99].item() == fd.execute([large])[0][999_999].item() == 2.0
        os._exit(0 if is_right and native_calls(fd) - before == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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
