"""Schedules for small tensors that only large ones get by themselves, and those that no tensor would get."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

from ingot.loops import scheduling
from ingot.loops.schedule import Form
from ingot.loops.scheduling import Call
from ingot.runtime import kernels

Choice = scheduling._Choice
SMALL = {
    "FLAT_BLOCK": (64, 128),
    "COLUMN_BLOCK": (64, 128),
    "SPLIT_BLOCK": (64, 128),
    "TILE": (8, 16, 64),
    "MOST_PARTIALS": (1, 2, 3, 7),
    "LONG_ROW": (1, 30, 200),
    "FEW_ROWS": (1, 8, 1000),
    "KEPT_BYTES": (0, 100, 192 << 10, 192 << 10),
    "CACHED_ROW_BYTES": (0, 512 << 10),
}
ODD = dict.fromkeys(("FLAT_BLOCK", "COLUMN_BLOCK", "SPLIT_BLOCK", "TILE", "ALIGNED"), (1, 3, 5, 8, 17))


@dataclass
class Seen:
    """Which forms were chosen, and of what kind."""

    forms: Counter[Form] = field(default_factory=Counter)
    streaming: int = 0
    keeping: int = 0
    partial: int = 0
    """Calls whose rows are gathered in grains of several."""

    one_pass: int = 0

    def add(self, call: Call) -> None:
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
    values = small_values(random)
    free = random.random() < 0.5
    chosen = Choice.call

    def call(choice: Choice) -> Call:
        forms = legal_forms(choice) if free else [lambda: chosen(choice)]
        found = Random(f"{seed} {choice.program.digest}").choice(forms)()
        if seen is not None:
            seen.add(found)
        return found

    with scheduled_by(call, values):
        yield


@contextmanager
def form_number(number: int, seed: int) -> Iterator[None]:
    """The same for all kernels: one form after another as the number grows."""
    with scheduled_by(lambda choice: _nth(legal_forms(choice), number)(), small_values(Random(seed))):
        yield


def _nth(forms: list[Callable[[], Call]], number: int) -> Callable[[], Call]:
    return forms[number % len(forms)]


def small_values(random: Random) -> dict[str, int]:
    values = {name: random.choice(choices) for name, choices in SMALL.items()}
    if random.random() < 0.4:  # blocks that are not whole vectors; streamed results must be aligned
        return values | {name: random.choice(choices) for name, choices in ODD.items()}
    return {**values, "STREAMING_BYTES": random.choice((0, 1 << 30))}


@contextmanager
def scheduled_by(call: Callable[[Choice], Call], values: dict[str, int]) -> Iterator[None]:
    parallel, chosen = patch.object(kernels, "PARALLEL_ELEMENTS", 1), patch.object(Choice, "call", call)
    with patch.dict(vars(scheduling), values), parallel, chosen:
        yield


def legal_forms(choice: Choice) -> list[Callable[[], Call]]:
    """All ways to schedule a call, sensible or not. Each may be used once, as it may rearrange the loops."""
    if choice.program.has_rows:
        length = math.prod(loop.size for loop in choice.inner)
        forms = [lambda: choice._rows(length), choice._split]
        if choice.outer and not any(statement.is_pick for statement in choice.program.statements):
            forms.append(choice._columns)
        return forms
    forms = [choice._flat]
    for number, loop in enumerate(choice.outer):
        turned = [buffer for buffer in choice.inputs if loop.strides[buffer] == choice.widths[buffer]]
        if turned:
            forms.append(lambda number=number, turned=turned: choice._tiled(number, turned))
    return forms
