"""Whether the guards of a recording hold, asked of machine code.

In: guards that hold now, and the tensors around a function. Out: an object that says quickly that they still hold. What
always holds: it says so only if Python would; where it cannot tell, Python looks.

Calls whose arguments native code cannot compare are found in Python. What they depend on besides is often more than a
thousand places, which takes Python longer than a small model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ingot.base.forks import new_lock
from ingot.frontend.jit.guards.guards import Guards
from ingot.runtime.native.dispatch.call_records import (
    ArgumentGuards,
    CallCounter,
    CallFunction,
    CallRecord,
    can_hold,
)
from ingot.runtime.native.dispatch.conditions import Places
from ingot.runtime.native.dispatch.dispatcher import DispatchTable, NativeCallable, dispatcher
from ingot.runtime.native.launch.records import TensorGuard
from ingot.runtime.torch_state import WATCHERS, ModuleEntry

MOST_ATTEMPTS = 4
"""How often native code is told what to compare: where a class changes all the time, Python looks."""


class NativeGuards(NativeCallable):
    """The guards of one recording. Called, it says whether native code is sure that they hold."""

    __slots__ = ("_attempts", "_lock", "_table")

    def __init__(self) -> None:
        self._attempts = 0
        self._table: DispatchTable | None = None
        self._lock = new_lock()

    def __call__(self) -> bool:
        return False

    def learn(self, guards: Guards, tensors: Sequence[torch.Tensor]) -> None:
        """Take what guards look at, which hold now, for what must stay as it is."""
        with self._lock:
            if self._attempts >= MOST_ATTEMPTS:
                return
            self._attempts += 1
            record, native = _record(guards, tensors), dispatcher()
            if record is None or native is None:
                self._attempts = MOST_ATTEMPTS
                return
            if self._table is None:
                self._table = native.attach(self)
            self._table.remove(lambda known: True)
            self._table.put(record)


def places_of(guards: Guards) -> Places | None:
    """Everything that guards look at, and what `is_off` asks of Python; None if some of it cannot be read natively."""
    found = Places()
    for entry in (watcher.native for watcher in WATCHERS):
        if isinstance(entry, ModuleEntry):
            if entry.table.get(entry.name) is not entry.idle:
                return None
            found.dictionary_holds(entry.table, entry.name, entry.idle)
    return found if guards.add_to(found) else None


def _record(guards: Guards, tensors: Sequence[torch.Tensor]) -> CallRecord | None:
    native = dispatcher()
    settings = -1 if native is None else native.settings()
    places = places_of(guards)
    if settings < 0 or places is None or not can_hold([TensorGuard.like(one) for one in tensors], len(tensors)):
        return None
    if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors):
        return None
    nothing = ArgumentGuards(0, (), (), (), (), ())
    answer = CallFunction(_holds, ())
    return CallRecord(None, None, settings, torch.is_grad_enabled(), nothing, tensors, places, answer, CallCounter())


def _holds(leaves: tuple[Any, ...]) -> bool:
    return True
