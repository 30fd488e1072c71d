"""JitCompiler and CompiledModule: caching, statistics, threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ingot import DataType, FusionDefinition, GraphBuilder, JitCompiler
from ingot.base.errors import ArgumentError, ConfigError, VerificationError
from ingot.ir.graph import Graph
from ingot.passes.graph_passes import PASSES


def make_graph(scale=2.0):
    builder = GraphBuilder()
    x, y = builder.input((-1, 8)), builder.input((8,))
    builder.output(builder.ops.exp(x * scale + y) * 1.0)
    return builder.build()


def test_module_computes_what_the_graph_says():
    module = JitCompiler().compile(make_graph())
    x, y = torch.randn(3, 8), torch.randn(8)
    torch.testing.assert_close(module.execute([x, y])[0], torch.exp(x * 2 + y))


def test_equal_graphs_share_a_module_and_others_do_not():
    compiler = JitCompiler()
    first = compiler.compile(make_graph())
    assert compiler.compile(make_graph()) is first
    assert compiler.compile(make_graph(3.0)) is not first
    assert compiler.cache_hit_rate == pytest.approx(1 / 3)
    assert first.stats().cache_hit_rate == compiler.cache_hit_rate


def test_caching_can_be_switched_off():
    compiler = JitCompiler({"enable_caching": False})
    assert compiler.compile(make_graph()) is not compiler.compile(make_graph())
    assert len(compiler) == 0
    assert compiler.cache_hit_rate == 0.0


def test_cache_drops_the_module_used_longest_ago():
    compiler = JitCompiler({"cache_capacity": 2})
    first = compiler.compile(make_graph(1.0))
    second = compiler.compile(make_graph(2.0))
    compiler.compile(make_graph(1.0))
    compiler.compile(make_graph(3.0))
    assert len(compiler) == 2
    assert compiler.compile(make_graph(1.0)) is first
    assert compiler.compile(make_graph(2.0)) is not second


def test_statistics_are_those_of_the_runs():
    module = JitCompiler().compile(make_graph())
    assert module.stats().kernel_launches == module.stats().executions == 0
    x, y = torch.randn(3, 8), torch.randn(8)
    for _ in range(3):
        module.execute([x, y])
    stats = module.stats()
    assert stats.executions == 3
    # One kernel: every input read once, the result written once.
    assert stats.kernel_launches == 3
    assert stats.memory_transferred == 3 * 4 * (2 * x.numel() + y.numel())
    assert stats.total_time_us > 0
    assert stats.compile_time_us > 0
    assert stats.time_per_operator_us == {}


def test_statistics_count_every_operation_where_nothing_is_generated():
    module = JitCompiler({"graph_opt_level": 2}).compile(make_graph())
    x, y = torch.randn(3, 8), torch.randn(8)
    module.execute([x, y])
    # x * 2, + y, exp: the multiplication by one is gone.
    assert module.stats().kernel_launches == 3
    matrix, row = x.numel() * 4, y.numel() * 4
    assert module.stats().memory_transferred == 2 * matrix + (2 * matrix + row) + 2 * matrix


def test_profiling_tells_the_time_of_each_operator():
    module = JitCompiler({"enable_profiling": True}).compile(make_graph())
    module.execute([torch.randn(3, 8), torch.randn(8)])
    stats = module.stats()
    (kernel,) = stats.kernels
    assert list(stats.time_per_operator_us) == [kernel.name] and kernel.name.startswith("mul_add_exp_")
    assert (kernel.launches, kernel.bytes_moved) == (1, stats.memory_transferred)
    assert 0 < sum(stats.time_per_operator_us.values()) <= stats.total_time_us


@pytest.mark.parametrize(
    ("config", "operations"),
    [
        ({}, 3),
        ({"graph_opt_level": 0}, 4),
        ({"graph_opt_level": 1}, 3),
        ({"enable_optimizations": False}, 4),
        ({"disabled_passes": ["algebraic_simplification"]}, 4),
    ],
)
def test_configuration_changes_what_is_compiled(config, operations):
    module = JitCompiler(config).compile(make_graph())
    assert len(module.optimized_graph.nodes) == operations


def test_each_pass_can_be_switched_off_and_reports():
    for pass_ in PASSES:
        module = JitCompiler({"disabled_passes": [pass_.name]}).compile(make_graph())
        assert pass_.name not in {report.name for report in module.pass_reports}
    module = JitCompiler().compile(make_graph())
    reports = {report.name: report for report in module.pass_reports}
    assert set(reports) == {pass_.name for pass_ in PASSES}
    assert reports["algebraic_simplification"].changed == 1


def test_bad_configuration_is_refused():
    with pytest.raises(ConfigError, match="graph_opt_level must be 0, 1, 2 or 3"):
        JitCompiler({"graph_opt_level": 4})
    with pytest.raises(ConfigError, match="there is no pass nonsense"):
        JitCompiler({"disabled_passes": ["nonsense"]}).compile(make_graph())


def test_only_correct_graphs_are_compiled():
    with pytest.raises(ArgumentError, match=r"GraphBuilder\.build"):
        JitCompiler().compile("graph() {}")  # pyright: ignore[reportArgumentType]
    graph = make_graph()
    with pytest.raises(VerificationError, match="before it is defined"):
        JitCompiler().compile(Graph(graph.inputs, graph.nodes[::-1], graph.outputs))


def test_threads_define_and_execute_at_once():
    """Eight threads define the same and different fusions over and over; every result must be right."""
    failures: list[str] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        start.wait()
        for repeat in range(25):
            scale = float((seed + repeat) % 5)
            with FusionDefinition() as fd:
                x, y = fd.define_tensor(2), fd.define_tensor(2, dtype=DataType.Double)
                fd.add_output(fd.ops.softmax(x * scale + y, -1))
                fd.add_output(fd.ops.sum(fd.ops.permute(x, [1, 0]), [0]))
            x = torch.randn(3, 1 + repeat, generator=generator)
            y = torch.randn(3, 1 + repeat, generator=generator, dtype=torch.float64)
            softmax, total = fd.execute([x, y])
            if not torch.allclose(softmax, torch.softmax(x * scale + y, -1)) or not torch.allclose(total, x.sum(1)):
                failures.append(f"thread {seed}, repeat {repeat}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert failures == []


def test_threads_share_one_definition_and_see_only_their_own_last_one():
    from ingot import FusionManager

    manager = FusionManager.get()

    def work(factor: int) -> bool:
        with FusionDefinition(manager) as fd:
            fd.add_output(fd.define_tensor(1) * factor)
        return all(manager.execute([torch.ones(4)])[0].tolist() == [float(factor)] * 4 for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
