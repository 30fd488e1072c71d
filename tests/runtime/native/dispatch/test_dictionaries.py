"""Places in dictionaries hold exactly as long as the dictionary gives the very object, whatever else happens to it."""

import ctypes
import random
import types

from ingot.base.once import once
from ingot.runtime.native.assembler.routines import Library
from ingot.runtime.native.dispatch.conditions import Places, emit_places_hold


@once
def _hold():
    library = Library("test")
    emit_places_hold(library)
    library.compile()
    return library, ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(library.address("places_hold"))


def holds(places):
    return bool(_hold()[1](places.place_all([places.native()])))


def test_an_entry_that_has_moved_is_found():
    value, places = object(), Places()
    table = {"name": value}
    places.dictionary_holds(table, "name", value)
    table.update({f"other {number}": number for number in range(1000)})
    assert holds(places)
    del table["name"]
    assert not holds(places)


def test_an_entry_taken_out_and_put_back_is_found():
    value, places = object(), Places()
    table = {"first": 1, "name": value, "last": 2}
    places.dictionary_holds(table, "name", value)
    del table["name"]
    assert not holds(places)
    table["name"] = value
    assert holds(places)


def test_another_key_with_the_same_value_is_not_taken_for_it():
    """The dictionary is emptied, and filled again in the same memory."""
    value, places = object(), Places()
    table = {"name": value}
    places.dictionary_holds(table, "name", value)
    for number in range(100):
        table.clear()
        table[f"other {number}"] = value
        assert not holds(places)
    table.clear()
    table["".join(["na", "me"])] = value
    assert holds(places)


def test_the_same_value_under_several_keys():
    value, places = object(), Places()
    table = {f"name {number}": value for number in range(10)}
    for name in table:
        places.dictionary_holds(table, name, value)
    assert holds(places)
    table["name 7"] = object()
    assert not holds(places)


def test_a_key_is_found_by_an_equal_one():
    table, places = {"some name": object()}, Places()
    places.dictionary_holds(table, "".join(["some ", "name"]), table["some name"])
    assert holds(places)


def test_dictionaries_of_all_kinds():
    """With keys that are not texts, of objects that share a table, or with nothing to be found."""
    some, places = types.SimpleNamespace(name=object()), Places()
    numbered, shared = {1: object()}, vars(type("Class", (), {"__init__": lambda self: setattr(self, "a", 1)})())
    places.dictionary_holds(numbered, 1, numbered[1])
    places.dictionary_holds(shared, "a", shared["a"])
    places.dictionary_lacks(vars(some), "other")
    assert holds(places)
    some.other = 1
    assert not holds(places)


def test_native_code_and_python_agree_after_every_change_of_a_dictionary():
    random_, places = random.Random(0), Places()
    names, values = [f"name {number}" for number in range(40)], [object() for _ in range(3)]
    table = {name: random_.choice(values) for name in names}
    expected, seen = dict(table), []
    for name in names:
        places.dictionary_holds(table, name, table[name])
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
        assert holds(places) is seen[-1]
    assert {True, False} == set(seen)
