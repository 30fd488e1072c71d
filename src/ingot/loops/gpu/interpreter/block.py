"""A block of threads, for the interpreter: what its threads hold in registers, and what they give to each other.

Arrays have a line per thread and a column per element that a thread takes together. Memory of a block tells, instead of
a value, what is wrong with an access to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy

from ingot.loops.elements import Element
from ingot.loops.gpu.schedule import Columns, GpuSchedule, RowSchedule, ThreadGroups, Tiles
from ingot.loops.nest import Register


@dataclass
class ThreadScope:
    """What the threads of a block know at a place inside the loops."""

    positions: dict[int, Any] = field(default_factory=dict)
    inside: Any = True
    """Which threads have elements here; the others are at places that they may read."""
    registers: dict[Register, Element] = field(default_factory=dict)
    origins: dict[int, int] = field(default_factory=dict)
    """Where the block's square begins."""
    relative: dict[int, Any] = field(default_factory=dict)
    """Positions in the square."""
    rows: Any = 0
    """Numbers of the rows that each thread is at."""
    split: int = 0
    """The part of these rows, where they are split."""
    left: int = 0
    """How many values earlier launches have left for each accumulator here."""
    vector_width: int = 1
    """How many elements a thread takes together."""

    def inner(
        self,
        positions: dict[int, Any],
        inside: Any,
        relative: dict[int, Any] | None = None,
        vector_width: int | None = None,
    ) -> ThreadScope:
        """One loop further in."""
        return replace(
            self,
            positions={**self.positions, **positions},
            inside=self.inside & inside,
            registers=dict(self.registers),
            relative=relative or self.relative,
            vector_width=vector_width or self.vector_width,
        )


@dataclass
class _Shared:
    """Shared memory, and which thread wrote each of its elements when."""

    values: Element
    writer: Any
    """-1 where none has."""
    epoch: Any


class ThreadBlock:
    def __init__(self, number: int, schedule: GpuSchedule):
        self.number, self.schedule = number, schedule
        self.thread = numpy.arange(schedule.threads)[:, None]
        match schedule:
            case ThreadGroups():
                self.thread_group, self.member = numpy.divmod(self.thread, schedule.thread_group_size)
            case Columns():  # threads of a group stand below each other
                self.member, self.thread_group = numpy.divmod(self.thread, schedule.thread_groups)
            case _:  # each thread by itself
                self.thread_group, self.member = self.thread, numpy.zeros_like(self.thread)
        self.identity = number * schedule.threads + self.thread
        """Numbers of the threads in the whole launch."""
        self.epoch = 0
        """Barriers so far."""
        self.accumulated: dict[int, Element] = {}
        """What each thread has, by accumulator."""
        self._registers: dict[tuple[int, int], tuple[Element, dict[int, Any]]] = {}
        """For each scratch and iteration: the values, and the positions they belong to."""
        self._shared: dict[int, _Shared] = {}

    @property
    def rows(self) -> RowSchedule:
        """The schedule, where there are rows."""
        assert isinstance(self.schedule, RowSchedule)
        return self.schedule

    def keep_in_registers(self, place: tuple[int, int], scope: ThreadScope, value: Element) -> str | None:
        if place in self._registers:
            return "it is written a second time"
        self._registers[place] = value, scope.positions
        return None

    def recall_from_registers(self, place: tuple[int, int], scope: ThreadScope) -> Element | str:
        if place not in self._registers:
            return "nothing was kept there"
        value, positions = self._registers[place]
        same = all(numpy.array_equal(positions[axis], position) for axis, position in scope.positions.items())
        return value if same else "threads are not where they were"

    def keep_shared(self, scratch: int, scope: ThreadScope, axes: Sequence[int], value: Element) -> str | None:
        first, second, inside, thread = self._places(scope, axes)
        if scratch not in self._shared:
            assert isinstance(self.schedule, Tiles)
            square = self.schedule.tile, self.schedule.tile
            empty = Element(numpy.zeros(square, value.array.dtype), value.dtype)
            self._shared[scratch] = _Shared(empty, numpy.full(square, -1), numpy.full(square, -1))
        shared = self._shared[scratch]
        if (shared.writer[first[inside], second[inside]] >= 0).any():
            return "it is written a second time"
        spread = numpy.broadcast_to(value.array, inside.shape)
        shared.values.array[first[inside], second[inside]] = spread[inside]
        shared.writer[first[inside], second[inside]] = thread[inside]
        shared.epoch[first[inside], second[inside]] = self.epoch
        written_by = shared.writer[first[inside], second[inside]]
        return None if (written_by == thread[inside]).all() else "two threads write it"

    def recall_shared(self, scratch: int, scope: ThreadScope, axes: Sequence[int]) -> Element | str:
        if scratch not in self._shared:
            return "nothing was kept there"
        shared = self._shared[scratch]
        first, second, inside, thread = self._places(scope, axes)
        writer, epoch = shared.writer[first, second], shared.epoch[first, second]
        if (inside & (writer < 0)).any():
            return "nothing was kept there"
        if (inside & (writer != thread) & (epoch == self.epoch)).any():
            return "another thread wrote it, and no barrier was in between"
        return Element(shared.values.array[first, second], shared.values.dtype)

    def _places(self, scope: ThreadScope, axes: Sequence[int]) -> tuple[Any, Any, Any, Any]:
        """Indices of the elements of all threads, which of them are inside, and whose they are."""
        first, second = (scope.relative[axis] for axis in axes)
        return tuple(numpy.broadcast_arrays(first, second, scope.inside, self.thread))  # type: ignore[return-value]
