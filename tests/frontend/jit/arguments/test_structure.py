"""Arguments and results of every shape: nested containers, scalars, defaults, one object twice, unusual tensors."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy
import pytest
import torch

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
