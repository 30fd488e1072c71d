"""What became of a function, in words: operations, kernels, what was left to PyTorch and why, bytes, times.

In: the specialisations of a compiled function. Out: a text for people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import torch

from ingot.base.errors import ArgumentError
from ingot.frontend.jit.api.function import CompiledFunction
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.lowering.cuda_graphs import Replayed
from ingot.frontend.jit.lowering.partition import Call
from ingot.frontend.jit.lowering.program import Program
from ingot.frontend.jit.trace.ssa import OperationKind
from ingot.frontend.jit.trace.trace import CPU, Argument, Trace
from ingot.ir.interpreter import clock
from ingot.runtime.compiler import COMPILED_STAGES
from ingot.runtime.kernels import Kernel

STAGES = ("trace", "program", "graph", "optimized_graph", "kernels", *COMPILED_STAGES)
"""What can be seen of a compiled function, in the order of the pipeline."""
_MOST_SHOWN = 12
_PROBE_BYTES = 64 << 20


def explain(compiled: CompiledFunction) -> str:
    """What became of a function so far."""
    kinds = list(compiled.specialisations.values())
    lines = [f"{compiled.name}: {_count(compiled.calls, 'call')}, {_count(compiled.recordings, 'recording')}"]
    if compiled.given_up is not None:
        lines.append(f"  runs eagerly: {compiled.given_up}")
    for reason, count in compiled.left.items():
        lines.append(f"  runs eagerly, {_count(count, 'call')} so far: {reason}")
    if not kinds and not compiled.left:
        lines.append("  not compiled yet: it has not been called, or only where calls go to the original")
    for reason, count in Counter(compiled.recompiles).items():
        lines.append(f"  recorded again{f' {count} times' if count > 1 else ''}: {reason}")
    for number, kind in enumerate(kinds, 1):
        lines.append("")
        lines += [f"  {line}" for line in _explain_kind(number, kind, compiled.calls_of(kind))]
    return "\n".join(lines)


def inspect(compiled: CompiledFunction, stage: str) -> str:
    """The text of a stage for every kind of call that has been compiled; kinds that share it have it once."""
    stage = {"asm": "assembly"}.get(stage, stage)
    if stage not in STAGES:
        raise ArgumentError(f"there is no stage {stage!r}; there are {', '.join(STAGES)}")
    texts = []
    for kind in compiled.specialisations.values():
        if stage == "trace":
            texts += [kind.trace.text] if kind.trace is not None else []
        elif kind.program is not None:
            texts += [kind.program.text] if stage == "program" else [m.inspect(stage) for m in kind.program.modules]
    return "\n\n".join(dict.fromkeys(filter(None, texts)))


def _explain_kind(number: int, kind: Specialisation, calls: int) -> Iterator[str]:
    if kind.trace is None:
        assert kind.broken is not None
        place = f" ({_short(kind.broken.place)})" if kind.broken.place else ""
        yield f"kind {number}, {_count(calls, 'call')} after the recording: runs eagerly"
        yield f"  because {kind.broken.reason}{place}"
        return
    yield f"kind {number}, {_count(calls, 'call')} after the recording: {_arguments(kind.trace)}"
    if kind.program is None:
        yield f"  {_count(len(kind.trace.events), 'operation')} recorded; compiled at the next call like it"
        return
    yield from (f"  {line}" for line in _explain_program(kind, kind.program))


def _explain_program(kind: Specialisation, program: Program) -> Iterator[str]:
    operations = program.steps.versions.operations
    found = [kernel for module in program.modules for kernel in module.kernels()]
    calls = [step.operation for step in program.steps.steps if isinstance(step, Call)]
    left = [op for op in calls if op.kind is OperationKind.CALL and op not in program.generated]
    made = [_count(len(found), "kernel")]
    kinds = Counter("attention" if "attention" in str(op.target) else "product" for op in program.generated)
    made += [f"{_count(count, kind)} by generated code" for kind, count in kinds.items()]
    became = f"{', '.join(made)} and {_count(len(left), 'call')} of PyTorch's"
    yield f"{_count(len(operations), 'operation')} became {became}"
    yield f"recorded in {kind.record_seconds * 1e3:.1f} ms, compiled in {kind.compile_seconds * 1e3:.1f} ms"
    if isinstance(program.function, Replayed):
        yield program.function.text
    yield from _savings(found, program.steps.versions.trace.device)
    for kernel, count in list(Counter(_describe(kernel) for kernel in found).items())[:_MOST_SHOWN]:
        yield f"kernel{f' {count} times' if count > 1 else ''}: {kernel}"
    if len(set(map(_describe, found))) > _MOST_SHOWN:
        yield "more kernels: inspect('kernels') shows all of them"
    groups = Counter((str(operation.target), operation.why_called) for operation in left)
    places = {str(operation.target): operation.event.place for operation in reversed(left)}
    for (target, reason), count in list(groups.most_common())[:_MOST_SHOWN]:
        yield f"left to PyTorch {_count(count, 'time')}: {target} ({reason}), first at {_short(places[target])}"


def _savings(found: Iterable[Kernel], device: torch.device) -> Iterator[str]:
    moved: list[int] = []
    apart: list[int] = []
    for kernel in found:
        size, size_apart = kernel.bytes_moved, kernel.bytes_moved_apart
        if not isinstance(size, int) or not isinstance(size_apart, int):
            return  # open sizes
        moved.append(size)
        apart.append(size_apart)
    if not moved:
        return
    total, before = sum(moved), sum(apart)
    saved = max(0, before - total) / memory_speed(device)
    yield f"kernels move {_bytes(total)}, one operation at a time would move {_bytes(before)}: saves {_time(saved)}"


def _describe(kernel: Kernel) -> str:
    names = Counter(node.op.name for node in kernel.cluster.nodes)
    shown = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in names.items())
    return f"{shown}; ends here: {kernel.cluster.reason}"


@cache
def memory_speed(device: torch.device = CPU) -> float:
    """Bytes a second that copying moves on a device, measured once."""
    source, target = torch.ones(_PROBE_BYTES // 4, device=device), torch.empty(_PROBE_BYTES // 4, device=device)
    best = float("inf")
    for _ in range(4):
        start = clock(device)
        target.copy_(source)
        best = min(best, clock(device) - start)
    return 2 * _PROBE_BYTES / best


def _arguments(trace: Trace) -> str:
    given = [str(note) for note in trace.tensors if isinstance(note.origin, Argument)]
    texts = [f"{text} x{count}" if count > 1 else text for text, count in Counter(given).items()]
    return ", ".join(texts) or "no tensors"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _bytes(number: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} GB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def _short(place: str) -> str:
    """A place with its path relative to the working directory, where it lies inside."""
    path, _, line = place.rpartition(":")
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    except ValueError:
        return place
