"""What tuning has found: for kernels and sizes, in this process and on disk.

In: the default schedule of a call. Out: a finding, which names the figures to change and the candidates that were
measured. What always holds: a finding is written whenever it changes, so that a process which is ended loses no more
than the candidate that it was measuring; what is on disk is checked figure by figure, and counts as nothing if it is
not what this writes or if it does not fit the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from ingot.loops.cpu.schedule import Schedule
from ingot.loops.cpu.scheduling import CpuCall
from ingot.loops.cpu.tuning import CpuTuning
from ingot.loops.program import Program
from ingot.runtime.disk_cache.process import find_measurement, keep_measurement
from ingot.runtime.threads import thread_count

SUBJECT = "schedule"
_FORMAT = 1
_LEADING_BITS = 3
"""How many bits of a size tell its class: sizes of a class differ by less than a quarter."""


@dataclass(slots=True)
class Finding:
    """What is known about one kernel and calls of some sizes."""

    changes: dict[str, int] = field(default_factory=dict)
    """The figures that are best so far, where they differ from the default's."""
    speedup: float = 1.0
    tried: list[str] = field(default_factory=list)
    """Signatures of the candidates that were measured."""
    steps: int = 0
    """The most candidates that a search which came to its end was allowed."""
    seconds: float = 0.0
    """How long that search was allowed to take."""
    is_exhausted: bool = False
    """Whether there was nothing left to try."""
    is_from_disk: bool = False

    def is_over(self, steps: int, seconds: float) -> bool:
        """Whether a search that may measure so many candidates, for so long, would add nothing."""
        return self.is_exhausted or (self.steps >= steps and self.seconds >= seconds)

    @property
    def is_complete(self) -> bool:
        return self.is_exhausted or self.steps > 0


@dataclass(frozen=True, slots=True)
class FindingKey:
    """What a finding belongs to, besides the machine and versions."""

    program: str
    schedule: str
    """The default's."""
    size_classes: tuple[int, ...]
    threads: int
    figures: str
    """The tuning record that the default follows."""

    @classmethod
    def of(cls, program: Program, call: CpuCall, base: CpuTuning) -> FindingKey:
        return _key(program.digest, call.schedule, call.sizes, thread_count(), base)

    @property
    def plain(self) -> tuple[Any, ...]:
        return (self.program, self.schedule, list(self.size_classes), self.threads, self.figures)


@lru_cache(maxsize=4096)
def _key(program: str, schedule: Schedule, sizes: tuple[int, ...], threads: int, base: CpuTuning) -> FindingKey:
    return FindingKey(program, repr(schedule), tuple(map(size_class, sizes)), threads, repr(base))


def size_class(size: int) -> int:
    """The smallest size of those that share a finding: 1000 is in the class of 896."""
    dropped = max(size.bit_length() - _LEADING_BITS, 0)
    return size >> dropped << dropped


def read(key: FindingKey) -> Finding | None:
    """What an earlier process, or this one, has written."""
    try:
        found = find_measurement(SUBJECT, key.plain)
    except (ValueError, RecursionError):
        return None
    return None if found is None else parsed(found[0])


def write(key: FindingKey, name: str, finding: Finding) -> None:
    """Keep a finding for other processes."""
    plain = {name: value for name, value in asdict(finding).items() if name != "is_from_disk"}
    keep_measurement(SUBJECT, key.plain, f"{SUBJECT} of {name}", {"format": _FORMAT, **plain})


def parsed(found: Any) -> Finding | None:
    """A finding from plain data; None if it is none."""
    if not isinstance(found, Mapping) or found.get("format") != _FORMAT or set(found) != {"format", *_TYPES}:
        return None
    if not all(_is(found[name], type_) for name, type_ in _TYPES.items()):
        return None
    changes, tried = found["changes"], found["tried"]
    if not all(type(figure) is str and type(value) is int for figure, value in changes.items()):
        return None
    if not all(type(signature) is str for signature in tried) or not 0 < found["speedup"] < 1e6:
        return None
    return Finding(**{name: found[name] for name in _TYPES}, is_from_disk=True)


_TYPES: dict[str, type] = {
    "changes": dict,
    "speedup": float,
    "tried": list,
    "steps": int,
    "seconds": float,
    "is_exhausted": bool,
}


def _is(value: Any, type_: type) -> bool:
    return type(value) is type_ or (type_ is float and type(value) is int)
