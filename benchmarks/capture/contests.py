"""How eager and ingot meet: the same calls made by both, every result compared, then both measured in turn.

In: calls. Out: rows of figures. What always holds: a row says whether everything that was compared was equal; a
difference does not end the run, so that the other rows are still seen, and makes its exit status 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.measuring import Call, Contestant, Effort, Timing, race

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Settings:
    """How large and how thorough."""

    elements: int
    effort: Effort
    compile_functions: bool
    compile_models: bool
    small_models: bool

    @property
    def calls_of_microseconds(self) -> Effort:
        """Effort where one call is too short for the clock."""
        return Effort(self.effort.rounds, 0.005)


@dataclass(frozen=True)
class Row:
    """One case and everyone who computed it."""

    name: str
    seconds: Mapping[str, float]
    """A call, medians over the rounds, by contestant; who failed is missing."""
    difference: str = ""
    """The first difference between ingot's results or effects and eager's, in words; nothing if there is none."""
    tier: str = ""
    """How ingot runs the calls, where it says so."""
    recordings: int | None = None
    """Recordings that were made, or those after the third call: the section says which."""
    torch_calls: int | None = None
    """Torch functions that one call asks for, where they were counted."""
    remarks: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.difference

    def over(self, other: str, contestant: str) -> float | None:
        """How many times as long the other one takes; None if one of them was not measured."""
        if other not in self.seconds or contestant not in self.seconds:
            return None
        return self.seconds[other] / self.seconds[contestant]


@dataclass(frozen=True)
class Job:
    """What measures one row."""

    name: str
    measure: Callable[[], Row]

    def run(self) -> Row:
        """The row; where something raises, a row that says so and counts as different."""
        try:
            return self.measure()
        except Exception as error:
            return Row(self.name, {}, f"raised {error_text(error)}")


def run_jobs(
    sections: Mapping[str, Sequence[Job]], wanted: Sequence[str], console: Console
) -> dict[str, tuple[Row, ...]]:
    """The rows of some sections: all of them, or those with one of the wanted texts in their names."""
    rows: dict[str, tuple[Row, ...]] = {}
    # Drawn between the jobs alone: a thread that draws would take its turn on a core that is being measured.
    with Progress(console=console, transient=True, auto_refresh=False) as progress:
        for name, jobs in sections.items():
            chosen = [job for job in jobs if not wanted or any(text in job.name for text in wanted)]
            rows[name] = tuple(job.run() for job in progress.track(chosen, description=name))
    return rows


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings: what runs eagerly is told by the tables, and packages warn of their own options."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def medians(calls: Mapping[str, Call | Contestant], effort: Effort, calls_each: int = 1) -> dict[str, float]:
    """Seconds by name, everyone in turn; what is given may make several calls at a time.

    The first is taken by its median, the others by the median of how many times as long as the first they took in the
    same round: a machine that slows down for a while slows down both."""
    contestants = {name: call if isinstance(call, Contestant) else Contestant(call) for name, call in calls.items()}
    timings = race(contestants, effort)
    first = next(iter(timings.values()))
    return {name: first.median * _times_as_long(timing, first) / calls_each for name, timing in timings.items()}


def _times_as_long(timing: Timing, first: Timing) -> float:
    return median(one / other for one, other in zip(timing.rounds, first.rounds, strict=True))


def error_text(error: BaseException) -> str:
    """An error in one line that fits below a table."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:120] if lines else ''}"


# --- comparing --------------------------------------------------------------------------------------------------------


def difference(found: Any, wanted: Any, tolerance: float = TOLERANCE, where: str = "result") -> str:
    """The first difference between two results, in words; nothing if they are equal. Floats may differ by roundings."""
    if isinstance(wanted, torch.Tensor):
        return _tensors_differ(found, wanted, tolerance, where)
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping) or list(found) != list(wanted):
            return f"{where}: other keys than {list(wanted)}"
        return _first(difference(found[key], wanted[key], tolerance, f"{where}[{key!r}]") for key in wanted)
    if isinstance(wanted, Sequence) and not isinstance(wanted, str | bytes):
        if not isinstance(found, Sequence) or len(found) != len(wanted):
            return f"{where}: not {len(wanted)} elements"
        pairs = enumerate(zip(found, wanted, strict=True))
        return _first(difference(one, other, tolerance, f"{where}[{at}]") for at, (one, other) in pairs)
    if isinstance(wanted, float):
        is_close = isinstance(found, float) and abs(found - wanted) <= tolerance * max(1.0, abs(wanted))
        return "" if is_close else f"{where}: {found!r} instead of {wanted!r}"
    if type(found) is not type(wanted) or found != wanted:
        return f"{where}: {found!r} instead of {wanted!r}"
    return ""


def _tensors_differ(found: Any, wanted: torch.Tensor, tolerance: float, where: str) -> str:
    if not isinstance(found, torch.Tensor):
        return f"{where}: {type(found).__name__} instead of a tensor"
    if found.requires_grad != wanted.requires_grad:
        return f"{where}: requires_grad is {found.requires_grad}"
    try:
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        return f"{where}: {' '.join(str(error).split())[:160]}"
    return ""


def _first(texts: Iterator[str]) -> str:
    return next(filter(None, texts), "")
