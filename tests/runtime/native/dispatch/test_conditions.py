"""Conditions of records: torch's settings in one word, and places that must hold what they held."""

import ctypes
import threading
import types
import weakref
from contextlib import contextmanager

import pytest
import torch

from ingot.base.once import once
from ingot.runtime.native.abi.settings import suspended
from ingot.runtime.native.assembler.routines import Library
from ingot.runtime.native.dispatch.conditions import Places, emit_places_hold
from ingot.runtime.native.dispatch.dispatcher import dispatcher


def _settings():
    found = dispatcher()
    assert found is not None, "there must be a dispatcher on the machines that run the tests"
    return found.settings()


@once
def _places_hold():
    library = Library("test")
    emit_places_hold(library)
    library.compile()
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(library.address("places_hold"))


class _Held:
    """Places with their words."""

    def __init__(self, places):
        self.places = places
        self.address = places.place_all([places.native()])

    def __bool__(self):
        return bool(_places_hold()(self.address))


# --- settings ---------------------------------------------------------------------------------------------------------


@contextmanager
def _default_double():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "setting",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu"),
        lambda: torch.autocast("cpu", dtype=torch.float16),
        _default_double,
    ],
)
def test_every_setting_changes_the_word_and_back(setting):
    before = _settings()
    with setting():
        assert _settings() not in (before, -1)
    assert _settings() == before


def test_dtypes_of_autocast_differ():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        one = _settings()
    with torch.autocast("cpu", dtype=torch.float16):
        assert _settings() != one


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit.trace
def test_modes_transforms_traces_and_suspensions_are_watchers():
    seen = []

    def look(x):
        seen.append(_settings())
        return x + 1

    x = torch.zeros(3)
    torch.vmap(look)(x)
    torch.func.jvp(look, (x,), (x,))
    torch.jit.trace(look, x, check_trace=False)
    with suspended():
        look(x)
    with torch.device("cpu"):  # a function mode
        look(x)
    assert seen and set(seen) == {-1}
    assert _settings() >= 0


def test_a_suspension_ends_with_the_last_thread_that_wants_it():
    inside, leave = threading.Event(), threading.Event()

    def wait():
        with suspended():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    inside.wait()
    with suspended():
        pass
    assert _settings() == -1
    leave.set()
    thread.join()
    assert _settings() >= 0


# --- places -----------------------------------------------------------------------------------------------------------


def test_entries_of_dictionaries():
    table = {"one": object(), 2: object()}
    places = Places()
    places.dictionary_holds(table, "one", table["one"])
    places.dictionary_holds(table, 2, table[2])
    places.dictionary_lacks(table, "three")
    held = _Held(places)
    assert len(places) == 3 and held
    before, table["one"] = table["one"], object()
    assert not held
    table["one"] = before
    assert held
    table["three"] = None
    assert not held
    del table["three"]
    assert held
    del table[2]
    assert not held


def test_items_of_lists():
    values = [object(), object()]
    places = Places()
    places.list_holds(values, 1, values[1])
    held = _Held(places)
    assert held
    values += [object()] * 100  # which moves them
    assert held
    values[1] = object()
    assert not held
    del values[1:]
    assert not held


def test_cells():
    content = object()
    full, empty = types.CellType(content), types.CellType()
    places = Places()
    places.cell_holds(full, content)
    places.cell_is_empty(empty)
    held = _Held(places)
    assert held
    empty.cell_contents = 1
    assert not held
    del empty.cell_contents
    assert held
    full.cell_contents = object()
    assert not held


@pytest.mark.parametrize("container", [[1, 2], {"a": 1}])
def test_lengths(container):
    places = Places()
    places.has_length(container, len(container))
    held = _Held(places)
    assert held
    container.clear()
    assert not held


def test_a_key_that_refuses_to_be_compared_leaves_no_error():
    class Refusing:
        def __hash__(self):
            return hash("name")

        def __eq__(self, other):
            raise ValueError

    table = {Refusing(): 1}
    places = Places()
    value = object()
    places.dictionary_holds(table, "name", value)
    assert not _Held(places)


def test_places_keep_their_objects():
    class Thing:
        pass

    thing = Thing()
    weak = weakref.ref(thing)
    places = Places()
    places.dictionary_holds({"a": thing}, "a", thing)
    del thing
    assert weak() is not None
    del places
    assert weak() is None
