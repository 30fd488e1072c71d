"""Runs a plan, natively where it can, and keeps count.

In: a plan, and the arguments of calls. Out: results, what all calls together have cost, and a builtin function that
answers calls like those seen before without Python. The first call with arguments of a kind runs in Python; if nothing
in it needs Python, a record of it is made, and the builtin answers the next one.
"""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch

from ingot.base.errors import ArgumentError
from ingot.base.forks import new_lock
from ingot.ir.interpreter import Interpreter, Tally
from ingot.runtime.backends.interface import NativeSite
from ingot.runtime.backends.registry import backend_for
from ingot.runtime.launch_records import may_record, record_call
from ingot.runtime.native.launch.callables import CallTable, native_function
from ingot.runtime.native.launch.launcher import Launcher, launcher
from ingot.runtime.native.launch.record_structs import Convention
from ingot.runtime.native.launch.records import Record, RunStatistics, TensorGuard
from ingot.runtime.plan import Plan, is_plain
from ingot.runtime.torch_state import MODES

_MOST_RECORDS = 256
"""Records that are kept although the launcher has not used them for long."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What all calls have cost."""

    executions: int
    seconds: float
    tally: Tally


class Shortcut:
    """Puts a builtin in the place of an object's method `execute`, once there is a record it can answer calls with.

    Calls that no record covers reach another method, which answers all of them. A method that a subclass has overridden
    stays.
    """

    def __init__(self, owner: Any, method: Callable[..., Any], answer: Callable[..., Any], signature: str):
        self.function: Callable[..., Any] | None = None
        """The builtin, for code that took the method from the object before."""
        self._owner = weakref.ref(owner)
        self._method, self._answer = method, answer
        self._signature = signature
        self._table: CallTable | None = None
        self._lock = new_lock()

    def add(self, record: Record) -> None:
        """Answer calls that match a record from now on."""
        found, owner = launcher(), self._owner()
        if found is None or owner is None or getattr(type(owner), self._method.__name__) is not self._method:
            return
        with self._lock:
            if self._table is None:
                self._table = CallTable(found, len(record.guards), len(record.results), Convention.LIST)
                self._install(found, owner, self._table)
        self._table.add(record)

    def _install(self, found: Launcher, owner: Any, table: CallTable) -> None:
        name, documentation = self._method.__name__, self._method.__doc__ or ""
        fallback = MethodType(self._answer, owner)
        self.function = native_function(found, table, fallback, name, self._signature, documentation)
        owner.__dict__[name] = self.function


class Runner:
    """Runs one plan. Threads may share a runner."""

    def __init__(self, plan: Interpreter, profiling: bool, is_private: bool = False):
        """`is_private` says that no input which is written shares memory with another one, in any call."""
        self.plan = plan
        self._profiling = profiling
        self._is_private = is_private
        self._lock = new_lock()
        self._executions = 0
        self._seconds = 0.0
        self._tally = Tally()
        self._native = RunStatistics()
        self._may_record = isinstance(plan, Plan) and not profiling and may_record(plan)
        self._records: OrderedDict[Hashable, Record | None] = OrderedDict()

    def execute(self, inputs: Sequence[Any], device: torch.device | str | None = None) -> list[Any]:
        """Results for a list or tuple of tensors and numbers, by way of Python."""
        if not isinstance(inputs, list | tuple):
            raise ArgumentError(f"inputs must be a list or tuple of tensors and numbers, not {type(inputs).__name__}")
        tally = Tally()
        start = time.perf_counter()
        results = self.plan.run(inputs, device, tally, self._profiling)
        seconds = time.perf_counter() - start
        with self._lock:
            self._executions += 1
            self._seconds += seconds
            self._tally.add(tally)
        return results

    def record_for(self, inputs: Sequence[Any]) -> Record | None:
        """The record for calls with arguments like these, which a call has been answered for; None if there is none."""
        if not self._may_record or launcher() is None or _is_watched() or not all(map(is_plain, inputs)):
            return None
        key = tuple(map(_kind, inputs))
        with self._lock:
            if key in self._records:
                self._records.move_to_end(key)
                return self._records[key]
        assert isinstance(self.plan, Plan)
        site = _site_of(inputs)
        record = None if site is None else record_call(self.plan, inputs, self._native, site, self._is_private)
        with self._lock:
            self._records[key] = record
            while len(self._records) > _MOST_RECORDS:
                self._records.popitem(last=False)
        return record

    def totals(self) -> Totals:
        """What calls have cost so far, native ones included."""
        with self._lock:
            tally = Tally(self._native.launches, self._native.bytes_moved)
            tally.add(self._tally)
            return Totals(self._executions + self._native.executions, self._seconds + self._native.seconds, tally)


def _is_watched() -> bool:
    """Whether a mode of torch would see what recording does."""
    return any(mode.is_active() for mode in MODES)


def _site_of(inputs: Sequence[Any]) -> NativeSite | None:
    """Where calls with these inputs run natively; None if they do not, or if they are on several devices."""
    devices = {value.device for value in inputs if isinstance(value, torch.Tensor)} or {torch.device("cpu")}
    return site_for(devices.pop()) if len(devices) == 1 else None


def site_for(device: torch.device) -> NativeSite | None:
    """Where native code runs kernels on a device; None where it does not."""
    backend = backend_for(device)
    return None if backend is None else backend.native_site(device)


def _kind(value: Any) -> Hashable:
    """What has to be equal for two arguments to share a record; whole numbers may decide sizes."""
    if isinstance(value, torch.Tensor):
        return TensorGuard.like(value)
    return type(value), value if isinstance(value, int) else None
