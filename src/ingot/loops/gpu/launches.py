"""What a nest for a GPU is launched as: the loops at its top one after another, and then what follows them.

In: a nest and a call. Out: how many blocks of how many threads each launch takes, and how much memory they need for
what they leave to each other. That is one value of an accumulator that is begun outside all loops: for each part of
each row, where rows go in parts, or for each block that adds its rows to a total. They are 8 bytes apart or less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ingot.loops.arguments import WordLayout
from ingot.loops.gpu.schedule import GpuForm, GpuSchedule
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.nest import Begin, Instruction, Loop, Nest

TOTAL_THREADS = 1024
"""Of the one block that combines what all others have left."""
_WIDEST = 8
_ALIGNED = 16


@dataclass(frozen=True, slots=True)
class GpuLaunch:
    """One of a nest's launches."""

    body: tuple[Instruction, ...]
    """One loop; or what is done once, by a single block."""

    @property
    def loop(self) -> Loop | None:
        first = self.body[0]
        return first if isinstance(first, Loop) else None

    def schedule(self, schedule: GpuSchedule) -> GpuSchedule:
        """Who takes part in it."""
        if self.loop is not None:
            return schedule
        return replace(schedule, form=GpuForm.TEAMS, lanes=1, threads=TOTAL_THREADS, team=TOTAL_THREADS, is_split=False)

    def blocks(self, call: GpuCall) -> int:
        if self.loop is None:
            return 1
        return call.grid * call.parts if call.schedule.is_split and self.loop.blocked else call.grid

    def lines(self, call: GpuCall) -> int:
        """How many times as many blocks, counted along a second axis."""
        return call.lines if self.loop is not None else 1


def launches_of(nest: Nest) -> list[GpuLaunch]:
    loops = [GpuLaunch((instruction,)) for instruction in nest.body if isinstance(instruction, Loop)]
    once = tuple(instruction for instruction in nest.body if not isinstance(instruction, Loop | Begin))
    return [*loops, GpuLaunch(once)] if once else loops


def left_by_launches(nest: Nest) -> list[int]:
    """Accumulators whose values launches leave to those after them."""
    return [instruction.accumulator for instruction in nest.body if isinstance(instruction, Begin)]


def gpu_layout(nest: Nest) -> WordLayout:
    return WordLayout.of(nest, has_workspace=bool(left_by_launches(nest)))


def workspace_share(call: GpuCall) -> int:
    """Bytes for each accumulator that launches leave values of."""
    rows = math.prod(call.sizes[: call.schedule.outer])
    values = max(rows * call.parts if call.schedule.is_split else 0, call.grid)
    return -(-values * _WIDEST // _ALIGNED) * _ALIGNED
