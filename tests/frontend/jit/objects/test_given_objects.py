"""Calls that are given objects with state run without Python: what they leave in the objects is what eager leaves."""

from __future__ import annotations

import gc
import weakref
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import ingot
from ingot.frontend.jit.arguments import given_objects
from ingot.frontend.jit.proof.semantics import given_state
from tests.frontend.jit.objects.beside_eager import Beside, Cache, Layer, attend, jit, look, same

WEIGHT = torch.arange(4.0)


def skipped(beside: Beside, times: int = 4, width: int = 4) -> None:
    """Make like calls until Python is skipped, or fail."""
    for _ in range(times):
        beside.call(torch.randn(2, width))
    assert beside.compiled.tier == "skipping", beside.compiled.explain()


def test_a_growing_cache_needs_few_recordings():
    beside = Beside(attend, Cache)
    beside.grow(30)
    assert (beside.compiled.tier, beside.compiled.recordings <= 5) == ("skipping", True)
    for _ in range(3):
        beside.renew(Cache)
        beside.grow(30)
    assert beside.compiled.recordings <= 5


def test_each_call_returns_the_object_it_was_given():
    compiled, x = jit(attend), torch.randn(1, 4)
    with torch.no_grad():
        for _ in range(3):
            cache = Cache()
            for _ in range(6):
                assert compiled(x, cache)[1] is cache
    assert compiled.tier == "skipping"


class Everything:
    """Attributes that a call replaces, adds, deletes and fills."""

    def __init__(self) -> None:
        self.count, self.gone, self.kept, self.pair = 1, 2.5, "text", (1, torch.zeros(2, 4))
        self.items, self.table, self.inner = [torch.ones(2, 4)], {"a": 1, 3: None}, Layer()


def replaces(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.count = 7
    given.pair = (given.pair[0], x * 2)
    return x + given.count


def adds(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.added, given.other = x + 1, None
    return x


def deletes(x: torch.Tensor, given: Any) -> torch.Tensor:
    if hasattr(given, "gone"):
        del given.gone
        return x - 1
    return x


def appends(x: torch.Tensor, given: Any) -> torch.Tensor:
    if len(given.items) < 3:
        given.items.append(x * 3)
    return x + given.items[-1]


def assigns_items(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.items[0] = given.items[0] + x
    given.table["a"], given.table["b"] = x.sum(), True
    del given.table[3]
    given.table[3] = 4.5
    return x


def moves_objects(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.table["inner"], given.again = given.inner, given.items
    return x


def keeps_what_it_returns(x: torch.Tensor, given: Any) -> Any:
    made = x * 2
    given.made, given.viewed, given.argument = made, made.T, x
    return made, made, made[0], x


def writes_in_place(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.items[0].add_(x)
    given.pair[1][0] = x[0]
    given.count += 0
    return given.items[0] * 2


def decides(x: torch.Tensor, given: Any) -> torch.Tensor:
    if given.items[0].sum() > 20:
        given.items = [given.items[0] * 0]
    else:
        given.items[0] = given.items[0] + 1
    return x + given.items[0]


def asks_whether_it_holds(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.table["found"] = 1.0 in given.items[0]
    if 5.0 in given.items[0]:
        return x - 1
    given.items[0] = given.items[0] + 1
    return x


def through_a_method(x: torch.Tensor, given: Any) -> torch.Tensor:
    return given.inner.update(x)[-2:] + given.inner.length()


def leaves_it_alone(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.kept = given.kept
    return x * given.gone + given.pair[1]


def shortens(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.items.append(x)
    del given.items[0]
    if len(given.items) > 1:
        given.items.pop()
    return given.items[0] + 1


def keeps_tuples(x: torch.Tensor, given: Any) -> torch.Tensor:
    given.items.append(given.pair)
    if len(given.items) > 3:
        del given.items[1:]
    return x


def changes_the_type_of_a_key(x: torch.Tensor, given: Any) -> torch.Tensor:
    held = given.table.pop(3, None)
    given.table[3.0] = held
    return x


FUNCTIONS = (
    *(replaces, adds, deletes, appends, keeps_what_it_returns, writes_in_place, decides, asks_whether_it_holds),
    *(through_a_method, leaves_it_alone, moves_objects, shortens, keeps_tuples, changes_the_type_of_a_key),
)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_call_leaves_in_an_object_is_what_eager_leaves(function: Callable[..., Any]):
    if function is moves_objects:
        once = Beside(function, Everything)
        for _ in range(6):
            once.renew(Everything)
            once.call(torch.randn(2, 4))
        assert once.compiled.tier == "skipping"
        return
    beside = Beside(function, Everything)
    for _ in range(3):
        beside.renew(Everything)
        beside.call(torch.randn(2, 4), 8)
    if function not in (decides, asks_whether_it_holds, changes_the_type_of_a_key):
        assert beside.compiled.tier == "skipping", beside.compiled.explain()


def test_tensors_around_the_function_are_kept_as_they_are():
    def function(x: torch.Tensor, given: Any) -> torch.Tensor:
        given.layers[0].keys = WEIGHT
        return x + WEIGHT

    compiled = jit(function)
    for _ in range(5):
        cache = Cache()
        compiled(torch.ones(2, 4), cache)
        assert cache.layers[0].keys is WEIGHT
    assert compiled.tier == "skipping"
    beside = Beside(function, Cache)
    for number in range(8):  # the tensor that it is given is the one around it, or another
        beside.change(lambda given: setattr(given.layers[0], "keys", torch.full((4,), float(number % 3))))  # noqa: B023
        beside.call(torch.randn(2, 4), 1 + number % 3)


def test_an_order_that_stores_cannot_make_is_left_to_python():
    beside = Beside(assigns_items, Everything)
    for _ in range(6):
        beside.renew(Everything)
        beside.call(torch.randn(2, 4))
    assert beside.compiled.tier != "skipping"
    assert "order" in beside.compiled.explain()
    beside.call(torch.randn(2, 4), 6)  # now the order stays as it is
    assert beside.compiled.tier == "skipping"


def test_new_objects_in_given_ones_are_left_to_python():
    def makes(x: torch.Tensor, given: Any) -> torch.Tensor:
        given.layers.append(Layer())
        return x * len(given.layers)

    def lists(x: torch.Tensor, given: Any) -> Any:
        given.extra = [x]
        return given.extra

    for function in (makes, lists):
        beside = Beside(function, Cache)
        beside.call(torch.randn(2, 4), 5)
        assert beside.compiled.tier != "skipping"


def test_a_call_that_raises_leaves_what_eager_leaves():
    def fails(x: torch.Tensor, given: Any) -> torch.Tensor:
        given.seen["first"] = True
        given.layers[0].keys = x
        return torch.nn.functional.embedding(given.index, x)

    def make() -> Cache:
        cache: Any = Cache()
        cache.index = torch.tensor([1, 0])
        return cache

    beside = Beside(fails, make)
    skipped(beside)
    beside.change(lambda cache: setattr(cache, "index", torch.tensor([1, 9])))
    beside.call(torch.randn(2, 4), 2)


def test_a_cache_that_is_compiled_is_not_kept_alive():
    compiled, x, cache = jit(attend), torch.randn(1, 4), Cache()
    with torch.no_grad():
        for _ in range(3):
            cache = Cache()
            for _ in range(8):
                compiled(x, cache)
    gone, tensor = weakref.ref(cache), weakref.ref(cache.layers[0].keys)
    del cache
    gc.collect()
    assert compiled.tier == "skipping" and gone() is None and tensor() is None


def test_changes_beside_writes_and_random_numbers_are_left_to_python():
    """After an error in the middle nobody could tell which of them eager would have done."""

    def writes(x: torch.Tensor, given: Any) -> torch.Tensor:
        given.items[0].add_(1)
        given.added = x + 1
        return x

    def draws(x: torch.Tensor, given: Any) -> torch.Tensor:
        given.added = x + 1
        return x + torch.rand(4) * 0

    for function in (writes, draws):
        beside = Beside(function, Everything)
        beside.call(torch.randn(2, 4), 6)
        assert beside.compiled.tier != "skipping"


@dataclass
class Settings:
    scale: float
    state: torch.Tensor


Pair = namedtuple("Pair", "cache number")


@pytest.mark.parametrize(
    "make", [lambda: [Cache()], lambda: {"cache": Cache()}, lambda: Pair(Cache(), 2), lambda: (Cache(), Cache())]
)
def test_objects_inside_other_arguments(make: Callable[[], Any]):
    def function(x: torch.Tensor, given: Any) -> Any:
        caches = list(given.values()) if isinstance(given, dict) else [one for one in given if isinstance(one, Cache)]
        for cache in caches:
            x = x + cache.update(x, 0).sum(0)
        return x, caches[0]

    beside = Beside(function, make)
    beside.grow(12)
    assert beside.compiled.tier == "skipping", beside.compiled.explain()


def test_dataclasses_beside_objects():
    def function(x: torch.Tensor, given: Any) -> torch.Tensor:
        settings, cache = given
        cache.update(x * settings.scale + settings.state, 0)
        return cache.layers[0].keys

    beside = Beside(function, lambda: (Settings(2.0, torch.ones(4)), Cache()))
    beside.grow(10)
    assert beside.compiled.tier == "skipping"
    beside.change(lambda given: setattr(given[0], "scale", 3.0))
    beside.grow(10)
    beside.change(lambda given: setattr(given[0], "state", torch.zeros(4)))
    beside.grow(4)


def test_python_skip_does_not_promise_what_calls_leave_in_objects():
    hidden = [1]

    def function(x: torch.Tensor, given: Any) -> torch.Tensor:
        given.number = eval("hidden[0]", {"hidden": hidden})
        return x * 2

    beside = Beside(function, Cache, python="skip")
    beside.call(torch.randn(2, 4), 4)
    hidden[0] = 5
    beside.call(torch.randn(2, 4), 4)
    proven = Beside(attend, Cache, python="skip")
    proven.grow(12)
    assert proven.compiled.tier == "skipping"


def test_a_change_that_the_proof_does_not_say_is_not_recorded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(given_state, "changes", lambda walker: {})
    beside = Beside(attend, Cache)
    beside.grow(8)
    assert beside.compiled.tier != "skipping"
    assert "in another way than the proof says" in beside.compiled.explain()


def test_objects_are_not_recorded_where_gradients_are_needed():
    def function(x: torch.Tensor, given: Any) -> torch.Tensor:
        given.seen["first"] = True
        return x * weight

    weight = torch.ones(4, requires_grad=True)
    compiled = jit(function)
    for _ in range(4):
        cache = Cache()
        compiled(torch.ones(2, 4), cache).sum().backward()
        assert cache.seen["first"]
    assert weight.grad is not None and weight.grad.tolist() == [8.0] * 4
    assert compiled.tier != "skipping"


def test_too_many_parts_are_refused_quickly(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(given_objects, "MOST_PARTS", 10)
    beside = Beside(attend, lambda: Cache(20))
    beside.call(torch.randn(1, 4), 4)
    assert beside.compiled.tier != "skipping"
    assert "too many parts" in beside.compiled.explain()


class Slotted:
    __slots__ = ("number",)


def test_calls_with_objects_are_answered_between_calls_that_cannot_be():
    """No record answers them, so that calls which are handed on unseen would take them along."""

    def function(x: torch.Tensor, given: Any) -> torch.Tensor:
        if isinstance(given, Plain):
            given.state = x * 2
        return x + 1

    beside = Beside(function, Plain)
    skipped(beside)
    compiled, other = beside.compiled._compiled, Slotted()
    before = compiled.calls
    with torch.no_grad():  # as the calls of both are: under other settings nothing is handed on
        for _ in range(20):
            for _ in range(6):
                beside.compiled(torch.ones(2, 4), other)
            beside.call(torch.ones(2, 4))
        assert compiled.calls == before + 20
        for _ in range(300):
            beside.compiled(torch.ones(2, 4), other)
    assert compiled.native.to_be_handed_on > 0  # and where none come, nothing is looked at in vain


class Plain:
    state: Any = None


def test_fullgraph_says_why_an_object_is_not_taken():
    given: Any = Slotted()
    given.number = 1
    with pytest.raises(ingot.IngotError, match="Slotted"):
        jit(lambda x, one: x * one.number, fullgraph=True)(torch.ones(2), given)


def test_explain_names_attributes():
    beside = Beside(attend, Cache)
    beside.grow(6)
    assert "cache.layers[0].keys: size 0 was 1, is 2" in beside.compiled.explain()


def test_calls_are_verified_only_without_objects():
    compiled = jit(attend, config={"verify": True})
    cache, other = Cache(), Cache()
    with torch.no_grad(), pytest.warns(UserWarning, match="object with state"):
        found = compiled(torch.ones(1, 4), cache)[0]
    same(look([found, cache]), look([attend(torch.ones(1, 4), other)[0], other]))


def test_objects_are_not_saved_in_bundles(tmp_path: Any):
    with pytest.raises(ingot.IngotError, match="is a Cache"):
        ingot.save(attend, tmp_path / "bundle", [(torch.ones(1, 4), Cache())])


@pytest.mark.parametrize(
    "options", [{"freeze": True}, {"mode": "reduce-overhead"}, {"dynamic": True}, {"fullgraph": True}]
)
def test_other_ways_to_compile(options: dict[str, Any]):
    beside = Beside(attend, Cache, **options)
    for _ in range(2):
        beside.renew(Cache)
        beside.grow(12)
    assert beside.compiled.tier == "skipping"


def test_disable_calls_the_original():
    beside = Beside(attend, Cache)
    beside.grow(8)
    with ingot.disable():
        beside.grow(2)
    beside.grow(4)
    ingot.reset()
    beside.grow(6)
