"""From a graph to something that runs: verify, optimise, make ready, remember.

In: a graph and a configuration. Out: a module that can be executed from any thread, any number of times, and that
keeps honest statistics of what its runs cost.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from ingot.base.collecting import collecting_later
from ingot.base.config import Config
from ingot.base.dumping import dump, dump_stage
from ingot.base.errors import ArgumentError
from ingot.base.forks import new_lock
from ingot.base.logs import log
from ingot.base.stages import STAGE_NAMES, require_stage
from ingot.base.working_directory import digest_of
from ingot.fusion.rules import FusionRules, Pattern
from ingot.ir.graph import Graph
from ingot.ir.interpreter import Interpreter
from ingot.ir.node import Node, is_structure
from ingot.ir.verifier import verify
from ingot.ops import Kind
from ingot.passes.graph_passes import PassReport, optimize
from ingot.runtime.backends.registry import registered
from ingot.runtime.backends.tuning import tuner_for
from ingot.runtime.disk_cache.entries import CodeOwner
from ingot.runtime.kernels import Kernel, KernelOrigin
from ingot.runtime.native.launch.records import Record
from ingot.runtime.plan import Plan
from ingot.runtime.profiling.kernel_statistics import CallCosts, KernelStatistics, TimedCall
from ingot.runtime.runner import Runner, Shortcut


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the runs of one module cost, added up."""

    executions: int
    total_time_us: float
    kernel_launches: int
    """Generated kernels, and operations PyTorch was asked to compute; views cost nothing and do not count."""
    memory_transferred: int
    """Bytes those read and wrote."""
    cache_hit_rate: float
    """Share of compilations that its compiler answered from the cache."""
    compile_time_us: float
    time_per_operator_us: Mapping[str, float] = field(default_factory=dict)
    """Filled under enable_profiling."""
    kernels: tuple[KernelStatistics, ...] = ()
    """The same for each kernel and each operation left to PyTorch, with launches and bytes, under enable_profiling; the
    generated kernels without times elsewhere."""


class CompiledModule:
    """A graph that is ready to run."""

    def __init__(self, compiler: JitCompiler, graph: Graph, is_private: bool = False):
        start = time.perf_counter()
        verify(graph)
        config = compiler.config
        level = config["graph_opt_level"] if config["enable_optimizations"] else 0
        optimized = optimize(graph, level, config["disabled_passes"])
        self.graph = graph
        self.optimized_graph = optimized.graph
        self.pass_reports: tuple[PassReport, ...] = optimized.reports
        self._compiler = compiler
        generates = level >= 3
        self._plan: Plan | Interpreter = (
            Plan(
                optimized.graph,
                compiler.rules,
                compiler.origin.of_graph(graph.digest),
                config["numerics"] == "fast",
                compiler.tuner,
            )
            if generates
            else Interpreter(optimized.graph)
        )
        self._runner = Runner(self._plan, config["enable_profiling"], is_private)
        self._shortcut = Shortcut(self, CompiledModule.execute, CompiledModule._execute, "(inputs, device=None)")
        self._compile_seconds = time.perf_counter() - start

    def execute(self, inputs: Sequence[Any], device: torch.device | str | None = None) -> list[Any]:
        """Results for a list or tuple of tensors and numbers; aliased inputs are overwritten, the rest is returned.

        Calls like earlier ones are answered by a builtin function of the same name, where nothing in them needs Python.
        """
        answer = self._shortcut.function or self._execute
        return answer(inputs) if device is None else answer(inputs, device)

    def _execute(self, inputs: Sequence[Any], device: torch.device | str | None = None) -> list[Any]:
        results = self._runner.execute(inputs, device)
        record = self.record_for(inputs)
        if record is not None:
            self._shortcut.add(record)
        return results

    def record_for(self, inputs: Sequence[Any]) -> Record | None:
        """What the launcher needs to answer calls like one that has been answered; None if they need Python."""
        return self._runner.record_for(inputs)

    def stats(self) -> Statistics:
        """What running this module has cost so far."""
        totals = self._runner.totals()
        spent = totals.tally.spent
        return Statistics(
            executions=totals.executions,
            total_time_us=totals.seconds * 1e6,
            kernel_launches=totals.tally.launches,
            memory_transferred=totals.tally.bytes_moved,
            cache_hit_rate=self._compiler.cache_hit_rate,
            compile_time_us=self._compile_seconds * 1e6,
            time_per_operator_us={name: one.seconds * 1e6 for name, one in spent.items()},
            kernels=tuple(
                [KernelStatistics(name, one.launches, one.bytes_moved, one.seconds) for name, one in spent.items()]
                or [KernelStatistics(kernel.name, totals.executions) for kernel in self.kernels()]
            ),
        )

    def explain(self, *stages: str) -> str:
        """What runs, step by step: generated kernels with the reason they end and the bytes they move, and operations
        left to PyTorch. explain("nests", "llvm", "assembly") adds these texts of what has been compiled so far.
        """
        stages = tuple(require_stage(stage, compiled_stages()) for stage in stages)
        if not isinstance(self._plan, Plan):
            return "every operation runs through PyTorch, as graph_opt_level asks"
        return self._plan.explain(lambda kernel: [text for stage in stages for text in kernel_texts(kernel, stage)])

    def inspect(self, stage: str) -> str:
        """The text of a stage of the pipeline, from graph to assembly, and for GPUs ptx and sass (`ingot passes`).

        Those after the kernels show what has been compiled so far, which is after the first execution.
        """
        stage = require_stage(stage, (*_GRAPH_STAGES, *compiled_stages()))
        if stage == "graph":
            return self.graph.text
        if stage == "optimized_graph":
            return self.optimized_graph.text
        found = self.kernels()
        if stage == "clusters":
            return "\n\n".join(kernel.cluster.text for kernel in found)
        if stage == "kernels":
            return "\n\n".join(kernel.program.text for kernel in found)
        return "\n\n".join(text for kernel in found for text in kernel_texts(kernel, stage))

    def through_torch(self) -> list[Node]:
        """The operations that PyTorch computes, because no code is generated for them."""
        return self._plan.through_torch() if isinstance(self._plan, Plan) else list(self.optimized_graph.nodes)

    def copied_outputs(self) -> list[int]:
        """The outputs that no kernel computes: inputs, constants and views of them, which have to be copied."""
        found = []
        for index, output in enumerate(self.optimized_graph.outputs):
            node = output.node
            while node.op.kind is Kind.VIEW and len(node.operands) == 1:
                (node,) = node.operands
            is_own = output.alias_input is not None and self.optimized_graph.inputs[output.alias_input] is node
            if (is_structure(node, "input") and not is_own) or node.op.name == "full":
                found.append(index)
        return found

    def kernels(self) -> list[Kernel]:
        """The kernels it consists of, besides what runs through PyTorch."""
        return self._plan.kernels() if isinstance(self._plan, Plan) else []

    def __repr__(self) -> str:
        return f"<CompiledModule of {len(self.optimized_graph.nodes)} operations, {self.graph.digest[:12]}>"


def compiled_stages() -> tuple[str, ...]:
    """What can be seen of compiled kernels, of all backends: in the order of the pipeline, then stages of their own."""
    found = dict.fromkeys(stage for backend in registered() for stage in backend.stages)
    return tuple(dict.fromkeys([*(stage for stage in STAGE_NAMES if stage in found), *found]))


_GRAPH_STAGES = ("graph", "optimized_graph", "clusters", "kernels")
"""What can be seen of a graph before it has run."""


def kernel_texts(kernel: Kernel, stage: str) -> list[str]:
    """The text of a stage for every compiled form of a kernel, backend by backend."""
    found = [backend.stages[stage] for backend in registered() if stage in backend.stages]
    return [text for texts in found for text in texts(kernel.program)]


class JitCompiler:
    """Compiles graphs under one configuration; equal graphs are compiled once. Threads may share a compiler."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        patterns: Iterable[Pattern] = (),
        function: str | None = None,
    ):
        """`function` is the name of the user's function that is compiled, for those who look at the cache on disk."""
        self.config = Config(config or {})
        owner = CodeOwner(function, config=digest_of(repr(sorted(self.config.items()))))
        self.origin = KernelOrigin(self.config["enable_caching"], owner)
        self.rules = FusionRules.of(self.config, patterns)
        """What may become one kernel; patterns, where there are any, say so operator by operator."""
        self.tuner = tuner_for(self.config)
        """What chooses the schedules of kernels on the CPU; None if they are not tuned."""
        self._modules: OrderedDict[str, CompiledModule] = OrderedDict()
        self._lock = new_lock()
        self.lookups = 0
        """How often a module was asked for."""
        self.hits = 0
        """How often it was there."""
        self._timed: dict[str, CallCosts] = {}

    def timed(self, function: Callable[..., Any], name: str, device: torch.device) -> Callable[..., Any]:
        """A function whose calls are timed under enable_profiling; the function itself elsewhere."""
        if not self.config["enable_profiling"]:
            return function
        with self._lock:
            return TimedCall(function, self._timed.setdefault(name, CallCosts(name)), device)

    def modules(self) -> list[CompiledModule]:
        """The modules that are kept."""
        with self._lock:
            return list(self._modules.values())

    def timed_calls(self) -> list[KernelStatistics]:
        """What calls of timed functions have cost."""
        with self._lock:
            return [costs.statistics for costs in self._timed.values()]

    def compile(self, graph: Graph, is_private: bool = False) -> CompiledModule:
        """The module for a graph: the one made earlier for an equal graph, or a new one.

        `is_private` promises that no input which is written shares memory with another input, in any call.
        """
        if not isinstance(graph, Graph):
            raise ArgumentError(f"compile takes a graph, such as GraphBuilder.build() gives, not {graph!r}")
        key = f"{graph.digest} private" if is_private else graph.digest
        with self._lock:
            self.lookups += 1
            found = self._modules.get(key) if self.config["enable_caching"] else None
            if found is not None:
                self.hits += 1
                self._modules.move_to_end(key)
        log("cache", f"graph {graph.digest[:12]}: {'compiled now' if found is None else 'its module is there'}")
        if found is not None:
            return found
        with collecting_later():
            module = CompiledModule(self, graph, is_private)
        _dump(module)
        if not self.config["enable_caching"]:
            return module
        with self._lock:
            module = self._modules.setdefault(key, module)
            while len(self._modules) > self.config["cache_capacity"]:
                self._modules.popitem(last=False)
            return module

    @property
    def cache_hit_rate(self) -> float:
        """Share of calls of `compile` that found their module ready; 0 before the first."""
        return self.hits / self.lookups if self.lookups else 0.0

    def __len__(self) -> int:
        """Number of modules kept."""
        return len(self._modules)

    def clear(self) -> None:
        """Forget all modules. Those in use go on working."""
        with self._lock:
            self._modules.clear()
            self.lookups = self.hits = 0


def _dump(module: CompiledModule) -> None:
    graph = module.graph.digest[:12]
    for kernel in module.kernels():
        log("fusion", f"graph {graph}: {kernel.name} ends here: {kernel.cluster.reason}")
    for node in module.through_torch():
        log("fusion", f"graph {graph}: {node.op.name} through PyTorch: {node.type}")
    for report in module.pass_reports:
        dump("passes", f"{report.name}: changed {report.changed}, removed {report.removed}")
    for stage in _GRAPH_STAGES:
        dump_stage(stage, partial(module.inspect, stage), lambda: f"graphs/{graph}")
