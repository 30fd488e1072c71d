"""Changes of objects for a while, for the tests of guards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Change = Callable[[], contextlib.AbstractContextManager[Any]]
_MISSING = object()
_COMPUTED = ("__class__", "__dict__", "__code__", "__defaults__", "__kwdefaults__", "__name__", "cell_contents")


def attribute(owner: Any, name: str, value: Any) -> Change:
    """Sets an attribute for a while, of an object or of what a lambda gives."""

    @contextlib.contextmanager
    def change():
        held = owner() if getattr(owner, "__name__", "") == "<lambda>" else owner
        before = getattr(held, "__dict__", {}).get(name, _MISSING)
        if name in (*_COMPUTED, "weight", "data", "requires_grad") or not hasattr(held, "__dict__"):
            before = getattr(held, name)
        setattr(held, name, value)
        yield
        if before is _MISSING:
            delattr(held, name)
        else:
            setattr(held, name, before)

    return change


def entry(container: Any, key: Any, value: Any) -> Change:
    """Sets an item of a container for a while."""

    @contextlib.contextmanager
    def change():
        before = list(container) if isinstance(container, list) else dict(container)
        container[key] = value
        yield
        if isinstance(container, list):
            container[:] = before
        elif key in before:
            container[key] = before[key]
        else:
            del container[key]

    return change
