"""What places in Python must hold for a record of a call to answer.

In: places (entries of dictionaries, items of lists, cells, lengths) with what they hold. Out: a native routine that
compares.
"""

from __future__ import annotations

import contextvars
import ctypes
import types
from typing import Any

from ingot.runtime.native import layout
from ingot.runtime.native.addresses import python_function
from ingot.runtime.native.records import Placed
from ingot.runtime.native.routines import Library, Routine, Value

# The words of places: how many of each kind, and where they are.
WORD_COUNT, WORDS, ITEM_COUNT, ITEMS, ENTRY_COUNT, ENTRIES, CONTEXT_COUNT, CONTEXTS = range(8)
_CELL_WORD = 2
_PAIR, _TRIPLE = 2, 3


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
