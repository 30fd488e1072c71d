"""Call records: everything the launcher has to know to answer calls with arguments of one kind, as words in memory.

In: guards for the inputs, shapes and dtypes of the results, and steps whose addresses are left open. Out: a record that
call tables can hold. A record never changes, but for the count of calls that are inside it without the GIL.

An address or number that a call brings has a slot. A step's words are copied for every call, and patches put slots into
them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ingot.loops.gpu.schedule import ACCESS
from ingot.runtime.native import clock
from ingot.runtime.native.devices import device_kind
from ingot.runtime.native.layout import tensor_layout
from ingot.runtime.native.prototypes import DTYPES, Prototype

# What stands for the type of a number where a tensor has the bits of its dtype and device.
FLOAT, INT, BOOL = -1, -2, -3

# The words of a record.
IN_FLIGHT, GUARDS, PROTOTYPES, ARENA_BYTES, CONVERSION_COUNT, CONVERSIONS = range(6)
STEP_COUNT, STEPS, MOST_WORDS, IS_LONG, STATISTICS, LAUNCHES, BYTES_MOVED = range(6, 13)
RUN, SITE, EXTENT_COUNT, EXTENTS = range(13, 17)
# The memory of an input where inputs are overwritten: which one, its bytes, whether it is overwritten, and the keys of
# tensors that may be.
EXTENT_SLOT, EXTENT_BYTES, EXTENT_IS_WRITTEN, EXTENT_KEYS = range(4)
EXTENT_WORDS = 4

GUARD_TYPE, GUARD_RANK, GUARD_AXES, GUARD_ITEM_BYTES = range(4)
GUARD_MASK, GUARD_KEYS, GUARD_INFERENCE_KEYS, GUARD_LAST_BITS, GUARD_REMAINDER = range(4, 9)
GUARD_LOWEST, GUARD_HIGHEST = 2, 3
GUARD_WORDS = 9
AXIS_SIZE, AXIS_STRIDE, AXIS_MASK = range(3)
AXIS_WORDS = 3

STEP_ENTRY, STEP_IS_PARALLEL, STEP_WORD_COUNT, STEP_TEMPLATE, STEP_PATCH_COUNT, STEP_PATCHES = range(6)
STEP_WORDS = 6
PATCH_WORD, PATCH_SLOT, PATCH_OFFSET = range(3)
PATCH_WORDS = 3
CONVERSION_SOURCE, CONVERSION_TARGET = range(2)
CONVERSION_WORDS = 2

# The words every step begins with.
THREADS_WORD, FAULT_WORD = range(2)

# The words of statistics.
EXECUTIONS, TICKS, TOTAL_LAUNCHES, TOTAL_BYTES = range(4)
STATISTICS_WORDS = 4

OTHER_SLOTS = 2
"""Of a call, besides two for each input and one for each result."""

_CPU = torch.device("cpu")

MOST_STACK_WORDS = 8192
"""More than this a call does not put on the stack; threads may have little of it."""


@dataclass(frozen=True, slots=True)
class TensorGuard:
    """An ordinary tensor of exactly these sizes and strides, as far as its elements lie elsewhere by them."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    is_strict: bool = False
    """Whether strides count that no element lies elsewhere by."""
    device: torch.device = _CPU
    remainder: int | None = None
    """What is left of the address of its first element divided by what a GPU reads at once, on which schedules for GPUs
    depend; None where it does not count."""

    @classmethod
    def like(cls, tensor: torch.Tensor, is_strict: bool = False) -> TensorGuard:
        counts = tensor.device.type == "cuda" and tensor.numel() > 0
        remainder = tensor.data_ptr() % ACCESS if counts else None
        return cls(tensor.dtype, tuple(tensor.shape), tensor.stride(), is_strict, tensor.device, remainder)

    @property
    def is_empty(self) -> bool:
        return 0 in self.sizes

    @property
    def is_known(self) -> bool:
        """Whether native code knows the dtype and the device."""
        return self.dtype in DTYPES and device_kind(self.device) is not None

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last."""
        if self.is_empty:
            return 0
        return (1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))) * self.dtype.itemsize

    @property
    def keys(self) -> int:
        """The dispatch keys of ordinary tensors on the device, those made in inference mode apart."""
        kind = device_kind(self.device)
        assert kind is not None
        return kind.keys[0]

    def axes(self) -> list[int]:
        words = []
        for size, stride in zip(self.sizes, self.strides, strict=True):
            is_idle = (size == 1 or self.is_empty) and not self.is_strict
            words += [size, stride, 0 if is_idle else -1]
        return words


@dataclass(frozen=True, slots=True)
class NumberGuard:
    """A Python number of exactly this type; an int within bounds."""

    type: type[float] | type[int] | type[bool]
    lowest: int = -(1 << 63)
    highest: int = (1 << 63) - 1


Guard = TensorGuard | NumberGuard
NUMBER_TYPES = {float: FLOAT, int: INT, bool: BOOL}


@dataclass(frozen=True, slots=True)
class Slots:
    """Where a call keeps addresses and numbers: inputs, results, arena, counters, and ints among the inputs as
    doubles."""

    inputs: int
    results: int

    def input(self, position: int) -> int:
        return position

    def result(self, position: int) -> int:
        return self.inputs + position

    @property
    def arena(self) -> int:
        """The memory of intermediate values."""
        return self.inputs + self.results

    @property
    def counters(self) -> int:
        """What blocks of a GPU's threads are counted by."""
        return self.arena + 1

    def double(self, position: int) -> int:
        """The input at a position, an int or a bool, as the bits of a double."""
        return self.counters + 1 + position


@dataclass(frozen=True, slots=True)
class Patch:
    """words[word] = slots[slot] + offset"""

    word: int
    slot: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel: `void entry(int64_t *words)`."""

    entry: int
    words: tuple[int, ...]
    patches: tuple[Patch, ...]
    is_parallel: bool = False

    def code(self, record: Placed) -> tuple[int, int]:
        return self.entry, int(self.is_parallel)


class AnyStep(Protocol):
    """A kernel of whatever kind: words with patches, and what is done with them."""

    @property
    def words(self) -> tuple[int, ...]: ...

    @property
    def patches(self) -> tuple[Patch, ...]: ...

    def code(self, record: Placed) -> tuple[int, int]:
        """The first two words of a step."""
        ...


class Site(Protocol):
    """Where a record's kernels run, if not on the CPU."""

    @property
    def run(self) -> int:
        """The address of the native routine run(table, record, items, slots, start)."""
        ...

    def words(self, record: Placed, results: Sequence[Prototype], arena_bytes: int) -> list[int]:
        """What that routine has to know."""
        ...


class RunStatistics:
    """What native calls have cost; several records add to one."""

    def __init__(self) -> None:
        self._words = (ctypes.c_int64 * STATISTICS_WORDS)()
        self.address = ctypes.addressof(self._words)

    @property
    def executions(self) -> int:
        return self._words[EXECUTIONS]

    @property
    def seconds(self) -> float:
        return clock.seconds(self._words[TICKS])

    @property
    def launches(self) -> int:
        return self._words[TOTAL_LAUNCHES]

    @property
    def bytes_moved(self) -> int:
        return self._words[TOTAL_BYTES]


class Placed:
    """Something whose words lie in memory, and everything that must live as long."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def keep(self, *things: Any) -> None:
        """Hold things as long as the words are there."""
        self._kept += things

    def place(self, words: Sequence[int]) -> int:
        """The address of these words in memory of their own."""
        memory = (ctypes.c_int64 * len(words))(*words)
        self._kept.append(memory)
        return ctypes.addressof(memory)

    def guard_words(self, guard: Guard) -> list[int]:
        """A guard as native code reads it."""
        if isinstance(guard, NumberGuard):
            return [NUMBER_TYPES[guard.type], 0, guard.lowest, guard.highest, 0, 0, 0, 0, 0]
        layout, kind = tensor_layout(), device_kind(guard.device)
        assert layout is not None and kind is not None, "records are made where there is a launcher"
        # Where there are no elements it does not matter where they are.
        item_bytes = 0 if guard.is_empty else guard.dtype.itemsize
        code = layout.dtype_codes[guard.dtype] << kind.dtype_shift | kind.bits
        last_bits, remainder = (0, 0) if guard.remainder is None else (ACCESS - 1, guard.remainder)
        sizes = self.place(guard.axes())
        return [code, len(guard.sizes), sizes, item_bytes, kind.mask, *kind.keys, last_bits, remainder]


class Record(Placed):
    """A record in memory, and everything that must live as long."""

    def __init__(
        self,
        guards: Sequence[Guard],
        results: Sequence[Prototype],
        steps: Sequence[AnyStep],
        statistics: RunStatistics,
        *,
        arena_bytes: int = 0,
        doubles: Sequence[int] = (),
        is_long: bool = False,
        copies: int = 0,
        bytes_moved: int = 0,
        keeps: Any = None,
        site: Site | None = None,
        written: Sequence[int] = (),
    ):
        """`doubles` are the inputs to be had as doubles too, `written` those that are overwritten. `copies` is how
        many steps only move results, which statistics do not count. `keeps` is held as long as the record: what owns
        the machine code of the steps."""
        super().__init__()
        self.guards = tuple(guards)
        self.results = tuple(results)
        self.copies = copies
        self.keep(statistics, keeps, site)
        slots = Slots(len(guards), len(results))
        extents = [
            (position, guard.span, int(position in written), guard.keys)
            for position, guard in enumerate(guards)
            if written and isinstance(guard, TensorGuard)
        ]
        words = {
            GUARDS: self.place([word for guard in guards for word in self.guard_words(guard)]),
            PROTOTYPES: self.place([result.address for result in results]),
            ARENA_BYTES: arena_bytes,
            CONVERSION_COUNT: len(doubles),
            CONVERSIONS: self.place([word for place in doubles for word in (place, slots.double(place))]),
            STEP_COUNT: len(steps),
            STEPS: self.place([word for step in steps for word in self._step_words(step)]),
            MOST_WORDS: max((len(step.words) for step in steps), default=0),
            IS_LONG: int(is_long),
            STATISTICS: statistics.address,
            LAUNCHES: len(steps) - copies,
            BYTES_MOVED: bytes_moved,
            RUN: 0 if site is None else site.run,
            SITE: 0 if site is None else self.place(site.words(self, results, arena_bytes)),
            EXTENT_COUNT: len(extents),
            EXTENTS: self.place([word for extent in extents for word in extent]),
        }
        self._words = (ctypes.c_int64 * (1 + len(words)))(0, *words.values())
        self.address = ctypes.addressof(self._words)

    @property
    def is_running(self) -> bool:
        """Whether a call is inside without the GIL."""
        return self._words[IN_FLIGHT] != 0

    def _step_words(self, step: AnyStep) -> list[int]:
        patches = [word for patch in step.patches for word in (patch.word, patch.slot, patch.offset)]
        template, placed = self.place(list(step.words)), self.place(patches)
        return [*step.code(self), len(step.words), template, len(step.patches), placed]


def can_record(guards: Sequence[Guard], steps: Sequence[AnyStep]) -> bool:
    """Whether calls like these can be answered by a record: dtypes that native code knows, and not too many words."""
    known = all(guard.is_known for guard in guards if isinstance(guard, TensorGuard))
    return known and 8 * len(guards) + max((len(step.words) for step in steps), default=0) <= MOST_STACK_WORDS
