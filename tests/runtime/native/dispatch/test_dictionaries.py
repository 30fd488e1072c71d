"""Places in dictionaries hold exactly as long as the dictionary gives the very object, whatever else happens to it."""

import ctypes
import random
import sys
import types
from typing import Any

import pytest

from ingot.base.once import once
from ingot.runtime.native.abi.dictionary_versions import has_version
from ingot.runtime.native.assembler.routines import Library
from ingot.runtime.native.dispatch import conditions
from ingot.runtime.native.dispatch.conditions import Places, emit_places_hold


@once
def _hold():
    library = Library("test")
    emit_places_hold(library)
    library.compile()
    return library, ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(library.address("places_hold"))


@pytest.fixture(params=["versions", "entries"], autouse=True)
def looked_at(request, monkeypatch):
    """Dictionaries are compared by their versions where they have some, and entry by entry elsewhere."""
    if request.param == "entries":
        monkeypatch.setattr(conditions, "has_version", lambda dictionary: False)
    return request.param


_MADE = {}


def holds(places):
    """Places are written once, and looked at again and again, as those of a call's record are."""
    if _MADE.get("places") is not places:
        _MADE.update(places=places, address=places.place_all([places.native()]))
    return bool(_hold()[1](_MADE["address"]))


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


def test_the_order_of_all_entries_counts():
    first, second, places = object(), object(), Places()
    table = {"first": first, "second": second}
    places.dictionary_is(table)
    assert holds(places)
    del table["first"]
    assert not holds(places)
    table["first"] = first
    assert not holds(places)
    del table["second"]
    table["second"] = second
    assert holds(places)
    table["third"] = None
    assert not holds(places)


class Sample:
    def __init__(self):
        self.value = 1


def assign(sample, value):
    sample.value = value


def test_attributes_that_are_set_on_an_object_are_seen_from_the_first_to_the_hundredth_time():
    sample = Sample()
    kept, places = sample.value, Places()
    places.dictionary_holds(vars(sample), "value", kept)
    for _ in range(100):
        assert holds(places)
        assign(sample, object())
        assert not holds(places)
        assign(sample, kept)


def test_names_that_a_module_assigns_to_are_seen():
    module: Any = types.ModuleType("sample")
    exec("value = None\ndef assign(new):\n    global value\n    value = new", vars(module))
    places = Places()
    places.dictionary_holds(vars(module), "value", None)
    for _ in range(100):
        assert holds(places)
        module.assign(1)
        assert not holds(places)
        module.assign(None)
        assert holds(places)
        module.value = 2
        assert not holds(places)
        del module.value
        assert not holds(places)
        module.value = None


def test_a_dictionary_that_changes_while_its_keys_are_compared_is_looked_at_again():
    class Key:
        def __hash__(self):
            return hash("name")

        def __eq__(self, other):
            if armed:
                armed.clear()
                table["name"] = other_value
            return False

    value, other_value, armed, places = object(), object(), [], Places()
    table = {Key(): 1, "name": value}
    armed.append(True)
    places.dictionary_holds(table, "name", value)
    seen = [holds(places) for _ in range(3)]
    assert seen[1:] == [False, False]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="dictionaries have no versions")
def test_dictionaries_of_modules_have_versions():
    assert has_version(types.__dict__) and has_version(globals())


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="attributes that are set there give no new version")
def test_dictionaries_of_objects_have_versions():
    assert has_version({}) and has_version(Sample().__dict__)
