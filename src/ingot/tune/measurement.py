"""How long a kernel takes under a candidate: machine code, run on memory of the sizes, strides and alignment of a call.

In: the tensors of a call, which are looked at and never read or written, or tensors without memory. Out: seconds per
contestant and round. What always holds: contestants take turns, round by round, so that what disturbs one disturbs all.

No tensor is made for that: modes of torch, and functions that are being followed, would see it. Turns in which other
processes had the processors are taken again: a kernel waits for its slowest thread, so that on a machine which is busy
one thread would seem to do better than all. Where that does not end, nothing is measured.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from ingot.base.dtypes import DataType
from ingot.base.numbers import Number
from ingot.loops.cpu.scheduling import ALIGNED
from ingot.runtime.cpu.kernels import ENTRY, PreparedCall, prepare, words_for
from ingot.runtime.in_place import picks
from ingot.runtime.kernels import Kernel, address_of, extents
from ingot.tune.search_space import Candidate, SearchSpace

TURN_SECONDS = 3e-4
"""How long a turn lasts at least: shorter calls are repeated."""
FIRST_ROUNDS = 3
ROUNDS = 7
LAST_ROUNDS = 11
CLEARLY = 0.97
"""A candidate is taken if it needs less than this share of the time."""
_SHARE_OF_ROUNDS = 0.8
"""The share of rounds in which it must be quicker at all."""
_SHARE_OF_MEMORY = 0.25
"""How much of the memory that is free stand-ins may take."""
_MOST_ATTEMPTS = 50
_PATTERN = 1 << 16
"""Elements after which the numbers in stand-ins repeat."""


class Unmeasurable(Exception):
    """There is no measuring this call here."""


class Workbench:
    """Memory for one call, and candidates run on it."""

    def __init__(self, space: SearchSpace):
        self._space = space
        kernel, default = space.kernel, space.default
        self._default = self._prepared(default)
        self._memory: list[Any] = []
        self._addresses = self._stand_ins(self._default)
        self._scalars: list[Number] = [1.0 if dtype.is_float else 1 for dtype in kernel.program.scalars]
        self._running: dict[str, Callable[[], None]] = {}
        self._repeats = 1
        self._preemptions = -1
        """How often threads had been made to wait for a processor when the last turn ended."""

    def seconds(self, candidates: Sequence[Candidate], rounds: int) -> list[list[float]]:
        """Seconds of a call under each candidate, round by round."""
        calls = [self._call(candidate) for candidate in candidates]
        found: list[list[float]] = [[] for _ in candidates]
        for number in range(rounds):
            order = range(len(calls)) if number % 2 == 0 else reversed(range(len(calls)))
            for place in order:
                found[place].append(self._turn(calls[place]))
        return found

    def forget(self, candidate: Candidate) -> None:
        """Let go of a candidate's machine code."""
        self._running.pop(candidate.signature, None)

    def _call(self, candidate: Candidate) -> Callable[[], None]:
        """A call under a candidate, which has run."""
        found = self._running.get(candidate.signature)
        if found is None:
            prepared = self._prepared(candidate)
            words, entry = words_for(prepared, self._addresses, self._scalars), ENTRY(prepared.entry)
            # The prepared call holds the machine code.
            found = self._running[candidate.signature] = lambda held=prepared: entry(words)
            start = time.perf_counter()
            found()
            found()
            taken = (time.perf_counter() - start) / 2
            self._repeats = max(self._repeats, min(math.ceil(TURN_SECONDS / max(taken, 1e-7)), 1000))
        return found

    def _turn(self, call: Callable[[], None]) -> float:
        """Seconds of a call, from a turn in which no thread was made to wait for a processor."""
        for _ in range(_MOST_ATTEMPTS):
            before = self._preemptions
            start = time.perf_counter()
            for _ in range(self._repeats):
                call()
            taken = time.perf_counter() - start
            # Counted from the end of the turn before: a thread that had to go in between comes back in this one.
            self._preemptions = _preemptions()
            if self._preemptions == before:
                return taken / self._repeats
        raise Unmeasurable("its threads do not have a processor each, as other processes keep them busy")

    def _prepared(self, candidate: Candidate) -> PreparedCall:
        space = self._space
        return prepare(space.kernel, space.tensors, space.bound, space.targets, candidate.tuning, is_kept=False)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _stand_ins(self, prepared: PreparedCall) -> list[int]:
        """Addresses for all buffers, outputs first: tensors that are one memory in the call are one here."""
        space = self._space
        outputs = [space.targets.get(index) for index in range(len(prepared.outputs))]
        needed = extents(prepared.outputs, space.tensors, space.targets)
        if sum(needed) > _SHARE_OF_MEMORY * _free_bytes():
            raise Unmeasurable(f"stand-ins would take {sum(needed)} bytes")
        tensors = (*outputs, *space.tensors)
        places = [number if tensor is None else _place_of(tensor) for number, tensor in enumerate(tensors)]
        sizes = {place: max(n for n, p in zip(needed, places, strict=True) if p == place) for place in places}
        addresses: dict[Any, int] = {}
        for tensor, place, dtype in zip(tensors, places, space.kernel.program.buffers, strict=True):
            if place not in addresses:
                offset = 0 if tensor is None else address_of(tensor) % ALIGNED
                addresses[place] = self._filled(sizes[place], offset, dtype, space.kernel)
        return [addresses[place] for place in places]

    def _filled(self, size: int, offset: int, dtype: DataType, kernel: Kernel) -> int:
        """New memory, so many bytes after a line of the cache."""
        memory = numpy.empty(size + offset + 2 * ALIGNED, numpy.uint8)
        begin = -memory.ctypes.data % ALIGNED + offset
        pattern = _pattern(dtype, picks(kernel))
        whole = size // len(pattern) * len(pattern)
        memory[begin : begin + whole].reshape(-1, len(pattern))[:] = pattern
        memory[begin + whole : begin + size] = pattern[: size - whole]
        self._memory.append(memory)
        return memory.ctypes.data + begin


def is_clearly_quicker(taken: Sequence[float], allowed: Sequence[float]) -> bool:
    """Whether one contestant took clearly less time than another, in the median of all rounds and in most of them."""
    ratios = [ours / theirs for ours, theirs in zip(taken, allowed, strict=True)]
    won = sum(ratio < 1 for ratio in ratios)
    return statistics.median(ratios) < CLEARLY and won >= _SHARE_OF_ROUNDS * len(ratios)


def speedup(taken: Sequence[float], allowed: Sequence[float]) -> float:
    """How many times as fast one contestant is, in the median of all rounds."""
    return statistics.median(theirs / ours for ours, theirs in zip(taken, allowed, strict=True))


def _preemptions() -> int:
    """How often the system has taken the processor from a thread of this process that could have gone on. The time
    that threads had would tell less: the system counts that of other threads every few milliseconds."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _place_of(tensor: torch.Tensor) -> Any:
    """Equal for tensors that begin at the same memory."""
    if tensor.device.type == "meta":
        return "storage", tensor.untyped_storage()._cdata, tensor.storage_offset()
    return "address", tensor.data_ptr()


def _free_bytes() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 1 << 32


def _pattern(dtype: DataType, picks_elements: bool) -> Any:
    """The bytes of numbers as a call may have them: floats between 0.25 and 1.75, truth values of both kinds, ones; and
    zeros where numbers may be indices, which are then never out of range."""
    generator = numpy.random.Generator(numpy.random.PCG64(1))
    if dtype.is_float:
        numbers = generator.uniform(0.25, 1.75, _PATTERN)
        if dtype is DataType.BFloat16:
            words = numbers.astype(numpy.float32).view(numpy.uint32) >> 16
            return words.astype(numpy.uint16).view(numpy.uint8)
        return numbers.astype(f"f{dtype.bytes}").view(numpy.uint8)
    if dtype is DataType.Bool:
        return generator.integers(0, 2, _PATTERN).astype(numpy.uint8)
    return numpy.full(_PATTERN, 0 if picks_elements else 1, f"i{dtype.bytes}").view(numpy.uint8)
