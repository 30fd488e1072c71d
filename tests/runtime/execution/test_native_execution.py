"""execute as a builtin: which calls it answers natively, and that Python does what it cannot answer."""

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

from ingot import DataType, FusionDefinition, GraphBuilder, JitCompiler
from ingot.base.errors import ArgumentError, InputError
from ingot.runtime.native.launch.launcher import launcher
from ingot.runtime.native.launch.record_structs import MOST_RECORDS
from tests.runtime.execution.fusions import check, define, is_native, native_calls


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
