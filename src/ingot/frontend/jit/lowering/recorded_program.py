"""From steps to a Python function that takes them: the text of it can be read, and it is what runs.

In: steps, and a compiler for their regions. Out: a function of three sequences, the tensors that were passed, those of
the environment, and numbers that stay open, that gives the list of results. Tensors that nothing needs any more are
dropped at once, so that their memory serves the next.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.dumping import dump_stage
from ingot.base.sizes import Size, SizeExpression
from ingot.base.working_directory import digest_of
from ingot.frontend.jit.lowering.checked_weights import CheckedWeights, PackedWeights
from ingot.frontend.jit.lowering.cuda_graphs import Replayed
from ingot.frontend.jit.lowering.faults import reporting_faults
from ingot.frontend.jit.lowering.library_calls import DIRECT, FEWEST_BYTES, INTO_MEMORY, empty, has_proven_sizes
from ingot.frontend.jit.lowering.partition import EagerCall, Partition, Region, partition
from ingot.frontend.jit.lowering.raising_regions import RaisingRegion
from ingot.frontend.jit.lowering.regions import RegionGraph, build_region
from ingot.frontend.jit.lowering.value_errors import may_raise
from ingot.frontend.jit.rewrites.attention_strategy import attention, quicker_attention
from ingot.frontend.jit.rewrites.product_strategies import GENERATED, quicker_product
from ingot.frontend.jit.rewrites.trace_passes import rewrite_on_checked_weights, rewrite_trace
from ingot.frontend.jit.rewrites.weight_packing import has_weights_to_pack
from ingot.frontend.jit.trace.ssa import Operation, OperationKind, Version, to_ssa
from ingot.frontend.jit.trace.trace import (
    GradientOf,
    Made,
    Trace,
    TraceArgument,
    TraceValue,
    Variable,
    stride_order,
)
from ingot.runtime.backends.registry import backend_for
from ingot.runtime.compiler import CompiledModule, JitCompiler
from ingot.runtime.native.abi.prototypes import DTYPES
from ingot.runtime.optimizers.steps import adam_step

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_AUTOCAST |= torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def uncast() -> Any:
    """A block in which autocast casts nothing: its casts are part of the recording, and within an operation it cast
    nothing. Unlike autocast with enabled=False it leaves weights that were cast for eager calls."""
    return torch._C._ExcludeDispatchKeyGuard(_AUTOCAST)


class ShapeMismatch(Exception):
    """A result has other sizes than the generalised trace says."""


@dataclass(slots=True)
class RecordedProgram:
    """A function for later calls, and what it is made of."""

    text: str
    function: Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
    steps: Partition
    modules: list[CompiledModule]
    """The regions' compiled graphs, in order."""
    conditions: tuple[tuple[Size, Size], ...] = ()
    """Sizes that stay open and must be equal."""
    has_guesses: bool = False
    """Whether it checks sizes of results, and raises ShapeMismatch where they are not as foretold."""
    generated: tuple[Operation, ...] = ()
    """The calls that are generated code: products and attention."""
    is_whole_step: bool = False
    """Whether it sets gradients and reads settings of optimizers besides computing."""
    called: frozenset[int] = frozenset()
    """Events of the rewritten trace that are calls of PyTorch's because regions would leave them to PyTorch."""
    replay: Replayed | None = None
    """What replays it as CUDA graphs, if anything does."""

    def replayed(self) -> RecordedProgram:
        """The same program, replayed as CUDA graphs."""
        made = Replayed(self.function, self.steps)
        return dataclasses.replace(self, function=made, replay=made)

    @property
    def has_effects(self) -> bool:
        """Whether running it twice has another effect than running it once."""
        return self.steps.has_effects

    @property
    def mutates_leaves(self) -> bool:
        """Whether it writes into memory that existed before the call."""
        return self.steps.versions.mutates_leaves

    @property
    def parts(self) -> Sequence[RecordedProgram]:
        """The programs that it is made of: itself, where it decides nothing."""
        return [self]

    @property
    def left_to_torch(self) -> list[Operation]:
        """The operations that it calls PyTorch for, since no code is generated for them."""
        calls = [step.operation for part in self.parts for step in part.steps.steps if isinstance(step, EagerCall)]
        return [call for call in calls if call.kind is OperationKind.CALL and call not in self.generated]

    @property
    def is_single_region(self) -> bool:
        """Whether it is one region and nothing else."""
        return not self.is_whole_step and len(self.steps.steps) == 1 and len(self.modules) == 1


_COPIED = {"cat", "full"}
"""Operations that are nothing but copies, which records of the CPU make without PyTorch."""
_MOST_COPIED_BYTES = 1 << 16
"""The most bytes that a record copies; PyTorch copies more at least as quickly."""


def _is_small(version: Version) -> bool:
    note = version.note
    return note.device.type == "cpu" and note.dtype in DTYPES and note.nbytes <= _MOST_COPIED_BYTES


class _Copies(Exception):
    """Regions would have PyTorch copy tensors, which is quicker without a region."""

    def __init__(self, events: frozenset[int]):
        super().__init__()
        self.events = events


@reporting_faults
def compile_trace(
    trace: Trace,
    compiler: JitCompiler,
    is_frozen: bool = False,
    is_replayed: bool = False,
    is_private: bool = False,
    called: frozenset[int] = frozenset(),
) -> RecordedProgram:
    """The program that does what a trace did, or does as long as weights keep their values, if it is frozen.

    `is_private` says that tensors which are written share no memory with others, in any call. Copies that a region
    would leave to PyTorch become calls; `called` are those that are known to, by their event in the rewritten trace. A
    program that is replayed becomes CUDA graphs, if it runs on a GPU.
    """
    folder = lambda: f"programs/{digest_of(trace.text)}"
    dump_stage("trace", lambda: trace.text, folder)
    rewritten = rewrite_trace(trace, is_frozen, compiler.config["disabled_passes"], compiler.config["numerics"])
    made = _program_of(rewritten, compiler, is_private, called)
    dump_stage("program", lambda: made.text, folder)
    return made.replayed() if is_replayed and _can_be_captured(trace.device) else made


def _program_of(rewritten: Trace, compiler: JitCompiler, is_private: bool, called: frozenset[int]) -> RecordedProgram:
    while True:
        try:
            versions = to_ssa(rewritten, compiler.config["numerics"], called)
            made = write_program(partition(versions), compiler, is_private)
            made.called = called
            return made
        except _Copies as copies:
            called |= copies.events


def with_checked_weights(
    plain: RecordedProgram, trace: Trace, compiler: JitCompiler, is_private: bool
) -> RecordedProgram:
    """The program of a trace, or one that packs weights after some calls, and compares them from then on."""
    can_pack = has_weights_to_pack(trace) and trace.device.type == "cpu"
    can_pack = can_pack and trace.training is None and not trace.symbols
    if not can_pack or plain.has_effects or compiler.config["enable_profiling"]:
        return plain

    @reporting_faults
    def pack() -> PackedWeights | None:
        numerics, disabled = compiler.config["numerics"], compiler.config["disabled_passes"]
        found = rewrite_on_checked_weights(trace, disabled, numerics)
        if not found.taken:
            return None
        made = _program_of(found.trace, compiler, is_private, frozenset())
        return PackedWeights(made.function, [trace.environment_tensors[position] for position in sorted(found.taken)])

    return dataclasses.replace(plain, function=CheckedWeights(plain.function, pack, trace.environment_tensors))


def _can_be_captured(device: torch.device) -> bool:
    backend = backend_for(device)
    return backend is not None and backend.captures


def write_program(steps: Partition, compiler: JitCompiler, is_private: bool = False) -> RecordedProgram:
    """The program of these steps; `is_private` says that tensors which are written share no memory with others."""
    writer = _ProgramWriter(steps, compiler, is_private)
    for position, step in enumerate(steps.steps):
        if isinstance(step, Region):
            writer.region(step)
        else:
            writer.call(step.operation)
        writer.drop(position)
    if writer.copies:
        raise _Copies(frozenset(writer.copies))
    return writer.finish()


@dataclass(slots=True)
class _ProgramWriter:
    steps: Partition
    compiler: JitCompiler
    is_private: bool = False
    lines: list[str] = field(default_factory=list)
    namespace: dict[str, Any] = field(default_factory=dict)
    modules: list[CompiledModule] = field(default_factory=list)
    conditions: list[tuple[Size, Size]] = field(default_factory=list)
    has_guesses: bool = False
    generated: list[Operation] = field(default_factory=list)
    last_uses: dict[str, int] = field(default_factory=dict)
    copies: set[int] = field(default_factory=set)
    """Events that regions would leave to PyTorch: with calls of these another program is written."""

    def __post_init__(self) -> None:
        for position, step in enumerate(self.steps.steps):
            for version in _mentioned(step):
                self.last_uses[self.name(version)] = position
        for version in self.steps.versions.results:
            self.last_uses[self.name(version)] = len(self.steps.steps)

    def name(self, version: Version) -> str:
        return self.steps.homes.get(version, version).name

    def region(self, region: Region) -> None:
        built: RegionGraph = build_region(region, self.steps.versions.numerics)
        self.conditions += built.conditions
        module = self.compiler.compile(built.graph, self.is_private)
        self._refuse_copies(region, module)
        called = module
        if self.steps.has_effects and any(map(may_raise, region.operations)):
            called = RaisingRegion(module, region, built)
        function = self._bind(f"region{len(self.modules)}", called)
        self.modules.append(module)
        inputs = ", ".join([*map(self.name, region.inputs), *map(self._value, built.numbers)])
        outputs = [self.name(version) for version in region.outputs]
        target = f"[{', '.join(outputs)}] = " if outputs else ""
        place = "" if region.names_device else f", {self._value(region.device)}"
        self.lines.append(f"{target}{function}.execute([{inputs}]{place})")
        for version, layout in zip(region.outputs, built.layouts, strict=True):
            if layout is not None:  # `data` is no view: neither is what PyTorch computes
                self.lines.append(f"{self.name(version)} = {self.name(version)}.permute({layout}).data")

    def _refuse_copies(self, region: Region, module: CompiledModule) -> None:
        """Make calls of PyTorch's of what a region would leave to PyTorch: joining, and copying existing tensors. A
        region on the CPU copies small tensors itself, within its record, where a separate call would cost more."""
        results = (*region.outputs, *region.writes)
        copies = {results[index].producer for index in module.copied_outputs() if not _is_small(results[index])}
        joins = {operation for operation in region.operations if operation.is_join}
        are_small = all(_is_small(version) for operation in joins for version in operation.products)
        left = {node.op.name for node in module.through_torch()}
        if left and not (are_small and left <= _COPIED):
            copies |= joins
        self.copies |= {operation.index for operation in copies if operation is not None}

    def call(self, operation: Operation) -> None:
        called, quicker = operation.event.target, quicker_product(operation)
        memory = self._memory(operation, is_needed=quicker is not None)
        way = (quicker if memory else None) or quicker_attention(operation, self.steps.versions.results)
        name = str(called).replace(".", "_") if way is None else way.__name__
        way = way or DIRECT.get(called, called._op)
        if way in GENERATED or way is attention or way is adam_step:
            self.generated.append(operation)
        if operation.kind is OperationKind.CALL:  # views cost nothing
            way = self.compiler.timed(way, name, self.steps.versions.trace.device)
        function = self._bind(name, way)
        schema = operation.event.target._schema
        given = [self._value(value) for value in operation.arguments]
        keywords = {argument.name for argument in schema.arguments}
        given += [f"{name}={self._value(value)}" for name, value in operation.keywords.items() if name in keywords]
        given += memory
        target = self._target(operation)
        self.lines.append(f"{target}{function}({', '.join(given)})")
        self._check_sizes(operation)

    def _check_sizes(self, operation: Operation) -> None:
        """Check that results of a call have the sizes that a generalised trace foretells."""
        if not self.steps.versions.trace.symbols or operation.kind is not OperationKind.CALL:
            return
        if operation.products and not has_proven_sizes(operation):
            self.has_guesses = True
            for version in operation.products:
                raising = f"raise {self._bind('ShapeMismatch', ShapeMismatch)}"
                self.lines.append(f"if {self.name(version)}.shape != {self._value(version.note.sizes)}: {raising}")

    def _memory(self, operation: Operation, is_needed: bool) -> list[str]:
        """`out=` with memory that was used before, for operations that can write there, where it pays."""
        result = operation.results
        if operation.event.target not in INTO_MEMORY or not isinstance(result, Version):
            return []
        note = result.note
        if note.device.type != "cpu":  # PyTorch recycles memory of GPUs itself
            return []
        is_large = is_needed or note.nbytes >= FEWEST_BYTES
        if not is_large or stride_order(note) is not None or not has_proven_sizes(operation):
            return []
        dtype = self._bind(str(note.dtype).replace(".", "_"), note.dtype)
        return [f"out={self._bind('empty', empty)}({self._value(note.sizes)}, {dtype})"]

    def drop(self, position: int) -> None:
        """Forget tensors after the last step that needs them."""
        own = {leaf.name for leaf in self.steps.leaves}
        dead = sorted(name for name, last in self.last_uses.items() if last == position and name not in own)
        if dead:
            self.lines.append(f"del {', '.join(dead)}")

    def finish(self) -> RecordedProgram:
        results = [self._result(value) for value in self.steps.versions.trace.results]
        body = [*self._unpack(), *self.lines, f"return [{', '.join(results)}]"]
        if self.steps.versions.trace.casts and any(isinstance(step, EagerCall) for step in self.steps.steps):
            body = [f"with {self._bind('uncast', uncast)}():", *(f"    {line}" for line in body)]
        text = (
            "\n".join(["def program(arguments, environment_tensors, numbers):", *(f"    {line}" for line in body)])
            + "\n"
        )
        exec(compile(text, "<ingot program>", "exec"), self.namespace)  # the text was written above, not by the user
        function = self.namespace["program"]
        conditions, generated = tuple(self.conditions), tuple(self.generated)
        return RecordedProgram(text, function, self.steps, self.modules, conditions, self.has_guesses, generated)

    # --- pieces of text -----------------------------------------------------------------------------------------------

    def _unpack(self) -> list[str]:
        lines = []
        for leaf in self.steps.leaves:
            origin = leaf.note.origin
            assert not isinstance(origin, Made)
            source = "arguments" if isinstance(origin, TraceArgument) else "environment_tensors"
            gradient = ".grad" if isinstance(origin, GradientOf) else ""
            lines.append(f"{leaf.name} = {source}[{origin.position}]{gradient}")
        for name, (position, axis) in self.steps.versions.trace.symbols.items():
            if any(re.search(rf"\b{name}\b", line) for line in self.lines):
                lines.append(f"{name} = arguments[{position}].shape[{axis}]")
        return lines

    def _target(self, operation: Operation) -> str:
        """What a call's results are assigned to; results that are arguments have their name already."""
        results = operation.results
        if isinstance(results, list | tuple):
            return f"{self._new_names(operation, results)} = " if results else ""
        if isinstance(results, Version) and results in operation.products:
            return f"{self.name(results)} = "
        return ""

    def _new_names(self, operation: Operation, results: Sequence[Any]) -> str:
        """What a list of results is assigned to, with lists in it where there are some."""
        names = []
        for position, result in enumerate(results):
            if isinstance(result, list | tuple) and result:
                names.append(self._new_names(operation, result))
            elif isinstance(result, Version) and result in operation.products:
                names.append(self.name(result))
            else:
                names.append(f"unused{position}")
        return f"[{', '.join(names)}]"

    def _value(self, value: Any) -> str:
        if isinstance(value, Version):
            return self.name(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, tuple):
            inner = ", ".join(map(self._value, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        if isinstance(value, SizeExpression | Variable):
            self.namespace["floordiv"] = operator.floordiv  # as sizes are written
            return str(value)
        if isinstance(value, torch.dtype):
            return self._bind(str(value).replace(".", "_"), value)
        if isinstance(value, torch.device):
            return self._bind(str(value).replace(":", ""), value)
        return self._bind("constant", value)

    def _result(self, value: Any) -> str:
        if isinstance(value, TraceValue):
            return self.name(self.steps.versions.current[value])
        return self._bind("constant", value)

    def _bind(self, name: str, value: Any) -> str:
        """A name for an object in the program's text; another one if the name is taken by another object."""
        number, candidate = 0, name
        while candidate in self.namespace and self.namespace[candidate] is not value:
            number += 1
            candidate = f"{name}_{number}"
        self.namespace[candidate] = value
        return candidate


def _mentioned(step: Region | EagerCall) -> list[Version]:
    if isinstance(step, Region):
        return [*step.inputs, *step.outputs, *step.writes]
    return [*step.operation.operands, *step.operation.products]
