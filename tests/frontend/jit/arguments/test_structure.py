"""Arguments and results of every shape: nested containers, scalars, defaults, one object twice, unusual tensors."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch.utils._pytree import register_pytree_node

import ingot
from ingot.base.errors import CaptureError
from tests.frontend.jit.comparing import check, is_compiled, same, why_followed

jit: Any = ingot.jit


class Pair(NamedTuple):
    first: torch.Tensor
    second: Any


Loose = namedtuple("Loose", ["value"])


@dataclass
class Batch:
    x: torch.Tensor
    weight: float = 1.0
    parts: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    x: torch.Tensor


@dataclass
class WithMore:
    x: torch.Tensor

    def __post_init__(self) -> None:
        self.more = self.x * 2


class Mode(Enum):
    UP = 1
    DOWN = -1


def _x(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 4)))


def test_nested_containers_in_and_out() -> None:
    def nested(tree: Any, *rest: Any, **named: Any) -> Any:
        a, (b, [c]) = tree["a"], tree["b"]
        return {
            "sum": [a + b, (c * 2, Pair(a - c, None))],
            "rest": OrderedDict(z=rest[0] + 1, a=named["last"].x * 2),
            "loose": Loose(a * 3),
            "batch": Batch(a + 1, 2.0, [b + 1]),
            "frozen": Frozen(c + 1),
            "default": defaultdict(list, {1: a * 4}),
            "empty": ([], {}, ()),
            "plain": (1, 2.5, None, True, "text", torch.float32, slice(1, 2)),
        }

    def make() -> list[Any]:
        return [{"a": _x(), "b": (_x(), [_x()])}, _x()]

    def called(tree: Any, rest: Any, last: Any) -> Any:
        return nested(tree, rest, last=last)

    check(called, lambda: [*make(), Batch(_x())])
    assert is_compiled(check(called, lambda: [*make(), Batch(_x())], python="skip"))


def test_keywords_defaults_and_variable_arguments() -> None:
    @jit
    def function(x: Any, y: Any = None, *more: Any, scale: float = 2.0, **named: Any) -> Any:
        total = x * scale
        for other in (y, *more, *named.values()):
            if other is not None:
                total = total + other
        return total

    x = _x()
    for _ in range(3):
        for args, kwargs in (
            ((x,), {}),
            ((x, x), {}),
            ((x, None, x), {}),
            ((x,), {"y": x}),
            ((x,), {"scale": 3.0}),
            ((x,), {"scale": 3}),
            ((x, x, x, x), {"scale": True, "bias": x}),
            ((), {"x": x, "other": 2}),
            ((x, 1.5), {}),
        ):
            same(function(*args, **kwargs), function.__wrapped__(*args, **kwargs))


@pytest.mark.parametrize(
    "values",
    [(0, 1, 2, 0), (0.0, -0.0, 1.5, float("inf"), float("nan")), (True, False, 1, 1.0), (None, 0, ""), (1j, 2j)],
)
def test_python_values_count(values: tuple[Any, ...]) -> None:
    def chosen(x: torch.Tensor, value: Any) -> Any:
        if value is None or value == "":
            return x + 1, repr(value)
        return x * value, x / 2 + value, value

    compiled = jit(chosen)
    for _ in range(3):
        for value in values:
            x = _x()
            same(compiled(x, value), chosen(x, value))


def test_values_of_many_kinds() -> None:
    def chosen(x: torch.Tensor, value: Any) -> Any:
        if isinstance(value, Mode):
            return x * value.value
        if isinstance(value, slice):
            return x[value] + 1
        if isinstance(value, torch.dtype):
            return x.to(value) + 1
        if isinstance(value, range):
            return x[list(value)] + 1
        return x.reshape(value) * 2 if isinstance(value, torch.Size) else x + len(value)

    compiled = jit(chosen)
    for _ in range(3):
        for value in (
            Mode.UP,
            Mode.DOWN,
            slice(0, 2),
            slice(1, None),
            torch.float64,
            torch.Size([4, 3]),
            range(2),
            b"ab",
        ):
            x = _x()
            same(compiled(x, value), chosen(x, value))


def test_the_same_tensor_twice() -> None:
    def twice(x: torch.Tensor) -> Any:
        y = torch.relu(x) + 1
        return y, y, [y]

    assert is_compiled(check(twice, lambda: [_x()]))


def test_results_that_are_arguments_or_views_of_them() -> None:
    def given_back(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x, y.t(), x[1:], y + 1, x.view(-1), y.expand(2, 3, 4), x.contiguous(), y.detach()

    assert is_compiled(check(given_back, lambda: [_x(), _x()]))
    assert is_compiled(check(lambda x: x, lambda: [_x()]))


def test_results_that_are_views_of_each_other() -> None:
    def views(x: torch.Tensor) -> Any:
        y = x * 2 + 1
        return y[0], y, y.view(-1)[2:], y.t()

    assert is_compiled(check(views, lambda: [_x()]))


def test_no_tensors_at_all() -> None:
    check(lambda: torch.ones(3) * 2 + 1, list)
    check(lambda value: value, lambda: [3])
    check(lambda x: None, lambda: [_x()])
    check(lambda x: (), lambda: [_x()])


def test_named_results_of_pytorch() -> None:
    check(lambda x: torch.max(x * 2, dim=0), lambda: [_x()])
    check(lambda x: torch.linalg.slogdet(x @ x.t()), lambda: [_x(4, 4)])
    check(lambda x: torch.sort(x * 2), lambda: [_x()])


def test_containers_that_are_arguments_stay_the_same_objects() -> None:
    def update(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        batch["y"] = batch["x"] * 2
        return batch

    def passed_on(batch: dict[str, torch.Tensor]) -> Any:
        return batch, batch["x"] + 1

    def appended(x: torch.Tensor, found: list[torch.Tensor]) -> torch.Tensor:
        found.append(x + 1)
        return x * 2

    def shared(x: torch.Tensor) -> Any:
        parts = [x + 1]
        return parts, parts

    for function, make in (
        (update, lambda: [{"x": _x()}]),
        (passed_on, lambda: [{"x": _x()}]),
        (appended, lambda: [_x(), []]),
    ):
        assert why_followed(check(function, make, 5))
    compiled = jit(passed_on)
    given = {"x": _x()}
    for _ in range(4):
        assert compiled(given)[0] is given
    compiled = jit(shared)
    for _ in range(4):
        found = compiled(_x())
        assert found[0] is found[1]


def test_dataclasses_with_more_than_their_fields() -> None:
    compiled = jit(lambda x: WithMore(x + 1))
    x = _x()
    for _ in range(4):
        same(compiled(x).more, (x + 1) * 2)
    assert why_followed(compiled)


def test_objects_as_results_are_new_at_every_call() -> None:
    class Box:
        def __init__(self, value: torch.Tensor):
            self.value = value

    compiled = jit(lambda x: Box(x + 1))
    x = _x()
    for _ in range(3):
        same(compiled(x).value, x + 1)
    assert "Box" in why_followed(compiled) and "test_structure.py:" in why_followed(compiled)
    assert compiled(x) is not compiled(x)
    with pytest.raises(CaptureError, match="Box"):
        jit(lambda x: Box(x + 1), fullgraph=True)(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [torch.randn(3, 4, dtype=torch.complex64)],
        lambda: [torch.randn(3, 4).to_sparse()],
        lambda: [torch.randn(3, 4, dtype=torch.complex64).conj()],
        lambda: [torch.nn.Parameter(torch.randn(3, 4), requires_grad=False)],
        lambda: [torch.randn(3, 4).bfloat16()],
        lambda: [torch.randn(3, 4).half()],
        lambda: [torch.randint(0, 9, (3, 4), dtype=torch.uint8)],
        lambda: [torch.randint(0, 9, (3, 4), dtype=torch.int16)],
        lambda: [torch.randn(())],
        lambda: [torch.randn(0, 4)],
        lambda: [torch.randn(1, 1)],
        lambda: [torch.randn(4, 6).t()],
        lambda: [torch.randn(8, 6)[::2, 1::2]],
        lambda: [torch.randn(4).expand(3, 4)],
        lambda: [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)],
        lambda: [torch.randn(20)[3:15].view(3, 4)],
        lambda: [torch.randn(2, 3, 4).permute(2, 0, 1)],
    ],
)
def test_unusual_tensors(make: Any) -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2 + x, x

    check(function, make)


def test_tensors_of_other_classes_stay_what_they_are() -> None:
    class Tagged(torch.Tensor):
        pass

    compiled = jit(lambda x: x * 2 + 1)
    x = torch.randn(3).as_subclass(Tagged)
    for _ in range(4):
        assert type(compiled(x)) is Tagged
    assert "Tagged" in why_followed(compiled)


def test_objects_as_arguments() -> None:
    class Settings:
        scale = 2.0

    def scaled(x: torch.Tensor, settings: Any) -> torch.Tensor:
        return x * settings.scale + 1

    compiled = jit(scaled)
    settings, x = Settings(), _x()
    for _ in range(3):
        same(compiled(x, settings), scaled(x, settings))
    settings.scale = 3.0
    same(compiled(x, settings), scaled(x, settings))
    array = jit(lambda x, a: x + torch.from_numpy(a))
    values = numpy.ones((3, 4), dtype=numpy.float32)
    for _ in range(3):
        same(array(x, values), x + 1)
    values += 1
    same(array(x, values), x + 2)


def test_functions_and_modules_as_arguments() -> None:
    def applied(x: torch.Tensor, function: Any) -> torch.Tensor:
        return function(x) + 1

    model, x = torch.nn.Linear(4, 4), _x()
    compiled = jit(applied)
    factor = 2.0
    scale = lambda x: x * factor
    with torch.no_grad():
        for _ in range(3):
            for function in (torch.relu, torch.tanh, model, scale):
                same(compiled(x, function), applied(x, function))
        factor = 5.0
        model.weight.mul_(2)
        for function in (model, scale):
            same(compiled(x, function), applied(x, function))


def test_sizes_stay_sizes():
    check = ingot.jit(lambda x: (x * 2, x.shape))
    x = torch.randn(2, 3)
    for _ in range(3):
        _, shape = check(x)
        assert type(shape) is torch.Size and shape == (2, 3)


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


# --- values that are equal and differ ---------------------------------------------------------------------------------


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


# --- state besides the parts ------------------------------------------------------------------------------------------


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


# --- which object an argument is --------------------------------------------------------------------------------------


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
