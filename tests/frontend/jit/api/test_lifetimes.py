"""Compiled methods live as long as their object and hold no other: copies, twins and originals go when dropped."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ingot

pytestmark = pytest.mark.usefixtures("no_eager_comparison")
jit: Any = ingot.jit


class Scaled:
    def __init__(self) -> None:
        self.weight = torch.randn(8)

    @jit
    def scale(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.weight + 1.0)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.weight + 1.0)

    @jit
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x) * 2.0


@jit
class CompiledLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.weight + 1.0)


def is_freed(make: Callable[[], Any]) -> bool:
    """Whether an object is gone when nothing else refers to it. What is compiled for it is part of a cycle with it."""
    made = make()
    reference = weakref.ref(made)
    del made
    gc.collect()
    return reference() is None


def called(thing: Any, name: str = "__call__") -> Any:
    """A thing, after calls of one of its methods that give what they should."""
    x = torch.randn(4, 8)
    expected = torch.tanh(x * thing.weight + 1.0) * (2.0 if name == "twice" else 1.0)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(getattr(thing, name)(x), expected.detach())
    return thing


def test_objects_are_freed():
    assert is_freed(lambda: called(Scaled(), "scale"))
    assert is_freed(lambda: called(Layer(), "twice"))
    assert is_freed(lambda: called(CompiledLayer()))
    assert is_freed(lambda: called(jit(Layer())))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize(("make", "name"), [(Scaled, "scale"), (Layer, "twice"), (CompiledLayer, "__call__")])
def test_originals_do_not_hold_copies(copied: Callable[[Any], Any], make: Callable[[], Any], name: str):
    original = called(make(), name)
    assert is_freed(lambda: called(copied(original), name))
    called(original, name)


@pytest.mark.parametrize(("make", "name"), [(Scaled, "scale"), (Layer, "twice"), (CompiledLayer, "__call__")])
def test_copies_that_are_called_do_not_hold_originals(make: Callable[[], Any], name: str):
    copies: list[Any] = []

    def original() -> Any:
        made = called(make(), name)
        copies.append(called(copy.copy(made), name))
        return made

    assert is_freed(original)
    called(copies[0], name)


@pytest.mark.parametrize("name", ["__call__", "twice"])
def test_modules_do_not_hold_their_twins(name: str):
    module = Layer()
    assert is_freed(lambda: called(jit(module), name))
    called(module, name)


def test_a_copy_and_its_original_take_turns():
    original = Scaled()
    other = copy.copy(original)
    other.weight = torch.randn(8)
    for _ in range(5):
        called(original, "scale")
        called(other, "scale")
    method: Any = original.scale
    assert method is original.scale and method._compiled.recordings == 1


def test_a_module_and_its_twin_take_turns():
    module = CompiledLayer()
    twin = jit(module)
    for _ in range(5):
        called(module)
        called(twin)
    assert module.forward._compiled.recordings == twin.forward._compiled.recordings == 1


def test_objects_that_share_all_attributes():
    """The first has compiled methods; for others there is no place, and what they would be compiled for may change."""
    first, second = Scaled(), Scaled()
    second.__dict__ = first.__dict__
    for _ in range(5):
        called(first, "scale")
        called(second, "scale")
    method: Any = first.scale
    assert method._compiled.recordings == 1


def test_another_object_of_a_twins_class_has_methods_of_its_own():
    twin = called(jit(Layer()))
    other = called(type(twin)())
    assert other.forward is not twin.forward
    called(twin)


class Settings:
    """What a function reads, and others may refer to weakly."""

    scale = 2.0


def test_what_a_followed_function_could_read_dies_when_it_is_dropped():
    """A recording that stands for nothing holds nothing: otherwise Python, which goes on running, would see it live."""
    held, log = [Settings()], []
    reference = weakref.ref(held[0])

    def function(x: torch.Tensor) -> torch.Tensor:
        log.append(len(held))
        return torch.tanh(x * (1.0 if reference() is None else held[0].scale))

    jitted, x = jit(function), torch.randn(8)
    for _ in range(3):
        torch.testing.assert_close(jitted(x), torch.tanh(x * 2.0))
    held.clear()
    assert reference() is None
    torch.testing.assert_close(jitted(x), torch.tanh(x))


def test_arguments_of_a_followed_function_die_when_they_are_dropped():
    def function(x: torch.Tensor, settings: Settings) -> torch.Tensor:
        print(end="")
        return torch.tanh(x * settings.scale)

    jitted, x, settings = jit(function), torch.randn(8), Settings()
    reference = weakref.ref(settings)
    for _ in range(3):
        jitted(x, settings)
    del settings
    assert reference() is None


def test_what_forbade_a_recording_is_looked_at_again():
    class Options:
        is_logged = True

    options, log = Options(), []

    def function(x: torch.Tensor) -> torch.Tensor:
        if options.is_logged:
            log.append(1)
        return torch.tanh(x) * 2.0

    jitted, x = jit(function), torch.randn(8)
    for _ in range(10):
        jitted(x)
    assert jitted.tier == "following"
    options.is_logged = False
    for _ in range(300):
        jitted(x)
    assert jitted.tier == "skipping" and len(log) == 10


def test_modules_that_are_switched_are_looked_at_at_once():
    class Logging(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[int] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.calls.append(1)
            return torch.tanh(x) * 2.0

    module, x = Logging(), torch.randn(8)
    jitted = jit(module)
    for _ in range(10):
        jitted(x)
    assert jitted.tier == "following"
    module.eval()
    for _ in range(3):
        jitted(x)
    assert jitted.tier == "skipping" and len(module.calls) == 10
