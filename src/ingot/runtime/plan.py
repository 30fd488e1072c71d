"""Plans: a graph as kernels and single operations, in the order they run.

Clusters run as generated kernels on devices that have a backend; everything else, and everything on other devices, runs
through the interpreter's own evaluation. A plan gives what the interpreter gives, faster. It belongs to no device: the
tensors of a run say where it takes place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from ingot.base import sizes
from ingot.base.errors import CodegenError
from ingot.base.numbers import Number
from ingot.base.types import ScalarType, TensorType
from ingot.base.warning import warn
from ingot.codegen.llvm.support import supports
from ingot.fusion.clusters import Cluster, find_clusters
from ingot.fusion.rules import FusionRules
from ingot.ir.binding import Binding
from ingot.ir.graph import Graph
from ingot.ir.interpreter import Interpreter, Tally, Value, bytes_of, free_after
from ingot.ir.node import Node
from ingot.ir.torch_types import to_torch
from ingot.ops import Kind
from ingot.runtime.backends.interface import Backend
from ingot.runtime.backends.registry import backend_for
from ingot.runtime.destinations import empty_without_memory, find_destinations
from ingot.runtime.in_place import results_in_place, writers_last
from ingot.runtime.kernels import NO_ORIGIN, Kernel, KernelFault, KernelOrigin, KernelTuner
from ingot.runtime.profiling.ranges import kernel_range

MOST_COMPILING = 8
"""Threads that compile at once."""


class Plan(Interpreter):
    """A graph made ready to run as kernels. Running keeps no state, so threads may share one."""

    def __init__(
        self,
        graph: Graph,
        rules: FusionRules | None = None,
        origin: KernelOrigin = NO_ORIGIN,
        may_approximate: bool = True,
        tuner: KernelTuner | None = None,
    ):
        super().__init__(graph)
        kernel = partial(Kernel.of, origin=origin, may_approximate=may_approximate, tuner=tuner)
        found = find_clusters(graph, supports, rules)
        steps = [kernel(step) if isinstance(step, Cluster) else step for step in found]
        self.steps = writers_last(graph, steps)
        aliased = [output.alias_input for output in graph.outputs if output.alias_input is not None]
        self._written = frozenset(graph.inputs[position] for position in aliased)
        self._later = {id(step): self.steps[place + 1 :] for place, step in enumerate(self.steps) if aliased}
        """Where inputs are overwritten, the steps that follow each step."""
        self.destinations = find_destinations(graph, self.steps)
        """Where results of kernels belong that are joined or permuted."""
        reads = [_reads(step) for step in self.steps]
        makes = [_makes(step) for step in self.steps]
        self._frees = free_after(graph, reads, makes)
        self._refused: set[tuple[str, str]] = set()
        """Kernels that could not be compiled, by the kind of device and what they compute."""
        self._ran_on: set[str] = set()
        """The kinds of devices that kernels have been compiled for."""

    def through_torch(self) -> list[Node]:
        """The operations that PyTorch computes; views and numbers cost nothing and do not count."""
        steps = [step for step in self.steps if not isinstance(step, Kernel) and step not in self.destinations]
        return [node for node in steps if not isinstance(node.type, ScalarType) and not _is_free(node)]

    def kernels(self) -> list[Kernel]:
        return [step for step in self.steps if isinstance(step, Kernel)]

    def steps_after(self, kernel: Kernel) -> tuple[Kernel | Node, ...] | None:
        """The steps that follow a kernel; None where no input is overwritten."""
        return self._later.get(id(kernel))

    def refuses(self, kernel: Kernel, device: str = "cpu") -> bool:
        """Whether there is no machine code for a kernel on a kind of device."""
        return (device, kernel.program.digest) in self._refused

    def evaluate(self, node: Node, values: dict[Node, Value], binding: Binding) -> Value:
        """The value of a single operation, given those before it."""
        return self._step(node, values, binding, None, False)

    def explain(self, show: Callable[[Kernel], Sequence[str]] = lambda kernel: ()) -> str:
        """The steps in words, in the order they run; `show` gives texts to add to a kernel."""
        lines = []
        for step in self.steps:
            if not isinstance(step, Kernel):
                is_in_place = step in self.destinations
                how = "without a copy: kernels write their parts into it" if is_in_place else "through PyTorch"
                lines.append(f"{step.op.name} {how}: {step.type}")
                continue
            count = len(step.program.statements)
            lines.append(
                f"kernel of {count} operation{'s' if count > 1 else ''}, which ends here: {step.cluster.reason}"
            )
            lines.append(f"    moves {step.bytes_moved} bytes; one by one they would move {step.bytes_moved_apart}")
            for text in (step.program.text, *show(step)):
                lines += [f"    {line}" for line in text.splitlines()]
        return "\n".join(lines)

    def _execute(self, values: dict[Node, Value], binding: Binding, tally: Tally | None, timed: bool) -> None:
        backend = backend_for(binding.device)
        self._conjugate(values)
        if backend is None or not all(map(is_plain, values.values())) or not _makes_plain(backend):
            super()._execute(values, binding, tally, timed)
            return
        with backend.current(binding.device):
            self._run_steps(backend, values, binding, tally, timed)

    def _conjugate(self, values: dict[Node, Value]) -> None:
        """Copy inputs that PyTorch conjugates when it reads them, unless they are written: kernels read memory."""
        for node, value in values.items():
            if isinstance(value, torch.Tensor) and value.is_conj() and node not in self._written:
                values[node] = value.resolve_conj()

    def _run_steps(
        self, backend: Backend, values: dict[Node, Value], binding: Binding, tally: Tally | None, timed: bool
    ) -> None:
        kind, empty = binding.device.type, partial(backend.allocate, device=binding.device)
        if kind not in self._ran_on:
            self._ran_on.add(kind)
            if not backend.tunes and any(kernel.tuner is not None for kernel in self.kernels()):
                warn(f"kernels on {kind} devices are not tuned: they run by their default schedules", UserWarning)
            self._compile_ahead(backend, values, binding)
        for step, frees in zip(self.steps, self._frees, strict=True):
            if isinstance(step, Kernel):
                if self.refuses(step, kind):
                    self._interpret(step, values, binding, tally, timed)
                else:
                    self._run_kernel(backend, step, values, binding, tally, timed)
            elif step in self.destinations:
                values[step] = self.destinations.finish(step, values, binding.sizes, empty)
            else:
                values[step] = self._step(step, values, binding, tally, timed)
            for freed in frees:
                del values[freed]

    def _compile_ahead(self, backend: Backend, values: dict[Node, Value], binding: Binding) -> None:
        """Compile the kernels of the first run on several threads, as far as their tensors can be foreseen. One alone
        is left to the run."""
        if len(self.kernels()) < 2:
            return
        compilations = [compile_ for compile_ in self._foreseen(backend, values, binding) if compile_ is not None]
        if len(compilations) > 1:
            with ThreadPoolExecutor(min(len(compilations), MOST_COMPILING)) as threads:
                for compile_ in compilations:
                    threads.submit(compile_)  # what goes wrong is reported when the kernel is run

    def _foreseen(
        self, backend: Backend, values: dict[Node, Value], binding: Binding
    ) -> Iterator[Callable[[], object] | None]:
        """What compiles each kernel of the first run, and None for those whose code is at hand.

        Tensors without memory stand for those of the run: all that counts is their types, sizes and strides.
        """
        foreseen = {node: _without_memory(value) for node, value in values.items()}
        for step in self.steps:
            if isinstance(step, Kernel):
                if any(sizes.evaluate(size, binding.sizes) == 0 for size in step.cluster.space):
                    return
                tensors = [_tensor(foreseen[read.node]) for read in step.lowered.tensors]
                targets = self.destinations.targets(step, foreseen, binding.sizes, empty_without_memory)
                try:
                    compile_, outputs = backend.compile(step, tensors, binding.sizes, targets, binding.device)
                except CodegenError:  # a kernel that the run will do without
                    return
                yield compile_
                made = [torch.empty(shape, dtype=to_torch(dtype), device="meta") for shape, dtype in outputs]
                made = [targets.get(index, tensor) for index, tensor in enumerate(made)]
                foreseen.update(zip(step.cluster.outputs, made, strict=True))
            elif step in self.destinations:
                continue
            elif step.op.kind is Kind.VIEW or isinstance(step.type, ScalarType):
                foreseen[step] = self._step(step, foreseen, binding, None, False)
            elif isinstance(step.type, TensorType):
                shape = [sizes.evaluate(size, binding.sizes) for size in step.type.shape]
                foreseen[step] = torch.empty(shape, dtype=to_torch(step.type.dtype), device="meta")
            else:
                return

    def _run_kernel(
        self,
        backend: Backend,
        step: Kernel,
        values: dict[Node, Value],
        binding: Binding,
        tally: Tally | None,
        timed: bool,
    ) -> None:
        if any(sizes.evaluate(size, binding.sizes) == 0 for size in step.cluster.space):
            self._interpret(step, values, binding, tally, timed)  # PyTorch knows what is allowed without elements
            return
        tensors = [_tensor(values[read.node]) for read in step.lowered.tensors]
        scalars = [_number(values[node]) for node in step.lowered.scalars]
        start = backend.clock(binding.device) if timed else 0.0
        try:
            later = self._later.get(id(step))
            overwritten = {} if later is None else results_in_place(self.graph, step, later, values, binding.sizes)
            empty = partial(backend.allocate, device=binding.device)
            targets = overwritten | self.destinations.targets(step, values, binding.sizes, empty)
            with kernel_range(step.name):
                results = backend.launch(step, tensors, scalars, binding.sizes, targets, binding.device)
        except CodegenError as error:
            if error.__cause__ is not None:  # a real failure; known limits are not reported
                warn(f"running through PyTorch instead: {error}", UserWarning)
            self._refused.add((binding.device.type, step.program.digest))
            self._interpret(step, values, binding, tally, timed)
            return
        except KernelFault:
            self._interpret(step, values, binding, tally, timed)  # which raises what PyTorch raises
            return
        if overwritten:
            torch.autograd.graph.increment_version(list(overwritten.values()))
        values.update(zip(step.cluster.outputs, results, strict=True))
        if tally is not None:
            moved = bytes_of([*tensors, *results])
            tally.launches += 1
            tally.bytes_moved += moved
            if timed:
                tally.spend(step.name, 1, moved, backend.clock(binding.device) - start)

    def _interpret(
        self, step: Kernel, values: dict[Node, Value], binding: Binding, tally: Tally | None, timed: bool
    ) -> None:
        """Compute a cluster operation by operation."""
        inner = dict(values)
        for node in self._needed(step.cluster):
            inner[node] = self._step(node, inner, binding, tally, timed)
        values.update((node, inner[node]) for node in step.cluster.outputs)

    def _needed(self, cluster: Cluster) -> list[Node]:
        """The operations of a cluster with the views between them, in program order."""
        inside: set[Node] = set(cluster.nodes)
        waiting = list(cluster.nodes)
        while waiting:
            for operand in waiting.pop().operands:
                if operand not in inside and operand not in cluster.inputs and operand.constant is None:
                    inside.add(operand)
                    waiting.append(operand)
        return [node for node in self.graph.nodes if node in inside]


_functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009
"""torch's transforms of functions, which its stubs do not know."""


def is_plain(value: Any) -> bool:
    """Whether a value's memory holds what it stands for, so that a kernel may read it.

    Not so for subclasses that wrap other tensors, for those inside vmap or grad, and for those PyTorch conjugates,
    negates or takes for zero when it reads them.
    """
    if not isinstance(value, torch.Tensor):
        return True
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if value.is_neg() or value.is_conj() or value._is_zerotensor():
        return False
    return not _functorch.is_functorch_wrapped_tensor(value)


def _makes_plain(backend: Backend) -> bool:
    """Whether new tensors are plain: those that come from torch are wrapped inside transforms."""
    return backend.allocates_plain or _functorch.peek_interpreter_stack() is None


def _without_memory(value: Value) -> Value:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _reads(step: Kernel | Node) -> Sequence[Node]:
    return step.cluster.inputs if isinstance(step, Kernel) else step.operands


def _makes(step: Kernel | Node) -> Sequence[Node]:
    return step.cluster.outputs if isinstance(step, Kernel) else (step,)


def _is_free(node: Node) -> bool:
    """Whether evaluating an operation moves no data: it is a view of its one operand, or part of another result."""
    return node.op.kind is Kind.STRUCTURE or (node.op.kind is Kind.VIEW and len(node.operands) == 1)


def _tensor(value: Any) -> torch.Tensor:
    assert isinstance(value, torch.Tensor)
    return value


def _number(value: Any) -> Number:
    assert isinstance(value, bool | int | float)
    return value
