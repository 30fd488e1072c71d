"""What places in Python must hold for a record of a call to answer.

In: places (entries and order of dictionaries, items of lists, cells, lengths, words of objects, answers of functions)
with what they hold. Out: a native routine that compares.
"""

from __future__ import annotations

import contextvars
import ctypes
import types
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ingot.runtime.native.abi import object_layout
from ingot.runtime.native.abi.dictionary_versions import NO_VERSION, VERSION_WORD, has_version
from ingot.runtime.native.assembler.addresses import python_function
from ingot.runtime.native.assembler.routines import Library, Routine, Value
from ingot.runtime.native.assembler.structs import WORD_BYTES, Field, Struct
from ingot.runtime.native.launch.records import Placed

_CELL_WORD = 2
ANY_COUNT = -1
"""Instead of a number of entries: a dictionary may have others, too."""


class WordPlace(Struct):
    """A word of memory."""

    where: Field
    mask: Field
    """The bits that count."""
    expected: Field


class ItemPlace(Struct):
    """An item of a list."""

    values: Field
    index: Field
    expected: Field


class EntryPlace(Struct):
    """An entry of a dictionary."""

    key: Field
    expected: Field
    """0 where there must be none."""


class DictionaryPlace(Struct):
    """Entries of a dictionary, or all of them in their order."""

    dictionary: Field
    version: Field
    """The dictionary's version when it was last seen to hold what it must; NO_VERSION before."""
    has_version: Field
    """Whether its version changes whenever the dictionary does."""
    entry_count: Field
    entries: Field
    pair_count: Field
    """How many entries it must have in all; ANY_COUNT where that does not matter."""
    pairs: Field


class ContextPlace(Struct):
    """What a context variable gives."""

    variable: Field
    default: Field
    expected: Field


class Pair(Struct):
    key: Field
    value: Field


class AnswerPlace(Struct):
    """What a Python function without arguments gives."""

    function: Field
    expected: Field


class FlagPlace(Struct):
    """What a C function tells of a word."""

    function: Field
    argument: Field
    expected: Field


class PlacesWords(Struct):
    """How many places of each kind there are, and where."""

    word_count: Field
    word_places: Field
    item_count: Field
    items: Field
    dictionary_count: Field
    dictionaries: Field
    context_count: Field
    contexts: Field
    answer_count: Field
    answers: Field
    flag_count: Field
    flags: Field


@dataclass(slots=True)
class _DictionaryPlaces:
    """What a dictionary must hold."""

    dictionary: dict[Any, Any]
    entries: list[EntryPlace] = field(default_factory=list)
    pairs: list[Pair] | None = None
    """All its entries in their order, if they must be these."""

    def __len__(self) -> int:
        return len(self.entries) + (self.pairs is not None)


class Places(Placed):
    """Places in Python and the objects they must hold, which are kept alive."""

    def __init__(self) -> None:
        super().__init__()
        self._words: list[WordPlace] = []
        self._items: list[ItemPlace] = []
        self._dictionaries: dict[int, _DictionaryPlaces] = {}
        self._contexts: list[ContextPlace] = []
        self._answers: list[AnswerPlace] = []
        self._flags: list[FlagPlace] = []

    def __len__(self) -> int:
        kinds = (self._words, self._items, self._contexts, self._answers, self._flags)
        return sum(map(len, kinds)) + sum(map(len, self._dictionaries.values()))

    def dictionary_holds(self, table: dict[Any, Any], key: Hashable, value: Any) -> None:
        """Comparing the key with others of its hash must run no code of the user's."""
        self.keep(table, key, value)
        self._of(table).entries.append(EntryPlace(key=id(key), expected=id(value)))

    def dictionary_lacks(self, table: dict[Any, Any], key: str | int) -> None:
        self.keep(table, key)
        self._of(table).entries.append(EntryPlace(key=id(key), expected=0))

    def list_holds(self, values: list[Any], index: int, value: Any) -> None:
        self.keep(values, value)
        self._items.append(ItemPlace(values=id(values), index=index, expected=id(value)))

    def cell_holds(self, cell: types.CellType, value: Any) -> None:
        self.keep(cell, value)
        self.word_is(id(cell) + _CELL_WORD * WORD_BYTES, id(value))

    def cell_is_empty(self, cell: types.CellType) -> None:
        self.keep(cell)
        self.word_is(id(cell) + _CELL_WORD * WORD_BYTES, 0)

    def context_holds(self, variable: contextvars.ContextVar[Any], default: Any, value: Any) -> None:
        """What `variable.get(default)` gives."""
        self.keep(variable, default, value)
        self._contexts.append(ContextPlace(variable=id(variable), default=id(default), expected=id(value)))

    def _of(self, table: dict[Any, Any]) -> _DictionaryPlaces:
        return self._dictionaries.setdefault(id(table), _DictionaryPlaces(table))

    def has_length(self, container: list[Any] | dict[Any, Any], length: int) -> None:
        self.keep(container)
        self.word_is(id(container) + object_layout.LENGTH_WORD * WORD_BYTES, length)

    def word_is(self, address: int, expected: int, mask: int = -1) -> None:
        """A word of memory that something kept here owns; only the bits of the mask count."""
        self._words.append(WordPlace(where=address, mask=mask, expected=expected & mask))

    def dictionary_is(self, table: dict[Any, Any]) -> None:
        """All entries of a dictionary, by identity and in order."""
        pairs = list(dict.items(table))
        self.keep(table, pairs)
        self._of(table).pairs = [Pair(key=id(key), value=id(value)) for key, value in pairs]

    def answers(self, function: Any, expected: Any) -> None:
        """The very object that a Python function without arguments gives."""
        self.keep(function, expected)
        self._answers.append(AnswerPlace(function=id(function), expected=id(expected)))

    def flag_is(self, function: int, argument: int, expected: bool) -> None:
        """What a C function at an address tells of a word."""
        self._flags.append(FlagPlace(function=function, argument=argument, expected=int(expected)))

    def native(self) -> PlacesWords:
        """What a record has of them."""
        return PlacesWords(
            word_count=len(self._words),
            word_places=self.place_all(self._words),
            item_count=len(self._items),
            items=self.place_all(self._items),
            dictionary_count=len(self._dictionaries),
            dictionaries=self.place_all(map(self._dictionary, self._dictionaries.values())),
            context_count=len(self._contexts),
            contexts=self.place_all(self._contexts),
            answer_count=len(self._answers),
            answers=self.place_all(self._answers),
            flag_count=len(self._flags),
            flags=self.place_all(self._flags),
        )

    def _dictionary(self, places: _DictionaryPlaces) -> DictionaryPlace:
        return DictionaryPlace(
            dictionary=id(places.dictionary),
            version=NO_VERSION,
            has_version=int(has_version(places.dictionary)),
            entry_count=len(places.entries),
            entries=self.place_all(places.entries),
            pair_count=ANY_COUNT if places.pairs is None else len(places.pairs),
            pairs=self.place_all(places.pairs or ()),
        )


def emit_places_hold(library: Library) -> Routine:
    """places_hold(places): whether every place holds what it held."""
    dictionary_holds = _emit_dictionary_holds(library)
    routine = library.routine("places_hold", 1)
    (places,) = routine.parameters
    _emit_words_hold(routine, places)
    _emit_items_hold(routine, places)
    _emit_dictionaries_hold(routine, places, dictionary_holds)
    _emit_contexts_hold(routine, places)
    _emit_flags_hold(routine, places)
    _emit_answers_hold(routine, places)
    routine.give_back(1)
    return routine


def _emit_words_hold(routine: Routine, places: Value) -> None:
    words = routine.load(places, PlacesWords.word_places)
    with routine.loop(routine.load(places, PlacesWords.word_count)) as index:
        place = routine.item(words, index, WordPlace)
        word = routine.load(routine.load(place, WordPlace.where))
        found = routine.common_bits(word, routine.load(place, WordPlace.mask))
        _require(routine, found, routine.load(place, WordPlace.expected))


def _emit_items_hold(routine: Routine, places: Value) -> None:
    items = routine.load(places, PlacesWords.items)
    with routine.loop(routine.load(places, PlacesWords.item_count)) as index:
        place = routine.item(items, index, ItemPlace)
        values, position = routine.load(place, ItemPlace.values), routine.load(place, ItemPlace.index)
        with routine.when(routine.compare(position, ">=", routine.load(values, object_layout.LENGTH_WORD))):
            routine.give_back(0)
        found = routine.load(routine.load(values, object_layout.ITEMS_WORD), position)
        _require(routine, found, routine.load(place, ItemPlace.expected))


def _emit_dictionaries_hold(routine: Routine, places: Value, dictionary_holds: Routine) -> None:
    """Dictionaries whose version is the one they had when they were last looked at hold what they held then."""
    dictionaries = routine.load(places, PlacesWords.dictionaries)
    with routine.loop(routine.load(places, PlacesWords.dictionary_count)) as index:
        place = routine.item(dictionaries, index, DictionaryPlace)
        version = routine.load(routine.load(place, DictionaryPlace.dictionary), VERSION_WORD)
        with routine.when(routine.compare(version, "!=", routine.load(place, DictionaryPlace.version))):
            _require(routine, routine.call(dictionary_holds, place), 1)
            # The version from before the look: comparing keys may run Python code, which may change the dictionary.
            has_one = routine.compare(routine.load(place, DictionaryPlace.has_version), "!=", 0)
            routine.store(routine.choose(has_one, version, NO_VERSION), place, DictionaryPlace.version)


def _emit_dictionary_holds(library: Library) -> Routine:
    """dictionary_holds(place): whether a dictionary, looked at entry by entry, holds what it must."""
    routine = library.routine("dictionary_holds", 1)
    (place,) = routine.parameters
    dictionary = routine.load(place, DictionaryPlace.dictionary)
    _emit_entries_hold(routine, place, dictionary)
    _emit_pairs_hold(routine, place, dictionary)
    routine.give_back(1)
    return routine


def _emit_entries_hold(routine: Routine, place: Value, dictionary: Value) -> None:
    entries, find = routine.load(place, DictionaryPlace.entries), python_function("PyDict_GetItemWithError")
    with routine.loop(routine.load(place, DictionaryPlace.entry_count)) as index:
        entry = routine.item(entries, index, EntryPlace)
        found = routine.call(find, dictionary, routine.load(entry, EntryPlace.key))
        with routine.when(routine.compare(found, "==", 0)):
            routine.call(python_function("PyErr_Clear"))  # another key of the dictionary may refuse to be compared
        _require(routine, found, routine.load(entry, EntryPlace.expected))


def _emit_pairs_hold(routine: Routine, place: Value, dictionary: Value) -> None:
    count, pairs = routine.load(place, DictionaryPlace.pair_count), routine.load(place, DictionaryPlace.pairs)
    position, pair = routine.stack(1), routine.stack(Pair.words())
    with routine.when(routine.compare(count, "==", ANY_COUNT)):
        routine.give_back(1)
    _require(routine, routine.load(dictionary, object_layout.LENGTH_WORD), count)
    routine.store(0, position)
    with routine.loop(count) as number:
        key, value = routine.part(pair, Pair.key), routine.part(pair, Pair.value)
        is_there = routine.call(python_function("PyDict_Next", 32), dictionary, position, key, value)
        with routine.when(routine.compare(is_there, "==", 0)):
            routine.give_back(0)
        wanted = routine.item(pairs, number, Pair)
        for part in (Pair.key, Pair.value):
            _require(routine, routine.load(pair, part), routine.load(wanted, part))


def _emit_contexts_hold(routine: Routine, places: Value) -> None:
    contexts, cell = routine.load(places, PlacesWords.contexts), routine.stack(1)
    with routine.loop(routine.load(places, PlacesWords.context_count)) as index:
        place = routine.item(contexts, index, ContextPlace)
        variable, default = routine.load(place, ContextPlace.variable), routine.load(place, ContextPlace.default)
        routine.store(0, cell)
        failure = routine.call(python_function("PyContextVar_Get", 32), variable, default, cell)
        with routine.when(routine.compare(failure, "!=", 0)):
            routine.call(python_function("PyErr_Clear"))
            routine.give_back(0)
        found = routine.load(cell)
        routine.call(python_function("Py_DecRef"), found)  # the variable holds it, too, or is not what was expected
        _require(routine, found, routine.load(place, ContextPlace.expected))


def _emit_flags_hold(routine: Routine, places: Value) -> None:
    flags = routine.load(places, PlacesWords.flags)
    with routine.loop(routine.load(places, PlacesWords.flag_count)) as index:
        place = routine.item(flags, index, FlagPlace)
        found = routine.call(routine.load(place, FlagPlace.function), routine.load(place, FlagPlace.argument))
        _require(routine, routine.common_bits(found, 0xFF), routine.load(place, FlagPlace.expected))


def _emit_answers_hold(routine: Routine, places: Value) -> None:
    answers = routine.load(places, PlacesWords.answers)
    with routine.loop(routine.load(places, PlacesWords.answer_count)) as index:
        place = routine.item(answers, index, AnswerPlace)
        found = routine.call(python_function("PyObject_CallNoArgs"), routine.load(place, AnswerPlace.function))
        with routine.when(routine.compare(found, "==", 0)):
            routine.call(python_function("PyErr_Clear"))
            routine.give_back(0)
        routine.call(python_function("Py_DecRef"), found)  # another object has it, too, or it is not the one expected
        _require(routine, found, routine.load(place, AnswerPlace.expected))


def _require(routine: Routine, found: Value, expected: Value) -> None:
    with routine.when(routine.compare(found, "!=", expected)):
        routine.give_back(0)


def are_places_as_expected() -> bool:
    """Whether cells and dictionaries lie in memory as these routines read them."""
    content = object()
    cell, empty = types.CellType(content), types.CellType()
    table = {"a": 1, "b": 2, "c": 3}
    read = lambda thing, word: ctypes.c_uint64.from_address(id(thing) + word * WORD_BYTES).value
    return (
        read(cell, _CELL_WORD) == id(content)
        and read(empty, _CELL_WORD) == 0
        and read(table, object_layout.LENGTH_WORD) == len(table)
        and read({}, object_layout.LENGTH_WORD) == 0
    )
