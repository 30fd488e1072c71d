"""The page of a report: what became of a function, from the picture down to machine code.

In: a compiled function. Out: one HTML text that loads nothing. What is long is folded: loops, LLVM and assembly of a
kernel open when they are asked for, without a script.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from ingot.base.errors import UnsupportedError
from ingot.frontend.jit.api.call_statistics import FunctionStatistics, statistics_of
from ingot.frontend.jit.api.explaining import calls_of, explain, kinds_of, programs_of
from ingot.frontend.jit.api.function import CompiledFunction
from ingot.frontend.jit.api.process_summary import Stop, stops_of
from ingot.frontend.jit.api.report.program_picture import colour_of, picture_of
from ingot.frontend.jit.api.report.style import STYLE
from ingot.frontend.jit.api.wording import byte_count, counted, duration, short_place
from ingot.frontend.jit.lowering.recorded_program import RecordedProgram
from ingot.runtime.compiler import CompiledModule, compiled_stages, kernel_texts
from ingot.runtime.kernels import Kernel

MOST_PROGRAMS = 8
"""Programs that are shown with picture and kernels; a function that is followed may have many."""


def page_of(compiled: CompiledFunction) -> str:
    """The whole page."""
    title = f"ingot: {compiled.name}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>{fragment_of(compiled)}</body></html>\n"
    )


def write_report(compiled: CompiledFunction, path: str | os.PathLike[str]) -> None:
    """Write the page into a file; an existing one is replaced once the new one is whole."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(page_of(compiled), encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UnsupportedError(f"the report cannot be written to {os.fspath(target)!r}: {error}") from error


def fragment_of(compiled: CompiledFunction) -> str:
    """What the page shows, for pages of others such as notebooks."""
    return f'<div class="ingot">{"".join(_sections(compiled))}</div>'


def notebook_cell_of(compiled: CompiledFunction) -> str:
    """The fragment with its style."""
    return f"<style>{STYLE}</style>{fragment_of(compiled)}"


def _sections(compiled: CompiledFunction) -> Iterator[str]:
    statistics = statistics_of(compiled)
    facts = [counted(calls_of(compiled), "call"), counted(compiled.all_recordings, "recording")]
    facts.append(f"{byte_count(statistics.bytes_moved)} moved by {counted(statistics.launches, 'kernel launch', 'es')}")
    badge = f'<span class="tier {escape(compiled.tier)}">{escape(compiled.tier)}</span>'
    yield f"<h1>{escape(compiled.name)} {badge}</h1><p>{escape(', '.join(facts))}</p>"
    stops = list(dict.fromkeys(stops_of(compiled)))
    if stops:
        yield f"<h2>What stopped it</h2><ul>{''.join(map(_stop, stops))}</ul>"
    if statistics.kernels:
        yield f"<h2>Cost</h2>{_costs(statistics)}"
    yield from _programs(compiled)
    yield _folded("everything in words", explain(compiled))


def _stop(stop: Stop) -> str:
    """A reason, with the user's line below it."""
    if not stop.place:
        return f"<li>{escape(stop.reason)}</li>"
    path, _, number = stop.place.rpartition(":")
    line = linecache.getline(path, int(number)).strip() if number.isdigit() else ""
    code = f"<pre>{escape(line)}</pre>" if line else ""
    return f'<li>{escape(stop.reason)} <span class="place">{escape(short_place(stop.place))}</span>{code}</li>'


# --- costs ------------------------------------------------------------------------------------------------------------


def _costs(statistics: FunctionStatistics) -> str:
    """Kernels with their launches; bars of time and bandwidth where they were timed."""
    longest = max((kernel.seconds or 0.0 for kernel in statistics.kernels), default=0.0)
    rows = []
    for kernel in statistics.kernels:
        cells = [f"<td><code>{escape(kernel.name)}</code></td><td>{kernel.launches}</td>"]
        if statistics.is_profiled:
            seconds, share = kernel.seconds or 0.0, statistics.share(kernel) or 0.0
            each = duration(seconds / kernel.launches) if kernel.launches else ""
            cells.append(_bar(seconds / longest if longest else 0.0, f"{duration(seconds)}, {each} each", "time"))
            rate = f"{(kernel.bandwidth or 0.0) / 1e9:.3g} GB/s, {share:.0%}"
            cells.append(_bar(min(1.0, share), rate, "bandwidth"))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    if not statistics.is_profiled:
        note = 'config={"enable_profiling": True} adds times and bandwidth.'
        return f"<table><tr><th>kernel</th><th>launches</th></tr>{''.join(rows)}</table><p>{escape(note)}</p>"
    note = f"The machine copies {statistics.machine_bandwidth / 1e9:.3g} GB/s; bandwidth is compared with that."
    header = "<tr><th>kernel</th><th>launches</th><th>time</th><th>bandwidth</th></tr>"
    return f"<table>{header}{''.join(rows)}</table><p>{escape(note)}</p>"


def _bar(share: float, text: str, kind: str) -> str:
    return (
        f'<td class="bar"><span class="{kind}" style="width:{100 * share:.1f}%"></span><span>{escape(text)}</span></td>'
    )


# --- programs ---------------------------------------------------------------------------------------------------------


def _programs(compiled: CompiledFunction) -> Iterator[str]:
    """Each different program: its picture, its kernels, its text."""
    found: dict[str, RecordedProgram] = {}
    for kind in kinds_of(compiled):
        for program in programs_of(kind):
            for part in program.parts:
                key = part.text + "".join(module.graph.digest for module in part.modules)
                found.setdefault(key, part)
    for number, program in enumerate(list(found.values())[:MOST_PROGRAMS], 1):
        arguments = ", ".join(str(leaf.note) for leaf in program.steps.leaves[:6])
        more = ", ..." if len(program.steps.leaves) > 6 else ""
        yield f"<h2>Program {number} <small>of {escape(arguments or 'no tensors')}{more}</small></h2>"
        yield f'<div class="picture">{picture_of(program)}</div>'
        yield from _kernels(program.modules)
        yield _folded("the program as Python", program.text)
        yield _folded("the trace it was made from", program.steps.versions.trace.text)
    if len(found) > MOST_PROGRAMS:
        yield f"<p>and {counted(len(found) - MOST_PROGRAMS, 'program')} more; inspect() shows all of them.</p>"


def _kernels(modules: Iterable[CompiledModule]) -> Iterator[str]:
    for number, kernel in enumerate(kernel for module in modules for kernel in module.kernels()):
        summary = f"{counted(len(kernel.program.statements), 'operation')}, moves {kernel.bytes_moved} bytes"
        body = [f"<p>It ends here: {escape(kernel.cluster.reason)}.</p>", f"<pre>{escape(kernel.program.text)}</pre>"]
        body += [_folded(stage, text) for stage, text in _stages(kernel)]
        yield (
            f'<details class="kernel"><summary><span class="chip" style="background:{colour_of(number)}"></span>'
            f"<code>{escape(kernel.name)}</code> {escape(summary)}</summary>{''.join(body)}</details>"
        )


def _stages(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """What was compiled of a kernel so far, stage by stage."""
    for stage in compiled_stages():
        text = "\n\n".join(kernel_texts(kernel, stage))
        if text and stage != "schedule":
            yield stage, text


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"
