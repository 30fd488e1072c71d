"""torch's settings in one word, which is compared with that of a recorded call.

In: the rows of torch's switches (torch_state.py). Out: a native routine that puts what they hold into one word; no
other code depends on what its bits mean. The same routine says that a call is watched. Where torch does not export a
function that a row names there are no settings, and calls that depend on them go through Python.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import auto
from functools import reduce

import torch

from ingot.base.forks import ThreadCount, new_lock
from ingot.runtime import torch_state
from ingot.runtime.native.assembler.addresses import REQUIRES_GRAD, TorchSymbol, python_function, torch_function
from ingot.runtime.native.assembler.routines import Foreign, Library, Routine, Word, make_immortal
from ingot.runtime.native.assembler.structs import Code
from ingot.runtime.torch_state import (
    STATE,
    WATCHERS,
    AutocastDtype,
    ContextFlag,
    CurrentDevice,
    FunctionResult,
    HasElements,
    HoldsPointer,
    IsSet,
    ModuleEntry,
    ReadScope,
    StateRow,
    Watcher,
)

WATCHED = -1
"""Instead of settings: something sees the operations of this thread, or a thread wants no records to answer."""


class Suspension:
    """How many threads want no records to answer. Calls of other threads are then slower, and no different."""

    def __init__(self) -> None:
        self._word = (ctypes.c_int64 * 1)()
        make_immortal(self._word)
        self.address = ctypes.addressof(self._word)
        self._lock = new_lock()
        self._threads = ThreadCount()
        os.register_at_fork(after_in_child=self._tell)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """No record answers inside this context."""
        token = object()
        try:
            self._begin(token)
            yield
        finally:
            try:
                self._end(token)
            except KeyboardInterrupt:  # in the middle of it, or before it began
                self._end(token)
                raise

    def _begin(self, token: object) -> None:
        with self._lock:
            self._threads.enter(token)
            self._tell()

    def _end(self, token: object) -> None:
        with self._lock:
            self._threads.leave(token)
            self._tell()

    def _tell(self) -> None:
        self._word[0] = self._threads.total


suspended = Suspension()


class GpuCount(Code):
    """Whether a GPU is in use, and whether there are several."""

    NONE = auto()
    ONE = auto()
    SEVERAL = auto()


class DevicesInUse:
    """Whether the settings of GPUs are read. They are from the moment on that torch has initialised CUDA; reading them
    earlier would initialise the driver. A forked child reads none: asking there is an error. The current device is read
    only where there are several, since that takes longer than all other settings together."""

    def __init__(self) -> None:
        self._word = (ctypes.c_int64 * 1)()
        make_immortal(self._word)
        self.address = ctypes.addressof(self._word)
        os.register_at_fork(after_in_child=self.forget)

    def look(self) -> None:
        if self._word[0] == GpuCount.NONE and torch_state.is_gpu_in_use():
            # As CUDA says: what torch.cuda.device_count says may depend on the environment of the moment.
            self._word[0] = GpuCount.SEVERAL if torch._C._cuda_getDeviceCount() > 1 else GpuCount.ONE

    def forget(self) -> None:
        self._word[0] = GpuCount.NONE


devices_in_use = DevicesInUse()


@dataclass(frozen=True, slots=True)
class Settings:
    """torch's functions that tell its switches, found by name."""

    functions: Mapping[TorchSymbol, Foreign]

    @classmethod
    def find(cls, *rows: StateRow | Watcher) -> Settings | None:
        """What these rows need, or all of them if none is named; None where this version of torch lacks a function."""
        wanted = {symbol for row in rows or (*STATE, *WATCHERS) for symbol in _symbols(row)} | {REQUIRES_GRAD}
        found = {symbol: torch_function(*symbol) for symbol in wanted}
        known = {symbol: function for symbol, function in found.items() if function is not None}
        return cls(known) if len(known) == len(wanted) else None

    @property
    def requires_grad(self) -> Foreign:
        """The function that tells whether a tensor requires gradients."""
        return self.functions[REQUIRES_GRAD]

    def read(self, routine: Routine, row: StateRow) -> Word:
        """What a row holds. Where that cannot be told, as the current GPU in a forked child, the routine gives
        WATCHED."""
        match row.native:
            case FunctionResult(symbol):
                return self._call(routine, symbol)
            case ContextFlag() as flag:
                return self._call(routine, flag.symbol, self._context())
            case AutocastDtype(device) as autocast:
                cell = routine.stack(1)
                routine.store(0, cell)
                with routine.when(routine.compare(self._call(routine, autocast.is_enabled, device), "!=", 0)):
                    dtype = self._call(routine, autocast.dtype, device)
                    routine.store(routine.united_bits(routine.shift_left(dtype, 1), 1), cell)
                return routine.load(cell)
            case CurrentDevice() as current:
                cell = routine.stack(1)
                routine.store(0, cell)
                are_several = routine.compare(routine.load(devices_in_use.address), "==", GpuCount.SEVERAL)
                with routine.when(are_several):
                    failure = self._call(routine, current.symbol, cell)
                    with routine.when(routine.compare(failure, "!=", 0)):
                        routine.give_back(WATCHED)
                return routine.load(cell)

    def is_active(self, routine: Routine, watcher: Watcher) -> Word:
        """Anything but 0 while a watcher is active."""
        match watcher.native:
            case IsSet(symbol, arguments):
                return self._call(routine, symbol, *arguments)
            case HoldsPointer(symbol):
                return routine.load(self._call(routine, symbol))
            case HasElements(symbol):
                vector = self._call(routine, symbol)
                return routine.differing_bits(routine.load(vector, 0), routine.load(vector, 1))
            case ModuleEntry(_, name, idle) as entry:
                found = routine.call(python_function("PyDict_GetItem"), id(entry.table), id(name))
                return routine.differing_bits(found, id(idle))

    def _context(self) -> int:
        """torch's global context, of which there is one for the life of a process."""
        return ctypes.CFUNCTYPE(ctypes.c_int64)(self.functions[ContextFlag.context].address)()

    def _call(self, routine: Routine, symbol: TorchSymbol, *arguments: Word | int) -> Word:
        return routine.call(self.functions[symbol], *arguments)


def _symbols(row: StateRow | Watcher) -> tuple[TorchSymbol, ...]:
    if isinstance(row, StateRow):
        return row.native.symbols
    return () if isinstance(row.native, ModuleEntry) else (row.native.symbol,)


assert 1 + sum(row.native.bits for row in STATE) < 63, "the settings do not fit into one word"


def emit_settings(library: Library, settings: Settings, *also: Watcher) -> Routine:
    """settings(): all rows in one word; or WATCHED. Watchers that are an entry of a Python module are looked at if they
    are named: records have them among their guards."""
    of_devices = _emit_device_settings(library, settings)
    routine = library.routine("settings", 0)
    watchers = [*also, *(watcher for watcher in WATCHERS if not isinstance(watcher.native, ModuleEntry))]
    signs = [settings.is_active(routine, watcher) for watcher in watchers]
    is_watched = reduce(routine.united_bits, [*signs, routine.load(suspended.address)])
    with routine.when(routine.compare(is_watched, "!=", 0)):
        routine.give_back(WATCHED)
    cell = routine.stack(1)
    routine.store(0, cell)
    with routine.when(routine.compare(routine.load(devices_in_use.address), "!=", GpuCount.NONE)):
        found = routine.call(of_devices)
        with routine.when(routine.compare(found, "<", 0)):
            routine.give_back(WATCHED)
        routine.store(found, cell)
    rows = (row for row in STATE if row.scope is ReadScope.ALWAYS)
    routine.give_back(_append(routine, settings, routine.load(cell), rows))
    return routine


def _emit_device_settings(library: Library, settings: Settings) -> Routine:
    """device_settings(): the rows that are read once a GPU is in use, and a bit that says so; or WATCHED."""
    routine = library.routine("device_settings", 0)
    one = routine.add(1, 0)
    routine.give_back(_append(routine, settings, one, (row for row in STATE if row.scope is ReadScope.GPU)))
    return routine


def _append(routine: Routine, settings: Settings, word: Word, rows: Iterable[StateRow]) -> Word:
    """A word with the bits of some rows after its own."""
    for row in rows:
        word = routine.united_bits(routine.shift_left(word, row.native.bits), settings.read(routine, row))
    return word
