"""Arguments that look alike are told apart: equal values that differ, state besides the parts, which object one is."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch.utils._pytree import register_pytree_node

import ingot
from tests.frontend.jit.comparing import same

jit: Any = ingot.jit


@pytest.mark.parametrize("keys", [(1, True, 1.0), (0.0, -0.0), ((1,), (True,)), ("a", b"a")])
def test_keys_of_dictionaries_count_with_their_types(keys):
    """Keys that are equal, or look alike, are told apart where Python can."""

    def scale(x, table):
        (key,) = table
        return x * table[key] + (2 if isinstance(key, bool) else 3 if isinstance(key, int) else len(repr(key)))

    compiled = jit(scale)
    for _ in range(14):
        for key in keys:
            x = torch.randn(4)
            torch.testing.assert_close(compiled(x, {key: torch.ones(4)}), scale(x, {key: torch.ones(4)}))


class Alike(Enum):
    ONE = 1
    OTHER = 2

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x, value: x * value.stop, [range(0, 3, 2), range(0, 4, 2)]),
        (lambda x, value: (x, value.stop), [slice(1), slice(True), slice(1.0), slice(None)]),
        (lambda x, value: x * value.stop, [slice(0.0), slice(-0.0)]),
        (lambda x, value: x * value.value, [Alike.ONE, Alike.OTHER]),
    ],
)
def test_equal_values_that_differ_are_told_apart(function: Any, values: Sequence[Any]) -> None:
    compiled = jit(function)
    for _ in range(2):
        for value in values:
            for _ in range(4):
                x = torch.ones(3)
                found, wanted = compiled(x, value), function(x, value)
                same(found, wanted)
                assert repr(found) == repr(wanted)
    assert compiled.tier == "skipping"


class LoosePair(namedtuple("LoosePair", ["first", "second"])):
    scale = 1.0


class Doubling(namedtuple("Doubling", ["value"])):
    def __new__(cls, value: Any) -> Any:
        return super().__new__(cls, value * 2)


class WithSlot:
    __slots__ = ("scale",)


@dataclass(slots=True)
class Slotted(WithSlot):
    x: torch.Tensor


@dataclass
class Listed(list):  # type: ignore[type-arg]
    x: torch.Tensor

    def scaled(self) -> Any:
        return self.x * list.__getitem__(self, 0)


def with_scale(made: Any, scale: Any) -> Any:
    made.scale = scale
    return made


def listed(scale: Any) -> Any:
    made = Listed(torch.ones(3))
    list.append(made, scale)
    return made


def ordered(scale: Any) -> Any:
    made: Any = OrderedDict(x=torch.ones(3))
    made.scale = scale
    return made


class Registered:
    """A class of which torch's pytree is told one attribute of two."""

    def __init__(self, x: Any, scale: float):
        self.x, self.scale = x, scale


register_pytree_node(Registered, lambda one: ([one.x], None), lambda parts, _: Registered(next(iter(parts)), 1.0))


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (lambda given: given[0] * given.scale, lambda scale: with_scale(LoosePair(torch.ones(3), 2), scale)),
        (lambda given: given.x * given.scale, lambda scale: with_scale(Slotted(torch.ones(3)), scale)),
        (lambda given: given.scaled(), listed),
        (lambda given: given["x"] * getattr(given, "scale", 1), ordered),
        (lambda given: given.x * given.scale, lambda scale: Registered(torch.ones(3), scale)),
    ],
    ids=["named tuple", "slot", "list", "ordered dictionary", "registered"],
)
def test_state_besides_the_parts_is_seen(function: Any, make: Any) -> None:
    compiled = jit(function)
    for scale in (2.0, 2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 2.0, 2.0):
        same(compiled(make(scale)), function(make(scale)))


def test_named_tuples_are_put_together_as_they_are() -> None:
    def function(x: torch.Tensor, pair: Any) -> Any:
        return x + 1, pair

    compiled, x = jit(function), torch.ones(3)
    for _ in range(5):
        found = compiled(x, Doubling(x))[1]
        assert type(found) is Doubling
        same(found.value, x * 2)


@dataclass(eq=False)
class Setting:
    scale: float


SETTING = Setting(2.0)
SCALES = {SETTING: 5.0}
ORDERED = OrderedDict(scale=2.0)


@lru_cache(maxsize=4)
def looked_up(setting: Any) -> float:
    return 3.0 if setting is SETTING else 4.0


def _sets_for_a_while(x: torch.Tensor, setting: Any) -> torch.Tensor:
    before, setting.scale = setting.scale, 7.0
    result = x * SETTING.scale
    setting.scale = before
    return result


@pytest.mark.parametrize(
    ("function", "around", "make"),
    [
        (lambda x, given: x * (2 if given is SETTING else 3), SETTING, lambda: Setting(2.0)),
        (lambda x, given: x * (2 if given == SETTING else 3), SETTING, lambda: Setting(2.0)),
        (lambda x, given: x * (2 if given in [SETTING] else 3), SETTING, lambda: Setting(2.0)),
        (lambda x, given: x * SCALES.get(given, 7.0), SETTING, lambda: Setting(2.0)),
        (lambda x, given: x * looked_up(given), SETTING, lambda: Setting(2.0)),
        (_sets_for_a_while, SETTING, lambda: Setting(2.0)),
        (lambda x, given: x * (2 if given is ORDERED else 3), ORDERED, lambda: OrderedDict(scale=2.0)),
    ],
)
@pytest.mark.parametrize("is_around_first", [True, False])
def test_an_argument_is_another_object_at_each_call(
    function: Any, around: Any, make: Any, is_around_first: bool
) -> None:
    compiled, x = jit(function), torch.ones(3)
    for is_around in [is_around_first] * 5 + [not is_around_first] * 5 + [is_around_first] * 2:
        given = around if is_around else make()
        same(compiled(x, given), function(x, given))


def test_attributes_of_dataclasses_are_counted_by_value() -> None:
    compiled, x = jit(lambda x, given: x * given.scale), torch.ones(3)
    for _ in range(6):
        same(compiled(x, Setting(2.0)), x * 2)
    assert compiled.tier == "skipping" and compiled.recordings == 1


def test_entries_of_a_dataclass_in_another_order() -> None:
    @dataclass
    class Two:
        first: float
        second: float

    def function(x: torch.Tensor, given: Any) -> Any:
        return x * next(iter(given.__dict__.values()))

    compiled, x = jit(function), torch.ones(3)
    for is_turned in (False,) * 5 + (True,) * 3:
        given = Two(2.0, 3.0)
        if is_turned:
            del given.first
            given.first = 2.0
        same(compiled(x, given), function(x, given))
