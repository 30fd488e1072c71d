"""All that `ingot.jit` was given in this process: what was compiled, followed or run eagerly, and what stopped it.

In: nothing. Out: a frozen record of texts and numbers, whose own text is a table; it keeps no function alive, and
functions that are gone are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ingot.frontend.jit.api.explaining import calls_of, kinds_of, programs_of
from ingot.frontend.jit.api.function import CompiledFunction, Tier
from ingot.frontend.jit.api.wording import counted, indented, short_place, text_table
from ingot.frontend.jit.settings.switch import EVERYTHING


@dataclass(frozen=True, slots=True)
class Stop:
    """Something that keeps a function, or a part of it, from being compiled."""

    reason: str
    place: str
    """The user's line, as file:line; "" where no line is to blame."""

    def __str__(self) -> str:
        return f"{self.reason} ({short_place(self.place)})" if self.place else self.reason


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """What became of one function."""

    name: str
    tier: Tier
    calls: int
    recordings: int
    kernels: int
    """Different generated kernels."""
    stops: tuple[Stop, ...]


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """What became of all compiled functions that there are, those called most often first."""

    functions: tuple[FunctionSummary, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        tiers = [function.tier for function in self.functions]
        parts = [f"{tiers.count(tier)} {tier}" for tier in ("skipping", "following", "eager") if tier in tiers]
        yield f"{counted(len(tiers), 'function')}{': ' if parts else ''}{', '.join(parts)}"
        if not self.functions:
            return
        yield ""
        rows = [(one.name, one.tier, *map(str, (one.calls, one.recordings, one.kernels))) for one in self.functions]
        yield from text_table(("function", "tier", "calls", "recordings", "kernels"), rows)
        for function in self.functions:
            if function.stops:
                yield ""
                yield f"{function.name}:"
                yield from indented(map(str, function.stops))


def summary() -> ProcessSummary:
    """What became of everything that `ingot.jit` was given in this process, that has been called and still exists."""
    found = [one for one in list(EVERYTHING) if isinstance(one, CompiledFunction) and one.tier != "new"]
    functions = [_summary_of(compiled) for compiled in found]
    return ProcessSummary(tuple(sorted(functions, key=lambda function: (-function.calls, function.name))))


def _summary_of(compiled: CompiledFunction) -> FunctionSummary:
    modules = [module for kind in kinds_of(compiled) for program in programs_of(kind) for module in program.modules]
    names = {kernel.name for module in modules for kernel in module.kernels()}
    return FunctionSummary(
        compiled.name,
        compiled.tier,
        calls_of(compiled),
        compiled.all_recordings,
        len(names),
        tuple(dict.fromkeys(stops_of(compiled))),
    )


def stops_of(compiled: CompiledFunction) -> Iterator[Stop]:
    """What keeps Python from being skipped, what makes pending operations run, and what is left to PyTorch."""
    if compiled.why_eager is not None:
        yield Stop(compiled.why_eager, "")
    if compiled.why_followed is not None and compiled.tier != "skipping":
        yield Stop(f"not skipping: {compiled.why_followed[0]}", compiled.why_followed[1])
    for reason, count in list(compiled.left.items()):
        if reason != compiled.why_eager:
            yield Stop(f"{counted(count, 'call')} not recorded: {reason}", "")
    for flush in compiled.follower.flushes.by_line():
        yield Stop(f"pending operations run, {counted(flush.count, 'time')}, for {flush.cause}", flush.place)
    for kind in kinds_of(compiled):
        for program in programs_of(kind):
            for operation in program.left_to_torch:
                yield Stop(f"left to PyTorch: {operation.target} ({operation.why_called})", operation.event.place)
