"""The search space: every figure of the tuning record that may differ for a kernel, with the values it may have.

In: a kernel, the tensors of a call or what stands for them, and a tuning record. Out: candidates, each of which is the
record with other values, and what that makes of the call. What always holds: a candidate gives the results of the
default, bit for bit: it visits other elements together, or at another time, but adds them up in the same order.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import torch

from ingot.codegen.cpu.lanes import lanes_in
from ingot.fusion.groups import Level
from ingot.loops.cpu.nesting import build_nest
from ingot.loops.cpu.schedule import Form
from ingot.loops.cpu.scheduling import CpuCall
from ingot.loops.cpu.tuning import CpuTuning
from ingot.loops.program import Program
from ingot.runtime.cpu.kernels import scheduled
from ingot.runtime.kernels import Kernel
from ingot.runtime.threads import thread_count

Changes = Mapping[str, int]
"""Figures that differ from those of a tuning record, by name."""
NEVER = 1 << 62
"""A threshold that nothing reaches."""
MOST_SCRATCH_BYTES = 512 << 10
"""Memory for kept rows and transposed tiles lies on the stacks of threads."""
_DEFAULT_CACHE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Knob:
    """One figure of the tuning record that a search may change."""

    figure: str
    values: tuple[int, ...]
    forms: frozenset[Form]
    """The forms of schedule that it decides something about."""
    text: Callable[[int], str]
    """What a value means, in words."""


def _size(what: str) -> Callable[[int], str]:
    return lambda value: f"{what} of {value}"


def _switch(always: str, never: str) -> Callable[[int], str]:
    return lambda value: never if value == NEVER else always


@lru_cache(maxsize=1)
def last_cache_bytes() -> int:
    """The size of the cache that all processors share, as far as the system tells."""
    try:
        found = os.sysconf("SC_LEVEL3_CACHE_SIZE") or os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (OSError, ValueError):
        return _DEFAULT_CACHE_BYTES
    return found if found > 0 else _DEFAULT_CACHE_BYTES


@lru_cache(maxsize=1)
def knobs() -> tuple[Knob, ...]:
    """All of them. Results that fit the last cache are never streamed: what reads them next would find them gone, which
    no measurement of one kernel tells."""
    every, elements = frozenset(Form), frozenset({Form.FLAT, Form.TILED})
    flat, rows, columns = (frozenset({form}) for form in (Form.FLAT, Form.ROWS, Form.COLUMNS))
    streaming = (last_cache_bytes() // 2, NEVER)
    return (
        Knob("vector_bytes", (16, 32, 64, 128, 256), every - {Form.SHORT}, lambda value: f"vectors of {value} bytes"),
        Knob("flat_block", (1024, 2048, 4096, 8192, 32768, 65536), flat, _size("blocks")),
        Knob("parallel_elements", (1, NEVER), every, _switch("all threads", "one thread")),
        Knob("column_block", (64, 128, 256, 512, 2048, 4096), columns, _size("blocks")),
        Knob("fewest_column_blocks", (1, 2, 4, 16, 32), columns, lambda value: f"at least {value} blocks"),
        Knob("side_by_side", (1, 2, 8, 16), columns, lambda value: f"{value} rows at once"),
        Knob(
            "tile", (32, 64, 256, NEVER), elements, lambda value: f"tiles of {value}" if value < NEVER else "no tiles"
        ),
        Knob("streaming_bytes", streaming, every - columns, _switch("streaming stores", "plain stores")),
        Knob("kept_bytes", (1, MOST_SCRATCH_BYTES), rows, _kept),
        Knob("prefetched_bytes", (1, NEVER), rows, _switch("rows prefetched", "no rows prefetched")),
    )


def _kept(value: int) -> str:
    return "rows computed again" if value == 1 else "rows kept"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tuning record, and what it makes of one call."""

    changes: Changes
    tuning: CpuTuning
    call: CpuCall
    is_parallel: bool
    lanes: tuple[int, ...]
    """Of all vector loops."""

    @property
    def signature(self) -> str:
        """Equal for candidates that come to the same loops, in every process."""
        schedule = replace(self.call.schedule, vector_bytes=None)
        what = (schedule, self.lanes, self.call.blocks, self.call.grain, self.is_parallel)
        return blake2b(repr(what).encode(), digest_size=8).hexdigest()


class SearchSpace:
    """The candidates for one call of a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        tensors: Sequence[torch.Tensor],
        bound: Mapping[str, int],
        targets: Mapping[int, torch.Tensor],
        base: CpuTuning,
    ):
        self.kernel, self.tensors, self.bound, self.targets, self.base = kernel, tensors, bound, targets, base
        self.default = self._made({})

    def around(self, changes: Changes) -> Iterator[Candidate]:
        """Candidates that differ in one more figure, or in another value of one; those that change nothing are left
        out, and so are all but one of those that come to the same."""
        seen = {self._made(changes).signature}
        for knob in knobs():
            if self.default.call.schedule.form not in knob.forms:
                continue
            for value in (None, *knob.values):
                others = {figure: kept for figure, kept in changes.items() if figure != knob.figure}
                found = self.candidate(others if value is None else {**others, knob.figure: value})
                if found is not None and found.signature not in seen:
                    seen.add(found.signature)
                    yield found

    def candidate(self, changes: Changes) -> Candidate | None:
        """The candidate with these figures; None if it is none of this space."""
        allowed = {knob.figure: knob.values for knob in knobs() if self.default.call.schedule.form in knob.forms}
        if not all(figure in allowed and value in allowed[figure] for figure, value in changes.items()):
            return None
        made = self._made(changes)
        return made if self._is_legal(made) else None

    def _made(self, changes: Changes) -> Candidate:
        figures: dict[str, Any] = dict(changes)
        tuning = replace(self.base, **figures)
        call, _ = scheduled(self.kernel, self.tensors, self.bound, self.targets, tuning)
        nest = build_nest(self.kernel.program, call.schedule)
        is_parallel = call.elements >= tuning.parallel_elements and thread_count() > 1
        return Candidate(dict(changes), tuning, call, is_parallel, lanes_in(nest, call.schedule.vector_bytes))

    def _is_legal(self, candidate: Candidate) -> bool:
        """Whether everything is added up in the order of the default schedule, in memory that threads have."""
        ours, default = candidate.call, self.default.call
        program = self.kernel.program
        if any(statement.is_reduction for statement in program.statements):
            if (ours.schedule.form, ours.schedule.one_pass) != (default.schedule.form, default.schedule.one_pass):
                return False
            is_divided = ours.schedule.form is Form.SPLIT or has_totals(program)
            if is_divided and (ours.blocks, ours.grain) != (default.blocks, default.grain):
                return False
        return self._scratch_bytes(candidate) <= MOST_SCRATCH_BYTES

    def _scratch_bytes(self, candidate: Candidate) -> int:
        """What the tiles of a candidate take of a thread's stack; kept rows are bounded by their own figure."""
        schedule = candidate.call.schedule
        widths = [self.kernel.program.buffers[buffer].bytes for buffer in schedule.transposed]
        return sum(widths) * math.prod(candidate.call.blocks[-2:]) if widths else 0


def has_totals(program: Program) -> bool:
    """Whether a program adds up what each row gives."""
    return any(one.is_reduction and one.level is Level.TOTAL for one in program.statements)


def in_words(changes: Changes) -> str:
    """What was chosen, in words."""
    texts = {knob.figure: knob.text for knob in knobs()}
    return ", ".join(texts[figure](value) for figure, value in changes.items())
