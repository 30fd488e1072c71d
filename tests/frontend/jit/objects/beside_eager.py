"""Calls that are given objects with state: a compiled function beside eager, each with objects of its own.

In: a function, and what makes its arguments. Out: calls of both, after each of which results and arguments are compared
in every respect: values, types, the order of attributes, which parts are one object, and which tensors share memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import ingot

jit: Any = ingot.jit


class Layer:
    """A part of a cache, as models have them."""

    def __init__(self) -> None:
        self.keys: Any = None
        self.is_ready = False

    def update(self, new: torch.Tensor) -> torch.Tensor:
        if not self.is_ready:
            self.dtype, self.device = new.dtype, new.device
            self.keys = torch.zeros(0, *new.shape[1:])
            self.is_ready = True
        self.keys = torch.cat([self.keys, new])
        return self.keys

    def length(self) -> int:
        return self.keys.shape[0] if self.is_ready else 0


class Cache:
    def __init__(self, layers: int = 2) -> None:
        self.layers = [Layer() for _ in range(layers)]
        self.seen = {"first": False}

    def update(self, new: torch.Tensor, index: int) -> torch.Tensor:
        return self.layers[index].update(new)


def attend(x: torch.Tensor, cache: Cache) -> tuple[torch.Tensor, Cache]:
    """A small decoder that reads and writes a cache."""
    for index in range(len(cache.layers)):
        keys = cache.update(torch.tanh(x), index)
        x = torch.softmax(x @ keys.T, -1) @ keys
    return x * 2, cache


class Beside:
    """A function compiled and as it is, with equal arguments."""

    def __init__(self, function: Callable[..., Any], make: Callable[[], Any], **options: Any):
        self.plain, self.compiled = function, jit(function, **options)
        self.mine, self.its = make(), make()
        """What the plain function is given besides tensors, and what the compiled one is."""

    @property
    def demotion(self) -> Any:
        """What an audit has found, if one has found anything."""
        return self.compiled._compiled.demotion

    def change(self, change: Callable[[Any], Any]) -> None:
        """Do the same to both."""
        change(self.mine)
        change(self.its)

    def renew(self, make: Callable[[], Any]) -> None:
        self.mine, self.its = make(), make()

    def call(self, x: torch.Tensor, times: int = 1) -> None:
        """Call both with a tensor and their own objects, and compare everything."""
        for _ in range(times):
            with torch.no_grad():
                wanted, found = (_outcome(*one) for one in ((self.plain, x, self.mine), (self.compiled, x, self.its)))
            same(look([found, self.its]), look([wanted, self.mine]))

    def grow(self, steps: int, width: int = 4) -> None:
        for step in range(steps):
            self.call(torch.randn(1, width) + step)


def _outcome(function: Callable[..., Any], x: torch.Tensor, given: Any) -> Any:
    try:
        return function(x.clone(), given)
    except Exception as error:
        return type(error).__name__


def look(value: Any) -> Any:
    """What can be seen of a value, as plain data and tensors."""
    return _look(value, {}, {}, [])


def _look(value: Any, seen: dict[int, int], memory: dict[int, int], kept: list[Any]) -> Any:
    if value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.device | type):
        return (type(value).__name__, repr(value))
    if not hasattr(value, "__dict__") and not isinstance(value, torch.Tensor | list | tuple | dict):
        return (type(value).__name__,)
    if id(value) in seen:
        return ("again", seen[id(value)])
    kept.append(value)
    if not isinstance(value, tuple):  # which are alike if their parts are
        seen[id(value)] = len(seen)
    inner = lambda part: _look(part, seen, memory, kept)
    if isinstance(value, torch.Tensor):
        place = memory.setdefault(value.untyped_storage().data_ptr(), len(memory)) if value.numel() else -1
        return ("tensor", value.requires_grad, value.stride(), place, value.detach().clone())
    if isinstance(value, dict):
        return (type(value).__name__, [(repr(key), inner(part)) for key, part in value.items()])
    if isinstance(value, list | tuple):
        return (type(value).__name__, [inner(part) for part in value])
    return (type(value).__name__, [(name, inner(part)) for name, part in vars(value).items()])


def same(found: Any, wanted: Any) -> None:
    """Fail unless two looks are the same; floats may be rounded otherwise."""
    assert type(found) is type(wanted), (found, wanted)
    if isinstance(wanted, list | tuple):
        assert len(found) == len(wanted), (found, wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    else:
        assert found == wanted
