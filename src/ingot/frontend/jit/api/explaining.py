"""What became of a function, in words: its tier and why, operations, kernels, what was left to PyTorch, bytes, times.

In: the specialisations and the follower of a compiled function. Out: a text for people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch

from ingot.base.stages import STAGE_NAMES, require_stage
from ingot.frontend.jit.api.function import CompiledFunction
from ingot.frontend.jit.api.wording import byte_count, counted, duration, indented, short_place
from ingot.frontend.jit.cache.paths import Paths
from ingot.frontend.jit.cache.specialisation import Specialisation
from ingot.frontend.jit.follow.following_summary import with_names
from ingot.frontend.jit.follow.segments import Segment
from ingot.frontend.jit.gradients.gradient_calls import GradientCalls
from ingot.frontend.jit.lowering.branches import BranchingProgram
from ingot.frontend.jit.lowering.checked_weights import CheckedWeights
from ingot.frontend.jit.lowering.cuda_graphs import Replayed
from ingot.frontend.jit.lowering.recorded_program import RecordedProgram
from ingot.frontend.jit.python_code.replaced_methods import REPLACED, replaced_method
from ingot.frontend.jit.trace.trace import Trace, TraceArgument, Training
from ingot.runtime.kernels import Kernel
from ingot.runtime.profiling.kernel_statistics import memory_speed

INSPECTED = ("steps", "segments", *STAGE_NAMES)
"""What can be seen of a compiled function: what following did, and all stages of the pipeline."""
_MOST_SHOWN = 12


def explain(compiled: CompiledFunction) -> str:
    """What became of a function so far."""
    recordings = counted(compiled.all_recordings, "recording")
    if compiled.taken_up:
        recordings += f", {compiled.taken_up} from the cache on disk"
    lines = [f"{compiled.name}: {compiled.tier}, {counted(calls_of(compiled), 'call')}, {recordings}"]
    replaced = replaced_method()
    if replaced is not None:
        lines.append(f"  runs as it is now: {REPLACED.format(replaced)}")
    lines += indented(_why_not_better(compiled))
    for reason, count in Counter(compiled.recompiles).items():
        lines.append(f"  recorded again{f' {count} times' if count > 1 else ''}: {reason}")
    if compiled.follower.calls:
        lines += indented(_explain_following(compiled))
    for number, kind in enumerate(list(compiled.specialisations.values()), 1):
        broken = kind.broken
        if compiled.tier == "following" and broken and (broken.reason, broken.place) == compiled.why_followed:
            continue  # it has been said
        lines.append("")
        is_eager = kind.prefers_eager or kind.needs_gradients or not compiled.is_followed
        lines += indented(_explain_kind(number, kind, compiled.calls_of(kind), is_eager))
    return "\n".join(lines)


def inspect(compiled: CompiledFunction, stage: str) -> str:
    """The text of a stage for everything that has been compiled: kinds of calls, and segments of followed ones.

    A text that several kinds of calls or segments share is given once.
    """
    stage = require_stage(stage, INSPECTED)
    if stage == "steps":
        return compiled.follower.text()
    segments = compiled.follower.summary().segments
    if stage == "segments":
        return "\n\n".join(dict.fromkeys(readable(segment).rstrip() for segment in segments))
    texts = []
    for kind in kinds_of(compiled):
        texts += _texts_of(kind, stage)
    return "\n\n".join(dict.fromkeys(filter(None, texts)))


def kinds_of(compiled: CompiledFunction) -> Iterator[Specialisation]:
    """Every kind of calls that was recorded, of the function and of the segments of calls that were followed."""
    for recorded in (compiled, *(segment.recorded for segment in compiled.follower.summary().segments)):
        yield from list(recorded.specialisations.values())


def programs_of(kind: Specialisation) -> list[RecordedProgram]:
    """What was compiled for a kind of calls: nothing yet, one program, or those of both passes."""
    if kind.gradients is not None:
        recorded = kind.gradients.programs
        return [] if recorded is None else list(recorded.all)
    found = [] if kind.program is None else [kind.program]
    return found + [program for path in paths_of(kind) for program in programs_of(path)]


def paths_of(kind: Specialisation) -> Sequence[Specialisation]:
    """The paths of a kind of calls that have programs of their own, since gradients are needed."""
    return [path for path in kind.paths if path.gradients is not None] if isinstance(kind, Paths) else ()


def _texts_of(kind: Specialisation, stage: str) -> list[str]:
    """The text of a stage for one kind of calls."""
    programs = programs_of(kind)
    if stage == "trace":
        traces = [program.steps.versions.trace for program in programs] if kind.gradients is not None else [kind.trace]
        texts = [trace.text for trace in traces if trace is not None]
        return texts + [text for path in paths_of(kind) for text in _texts_of(path, stage)]
    if stage == "program":
        return [program.text for program in programs]
    return [module.inspect(stage) for program in programs for module in program.modules]


def calls_of(compiled: CompiledFunction) -> int:
    """How often a function was called, in all tiers."""
    if compiled.tier == "following":
        skipped = [compiled.calls_of(kind) for kind in list(compiled.specialisations.values()) if kind.trace]
        before = 0 if compiled.demotion is None else compiled.demotion.calls
        return compiled.recordings + compiled.follower.calls + sum(skipped) + before
    return compiled.calls + sum(compiled.left.values())


def _why_not_better(compiled: CompiledFunction) -> Iterator[str]:
    """Why Python is not skipped, or not even followed."""
    if compiled.tier == "new":
        yield "not called yet, or only where compiled functions call their originals"
    if compiled.tier == "eager":
        yield f"not following: {compiled.why_eager}"
        if compiled.options.tune:
            yield "not tuned: PyTorch computes it"
    why = compiled.why_followed
    is_measured = compiled.tier == "eager" and compiled.why_eager == compiled.follower.verdict.text
    if why is not None and (compiled.tier == "following" or is_measured):
        yield f"not skipping: {why[0]}{f' ({short_place(why[1])})' if why[1] else ''}"
    for reason, count in compiled.left.items():
        if reason == compiled.why_eager:
            continue
        yield f"{counted(count, 'call')} {'followed' if compiled.is_followed else 'ran eagerly'}: {reason}"


# --- followed calls ---------------------------------------------------------------------------------------------------


def _explain_following(compiled: CompiledFunction) -> Iterator[str]:
    """Steps, segments, and the calls that made pending operations run."""
    found = compiled.follower.summary()
    parts = [counted(found.steps, "step"), counted(len(found.segments), "segment")]
    yield f"{counted(compiled.follower.calls, 'call')} followed: {' in '.join(parts)}"
    for flush in sorted(compiled.follower.flushes.by_line(), key=lambda flush: -flush.count)[:_MOST_SHOWN]:
        yield f"pending operations run, {counted(flush.count, 'time')}, for {flush.cause} ({short_place(flush.place)})"
    if found.eager:
        more = " ..." if len(found.eager) > _MOST_SHOWN else ""
        yield f"runs at once, as PyTorch's: {', '.join(found.eager[:_MOST_SHOWN])}{more}"
    repeated = [segment for segment in found.segments if segment.recorded.calls > 1]
    for number, segment in enumerate(repeated[:_MOST_SHOWN], 1):
        yield ""
        yield f"segment {number}, {counted(segment.recorded.calls, 'call')}:"
        yield from indented(readable(segment).splitlines())
        for index, kind in enumerate(list(segment.recorded.specialisations.values()), 1):
            yield from indented(_explain_kind(index, kind, segment.recorded.calls_of(kind), is_eager=True))
    others = len(found.segments) - len(repeated[:_MOST_SHOWN])
    if others:
        yield ""
        once = "that ran once" if len(repeated) <= _MOST_SHOWN else "more"
        yield f"and {counted(others, 'segment')} {once}; inspect('segments') shows all of them"


def readable(segment: Segment) -> str:
    """The text of a segment with the names that users have for functions of torch."""
    return with_names(segment.text, segment.recorded.function.__globals__)


# --- recorded calls ---------------------------------------------------------------------------------------------------


def _explain_kind(number: int, kind: Specialisation, calls: int, is_eager: bool) -> Iterator[str]:
    trace, broken = kind.standing_in, kind.why_broken
    if trace is None:
        assert broken is not None
        place = f" ({short_place(broken.place)})" if broken.place else ""
        how = "runs eagerly" if is_eager else "followed"
        yield f"kind {number}, {counted(calls, 'call')} after the recording: {how}"
        yield f"  because {broken.reason}{place}"
        return
    audited = f", audited {counted(kind.audits.count, 'time')}" if kind.audits and kind.audits.count else ""
    since = "by a recording from the cache on disk" if kind.is_taken_up else "after the recording"
    yield f"kind {number}, {counted(calls, 'call')} {since}{audited}: {_arguments(trace)}"
    if kind.gradients is not None:
        yield from indented(_explain_gradients(kind.gradients))
        return
    if kind.program is None or kind.trace is None:
        yield f"  {counted(len(trace.events), 'operation')} recorded; compiled at the next call like it"
        return
    if trace.training is not None:
        yield from indented(_explain_training(trace, trace.training))
    recorded = "" if kind.is_taken_up else f"recorded in {kind.record_seconds * 1e3:.1f} ms, "
    times = f"{recorded}compiled in {kind.compile_seconds * 1e3:.1f} ms"
    yield from indented(_explain_program(kind.program, times))
    for path in paths_of(kind):
        yield from indented(_explain_path(path))


def _explain_path(path: Specialisation) -> Iterator[str]:
    """A path whose results need gradients."""
    assert path.gradients is not None and path.recorded is not None
    decided = [text for question in path.recorded.questions for text in str(question).partition(": ")[2:]]
    yield f"where {', '.join(decided)}:"
    refused = path.gradients.refused
    yield from indented(_explain_gradients(path.gradients) if refused is None else [f"runs eagerly: {refused}"])


def _explain_training(trace: Trace, training: Training) -> Iterator[str]:
    """What a whole training step does besides computing."""
    left = [trace.note(update.value).nbytes for update in training.updates if update.value is not None]
    kept = f"leaves {counted(len(left), 'gradient')}, {byte_count(sum(left))}" if left else "leaves no gradients"
    read = f", reads {counted(len(training.settings), 'setting')} of optimizers" if training.settings else ""
    yield f"trains within the call: {kept}{read}"


def _explain_gradients(gradients: GradientCalls) -> Iterator[str]:
    """The two programs of calls that need gradients, and what is kept between them."""
    programs = gradients.programs
    if programs is None:
        yield "with gradients; recorded with its backward pass once that comes, and compiled at the next call like it"
        return
    parts = programs.split
    share = ""
    if parts.bytes_eager:
        share = f", {parts.bytes_kept / parts.bytes_eager:.0%} of the {byte_count(parts.bytes_eager)} that eager keeps"
    yield f"keeps {byte_count(parts.bytes_kept)} for the backward pass{share}"
    names = Counter(event.target.overloadpacket.__name__ for event in parts.recomputed)
    if names:
        shown = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in names.items())
        yield f"computed again in the backward pass: {shown}"
    times = f"compiled, both passes, in {gradients.compile_seconds * 1e3:.1f} ms"
    yield "forward:"
    yield from indented(_explain_program(programs.forward, times))
    if programs.backward is not None:
        yield "backward:"
        yield from indented(_explain_program(programs.backward, times))


def _explain_program(program: RecordedProgram, times: str) -> Iterator[str]:
    if isinstance(program, BranchingProgram):
        yield f"{counted(program.paths, 'path')} by the values of tensors, in {counted(len(program.parts), 'piece')}"
    operations = [operation for part in program.parts for operation in part.steps.versions.operations]
    found = [kernel for module in program.modules for kernel in module.kernels()]
    left = program.left_to_torch
    made = [counted(len(found), "kernel")]
    kinds = Counter(_generated_kind(str(operation.target)) for operation in program.generated)
    made += [f"{counted(count, kind)} by generated code" for kind, count in kinds.items()]
    became = f"{', '.join(made)} and {counted(len(left), 'call')} of PyTorch's"
    yield f"{counted(len(operations), 'operation')} became {became}"
    yield times
    remark = program.replay or program.function
    if isinstance(remark, Replayed | CheckedWeights) and remark.text:
        yield remark.text
    yield from _savings(found, program.steps.versions.trace.device)
    described = Counter(map(_describe, found))
    for kernel, count in list(described.items())[:_MOST_SHOWN]:
        yield f"kernel{f' {count} times' if count > 1 else ''}: {kernel}"
    if len(described) > _MOST_SHOWN:
        yield "more kernels: inspect('kernels') shows all of them"
    yield from _explain_tuning(program, found)
    groups = Counter((str(operation.target), operation.why_called) for operation in left)
    places = {str(operation.target): operation.event.place for operation in reversed(left)}
    for (target, reason), count in list(groups.most_common())[:_MOST_SHOWN]:
        yield f"left to PyTorch {counted(count, 'time')}: {target} ({reason}), first at {short_place(places[target])}"


def _explain_tuning(program: RecordedProgram, found: Iterable[Kernel]) -> Iterator[str]:
    """What was chosen for each kernel that is tuned, and what is not tuned."""
    tuned = {kernel.program.digest: kernel for kernel in found if kernel.tuner is not None}
    device = program.steps.versions.trace.device
    if tuned and device.type != "cpu":
        yield f"not tuned: kernels on {device.type} devices run by their default schedules"
        return
    for kernel in list(tuned.values())[:_MOST_SHOWN]:
        assert kernel.tuner is not None
        yield from (f"{kernel.name} {line}" for line in kernel.tuner.told(kernel))
    if tuned and program.generated:
        yield "not tuned: products, attention and optimizer steps by generated code"


def _generated_kind(target: str) -> str:
    """What generated code stands for that is no kernel of a region."""
    return "attention" if "attention" in target else "optimizer step" if "adam_step" in target else "product"


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
    apart_text = f"one operation at a time would move {byte_count(before)}: saves {duration(saved)}"
    yield f"kernels move {byte_count(total)}, {apart_text}"


def _describe(kernel: Kernel) -> str:
    names = Counter(node.op.name for node in kernel.cluster.nodes)
    shown = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in names.items())
    return f"{shown}; ends here: {kernel.cluster.reason} ({kernel.name})"


def _arguments(trace: Trace) -> str:
    given = [str(note) for note in trace.tensors if isinstance(note.origin, TraceArgument)]
    texts = [f"{text} x{count}" if count > 1 else text for text, count in Counter(given).items()]
    return ", ".join(texts) or "no tensors"
