"""What a nest for a GPU is launched as: the loops at its top one after another, and then what follows them.

In: a nest and a call. Out: how many blocks of how many threads each launch takes, and how much memory they need for
what they leave to each other. That is one value of an accumulator that is begun outside all loops: for each part of
each row, where rows are split, or for each block that adds its rows to a total. They are 8 bytes apart or less.

Where blocks count themselves, what only puts such values together takes no launch of its own: of the blocks that have
parts of the same rows, or of all that add to a total, the last one to be done does it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

from ingot.loops.gpu.dividing import divided_axes
from ingot.loops.gpu.schedule import GpuSchedule, RowSchedule, ThreadGroups
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.kernel_arguments import WordLayout
from ingot.loops.motion import Motion
from ingot.loops.nest import Accumulate, Begin, Instruction, Loop, Nest

VALUES_AT_ONCE = 4
"""How many of the values that blocks have left a thread loads before it waits."""
_WIDEST = 8
_ALIGNED = 16


S = TypeVar("S", bound=GpuSchedule)


@dataclass(frozen=True, slots=True)
class GpuLaunch:
    """One of a nest's launches."""

    body: tuple[Instruction, ...]
    """One loop; or what is done once, by a single block."""
    last: tuple[Instruction, ...] = ()
    """What follows, by the last block to be done: a loop over rows without one over elements, whose body it does for
    its own rows when it is the last that has a part of them; or what is done once, by the last of all."""

    @property
    def loop(self) -> Loop | None:
        first = self.body[0]
        return first if isinstance(first, Loop) else None

    @property
    def last_loop(self) -> Loop | None:
        first = self.last[0] if self.last else None
        return first if isinstance(first, Loop) else None

    def schedule(self, schedule: S) -> S | ThreadGroups:
        """Who takes part in it."""
        if self.loop is not None:
            return schedule
        assert isinstance(schedule, RowSchedule)
        return _of_one_block(schedule, schedule.total_threads)

    def last_schedule(self, schedule: S) -> S | ThreadGroups:
        """Who takes part in what the last block does."""
        if self.last_loop is not None:
            return schedule
        assert isinstance(schedule, RowSchedule)
        return _of_one_block(schedule, schedule.threads)

    def counters(self, call: GpuCall) -> int:
        """How many counters count blocks: one for each group of blocks that is combined."""
        return 0 if not self.last else 1 if self.last_loop is None else call.grid

    def counted(self, call: GpuCall) -> int:
        """How many blocks each of them counts."""
        return call.grid if self.last_loop is None else call.splits

    def blocks(self, call: GpuCall) -> int:
        return 1 if self.loop is None else call.grid

    def lines(self, call: GpuCall) -> int:
        """How many times as many blocks, counted along a second axis: lines, or parts of rows."""
        if self.loop is None:
            return 1
        return call.splits if call.split_length and self.loop.blocked else call.lines


def _of_one_block(schedule: RowSchedule, threads: int) -> ThreadGroups:
    """One thread group, for what is done once: it puts together what blocks have left of rows."""
    return ThreadGroups(
        outer=schedule.outer,
        inner=schedule.inner,
        motions=(Motion.STRIDED,) * len(schedule.motions),  # there are no neighbours along one axis or another
        vector_width=1,
        threads=threads,
        is_wide=schedule.is_wide,
        index_axes=schedule.index_axes,
        thread_group_size=threads,
        last_block_combines=schedule.last_block_combines,
    )


def launches_of(nest: Nest, schedule: GpuSchedule) -> list[GpuLaunch]:
    loops = [(instruction,) for instruction in nest.body if isinstance(instruction, Loop)]
    once = tuple(instruction for instruction in nest.body if not isinstance(instruction, Loop | Begin))
    last_block_combines = isinstance(schedule, RowSchedule) and schedule.last_block_combines
    found: list[GpuLaunch] = []
    for body in [*loops, once] if once else loops:
        if last_block_combines and found and not found[-1].last and _can_be_last(found[-1], body):
            found[-1] = replace(found[-1], last=body)
        else:
            found.append(GpuLaunch(body))
    return found


def _can_be_last(before: GpuLaunch, body: tuple[Instruction, ...]) -> bool:
    """Whether the last block of a launch can do what follows: it needs no values of other rows, and no elements."""
    (first, *_) = body
    if not isinstance(first, Loop):
        return True
    is_of_same_rows = before.loop is not None and bool(before.loop.blocked) and not first.blocked
    return is_of_same_rows and not any(isinstance(inner, Loop | Accumulate) for inner in first.body)


def left_by_launches(nest: Nest) -> list[int]:
    """Accumulators whose values launches leave to those after them."""
    return [instruction.accumulator for instruction in nest.body if isinstance(instruction, Begin)]


def gpu_layout(nest: Nest, schedule: GpuSchedule) -> WordLayout:
    has_counters = any(each.last for each in launches_of(nest, schedule))
    return WordLayout.of(nest, bool(left_by_launches(nest)), has_counters, divided_axes(nest, schedule))


def workspace_share(call: GpuCall) -> int:
    """Bytes for each accumulator that launches leave values of."""
    rows = math.prod(call.sizes[: call.schedule.outer])
    values = max(rows * call.splits if call.split_length else 0, call.grid)
    return -(-values * _WIDEST // _ALIGNED) * _ALIGNED
