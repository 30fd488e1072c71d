"""Python functions whose calls go through the launcher: a table of records, and what to call when none of them fits.

In: a fallback, the numbers of inputs and results, and how they are passed. Out: a builtin function. It answers calls
that match a record natively, the record used last first, and every other call with the fallback's result or exception.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

from ingot.base.forks import new_lock
from ingot.runtime.native.assembler.routines import make_immortal
from ingot.runtime.native.launch.launcher import Launcher
from ingot.runtime.native.launch.record_structs import CallTableWords, Convention, FormWords, TableWords
from ingot.runtime.native.launch.records import Record


class HeldRecord(Protocol):
    """What a table can hold: a record, whose words are at an address."""

    @property
    def address(self) -> int: ...

    @property
    def is_running(self) -> bool:
        """Whether a call is running the record."""
        ...


Held = TypeVar("Held", bound=HeldRecord)


class RecordTable(Generic[Held]):
    """Records, the last used first. Threads may add to it while others call."""

    def __init__(self, launcher: Launcher, words: TableWords):
        self._launcher = launcher
        self._table = words
        self.address = words.address
        self._records: dict[int, Held] = {}
        self._retired: list[Held] = []
        """Records taken out of the table that calls may still be running."""
        self._lock = new_lock()

    def put(self, record: Held) -> None:
        """Put a record first; if there are too many, the one not used for the longest time goes."""
        with self._lock:
            self._records[record.address] = record
            evicted = self._launcher.insert(self.address, record.address)
            if evicted:
                self._retire(self._records.pop(evicted))

    def remove(self, is_unwanted: Callable[[Held], bool]) -> None:
        """Take out records; calls that are inside one of them go on."""
        with self._lock:
            for record in [record for record in self._records.values() if is_unwanted(record)]:
                self._launcher.remove(self.address, record.address)
                self._retire(self._records.pop(record.address))

    def _retire(self, record: Held) -> None:
        self._retired = [retired for retired in (*self._retired, record) if retired.is_running]

    def __len__(self) -> int:
        return len(self._records)


class CallTable(RecordTable[Record]):
    """The records of one function."""

    def __init__(self, launcher: Launcher, inputs: int, outputs: int, convention: Convention):
        words = CallTableWords.zeroed()
        words.form = FormWords(inputs=inputs, outputs=outputs, convention=convention.value)
        super().__init__(launcher, words)
        self._adding = new_lock()

    def add(self, record: Record) -> None:
        """Put a record first, unless there is one for the same calls."""
        with self._adding:
            if not any(known.guards == record.guards for known in self._records.values()):
                self.put(record)


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef"""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


_FASTCALL_WITH_KEYWORDS = 0x0080 | 0x0002

_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype, _new_function.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@cache
def _method(entry: int, name: str, documentation: str) -> _MethodDefinition:
    """What Python has to know of a builtin. Functions may outlive everything, so it is never freed."""
    made = _MethodDefinition(name.encode(), entry, _FASTCALL_WITH_KEYWORDS, documentation.encode())
    make_immortal(made)
    return made


def new_builtin(entry: int, name: str, owner: Any = None, documentation: str = "Machine code.") -> Any:
    """A builtin function: its code gets the owner, the arguments, their number, and the names of keywords."""
    return _new_function(ctypes.addressof(_method(entry, name, documentation)), owner, None)


def native_function(
    launcher: Launcher, table: CallTable, fallback: Callable[..., Any], name: str, signature: str, documentation: str
) -> Callable[..., Any]:
    """A builtin that answers with a table's records, and calls the fallback for everything they do not cover.

    The builtin's owner is a tuple, so the garbage collector sees the fallback through it.
    """
    owner = (new_capsule(table.address, None, None), table, fallback)
    return new_builtin(launcher.entry, name, owner, f"{name}{signature}\n--\n\n{documentation}")
