"""Schedules for small tensors that only large ones get by themselves, and those that no tensor would get."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from unittest.mock import patch

from ingot.loops.cpu import scheduling
from ingot.loops.cpu.schedule import Form
from ingot.loops.cpu.scheduling import CpuCall
from ingot.loops.cpu.tuning import CpuTuning
from ingot.runtime.backends.registry import using
from tests.loops.running import cpu_backend

Choice = scheduling._CpuChoice
SMALL = {
    "flat_block": (64, 128),
    "column_block": (64, 128),
    "split_block": (64, 128),
    "tile": (8, 16, 64),
    "most_partials": (1, 2, 3, 7),
    "long_row": (1, 30, 200),
    "few_rows": (1, 8, 1000),
    "kept_bytes": (0, 100, 192 << 10, 192 << 10),
    "cached_row_bytes": (0, 512 << 10),
    "fewest_column_blocks": (1, 8, 1000),
    "side_by_side": (1, 2, 4, 8),
    "vector_bytes": (None, 16, 32, 128, 256),
}
ODD = dict.fromkeys(("flat_block", "column_block", "split_block", "tile", "block_multiple"), (1, 3, 5, 8, 17))


@dataclass
class Seen:
    """Which forms were chosen, and of what kind."""

    forms: Counter[Form] = field(default_factory=Counter)
    streaming: int = 0
    keeping: int = 0
    partial: int = 0
    """Calls whose rows are accumulated in grains of several."""

    one_pass: int = 0

    def add(self, call: CpuCall) -> None:
        self.one_pass += call.schedule.one_pass
        self.forms[call.schedule.form] += 1
        self.streaming += call.schedule.streaming
        self.keeping += call.schedule.keeps
        self.partial += call.grain > 1


@contextmanager
def small_schedules(seed: int, seen: Seen | None = None) -> Iterator[None]:
    """Blocks, partial results, streaming and threads for tensors of a few elements; half of the seeds choose forms
    freely among those that are legal. One seed gives one kernel the same schedule every time."""
    random = Random(seed)
    tuning = small_tuning(random)
    free = random.random() < 0.5
    chosen = Choice.call

    def call(choice: Choice) -> CpuCall:
        forms = legal_forms(choice) if free else [lambda: chosen(choice)]
        found = Random(f"{seed} {choice.program.digest}").choice(forms)()
        if seen is not None:
            seen.add(found)
        return found

    with scheduled_by(call, tuning):
        yield


@contextmanager
def form_number(number: int, seed: int) -> Iterator[None]:
    """The same for all kernels: one form after another as the number grows."""
    with scheduled_by(lambda choice: _nth(legal_forms(choice), number)(), small_tuning(Random(seed))):
        yield


def _nth(forms: list[Callable[[], CpuCall]], number: int) -> Callable[[], CpuCall]:
    return forms[number % len(forms)]


def small_tuning(random: Random) -> CpuTuning:
    values = {name: random.choice(choices) for name, choices in SMALL.items()}
    if random.random() < 0.4:  # blocks that are not whole vectors; streamed results must be aligned
        values |= {name: random.choice(choices) for name, choices in ODD.items()}
    else:
        values["streaming_bytes"] = random.choice((0, 1 << 30))
    return CpuTuning(parallel_elements=1, **values)


@contextmanager
def scheduled_by(call: Callable[[Choice], CpuCall], tuning: CpuTuning) -> Iterator[None]:
    with using(replace(cpu_backend(), tuning=tuning)), patch.object(Choice, "call", call):
        yield


def legal_forms(choice: Choice) -> list[Callable[[], CpuCall]]:
    """All ways to schedule a call, sensible or not. Each may be used once, as it may rearrange the loops."""
    if choice.program.has_rows:
        length = math.prod(loop.size for loop in choice.inner)
        forms = [lambda: choice._rows(length), choice._split]
        if choice.outer and not any(statement.is_row_gather for statement in choice.program.statements):
            forms.append(choice._columns)
        return forms + short_form(choice)
    forms = [choice._flat, *short_form(choice)]
    for number, loop in enumerate(choice.outer):
        transposed = [buffer for buffer in choice.inputs if loop.strides[buffer] == choice.widths[buffer]]
        if transposed:
            forms.append(lambda number=number, transposed=transposed: choice._tiled(number, transposed))
    return forms


def short_form(choice: Choice) -> list[Callable[[], CpuCall]]:
    """Unrolled rows, where they are not too long for a test."""
    return [choice._short] if choice.may_be_short and choice.inner[-1].size <= 9 else []
