"""Objects that change between calls, in every way in which a user can change them, are seen as they are."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import ingot
from ingot.frontend.jit.cache import audits
from ingot.frontend.jit.proof import Proof
from tests.frontend.jit.objects.beside_eager import Beside, Cache, Layer, attend, jit, look, same

HELD: dict[str, Any] = {}


class Quiet(Layer):
    """A layer that keeps nothing."""

    def update(self, new: torch.Tensor) -> torch.Tensor:
        return new * 3


class Plain:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def reads(x: torch.Tensor, given: Any) -> torch.Tensor:
    """Reads and writes attributes of an object of any class."""
    given.last = x * given.scale
    return given.last + given.state


def plain() -> Any:
    return Plain(scale=2, state=torch.ones(2, 4))


def _replaced_dictionary(given: Any) -> None:
    given.__dict__ = {"state": given.state * 2, "scale": 5}


def _other_order(given: Any) -> None:
    state = given.state
    del given.state
    given.state = state


def _as_dictionary_subclass(given: Any) -> None:
    given.__dict__ = OrderedDict(vars(given))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "another number": lambda given: setattr(given, "scale", 3),
    "a number of another type": lambda given: setattr(given, "scale", 2.0),
    "a truth value": lambda given: setattr(given, "scale", True),
    "a tensor for a number": lambda given: setattr(given, "scale", torch.full((4,), 2.0)),
    "another tensor": lambda given: setattr(given, "state", torch.full((2, 4), 7.0)),
    "another dtype": lambda given: setattr(given, "state", torch.ones(2, 4, dtype=torch.float64)),
    "another shape": lambda given: setattr(given, "state", torch.ones(1, 4)),
    "other strides": lambda given: setattr(given, "state", torch.arange(8.0).reshape(4, 2).T),
    "a parameter": lambda given: setattr(given, "state", torch.nn.Parameter(torch.ones(2, 4))),
    "a tensor that needs gradients": lambda given: given.state.requires_grad_(),
    "a tensor in place": lambda given: given.state.mul_(3),
    "one tensor twice": lambda given: setattr(given, "scale", given.state),
    "a number for a tensor": lambda given: setattr(given, "state", 4.0),
    "an attribute more": lambda given: setattr(given, "more", 1),
    "an attribute less": lambda given: delattr(given, "last"),
    "a missing attribute": lambda given: delattr(given, "scale"),
    "a list": lambda given: setattr(given, "more", [1, given.state]),
    "a cycle": lambda given: setattr(given, "more", given),
    "an object": lambda given: setattr(given, "more", Plain(inner=given.state)),
    "one object twice": lambda given: setattr(given, "more", [one := Plain(), one]),
    "something unknown": lambda given: setattr(given, "more", threading.Lock()),
    "a weak reference": lambda given: setattr(given, "more", weakref.ref(given)),
    "a function": lambda given: setattr(given, "more", len),
    "another class": lambda given: setattr(given, "__class__", type("Other", (Plain,), {"scale": 9})),
    "a class with a property": lambda given: setattr(
        given, "__class__", type("Other", (Plain,), {"state": property(lambda self: torch.full((2, 4), 5.0))})
    ),
    "a class with __getattr__": lambda given: (
        delattr(given, "scale"),
        setattr(given, "__class__", type("Other", (Plain,), {"__getattr__": lambda self, name: 6})),
    ),
    "a class with __getattribute__": lambda given: setattr(
        given,
        "__class__",
        type(
            "Other", (Plain,), {"__getattribute__": lambda s, n: 4 if n == "scale" else object.__getattribute__(s, n)}
        ),
    ),
    "a class with __setattr__": lambda given: setattr(
        given,
        "__class__",
        type("Other", (Plain,), {"__setattr__": lambda s, n, v: object.__setattr__(s, n, v if n != "last" else v + 1)}),
    ),
    "another dictionary": _replaced_dictionary,
    "another order": _other_order,
    "a dictionary of another class": _as_dictionary_subclass,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_calls_is_seen(change: str):
    beside, x = Beside(reads, plain), torch.randn(2, 4)
    beside.call(x, 6)
    assert beside.compiled.tier == "skipping"
    beside.change(CHANGES[change])
    beside.call(x, 6)
    beside.renew(plain)
    beside.call(x, 4)


CLASS_CHANGES: dict[str, tuple[str, Any]] = {
    "a property": ("state", property(lambda self: torch.full((2, 4), 8.0))),
    "a property that can be set": (
        "last",
        property(lambda self: vars(self)["_last"], lambda self, value: vars(self).update(_last=value * 2)),
    ),
    "__getattribute__": ("__getattribute__", lambda s, n: 4 if n == "scale" else object.__getattribute__(s, n)),
    "__setattr__": ("__setattr__", lambda s, n, v: object.__setattr__(s, n, v + 1)),
    "an attribute of the class": ("scale", 11),
    "__del__": ("__del__", lambda self: None),
    "__call__": ("__call__", lambda self: None),
}


@pytest.mark.parametrize("change", CLASS_CHANGES)
def test_a_change_of_the_class_is_seen(change: str):
    class Changing(Plain): ...

    beside, x = Beside(reads, lambda: Changing(scale=2, state=torch.ones(2, 4))), torch.randn(2, 4)
    beside.call(x, 6)
    assert beside.compiled.tier == "skipping"
    setattr(Changing, *CLASS_CHANGES[change])
    beside.call(x, 6)
    delattr(Changing, CLASS_CHANGES[change][0])
    beside.call(x, 6)


def test_a_method_that_is_replaced_is_seen(monkeypatch: pytest.MonkeyPatch):
    beside = Beside(attend, Cache)
    beside.grow(8)
    monkeypatch.setattr(Layer, "update", lambda self, new: new * 5)
    beside.grow(4)
    monkeypatch.undo()
    beside.grow(4)


def test_lists_that_grow_and_layers_of_other_classes():
    beside = Beside(attend, Cache)
    beside.grow(6)
    beside.change(lambda cache: cache.layers.append(Layer()))
    beside.grow(6)
    beside.change(lambda cache: cache.layers.insert(0, Quiet()))
    beside.grow(6)
    beside.change(lambda cache: cache.layers.reverse())
    beside.grow(6)
    beside.change(lambda cache: setattr(cache.layers[-1], "__class__", Layer))
    beside.grow(6)


def test_one_layer_in_two_places():
    beside = Beside(attend, Cache)
    beside.grow(8)
    beside.change(lambda cache: cache.layers.__setitem__(1, cache.layers[0]))
    beside.grow(8)
    assert beside.compiled.tier != "skipping"


def test_one_object_as_two_arguments():
    """Numbers alone: no tensor is the same in two places."""

    def function(x: torch.Tensor, given: tuple[Any, Any]) -> torch.Tensor:
        one, other = given
        one.scale = 2.5
        return x * other.scale

    beside = Beside(function, lambda: (Plain(scale=1.5), Plain(scale=1.5)))
    for _ in range(6):
        beside.renew(lambda: (Plain(scale=1.5), Plain(scale=1.5)))
        beside.call(torch.randn(2, 4))
    assert beside.compiled.tier == "skipping"

    def twice() -> tuple[Any, Any]:
        return (one := Plain(scale=1.5), one)

    for _ in range(3):
        beside.renew(twice)
        beside.call(torch.randn(2, 4))


def test_a_list_that_is_an_argument_and_held_by_an_object():
    def function(x: torch.Tensor, given: tuple[Any, list[Any]]) -> torch.Tensor:
        one, values = given
        one.values[0] = 2.5
        return x * values[0]

    beside = Beside(function, lambda: (Plain(values=[1.5]), [1.5]))
    for _ in range(6):
        beside.renew(lambda: (Plain(values=[1.5]), [1.5]))
        beside.call(torch.randn(2, 4))
    assert beside.compiled.tier == "skipping"

    def shared() -> tuple[Any, list[Any]]:
        return Plain(values=(values := [1.5])), values

    for _ in range(3):
        beside.renew(shared)
        beside.call(torch.randn(2, 4))


def global_reader(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.state = x * 2
    return HELD["one"].state + 1


@pytest.mark.parametrize("first", ["apart", "same"])
def test_an_object_that_a_global_holds_as_well(first: str):
    compiled = jit(global_reader)
    for is_same in [first == "same"] * 5 + [first != "same"] * 5 + [first == "same"] * 3:
        x = torch.randn(2, 4)
        for function, results in ((global_reader, wanted := []), (compiled, found := [])):
            HELD["one"] = plain()
            HELD["one"].state = torch.full((2, 4), 5.0)
            given = HELD["one"] if is_same else plain()
            results += [function(x, given), given, HELD["one"]]
        same(look(found), look(wanted))


def test_a_global_object_that_stays_is_told_from_arguments():
    HELD["one"] = plain()
    compiled, x = jit(global_reader), torch.randn(2, 4)
    for _ in range(6):
        same(look(compiled(x, plain())), look(HELD["one"].state + 1))
    assert compiled.tier == "skipping"
    for _ in range(3):
        same(look(compiled(x, HELD["one"])), look(x * 2 + 1))
    same(look(compiled(torch.ones(2, 4), plain())), look(x * 2 + 1))


def test_another_thread_gives_its_own_object():
    beside = Beside(attend, Cache)
    beside.grow(8)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            compiled, mine, its = beside.compiled, Cache(), Cache()
            with torch.no_grad():
                for _ in range(20):
                    x = torch.randn(1, 4)
                    same(look([compiled(x, its), its]), look([attend(x, mine), mine]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


# --- audits -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def every_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "FIRST", 2)
    monkeypatch.setattr(audits, "PAUSE", 0)
    monkeypatch.setattr(audits, "next_due", lambda number: 1 << number.bit_length())


@pytest.mark.usefixtures("every_audit")
def test_audited_calls_change_objects_once():
    beside = Beside(attend, Cache)
    for _ in range(4):
        beside.renew(Cache)
        beside.grow(20)
    assert beside.compiled._compiled.demotion is None
    assert "audited" in beside.compiled.explain()


@pytest.mark.usefixtures("every_audit")
@pytest.mark.parametrize("kind", ["value", "place", "result"])
def test_an_audit_finds_other_changes(kind: str, monkeypatch: pytest.MonkeyPatch):
    """A proof that has overlooked something: here it is told to overlook a setting."""
    settings = {"number": 1}

    def function(x: torch.Tensor, given: Any) -> Any:
        if kind == "value":
            given.last = settings["number"]
        elif kind == "place":
            setattr(given, f"last{settings['number']}", 1)
        else:
            return x * 2, (given if settings["number"] == 1 else None)
        return x * 2

    monkeypatch.setattr(Proof, "broken", lambda self: None)
    monkeypatch.setattr("ingot.frontend.jit.cache.native_guards.NativeGuards.learn", lambda *_: None)
    compiled = jit(function)
    for _ in range(3):
        compiled(torch.ones(2, 4), plain())
    assert compiled.tier == "skipping"
    settings["number"] = 2
    with pytest.warns(ingot.IngotWarning, match="an audit has found"):
        for _ in range(20):
            compiled(torch.ones(2, 4), plain())
    same(look(compiled(torch.ones(2, 4), given := plain())), look(function(torch.ones(2, 4), other := plain())))
    same(look(given), look(other))
