"""What places in Python must hold for a record of a call to answer.

In: places (entries and order of dictionaries, items of lists, cells, lengths, words of objects, answers of functions)
with what they hold. Out: a native routine that compares.
"""

from __future__ import annotations

import contextvars
import ctypes
import types
from typing import Any

from ingot.runtime.native import layout
from ingot.runtime.native.addresses import python_function
from ingot.runtime.native.dictionaries import TABLE_WORD, USED_WORD, entry_of
from ingot.runtime.native.records import Placed
from ingot.runtime.native.routines import Library, Routine, Value

# The words of places: how many of each kind, and where they are.
WORD_COUNT, WORDS, ITEM_COUNT, ITEMS, ENTRY_COUNT, ENTRIES, CONTEXT_COUNT, CONTEXTS = range(8)
ORDER_COUNT, ORDERS, ANSWER_COUNT, ANSWERS, FLAG_COUNT, FLAGS = range(8, 14)
_CELL_WORD = 2
_PAIR, _TRIPLE = 2, 3
# An entry of a dictionary: what must be there, and where it was, or else no table.
_DICTIONARY, _KEY, _VALUE, _TABLE, _NUMBER, _ADDRESS, _FOUND_KEY = range(7)
_ENTRY_WORDS = 7


class Places(Placed):
    """Places in Python and the objects they must hold, which are kept alive."""

    def __init__(self) -> None:
        super().__init__()
        self._words: list[int] = []
        self._items: list[int] = []
        self._entries: list[int] = []
        self._contexts: list[int] = []
        self._orders: list[int] = []
        self._answers: list[int] = []
        self._flags: list[int] = []

    def __len__(self) -> int:
        triples = (len(self._items) + len(self._contexts)) // _TRIPLE
        others = (len(self._words) + len(self._orders) + len(self._flags)) // _TRIPLE + len(self._answers) // _PAIR
        return others + triples + len(self._entries) // _ENTRY_WORDS

    def dictionary_holds(self, table: dict[Any, Any], key: str | int, value: Any) -> None:
        entry = entry_of(table, key, value)
        self.keep(table, key, value, entry)
        known = [0, 0, 0, 0] if entry is None else [entry.table, entry.number, entry.address, id(entry.key)]
        self._entries += [id(table), id(key), id(value), *known]

    def dictionary_lacks(self, table: dict[Any, Any], key: str | int) -> None:
        self.keep(table, key)
        self._entries += [id(table), id(key), 0, 0, 0, 0, 0]

    def list_holds(self, values: list[Any], index: int, value: Any) -> None:
        self.keep(values, value)
        self._items += [id(values), index, id(value)]

    def cell_holds(self, cell: types.CellType, value: Any) -> None:
        self.keep(cell, value)
        self.word_is(id(cell) + _CELL_WORD * 8, id(value))

    def cell_is_empty(self, cell: types.CellType) -> None:
        self.keep(cell)
        self.word_is(id(cell) + _CELL_WORD * 8, 0)

    def context_holds(self, variable: contextvars.ContextVar[Any], default: Any, value: Any) -> None:
        """What `variable.get(default)` gives."""
        self.keep(variable, default, value)
        self._contexts += [id(variable), id(default), id(value)]

    def has_length(self, container: list[Any] | dict[Any, Any], length: int) -> None:
        self.keep(container)
        self.word_is(id(container) + layout.LENGTH_WORD * 8, length)

    def word_is(self, address: int, expected: int, mask: int = -1) -> None:
        """A word of memory that something kept here owns; only the bits of the mask count."""
        self._words += [address, mask, expected & mask]

    def dictionary_is(self, table: dict[Any, Any]) -> None:
        """All entries of a dictionary, by identity and in order."""
        pairs = [(key, value) for key, value in dict.items(table)]
        self.keep(table, pairs)
        self.has_length(table, len(pairs))
        words = [id(part) for pair in pairs for part in pair]
        self._orders += [id(table), len(pairs), self.place(words)]

    def answers(self, function: Any, expected: Any) -> None:
        """The very object that a Python function without arguments gives."""
        self.keep(function, expected)
        self._answers += [id(function), id(expected)]

    def flag_is(self, function: int, argument: int, expected: bool) -> None:
        """What a C function at an address tells of a word."""
        self._flags += [function, argument, int(expected)]

    def words(self) -> list[int]:
        """What a record has of them."""
        kinds = (
            (self._words, _TRIPLE),
            (self._items, _TRIPLE),
            (self._entries, _ENTRY_WORDS),
            (self._contexts, _TRIPLE),
            (self._orders, _TRIPLE),
            (self._answers, _PAIR),
            (self._flags, _TRIPLE),
        )
        return [word for words, size in kinds for word in (len(words) // size, self.place(words))]


def emit_places_hold(library: Library) -> Routine:
    """places_hold(places): whether every place holds what it held."""
    routine = library.routine("places_hold", 1)
    (places,) = routine.parameters
    words, items = (routine.load(places, place) for place in (WORDS, ITEMS))
    with routine.loop(routine.load(places, WORD_COUNT)) as index:
        triple = routine.add(words, routine.multiply(index, _TRIPLE * 8))
        found = routine.common_bits(routine.load(routine.load(triple)), routine.load(triple, 1))
        _require(routine, found, routine.load(triple, 2))
    with routine.loop(routine.load(places, ITEM_COUNT)) as index:
        triple = routine.add(items, routine.multiply(index, _TRIPLE * 8))
        values, position = routine.load(triple), routine.load(triple, 1)
        with routine.when(routine.compare(position, ">=", routine.load(values, layout.LENGTH_WORD))):
            routine.give_back(0)
        found = routine.load(routine.load(values, layout.ITEMS_WORD), position)
        _require(routine, found, routine.load(triple, 2))
    _emit_entries_hold(routine, places)
    _emit_contexts_hold(routine, places)
    _emit_orders_hold(routine, places)
    _emit_flags_hold(routine, places)
    _emit_answers_hold(routine, places)
    routine.give_back(1)
    return routine


def _emit_entries_hold(routine: Routine, places: Value) -> None:
    entries, is_there = routine.load(places, ENTRIES), routine.stack(1)
    find = python_function("PyDict_GetItemWithError")
    with routine.loop(routine.load(places, ENTRY_COUNT)) as index:
        entry = routine.add(entries, routine.multiply(index, _ENTRY_WORDS * 8))
        dictionary, value = routine.load(entry, _DICTIONARY), routine.load(entry, _VALUE)
        routine.store(0, is_there)
        _look_where_it_was(routine, entry, dictionary, value, is_there)
        with routine.when(routine.compare(routine.load(is_there), "==", 0)):
            found = routine.call(find, dictionary, routine.load(entry, _KEY))
            with routine.when(routine.compare(found, "==", 0)):
                routine.call(python_function("PyErr_Clear"))  # another key of the dictionary may refuse to be compared
            _require(routine, found, value)


def _look_where_it_was(routine: Routine, entry: Value, dictionary: Value, value: Value, is_there: Value) -> None:
    """Note whether a dictionary has an entry at the place where it had it, if it still uses the same table."""
    table = routine.load(dictionary, TABLE_WORD)
    with routine.when(routine.compare(table, "==", routine.load(entry, _TABLE))):
        number, used = routine.load(entry, _NUMBER), routine.load(table, USED_WORD)
        with routine.when(routine.compare(number, "<", used)):
            address = routine.load(entry, _ADDRESS)
            is_same = routine.both(
                routine.compare(routine.load(address), "==", routine.load(entry, _FOUND_KEY)),
                routine.compare(routine.load(address, 1), "==", value),
            )
            routine.store(routine.choose(is_same, 1, 0), is_there)


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


def _emit_orders_hold(routine: Routine, places: Value) -> None:
    orders, position, pair = routine.load(places, ORDERS), routine.stack(1), routine.stack(2)
    with routine.loop(routine.load(places, ORDER_COUNT)) as index:
        triple = routine.add(orders, routine.multiply(index, _TRIPLE * 8))
        dictionary, expected = routine.load(triple), routine.load(triple, 2)
        routine.store(0, position)
        with routine.loop(routine.load(triple, 1)) as number:
            following = python_function("PyDict_Next", 32)
            is_there = routine.call(following, dictionary, position, pair, routine.add(pair, 8))
            with routine.when(routine.compare(is_there, "==", 0)):
                routine.give_back(0)
            place = routine.add(expected, routine.multiply(number, _PAIR * 8))
            _require(routine, routine.load(pair, 0), routine.load(place, 0))
            _require(routine, routine.load(pair, 1), routine.load(place, 1))


def _emit_flags_hold(routine: Routine, places: Value) -> None:
    flags = routine.load(places, FLAGS)
    with routine.loop(routine.load(places, FLAG_COUNT)) as index:
        triple = routine.add(flags, routine.multiply(index, _TRIPLE * 8))
        found = routine.call(routine.load(triple), routine.load(triple, 1))
        _require(routine, routine.common_bits(found, 0xFF), routine.load(triple, 2))


def _emit_answers_hold(routine: Routine, places: Value) -> None:
    answers = routine.load(places, ANSWERS)
    with routine.loop(routine.load(places, ANSWER_COUNT)) as index:
        pair = routine.add(answers, routine.multiply(index, _PAIR * 8))
        found = routine.call(python_function("PyObject_CallNoArgs"), routine.load(pair))
        with routine.when(routine.compare(found, "==", 0)):
            routine.call(python_function("PyErr_Clear"))
            routine.give_back(0)
        routine.call(python_function("Py_DecRef"), found)  # another object has it, too, or it is not the one expected
        _require(routine, found, routine.load(pair, 1))


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
