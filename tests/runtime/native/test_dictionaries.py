"""Entries of dictionaries are compared where they lie, and looked up only if they do not lie there any more."""

import ctypes
import random
import types

import pytest

from ingot.runtime.native import conditions
from ingot.runtime.native.addresses import python_function
from ingot.runtime.native.conditions import Places, emit_places_hold
from ingot.runtime.native.dictionaries import entry_of
from ingot.runtime.native.routines import Foreign, Library


class Looking:
    """Places that say how often a dictionary was asked."""

    def __init__(self, monkeypatch):
        library, find = Library(), python_function("PyDict_GetItemWithError")
        count = library.memory("count", 1)
        library.routine("where", 0).give_back(count)
        asked = library.routine("asked", 2)
        asked.increase(1, count)
        asked.give_back(asked.call(find, *asked.parameters))
        library.compile()
        counting = Foreign(library.address("asked"))
        replaced = lambda name, bits=64: counting if name == "PyDict_GetItemWithError" else python_function(name, bits)
        self._count = ctypes.c_int64.from_address(ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("where"))())
        monkeypatch.setattr(conditions, "python_function", replaced)
        holding = Library()
        emit_places_hold(holding)
        holding.compile()
        self._libraries = library, holding
        self._hold = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(holding.address("places_hold"))
        self.places = Places()

    def __call__(self):
        """Whether everything is as it was, and how often somebody was asked."""
        before = self._count.value
        holds = bool(self._hold(self.places.place(self.places.words())))
        return holds, self._count.value - before


@pytest.fixture
def looking(monkeypatch):
    return Looking(monkeypatch)


@pytest.mark.parametrize("size", [1, 5, 100, 70_000])
def test_an_entry_is_compared_where_it_lies(looking, size):
    table = {f"name {number}": object() for number in range(size)}
    for number in {0, size // 2, size - 1}:
        looking.places.dictionary_holds(table, f"name {number}", table[f"name {number}"])
    assert looking() == (True, 0)
    table[f"name {size - 1}"] = object()
    assert looking() == (False, 1)


def test_an_entry_that_has_moved_is_looked_up(looking):
    value = object()
    table = {"name": value}
    looking.places.dictionary_holds(table, "name", value)
    table.update({f"other {number}": number for number in range(1000)})
    assert looking() == (True, 1)
    del table["name"]
    assert looking() == (False, 1)


def test_an_entry_taken_out_and_put_back_is_looked_up(looking):
    value = object()
    table = {"first": 1, "name": value, "last": 2}
    looking.places.dictionary_holds(table, "name", value)
    del table["name"]
    assert looking() == (False, 1)
    table["name"] = value
    assert looking() == (True, 1)


def test_another_key_with_the_same_value_is_not_taken_for_it(looking):
    """The dictionary is emptied, and filled again in the same memory."""
    value = object()
    table = {"name": value}
    looking.places.dictionary_holds(table, "name", value)
    for number in range(100):
        table.clear()
        table[f"other {number}"] = value
        assert looking()[0] is False
    table.clear()
    table["".join(["na", "me"])] = value
    assert looking()[0] is True


def test_the_same_value_under_several_keys(looking):
    value = object()
    table = {f"name {number}": value for number in range(10)}
    for name in table:
        looking.places.dictionary_holds(table, name, value)
    assert looking() == (True, 0)
    table["name 7"] = object()
    assert looking() == (False, 1)


def test_a_key_is_found_by_an_equal_one(looking):
    table = {"some name": object()}
    looking.places.dictionary_holds(table, "".join(["some ", "name"]), table["some name"])
    assert looking() == (True, 0)


def test_dictionaries_of_other_kinds_are_asked(looking):
    """With keys that are not texts, of objects that share a table, or with nothing to be found."""
    some = types.SimpleNamespace(name=object())
    numbered, shared = {1: object()}, vars(type("Class", (), {"__init__": lambda self: setattr(self, "a", 1)})())
    looking.places.dictionary_holds(numbered, 1, numbered[1])
    looking.places.dictionary_holds(shared, "a", shared["a"])
    looking.places.dictionary_lacks(vars(some), "other")
    assert looking() == (True, 3)
    assert entry_of(numbered, 1, numbered[1]) is None and entry_of({}, "a", 1) is None
    assert entry_of({"a": 1}, "a", object()) is None


def test_whatever_happens_to_a_dictionary_both_ways_agree(looking):
    random_ = random.Random(0)
    names, values = [f"name {number}" for number in range(40)], [object() for _ in range(3)]
    table = {name: random_.choice(values) for name in names}
    expected, seen = dict(table), []
    for name in names:
        looking.places.dictionary_holds(table, name, table[name])
    for _ in range(3000):
        name = random_.choice(names)
        action = random_.randrange(20)
        if action == 0:
            table.clear()
        elif action == 1:
            table.update(expected)
        elif action == 2:
            table[f"new {random_.randrange(100)}"] = values[0]
        elif action < 6:
            table.pop(name, None)
        else:
            table[name] = expected[name] if action < 18 else random_.choice(values)
        seen.append(all(table.get(name) is value for name, value in expected.items()))
        assert looking()[0] is seen[-1]
    assert {True, False} == set(seen)
