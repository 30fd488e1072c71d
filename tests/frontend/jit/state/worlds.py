"""What a program over state and time is: a function, what it is called with, and what changes around it.

In: a world, which knows how functions are compiled (or that they are not) and undoes at its end what was patched.
Out: a `Program`. It is built once for each world, from fresh state, so that two worlds never see each other's changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

Compile = Callable[[Any], Any]


class ProgramWarning(UserWarning):
    """What programs warn of: other warnings are PyTorch's or ingot's, and come once or not at all."""


class Stranger:
    """A type that no list of known argument types holds."""

    def __init__(self, scale: float) -> None:
        self.scale = scale


class World:
    """One run of a program: how functions are compiled in it, what they noted, and what is undone at the end."""

    def __init__(self, compile_function: Compile) -> None:
        self.compile = compile_function
        self.log: list[Any] = []
        self.compiled: Any = None
        """What the program's function became: known when calls begin."""
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def patch(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute until the world ends."""
        missing = object()
        before = vars(target).get(name, missing) if hasattr(target, "__dict__") else getattr(target, name)
        setattr(target, name, value)
        if before is missing:
            self._undo.callback(_remove, target, name)
        else:
            self._undo.callback(setattr, target, name, before)

    def put(self, mapping: Any, key: Any, value: Any) -> None:
        """Set an entry of a mapping until the world ends."""
        if key in mapping:
            self._undo.callback(mapping.__setitem__, key, mapping[key])
        else:
            self._undo.callback(mapping.pop, key, None)
        mapping[key] = value

    def enter(self, context: contextlib.AbstractContextManager[Any]) -> Any:
        """Enter a context until the world ends."""
        return self._undo.enter_context(context)

    def at_end(self, function: Callable[..., Any], *args: Any) -> None:
        self._undo.callback(function, *args)


def _remove(target: Any, name: str) -> None:
    with contextlib.suppress(AttributeError):
        delattr(target, name)


def numbers(call: int, *shape: int) -> torch.Tensor:
    """Small integers as floats, others at each call: sums and products of them are exact in any order."""
    count = 1
    for size in shape:
        count *= size
    return ((torch.arange(count) * 3 + call) % 7 - 3).float().reshape(shape)


def one_tensor(call: int) -> tuple[Any, ...]:
    return (numbers(call, 4, 5),)


def no_keywords(call: int) -> dict[str, Any]:
    return {}


def nothing(*_: Any) -> None:
    pass


def itself(value: Any) -> Any:
    return value


def plainly(run: Callable[[], Any]) -> Any:
    return run()


@dataclass
class Program:
    """A function in its world. Everything but the function has a usual form."""

    function: Any
    change: Callable[[], Any] = nothing
    """Changes something that Python can see."""
    arguments: Callable[[int], tuple[Any, ...]] = one_tensor
    """Fresh arguments for the call of this number."""
    keywords: Callable[[int], dict[str, Any]] = no_keywords
    observe: Callable[[], Any] = nothing
    """What can be seen besides the result and the world's log."""
    view: Callable[[Any], Any] = itself
    """What of a result is compared: where values differ from run to run, what must hold of them."""
    call: Callable[[Callable[[], Any]], Any] = plainly
    """How the function is called: from another thread, under a profiler, in a context."""
    after: Callable[[Any], Any] = nothing
    """What the caller does with a result before the next call."""


Builder = Callable[[World], Program]
CATALOGUE: dict[str, Builder] = {}


def program(builder: Builder) -> Builder:
    """Enter a program into the catalogue under its name."""
    name = getattr(builder, "__name__")  # noqa: B009
    assert name not in CATALOGUE, f"two programs are called {name}"
    CATALOGUE[name] = builder
    return builder


@contextlib.contextmanager
def restored(read: Callable[[], Any], write: Callable[[Any], Any]) -> Iterator[None]:
    """A context at whose end a setting is as it was."""
    before = read()
    try:
        yield
    finally:
        write(before)
