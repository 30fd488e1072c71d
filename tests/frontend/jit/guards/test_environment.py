"""What a function reads around itself may change between calls: every change is seen."""

from __future__ import annotations

import collections
import contextvars
import os
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import ingot
from tests.frontend.jit.comparing import check, same, why_followed

jit: Any = ingot.jit


def _x() -> torch.Tensor:
    return torch.randn(4, 5)


class _Class:
    scale = 1.0


class _Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 1.0


_flag: Any = 1.0
_activation: Any = torch.relu


def _around() -> dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[], Any]]]:
    """Functions that read something around them, and how that changes."""
    values, table, names, queue = [1.0], {"k": 1.0}, {1}, collections.deque([1.0])
    namespace, slotted, array, large = types.SimpleNamespace(a=1.0), _Slotted(), numpy.ones(3), numpy.ones(5000)
    nested = {"list": [{"k": 1.0}]}
    local, context = threading.local(), contextvars.ContextVar("context", default=1.0)
    local.value = 1.0
    os.environ["INGOT_TEST_SCALE"] = "1.0"
    cell = 1.0

    def environment() -> None:
        os.environ["INGOT_TEST_SCALE"] = str(float(os.environ["INGOT_TEST_SCALE"]) + 1)

    def rebind() -> None:
        nonlocal cell
        cell += 1

    def flag() -> None:
        global _flag
        _flag += 1

    def activation() -> None:
        global _activation
        _activation = torch.tanh if _activation is torch.relu else torch.relu

    def increase(target: Any, key: Any) -> Callable[[], None]:
        return lambda: target.__setitem__(key, target[key] + 1)

    return {
        "closure": (lambda x: x * cell, rebind),
        "global": (lambda x: x * _flag, flag),
        "function": (lambda x: _activation(x), activation),
        "list": (lambda x: x * values[0], increase(values, 0)),
        "length": (lambda x: x * len(values), lambda: values.append(1.0)),
        "dictionary": (lambda x: x * table["k"], increase(table, "k")),
        "nested": (lambda x: x * nested["list"][0]["k"], increase(nested["list"][0], "k")),
        "set": (lambda x: x * len(names), lambda: names.add(len(names) + 1)),
        "queue": (lambda x: x * queue[0], increase(queue, 0)),
        "namespace": (lambda x: x * namespace.a, lambda: setattr(namespace, "a", namespace.a + 1)),
        "class": (lambda x: x * _Class.scale, lambda: setattr(_Class, "scale", _Class.scale + 1)),
        "class of an object": (lambda x: x * _Class().scale, lambda: setattr(_Class, "scale", _Class.scale + 1)),
        "slots": (lambda x: x * slotted.scale, lambda: setattr(slotted, "scale", slotted.scale + 1)),
        "array": (lambda x: x * float(array[0]), increase(array, 0)),
        "array as tensor": (lambda x: x + torch.tensor(array[:1]).float(), increase(array, 0)),
        "array shared": (lambda x: x + torch.from_numpy(array[:1]), increase(array, 0)),
        "environment": (lambda x: x * float(os.environ["INGOT_TEST_SCALE"]), environment),
        "context": (lambda x: x * context.get(), lambda: context.set(context.get() + 1)),
        "thread": (lambda x: x * local.value, lambda: setattr(local, "value", local.value + 1)),
        "large array": (lambda x: x * float(large[0]), increase(large, 0)),
    }


@pytest.mark.parametrize("name", list(_around()))
def test_changes_around_are_seen(name: str) -> None:
    function, change = _around()[name]
    compiled = jit(function)
    for is_changed in (False, False, False, True, False, False, True, True, True, True, False):
        if is_changed:
            change()
        check(function, lambda: [_x()], 1, compiled=compiled)


def test_attributes_of_tensors_are_set_and_read() -> None:
    def marked(x: torch.Tensor) -> torch.Tensor:
        result = x + 1
        result.mark = x.mark = 5  # type: ignore[attr-defined]
        return result

    def asking(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.requires_grad else x * 3

    compiled: Any = jit(marked)
    for _ in range(3):
        x: Any = _x()
        assert compiled(x).mark == x.mark == 5
    compiled = jit(asking)
    with torch.no_grad():
        for needs in (False, False, False, True, True, False):
            x = _x().requires_grad_(needs)
            same(compiled(x), asking(x))


def test_iterators_around_go_on() -> None:
    numbers = iter(range(100))
    compiled = jit(lambda x: x * next(numbers))
    x = _x()
    for call in range(5):
        same(compiled(x), x * call)
    assert why_followed(compiled)


def test_functions_found_at_run_time_are_watched() -> None:
    factors = [2.0]

    def multiplied(factor: list[float]) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * factor[0]

    class Holder:
        def __getattr__(self, name: str) -> Any:
            return steps

    steps = multiplied(factors)
    holder = Holder()

    def through(x: torch.Tensor) -> torch.Tensor:
        return holder.anything(x) + 1

    compiled = jit(through)
    for factor in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0):
        factors[0] = factor
        check(through, lambda: [_x()], 1, compiled=compiled)


class _Doubling(collections.OrderedDict[str, float]):
    """Gives other objects than it holds, and counts how often it was asked."""

    asked = 0

    def __getitem__(self, key: str) -> float:
        _Doubling.asked += 1
        return 2 * super().__getitem__(key)


_factors = _Doubling(half=0.5)


def test_dictionaries_that_look_up_entries_in_their_own_way_are_watched_as_they_are() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * _factors["half"]

    jitted, x = jit(function), _x()
    before = _Doubling.asked
    jitted(x)
    assert _Doubling.asked == before + 1, "only the function itself asked"
    for _ in range(6):
        same(jitted(x), function(x))
    try:
        _factors["half"] = 2.0
        same(jitted(x), x * 4.0)
    finally:
        _factors["half"] = 0.5


class _Window(torch.nn.Module):
    """Keeps the smallest size that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.window = 100

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if min(x.shape) < self.window:
            self.window = min(x.shape)
        return torch.tanh(x) * self.window


def test_attributes_that_a_module_sets_are_set() -> None:
    ours, eager = _Window(), _Window()
    ours.forward = jit(ours.forward)  # type: ignore[method-assign]
    for size in (9, 9, 9, 9, 7, 7, 7, 9, 9, 5, 5, 5, 9):
        x = torch.randn(size, 11)
        same(ours(x), eager(x))
        assert ours.window == eager.window
        if size == 5:
            ours.window = eager.window = 6
