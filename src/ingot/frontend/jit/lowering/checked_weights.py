"""Programs that pack weights for themselves: after some calls, and for as long as the weights hold the same bits.

In: the function of a program without effects, and what makes one with packed weights. Out: a function that is called
like it and gives the same within rounding. What always holds: packed weights are used only in calls that have compared
what they were XX
packed weights are dropped; after more calls they are made anew. Whether packing pays is measured: packed calls,
comparing included, take turns with plain ones, and stay only if they are quicker.

Comparing reads the weights once, at the speed of memory (runtime/cpu/digests.py). PyTorch's own counters of writes
would cost nothing, but they do not count what is written through `.data`, numpy or C++.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ingot.base.collecting import collecting_later
from ingot.base.errors import IngotError
from ingot.base.forks import new_lock
from ingot.base.logs import log
from ingot.frontend.jit.autotune.eager_comparison import EagerComparison
from ingot.frontend.jit.autotune.timing import stopwatch
from ingot.frontend.jit.trace.trace import CPU
from ingot.runtime.cpu.digests import Digests, can_digest

FIRST_WAIT = 24
"""Calls before weights are packed."""
_LONGER = 4
"""How many times as many calls go by before they are packed again, each time they have changed."""
_SHORTEST = 3e-4
"""Calls that take less than this, in seconds, are left as they are: comparing goes through Python."""
_GAIN = 0.97
"""Share of the plain program's time that the packed one must stay below."""

Function = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """A program with packed weights."""

    function: Function
    sources: Sequence[torch.Tensor]
    """What the packed weights were made of."""


@dataclass(slots=True)
class _Packed:
    """A program with packed weights, and what they were made of."""

    function: Function
    digests: Digests
    held: bytes
    comparison: EagerComparison = field(default_factory=EagerComparison)
    """Packed calls beside plain ones."""

    def still_holds(self) -> bool:
        return self.digests.now() == self.held != b""


class CheckedWeights:
    """A program's function that packs weights. Threads may share it."""

    def __init__(self, plain: Function, pack: Callable[[], PackedWeights | None], around: Sequence[torch.Tensor]):
        """`around` are the tensors that weights may be among."""
        self._plain = plain
        self._pack = pack
        self._around = around
        self._packed: _Packed | None = None
        self._wait = FIRST_WAIT
        self._left = FIRST_WAIT
        """Calls before weights are packed; fewer than none if they never are."""
        self._lock = new_lock()

    @property
    def text(self) -> str:
        """What has become of it, in words; empty where there is nothing to tell."""
        packed = self._packed
        if packed is None or not packed.comparison.is_settled:
            return ""
        return f"weights are packed, and compared at every call: {packed.digests.nbytes / 1e6:.3g} MB"

    def __call__(
        self, arguments: Sequence[Any], environment_tensors: Sequence[Any], numbers: Sequence[Any]
    ) -> list[Any]:
        packed = self._packed
        if packed is None:
            return self._wait_or_pack(arguments, environment_tensors, numbers)
        if not packed.comparison.is_settled:
            return self._compare(packed, arguments, environment_tensors, numbers)
        if packed.still_holds():
            return packed.function(arguments, environment_tensors, numbers)
        self._drop(packed)
        return self._plain(arguments, environment_tensors, numbers)

    def _wait_or_pack(self, *given: Sequence[Any]) -> list[Any]:
        self._left = max(self._left - 1, -1)
        if self._left:
            return self._plain(*given)
        watch = stopwatch(CPU)
        results = self._plain(*given)
        if float(watch.stop()) >= _SHORTEST:
            with self._lock, collecting_later():
                if self._packed is None:
                    self._packed = self._made()
        else:
            self._left = -1
        return results

    def _made(self) -> _Packed | None:
        """A program with packed weights; None if there is none, or if weights have changed meanwhile."""
        self._left = -1
        if not all(map(can_digest, self._around)):
            return None
        everything = Digests(self._around)
        before = everything.now()
        try:
            made = self._pack()
        except IngotError as error:
            log("fallbacks", f"weights are not packed: {error}")
            return None
        if made is None:
            return None
        digests = Digests(made.sources)
        packed = _Packed(made.function, digests, digests.now())
        if everything.now() == before:
            return packed
        self._left = self._wait
        return None

    def _compare(self, packed: _Packed, *given: Sequence[Any]) -> list[Any]:
        """One of the first calls, by either program."""
        comparison, watch = packed.comparison, stopwatch(CPU)
        if comparison.is_eagers_turn:
            results = self._plain(*given)
            comparison.eager.append(watch.stop())
        elif packed.still_holds():
            try:
                results = packed.function(*given)
            except IngotError as error:  # no machine code for it, say; the program has no effects
                log("fallbacks", f"weights are not packed: {error}")
                self._packed = None
                return self._plain(*given)
            comparison.note_program(watch.stop())
        else:
            self._drop(packed)
            return self._plain(*given)
        if comparison.rounds and comparison.is_over and not comparison.is_program_below(_GAIN):
            self._packed = None  # and for good
        return results

    def _drop(self, packed: _Packed) -> None:
        """Forget packed weights whose sources have changed."""
        with self._lock:
            if self._packed is packed:
                self._packed, self._wait = None, self._wait * _LONGER
                self._left = self._wait
                log("recompiles", f"weights have changed; they may be packed again after {self._wait} calls")
