"""The pipeline from a call to machine code: its stages in order, and the names of the passes that rewrite between them.

In: nothing. Out: `STAGES`, what each stage takes and gives and what prints it; `declare_passes`, by which a tuple of
passes makes their names known. `ingot passes` lists all of it, `inspect` and INGOT_DUMP know stages by these names. The
base imports none of the stages: it has types by name, and printers by their path inside ingot.

What always holds: no two stages or passes share a name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ingot.base.errors import ArgumentValueError, ConfigError


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    takes: str
    gives: str
    printer: str
    """What holds or makes the text of the stage, by its path inside ingot."""
    summary: str
    other_name: str | None = None
    """Another name that users may give it."""


STAGES: tuple[Stage, ...] = (
    Stage(
        "trace",
        "call",
        "Trace",
        "frontend.jit.trace.trace.Trace.text",
        "a call of a function, as the operations of PyTorch's that it did",
    ),
    Stage(
        "program",
        "Trace",
        "RecordedProgram",
        "frontend.jit.lowering.recorded_program.RecordedProgram.text",
        "regions that become kernels, and calls of PyTorch's, as a Python function",
    ),
    Stage(
        "graph",
        "RecordedProgram",
        "Graph",
        "ir.graph.Graph.text",
        "the operations of one region, as nodes of the op table",
    ),
    Stage("optimized_graph", "Graph", "Graph", "ir.graph.Graph.text", "the same after all graph passes"),
    Stage("clusters", "Graph", "Cluster", "fusion.clusters.Cluster.text", "operations that one kernel computes"),
    Stage(
        "kernels",
        "Cluster",
        "Program",
        "loops.program.Program.text",
        "what a kernel computes for each element, for every shape",
    ),
    Stage(
        "schedule",
        "Program",
        "Schedule",
        "loops.cpu.schedule.Schedule.text",
        "how the elements of a program are visited, for tensors that lie like those of a call",
    ),
    Stage("nests", "Schedule", "Nest", "loops.nest.Nest.text", "loops, loads, operations and stores", "loops"),
    Stage("llvm", "Nest", "LLVM", "codegen.llvm.host.Compiled.llvm", "what LLVM makes machine code of, optimised"),
    Stage(
        "assembly",
        "LLVM",
        "machine code",
        "codegen.llvm.host.Compiled.assembly",
        "what the processor runs",
        "asm",
    ),
    Stage("ptx", "LLVM", "PTX", "codegen.ptx.kernels.GpuKernel.ptx", "what the driver of a GPU is given"),
    Stage("sass", "PTX", "machine code", "runtime.cuda.disassembly.disassembled", "what the GPU runs"),
)
"""A function that `ingot.jit` compiles goes through all of them, a `FusionDefinition` from the graph on. Kernels for
the CPU end with assembly, those for GPUs go from LLVM to PTX and SASS."""

STAGE_NAMES = tuple(stage.name for stage in STAGES)
_OTHER_NAMES = {stage.other_name: stage.name for stage in STAGES if stage.other_name is not None}


def named_stage(name: str) -> str:
    """The name of a stage as the table has it; any other name as it is."""
    return _OTHER_NAMES.get(name, name)


def require_stage(name: str, known: Iterable[str]) -> str:
    """The name of a stage as the table has it, which must be one of those known."""
    found = named_stage(name)
    if found not in known:
        raise ArgumentValueError(f"there is no stage {name!r}; there are {', '.join(known)}")
    return found


# --- passes -----------------------------------------------------------------------------------------------------------


class NamedPass(Protocol):
    @property
    def name(self) -> str: ...


SomePass = TypeVar("SomePass", bound=NamedPass)
_PASSES: dict[str, NamedPass] = {}


def declare_passes(*passes: SomePass) -> tuple[SomePass, ...]:
    """Passes in the order they run, whose names are known from now on."""
    for pass_ in passes:
        if pass_.name in _PASSES or pass_.name in STAGE_NAMES:
            raise ValueError(f"{pass_.name} is the name of another pass or stage")
        _PASSES[pass_.name] = pass_
    return passes


def pass_names() -> tuple[str, ...]:
    """The names of all passes, of traces and of graphs."""
    return tuple(_PASSES)


def refuse_unknown_passes(names: Collection[str]) -> None:
    """Refuse names that no pass of traces or graphs has: one flag switches off passes of both."""
    unknown = set(names) - set(_PASSES)
    if unknown:
        raise ConfigError(f"there is no pass {', '.join(sorted(unknown))}; there are {', '.join(_PASSES)}")
