"""What must hold around a call for a record of it to answer: torch's settings, and what places in Python hold.

In: torch's functions that tell its settings, and places (entries of dictionaries, items of lists, cells, lengths) with
what they hold. Out: native routines that compare. Settings are one word, which is compared with that of the recorded
call; nobody has to know what its bits mean. Where torch does not export one of the functions there are no conditions,
and calls that depend on them go through Python.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from ingot.runtime.native import layout
from ingot.runtime.native.addresses import python_function, torch_function
from ingot.runtime.native.launcher import Modes
from ingot.runtime.native.records import Placed
from ingot.runtime.native.routines import Foreign, Library, Routine, Value, make_immortal

WATCHED = -1
"""Instead of settings: somebody is looking at the operations of this thread, or wants no records to answer."""
_CPU = 0
"""The number of the CPU among torch's kinds of devices."""

# The words of places: how many of each kind, and where they are.
WORD_COUNT, WORDS, ITEM_COUNT, ITEMS, ENTRY_COUNT, ENTRIES, CONTEXT_COUNT, CONTEXTS = range(8)
PLACES_WORDS = 8
_CELL_WORD = 2
_PAIR, _TRIPLE = 2, 3


# --- settings ---------------------------------------------------------------------------------------------------------


class Suspension:
    """How many threads want no records to answer. Calls of other threads are then slower, and no different."""

    def __init__(self) -> None:
        self._word = (ctypes.c_int64 * 1)()
        make_immortal(self._word)
        self.address = ctypes.addressof(self._word)
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """No record answers inside this context."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, amount: int) -> None:
        with self._lock:
            self._word[0] += amount


suspended = Suspension()


@dataclass(frozen=True, slots=True)
class Settings:
    """torch's functions that tell its settings."""

    transforms: Foreign
    """The stack of torch.func's transforms: a C++ vector, whose first two words are its begin and its end."""
    tracing: Foreign
    """The state of torch.jit.trace: a pointer to a pointer."""
    autocast: Foreign
    autocast_dtype: Foreign
    default_dtype: Foreign
    grad_mode: Foreign
    inference_mode: Foreign
    requires_grad: Foreign
    """Of a tensor."""

    @classmethod
    def find(cls) -> Settings | None:
        """All of them; None where this version of torch lacks one."""
        names = {
            "transforms": ("torch_cpu", "_ZN2at9functorch20getDynamicLayerStackEv", 64),
            "tracing": ("torch_cpu", "_ZN5torch3jit6tracer15getTracingStateEv", 64),
            "autocast": ("torch_cpu", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", 8),
            "autocast_dtype": ("torch_cpu", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", 8),
            "default_dtype": ("c10", "_ZN3c1017get_default_dtypeEv", 16),
            "grad_mode": ("c10", "_ZN3c108GradMode10is_enabledEv", 8),
            "inference_mode": ("c10", "_ZN3c1013InferenceMode10is_enabledEv", 8),
            "requires_grad": ("c10", "_ZNK3c1010TensorImpl13requires_gradEv", 8),
        }
        assert list(names) == [field.name for field in fields(cls)]
        found = [function for function in (torch_function(*name) for name in names.values()) if function is not None]
        return cls(*found) if len(found) == len(names) else None


def emit_settings(library: Library, modes: Modes, settings: Settings) -> Routine:
    """settings(): all settings that decide what operations a call does, in one word; or WATCHED."""
    routine = library.routine("settings", 0)
    transforms = routine.call(settings.transforms)
    watchers = [
        routine.call(modes.function_mode),
        routine.call(modes.dispatch_mode, 0),
        routine.load(routine.call(settings.tracing)),
        routine.differing_bits(routine.load(transforms, 0), routine.load(transforms, 1)),
        routine.load(suspended.address),
    ]
    is_watched = watchers[0]
    for watcher in watchers[1:]:
        is_watched = routine.united_bits(is_watched, watcher)
    with routine.when(routine.compare(is_watched, "!=", 0)):
        routine.give_back(WATCHED)
    cell = routine.stack(1)
    routine.store(0, cell)
    with routine.when(routine.compare(routine.call(settings.autocast, _CPU), "!=", 0)):
        dtype = routine.call(settings.autocast_dtype, _CPU)
        routine.store(routine.united_bits(routine.shift_left(dtype, 1), 1), cell)
    word = routine.load(cell)
    for function, bits in ((settings.default_dtype, 16), (settings.grad_mode, 8), (settings.inference_mode, 8)):
        word = routine.united_bits(routine.shift_left(word, bits), routine.call(function))
    routine.give_back(word)
    return routine


# --- places -----------------------------------------------------------------------------------------------------------


class Places(Placed):
    """Places in Python and the objects they must hold, which are kept alive."""

    def __init__(self) -> None:
        super().__init__()
        self._words: list[int] = []
        self._items: list[int] = []
        self._entries: list[int] = []
        self._contexts: list[int] = []

    def __len__(self) -> int:
        return len(self._words) // _PAIR + (len(self._items) + len(self._entries) + len(self._contexts)) // _TRIPLE

    def dictionary_holds(self, table: dict[Any, Any], key: str | int, value: Any) -> None:
        self.keep(table, key, value)
        self._entries += [id(table), id(key), id(value)]

    def dictionary_lacks(self, table: dict[Any, Any], key: str | int) -> None:
        self.keep(table, key)
        self._entries += [id(table), id(key), 0]

    def list_holds(self, values: list[Any], index: int, value: Any) -> None:
        self.keep(values, value)
        self._items += [id(values), index, id(value)]

    def cell_holds(self, cell: types.CellType, value: Any) -> None:
        self.keep(cell, value)
        self._words += [id(cell) + _CELL_WORD * 8, id(value)]

    def cell_is_empty(self, cell: types.CellType) -> None:
        self.keep(cell)
        self._words += [id(cell) + _CELL_WORD * 8, 0]

    def context_holds(self, variable: contextvars.ContextVar[Any], default: Any, value: Any) -> None:
        """What `variable.get(default)` gives."""
        self.keep(variable, default, value)
        self._contexts += [id(variable), id(default), id(value)]

    def has_length(self, container: list[Any] | dict[Any, Any], length: int) -> None:
        self.keep(container)
        self._words += [id(container) + layout.LENGTH_WORD * 8, length]

    def words(self) -> list[int]:
        """What a record has of them."""
        triples = (self._items, self._entries, self._contexts)
        placed = [self.place(words) for words in (self._words, *triples)]
        counts = [len(self._words) // _PAIR, *(len(words) // _TRIPLE for words in triples)]
        return [word for both in zip(counts, placed, strict=True) for word in both]


def emit_places_hold(library: Library) -> Routine:
    """places_hold(places): whether every place holds what it held."""
    routine = library.routine("places_hold", 1)
    (places,) = routine.parameters
    words, items, entries = (routine.load(places, place) for place in (WORDS, ITEMS, ENTRIES))
    with routine.loop(routine.load(places, WORD_COUNT)) as index:
        pair = routine.add(words, routine.multiply(index, _PAIR * 8))
        _require(routine, routine.load(routine.load(pair)), routine.load(pair, 1))
    with routine.loop(routine.load(places, ITEM_COUNT)) as index:
        triple = routine.add(items, routine.multiply(index, _TRIPLE * 8))
        values, position = routine.load(triple), routine.load(triple, 1)
        with routine.when(routine.compare(position, ">=", routine.load(values, layout.LENGTH_WORD))):
            routine.give_back(0)
        found = routine.load(routine.load(values, layout.ITEMS_WORD), position)
        _require(routine, found, routine.load(triple, 2))
    find = python_function("PyDict_GetItemWithError")
    with routine.loop(routine.load(places, ENTRY_COUNT)) as index:
        triple = routine.add(entries, routine.multiply(index, _TRIPLE * 8))
        found = routine.call(find, routine.load(triple), routine.load(triple, 1))
        with routine.when(routine.compare(found, "==", 0)):
            routine.call(python_function("PyErr_Clear"))  # another key of the dictionary may refuse to be compared
        _require(routine, found, routine.load(triple, 2))
    _emit_contexts_hold(routine, places)
    routine.give_back(1)
    return routine


def _emit_contexts_hold(routine: Routine, places: Value) -> None:
    contexts, cell = routine.load(places, CONTEXTS), routine.stack(1)
    with routine.loop(routine.load(places, CONTEXT_COUNT)) as index:
        triple = routine.add(contexts, routine.multiply(index, _TRIPLE * 8))
        routine.store(0, cell)
        find = python_function("PyContextVar_Get", 32)
        failure = routine.call(find, routine.load(triple), routine.load(triple, 1), cell)
        with routine.when(routine.compare(failure, "!=", 0)):
            routine.call(python_function("PyErr_Clear"))
            routine.give_back(0)
        found = routine.load(cell)
        routine.call(python_function("Py_DecRef"), found)  # the variable holds it, too, or is not what was expected
        _require(routine, found, routine.load(triple, 2))


def _require(routine: Routine, found: Value, expected: Value) -> None:
    with routine.when(routine.compare(found, "!=", expected)):
        routine.give_back(0)


def are_places_as_expected() -> bool:
    """Whether cells and dictionaries lie in memory as these routines read them."""
    content = object()
    cell, empty = types.CellType(content), types.CellType()
    table = {"a": 1, "b": 2, "c": 3}
    read = lambda thing, word: ctypes.c_uint64.from_address(id(thing) + word * 8).value
    return (
        read(cell, _CELL_WORD) == id(content)
        and read(empty, _CELL_WORD) == 0
        and read(table, layout.LENGTH_WORD) == len(table)
        and read({}, layout.LENGTH_WORD) == 0
    )
