"""Call records: everything the launcher has to know to answer calls with arguments of one kind, as words in memory.

In: guards for the inputs, shapes and dtypes of the results, and steps whose addresses are left open. Out: a record that
call tables can hold. A record never changes, but for the count of calls that are inside it without the GIL.

An address or number that a call brings has a slot. A step's words are copied for every call, and patches put slots into
them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ingot.base.forks import new_lock
from ingot.loops.kernel_arguments import ACCESS
from ingot.runtime.native.abi.devices import device_kind
from ingot.runtime.native.abi.object_layout import tensor_layout
from ingot.runtime.native.abi.prototypes import DTYPES, Prototype
from ingot.runtime.native.assembler import ticks
from ingot.runtime.native.assembler.structs import WORD_BYTES, Struct, side_by_side
from ingot.runtime.native.launch.record_structs import (
    AxisWords,
    ConversionWords,
    CpuStepWords,
    ExtentWords,
    GuardWords,
    NumberGuardWords,
    PatchWords,
    RecordWords,
    StatisticsWords,
    StepWords,
    TensorGuardWords,
)

# Codes of the types of numbers. A guard of a tensor has the bits of its dtype and device in the same place.
FLOAT, INT, BOOL = -1, -2, -3

OTHER_SLOTS = 2
"""How many slots a call has besides two for each input and one for each result."""

_CPU = torch.device("cpu")

MOST_STACK_WORDS = 8192
"""The most words that a call puts on the stack; threads may have small stacks."""


@dataclass(frozen=True, slots=True)
class TensorGuard:
    """An ordinary tensor of exactly these sizes and strides. The stride of an axis of size 1, and all strides of a
    tensor without elements, may differ unless the guard is strict: no element's place depends on them."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    is_strict: bool = False
    """Whether all strides are compared, also those that no element's place depends on."""
    device: torch.device = _CPU
    remainder: int | None = None
    """The address of the first element modulo the bytes that a GPU reads at once, on which schedules for GPUs depend;
    None where it is not compared."""

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

    def axes(self) -> list[AxisWords]:
        axes = []
        for size, stride in zip(self.sizes, self.strides, strict=True):
            is_idle = (size == 1 or self.is_empty) and not self.is_strict
            axes.append(AxisWords(size=size, stride=stride, mask=0 if is_idle else -1))
        return axes


@dataclass(frozen=True, slots=True)
class NumberGuard:
    """A Python number of exactly this type; an int within bounds."""

    type: type[float] | type[int] | type[bool]
    lowest: int = -(1 << 63)
    highest: int = (1 << 63) - 1


Guard = TensorGuard | NumberGuard
NUMBER_TYPES = {float: FLOAT, int: INT, bool: BOOL}


@dataclass(frozen=True, slots=True)
class CallSlots:
    """The numbers of the slots in which a call keeps addresses and numbers: inputs, results, arena, counters, and the
    doubles of ints among the inputs."""

    inputs: int
    results: int

    def input(self, position: int) -> int:
        return position

    def result(self, position: int) -> int:
        return self.inputs + position

    @property
    def arena(self) -> int:
        """The slot with the address of the memory of intermediate values."""
        return self.inputs + self.results

    @property
    def counters(self) -> int:
        """The slot with the address of the counters of blocks of threads."""
        return self.arena + 1

    def double(self, position: int) -> int:
        """The slot of the input at a position, an int or a bool, as the bits of a double."""
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

    def native(self, record: Placed, step: StepWords) -> CpuStepWords:
        return CpuStepWords(step=step, entry=self.entry, is_parallel=int(self.is_parallel))


class AnyStep(Protocol):
    """A kernel of any backend: words with patches, and the struct that a native routine reads."""

    @property
    def words(self) -> tuple[int, ...]: ...

    @property
    def patches(self) -> tuple[Patch, ...]: ...

    def native(self, record: Placed, step: StepWords) -> Struct:
        """The step as a struct for the routine that runs the record, which begins with `StepWords`. All steps of a
        record are structs of one class."""
        ...


class Site(Protocol):
    """Where a record's kernels run, if not on the CPU."""

    @property
    def run(self) -> int:
        """The address of the native routine run(table, record, items, slots, start)."""
        ...

    def native(self, record: Placed, results: Sequence[Prototype], arena_bytes: int) -> Struct:
        """The struct that this routine is given besides the record."""
        ...


class RunStatistics:
    """What native calls have cost; several records add to one."""

    def __init__(self) -> None:
        self._words = StatisticsWords.zeroed()
        self.address = self._words.address

    @property
    def executions(self) -> int:
        return self._words.executions

    @property
    def seconds(self) -> float:
        return ticks.seconds(self._words.ticks)

    @property
    def launches(self) -> int:
        return self._words.launches

    @property
    def bytes_moved(self) -> int:
        return self._words.bytes_moved


_CHUNK_WORDS = 512
"""A page. A chunk lives as long as anything in it does, so larger ones could keep much that is not needed."""


class WordArena:
    """Memory in which what is placed one after the other lies side by side: native code that reads it in the same order
    waits for it once, and not for every part."""

    def __init__(self) -> None:
        self._chunk = (ctypes.c_int64 * _CHUNK_WORDS)()
        self._used = 0
        self._lock = new_lock()

    def words(self, count: int) -> ctypes.Array[ctypes.c_int64]:
        """So many words, which are 0."""
        kind = ctypes.c_int64 * count
        if count > _CHUNK_WORDS:
            return kind()
        with self._lock:
            if self._used + count > _CHUNK_WORDS:
                self._chunk, self._used = (ctypes.c_int64 * _CHUNK_WORDS)(), 0
            first, chunk = self._used, self._chunk
            self._used += count
        return kind.from_buffer(chunk, first * WORD_BYTES)


class Placed:
    """Something whose words lie in memory, and everything that must live as long."""

    arena: WordArena | None = None
    """Where its words lie, unless they have memory of their own."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def keep(self, *things: Any) -> None:
        """Hold things as long as the words are there."""
        self._kept += things

    def place(self, words: Sequence[int] | ctypes.Array[ctypes.c_int64]) -> int:
        """The address where these words are put."""
        memory = self.arena.words(len(words)) if self.arena is not None else (ctypes.c_int64 * len(words))()
        memory[:] = words
        self._kept.append(memory)
        return ctypes.addressof(memory)

    def place_all(self, structs: Iterable[Struct]) -> int:
        """The address where structs are put side by side."""
        return self.place(side_by_side(structs))

    def guard(self, guard: Guard) -> GuardWords:
        """A guard as native code reads it."""
        return self.tensor_guard(guard) if isinstance(guard, TensorGuard) else number_guard(guard)

    def tensor_guard(self, guard: TensorGuard) -> TensorGuardWords:
        layout, kind = tensor_layout(), device_kind(guard.device)
        assert layout is not None and kind is not None, "records are made where there is a launcher"
        keys, inference_keys = kind.keys
        return TensorGuardWords(
            type=layout.dtype_codes[guard.dtype] << kind.dtype_shift | kind.bits,
            rank=len(guard.sizes),
            axes=self.place_all(guard.axes()),
            # A tensor without elements has no address to compare.
            item_bytes=0 if guard.is_empty else guard.dtype.itemsize,
            mask=kind.mask,
            keys=keys,
            inference_keys=inference_keys,
            last_bits=0 if guard.remainder is None else ACCESS - 1,
            remainder=0 if guard.remainder is None else guard.remainder,
        )


def number_guard(guard: NumberGuard) -> NumberGuardWords:
    return NumberGuardWords(type=NUMBER_TYPES[guard.type], lowest=guard.lowest, highest=guard.highest)


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
        slots = CallSlots(len(guards), len(results))
        doubled = [ConversionWords(source=place, target=slots.double(place)) for place in doubles]
        extents = [
            ExtentWords(slot=position, bytes=guard.span, is_written=int(position in written), keys=guard.keys)
            for position, guard in enumerate(guards)
            if written and isinstance(guard, TensorGuard)
        ]
        self._words = RecordWords(
            in_flight=0,
            guards=self.place_all(map(self.guard, guards)),
            prototypes=self.place([result.address for result in results]),
            arena_bytes=arena_bytes,
            conversion_count=len(doubled),
            conversions=self.place_all(doubled),
            step_count=len(steps),
            steps=self.place_all(step.native(self, self._step(step)) for step in steps),
            most_words=max((len(step.words) for step in steps), default=0),
            is_long=int(is_long),
            statistics=statistics.address,
            launches=len(steps) - copies,
            bytes_moved=bytes_moved,
            run=0 if site is None else site.run,
            site=0 if site is None else self.place_all([site.native(self, results, arena_bytes)]),
            extent_count=len(extents),
            extents=self.place_all(extents),
        )
        self.address = self._words.address

    @property
    def is_running(self) -> bool:
        """Whether a call is inside without the GIL."""
        return self._words.in_flight != 0

    def _step(self, step: AnyStep) -> StepWords:
        patches = [PatchWords(word=patch.word, slot=patch.slot, offset=patch.offset) for patch in step.patches]
        return StepWords(
            word_count=len(step.words),
            template=self.place(step.words),
            patch_count=len(patches),
            patches=self.place_all(patches),
        )


def can_record(guards: Sequence[Guard], steps: Sequence[AnyStep]) -> bool:
    """Whether calls like these can be answered by a record: dtypes that native code knows, and not too many words."""
    known = all(guard.is_known for guard in guards if isinstance(guard, TensorGuard))
    return known and 8 * len(guards) + max((len(step.words) for step in steps), default=0) <= MOST_STACK_WORDS
