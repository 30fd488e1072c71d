"""Generated kernels: every operator they compute, every way a tensor can lie in memory, every odd size."""

import gc
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch

from ingot import DataType, FusionDefinition, GraphBuilder, IngotError, JitCompiler, memory
from ingot.base.dtypes import COMPLEX, in_order
from ingot.codegen.cpu.nests import compile_kernel
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.codegen.llvm.support import supports
from ingot.ir.torch_types import to_torch
from ingot.loops.cpu.schedule import Form, Schedule
from ingot.loops.motion import Motion
from ingot.ops import Kind, Op, table
from ingot.ops.samples import Sample
from ingot.runtime.cpu import kernels as kernels_module
from ingot.runtime.cpu.kernels import kernels
from ingot.runtime.kernels import Kernel
from ingot.runtime.plan import Plan
from ingot.runtime.threads import bind_openmp
from tests.ops import generation
from tests.ops.generation import Refusal
from tests.property.random_values import on_device

POINTWISE = [
    op for op in table().values() if op.kind is Kind.POINTWISE and op.emit is not None and op.samples is not None
]
SIZES = (1, 3, 7, 8, 9, 31, 33, 100)


def expected_result(op: Op, call: Sample) -> list[Any]:
    """What eager gives; for functions what it gives in double precision, rounded, since it loses small numbers."""
    results = generation.eager_result(op, call)
    if op.name not in FUNCTIONS or results[0].dtype is torch.float64 or not results[0].is_floating_point():
        return results
    doubled = generation.replace(call, torch.Tensor, lambda tensor: tensor.float().double())
    return [exact.to(result.dtype) for exact, result in zip(generation.eager_result(op, doubled), results, strict=True)]


@pytest.mark.parametrize("op", POINTWISE, ids=lambda op: op.name)
def test_generated_code_agrees_with_eager(op: Op, device: torch.device):
    """The same samples as the interpreter's tests, run as kernels: all dtypes, and lengths around the vectors'.

    What is expected is eager's on the CPU, whose functions are the more exact ones.
    """
    assert op.samples is not None
    generated = 0
    takes_complex = op.name in ("real", "imag")
    for turn, dtype in enumerate(in_order(COMPLEX) if takes_complex else generation.DTYPES):
        # One layout per dtype: each layout is another kernel to compile. Sizes are not.
        layout = generation.LAYOUTS[turn % len(generation.LAYOUTS)]
        for size in SIZES:
            for sample in op.samples((size,))[: 10 if size == 33 else 1]:
                call = generation.with_tensors(sample, dtype, layout)
                graph = generation.attempt(lambda call=call: generation.graph_of(op, call), IngotError)
                if isinstance(graph, Refusal) or not any(supports(node) for node in graph.nodes):
                    continue
                expected = generation.attempt(lambda call=call: expected_result(op, call), *generation.EAGER_ERRORS)
                if isinstance(expected, Refusal):
                    continue
                plan = Plan(graph)
                generated += any(isinstance(step, Kernel) for step in plan.steps)
                actual = plan.run(on_device(generation.found_in(call, torch.Tensor), device))
                actual = [value.cpu() for value in actual]
                generation.assert_all_match(op, actual, expected, f"for {dtype.text} {size} {layout}")
    assert generated or not (op.stable or op.name in FUNCTIONS), f"no kernel was generated for {op.name}"


def define(body, *dtypes, rank=2):
    with FusionDefinition() as fd:
        for result in body(fd, *(fd.define_tensor(rank, dtype=dtype) for dtype in dtypes)):
            fd.add_output(result)
    return fd


def test_one_kernel_serves_all_shapes_of_one_layout():
    fd = define(lambda fd, x, y: [x * 3.25 - y], DataType.Float, DataType.Float)
    fd.execute([torch.randn(4, 5), torch.randn(4, 5)])
    compiled = kernels.compilations
    for shape in [(7, 9), (1, 33), (100, 1), (63, 65)]:
        x, y = torch.randn(shape), torch.randn(shape)
        assert torch.equal(fd.execute([x, y])[0], x * 3.25 - y)
    assert kernels.compilations == compiled


def test_one_more_kernel_serves_all_shapes_that_are_full_vectors():
    fd = define(lambda fd, x, y: [x * 3.75 - y], DataType.Float, DataType.Float)
    fd.execute([torch.randn(4, 16), torch.randn(4, 16)])
    compiled = kernels.compilations
    for shape in [(64, 9), (1, 128), (64, 1), (640, 320)]:
        x, y = torch.randn(shape), torch.randn(shape)
        assert torch.equal(fd.execute([x, y])[0], x * 3.75 - y)
    assert kernels.compilations == compiled


def test_compiled_kernels_can_be_dropped():
    """Machine code that no kernel needs any more is freed, and code that is compiled later works."""
    builder = GraphBuilder()
    x = builder.input((4,))
    builder.output(x * 3 + 1)
    (kernel,) = Plan(builder.build()).kernels()
    schedule = Schedule(Form.FLAT, 0, 1, (Motion.NEXT, Motion.NEXT))
    bind_openmp()
    for _ in range(20):
        assert compile_kernel(kernel.program, schedule).code.assembly
    assert torch.equal(Plan(builder.build()).run([torch.ones(4)])[0], torch.full((4,), 4.0))


def test_kernels_live_as_long_as_those_who_run_them(monkeypatch):
    monkeypatch.setattr(kernels, "_recent", deque(maxlen=0))
    builder = GraphBuilder()
    x = builder.input((4,))
    builder.output(x * 3.625 + 1)
    graph = builder.build()
    first, second = Plan(graph), Plan(graph)
    compiled = kernels.compilations
    for plan in (first, second, first):
        assert torch.equal(plan.run([torch.ones(4)])[0], torch.full((4,), 4.625))
    assert kernels.compilations == compiled + 1
    program = first.kernels()[0].program
    del first, plan
    gc.collect()
    assert len(kernels.variants(program)) == 1
    second.run([torch.ones(4)])
    assert kernels.compilations == compiled + 1
    del second
    gc.collect()
    assert not kernels.variants(program)


def test_equal_clusters_of_different_graphs_compile_once():
    first = define(lambda fd, x: [x * 17.5 + 1.25], DataType.Float)
    second = define(lambda fd, x: [fd.ops.permute(x, [1, 0]) * 17.5 + 1.25, fd.ops.cumsum(x, 0)], DataType.Float)
    first.execute([torch.randn(4, 5)])
    compiled = kernels.compilations
    second.execute([torch.randn(5, 4).T])
    assert kernels.compilations == compiled


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0, 2), (5, 7), (2, 3, 4, 5), ()])
def test_strided_offset_broadcast_and_overlapping_inputs(shape, device):
    base = torch.randn(3000, device=device)
    dense = torch.randn(shape, device=device)
    views = [
        dense,
        dense.clone().T if len(shape) == 2 and shape[0] == shape[1] else dense,
        base.as_strided(shape, tuple(range(1, len(shape) + 1)), 5),  # overlaps itself
        base[7].expand(shape),
        base[::2].as_strided(shape, tuple(2 * size + 3 for size in range(len(shape))), 11),
    ]
    fd = define(lambda fd, *tensors: [tensors[0] + tensors[1] * 2 - tensors[2]], *[DataType.Float] * 3, rank=len(shape))
    for first in views:
        for second in views:
            (result,) = fd.execute([first, second, first])
            assert torch.equal(result, first + second * 2 - first)
            assert result.is_contiguous()


def test_unaligned_storage_is_read_as_it_is():
    raw = torch.randint(0, 255, (4 * 1000 + 1,), dtype=torch.uint8)
    memory = bytearray(raw.numpy().tobytes())
    x = torch.frombuffer(memory, dtype=torch.int32, offset=1, count=999)
    fd = define(lambda fd, x: [x * 3], DataType.Int32, rank=1)
    assert torch.equal(fd.execute([x])[0], x * 3)


def test_tensors_that_are_not_what_their_memory_holds_are_read_through_pytorch():
    class Wrapped(torch.Tensor):
        pass

    fd = define(lambda fd, x: [x * 2 + 1], DataType.Float, rank=1)
    negated = torch.complex(torch.ones(5), torch.arange(5.0)).conj().imag
    assert negated.is_neg()
    for x in (negated, torch._efficientzerotensor(5), torch.arange(5.0).as_subclass(Wrapped)):
        assert fd.execute([x])[0].tolist() == (x * 2 + 1).tolist()
    batched = torch.randn(3, 5)
    assert torch.equal(torch.vmap(lambda x: fd.execute([x])[0])(batched), batched * 2 + 1)


def test_large_tensors_are_split_among_threads_and_streamed():
    fd = define(lambda fd, x, y: [x * y + x, x > y], DataType.Float, DataType.Float)
    x, y = torch.randn(2100, 2501), torch.randn(2100, 2501)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            product, greater = fd.execute([x, y])
            assert torch.equal(product, x * y + x)
            assert torch.equal(greater, x > y)
    finally:
        torch.set_num_threads(before)
    streamed = [variant for variant in kernels._alive.values() if variant.schedule.streaming]
    assert streamed


def test_rows_are_split_among_threads(device):
    x, y = torch.randn(701, 1, 503, device=device), torch.randn(1, 3, 503, device=device)
    x, y = (tensor.expand(701, 3, 503) for tensor in (x, y))
    fd = define(lambda fd, x, y: [x - y], DataType.Float, DataType.Float, rank=3)
    assert torch.equal(fd.execute([x, y])[0], x - y)


def test_more_than_two_billion_elements_are_indexed_right(device):
    try:
        x = torch.zeros(2**31 + 37, dtype=torch.int8, device=device)
    except RuntimeError:
        pytest.skip("needs 5 GB of memory")
    x[-1], x[2**31] = 5, 7
    fd = define(lambda fd, x: [x + x], DataType.Int8, rank=1)
    (result,) = fd.execute([x])
    assert result[-1] == 10
    assert result[2**31] == 14
    assert result[2**31 + 1] == 0
    del result
    memory.empty_cache()


def test_scalars_change_without_compiling_again():
    with FusionDefinition() as fd:
        x, scale = fd.define_tensor(1), fd.define_scalar()
        shift = fd.define_scalar(dtype=DataType.Int)
        fd.add_output(x * scale + shift)
    x = torch.randn(50)
    fd.execute([x, 1.0, 1])
    compiled = kernels.compilations
    for scale, shift in [(2.5, -3), (float("inf"), 0), (-0.0, 2**40)]:
        torch.testing.assert_close(fd.execute([x, scale, shift])[0], x * scale + shift, equal_nan=True)
    assert kernels.compilations == compiled


def test_threads_compile_and_run_at_once():
    start = threading.Barrier(6)

    def work(seed: int) -> bool:
        start.wait()
        right = True
        for repeat in range(8):
            factor = float(seed % 3 + repeat)
            fd = define(lambda fd, x, factor=factor: [x * factor - 0.125], DataType.Double)
            x = torch.full((40, 50), float(seed), dtype=torch.float64)
            right &= torch.equal(fd.execute([x])[0], x * factor - 0.125)
        return right

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_kernels_run_in_a_forked_child():
    """In a process of its own, because a fork must come after threads have been started."""
    code = """
import os, torch
from ingot import FusionDefinition
with FusionDefinition() as fd:
    fd.add_output(fd.define_tensor(1) * 2 + 1)
x = torch.ones(1 << 20)
fd.execute([x])
child = os.fork()
if child == 0:
    result = fd.execute([x])[0]
    os._exit(0 if result[0] == 3 and result[-1] == 3 else 1)  # torch's own parallel functions would hang here
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), fd.execute([x])[0][5].item())
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["0", "3.0"]


def test_results_outlive_the_definition_and_return_to_the_pool():
    fd = define(lambda fd, x: [x + 1], DataType.Float)
    (result,) = fd.execute([torch.ones(1024, 1024)])
    del fd
    assert result.sum() == 2 * 1024 * 1024
    used = memory.stats().bytes_in_use
    view = result[3:5]
    del result
    assert memory.stats().bytes_in_use == used  # a view keeps the memory
    del view
    assert memory.stats().bytes_in_use < used


def test_kernels_of_one_graph_compile_at_once(monkeypatch):
    """Two compilations wait for each other: one after the other they would wait in vain."""
    both = threading.Barrier(2, timeout=60)
    compile_alone = kernels_module.compile_kernel

    def compile_with_the_other(*arguments):
        both.wait()
        return compile_alone(*arguments)

    monkeypatch.setattr(kernels_module, "compile_kernel", compile_with_the_other)
    fd = define(lambda fd, x: [fd.ops.cumsum(x * 0.4375 + 9, 1) - 0.5625], DataType.Float)
    x = torch.randn(4, 5)
    torch.testing.assert_close(fd.execute([x])[0], torch.cumsum(x * 0.4375 + 9, 1) - 0.5625)


def test_explanation_shows_reasons_bytes_and_code():
    fd = define(lambda fd, x: [fd.ops.softmax(x, 1)], DataType.Float)
    fd.execute([torch.randn(40, 50)])
    text = fd.module.explain("nests", "llvm", "assembly")
    assert "ends here: end of graph" in text
    assert "moves 8*s0*s1 bytes" in text
    assert "parallel for i0" in text
    assert f"define void @{fd.module.kernels()[0].name}" in text
    assert "vdivps" in text or "fdiv" in text or "divps" in text
    with pytest.raises(IngotError, match="there is no stage"):
        fd.module.explain("nonsense")


def update_in_place(shape=(40, 50)):
    with FusionDefinition() as fd:
        parameter, gradient = (fd.define_tensor(len(shape)) for _ in range(2))
        fd.add_output(parameter - gradient * 0.25, alias_input=parameter)
        fd.add_output(gradient + parameter)
    return fd


def test_results_are_written_straight_into_inputs(monkeypatch, device):
    copies = []
    copy = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *arguments: copies.append(1) or copy(*arguments))
    fd = update_in_place()
    draw = partial(torch.randn, device=device)
    for make in (lambda: draw(40, 50), lambda: draw(50, 40).T, lambda: draw(40, 150)[:, ::3]):
        parameter, gradient = make(), draw(40, 50)
        before, version = parameter.clone(), parameter._version
        (total,) = fd.execute([parameter, gradient])
        assert torch.equal(parameter, before - gradient * 0.25)
        assert torch.equal(total, gradient + before)
        assert parameter._version > version
        assert not copies


def test_results_are_copied_where_writing_them_at_once_would_be_noticed(device):
    fd = update_in_place()
    memory = torch.randn(3000, device=device)
    before = memory.clone()
    parameter, gradient = memory[:2000].view(40, 50), memory[3:2003].view(40, 50)
    fd.execute([parameter, gradient])  # they overlap
    expected = before[:2000] - before[3:2003] * 0.25
    assert torch.equal(memory[:2000], expected)
    with FusionDefinition() as fd:
        x = fd.define_tensor(2)
        fd.add_output(x + fd.ops.permute(x, [1, 0]), alias_input=x)  # reads elements that were written earlier
    x = torch.randn(33, 33, device=device)
    expected = x + x.T
    fd.execute([x])
    assert torch.equal(x, expected)


def test_large_results_in_place_at_any_address(device):
    fd = update_in_place()
    memory = torch.randn(2200 * 2200 + 1, device=device)
    parameter, gradient = memory[1:].view(2200, 2200), torch.randn(2200, 2200, device=device)
    expected = parameter - gradient * 0.25
    fd.execute([parameter, gradient])
    assert torch.equal(parameter, expected)


def test_kernel_that_cannot_be_compiled_runs_through_pytorch(monkeypatch):
    def refuse(*_):
        raise RuntimeError("LLVM has had enough")

    monkeypatch.setattr(kernels_module, "compile_kernel", refuse)
    fd = define(lambda fd, x: [fd.ops.sum(x * 0.3125 + 9), x - 77.5], DataType.Float)
    x = torch.randn(4, 5)
    with pytest.warns(UserWarning, match="running through PyTorch instead: no machine code .* LLVM has had enough"):
        total, shifted = fd.execute([x])
    torch.testing.assert_close(total, (x * 0.3125 + 9).sum())
    assert torch.equal(shifted, x - 77.5)
    assert torch.equal(fd.execute([x])[1], x - 77.5)  # and says so once


def test_level_below_three_generates_nothing():
    builder = GraphBuilder()
    x = builder.input((4,))
    builder.output(x * 2 + 1)
    graph = builder.build()
    assert JitCompiler({"graph_opt_level": 2}).compile(graph).inspect("kernels") == ""
    assert "mul(in0, 2.0:f32)" in JitCompiler().compile(graph).inspect("kernels")


def test_fusion_size_changes_the_kernels():
    builder = GraphBuilder()
    x = builder.input((4,))
    builder.output(((x * 2 + 1) * x - 3) * x)
    graph = builder.build()
    for size, count in ((64, 1), (3, 2), (1, 5)):
        module = JitCompiler({"max_fusion_size": size}).compile(graph)
        module.execute([torch.ones(4)])
        assert module.stats().kernel_launches == count


def test_every_stage_can_be_looked_at():
    fd = define(lambda fd, x: [fd.ops.cumsum(fd.ops.relu(x) * 2, 1)], DataType.Float)
    fd.execute([torch.randn(40, 50)])
    module = fd.module
    assert "kernel of 2 operations, which ends here: read by cumsum" in module.explain()
    assert "cumsum through PyTorch" in module.explain()
    assert "vector for i0 in 0..n0" in module.inspect("nests")
    assert "define" in module.inspect("llvm")
    (kernel,) = module.kernels()
    assert kernel.name.startswith("maximum_mul_") and f"{kernel.name}:" in module.inspect("assembly")
    with pytest.raises(IngotError, match="there is no stage"):
        module.inspect("nonsense")


def test_positions_are_picked_by_an_index(device):
    builder = GraphBuilder()
    index = builder.input((5, 1), DataType.Int)
    counter = builder.ops.expand(builder.ops.iota(7), [5, 7])
    builder.output(builder.ops.gather(counter, index, 1))
    module = JitCompiler().compile(builder.build())
    chosen = torch.tensor([[3], [0], [6], [1], [1]], device=device)
    assert torch.equal(module.execute([chosen])[0], chosen)
    assert "gather(position0, in0)" in module.explain()


@pytest.mark.parametrize("dtype", [DataType.Int8, DataType.UInt8, DataType.Int16, DataType.Int32], ids=str)
def test_bounded_integers_are_compared_with_their_bound(dtype, device):
    builder = GraphBuilder()
    x = builder.input((203,), dtype)
    for bounded in (builder.ops.maximum(x, 3), builder.ops.minimum(x, 3), builder.ops.where(x < 3, 3, x)):
        builder.output(bounded)
        builder.output(bounded == 3)
    x = torch.arange(-100, 103, device=device).to(to_torch(dtype))
    results = JitCompiler().compile(builder.build()).execute([x])
    for bounded, expected in zip(results[::2], (x.clamp(min=3), x.clamp(max=3), x.clamp(min=3)), strict=True):
        assert torch.equal(bounded, expected)
    for at_bound, bounded in zip(results[1::2], results[::2], strict=True):
        assert torch.equal(at_bound, bounded == 3)


def test_inputs_are_read_before_results_are_written_over_them(device):
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(1), fd.define_tensor(1)
        doubled = x * 2
        fd.add_output(doubled, alias_input=y)
        fd.add_output(doubled - y)
    x, y = torch.randn(50, device=device), torch.randn(50, device=device)
    expected = x * 2 - y
    assert torch.equal(fd.execute([x, y])[0], expected)
    assert torch.equal(y, x * 2)


def test_rows_of_all_lengths_share_a_kernel_where_nothing_is_gained_by_another():
    fd = define(lambda fd, x: [fd.ops.sum(x * 6.0625, 1)], DataType.Float)
    fd.execute([torch.randn(9, 50)])
    compiled = kernels.compilations
    for shape in ((2100, 600), (9, 140_000)):  # what other programs would prefetch, and compute in one pass
        fd.execute([torch.randn(shape)])
    assert kernels.compilations == compiled
