"""Calls of functions that keep their results: `functools.cache` and `functools.lru_cache`.

In: a call of one of them. Out: the result that it has kept, for that is all such a call gives: a warning that is told
once was told. What always holds: the result was kept when the code was walked, and a guard sees whether it still is
there. Where the number of results is limited, calls also decide which one goes next: the proof notes them, and they are
repeated in their order whenever Python is skipped. Otherwise only the statistics that `cache_info()` tells do not count
calls that do not run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain import open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import AbstractValue, Known, known
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, is_plain
from ingot.frontend.jit.proof.domain.result_caches import KeepingFunction, KeptCall, LimitedResult, ResultCache

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
Handler = Callable[[Any, list[AbstractValue], Arguments], AbstractValue]
_KEYS = (str, int, bool, type(None), torch.dtype, torch.device, torch.Size)
"""Types of arguments that are compared by value."""


def handler_of(called: KeepingFunction[Any]) -> Handler:
    name = getattr(called, "__qualname__", "a function")

    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        open_sizes.pin(walker, *args, *kwargs.values())
        cache = ResultCache.of(called)
        values = [*args, *kwargs.values()]
        given = [one.value for one in values if isinstance(one, Known) and _is_key(walker, one.value)]
        if cache is None or len(given) < len(values):
            walker.refuse(f"calls {name}, whose results an lru_cache keeps, in a way that is not understood")
        positional, named = tuple(given[: len(args)]), dict(zip(kwargs, given[len(args) :], strict=True))
        found = _guarded(walker, cache, cache.key(positional, named), f"the results of {name}")
        if not _may_be_used(found):
            walker.refuse(f"calls {name}, whose lru_cache has no plain result for it")
        if cache.is_limited and not walker.answers.is_sure:
            walker.refuse(f"calls {name}, whose lru_cache is limited, where it is not certain that it is called")
        walker.kept_calls.append(KeptCall(called, positional, named, cache))
        return known(found, name)

    return handle


def _guarded(walker: Walker, cache: ResultCache, key: Any, text: str) -> Any:
    """The result under a key, guarded; ABSENT if there is none."""
    if not cache.is_limited:
        return walker.entry(cache.table, key, ABSENT, text)
    link, found = cache.find(key)
    if found is not ABSENT:
        walker.guard((LimitedResult, id(cache.table), key), lambda: LimitedResult(cache.table, key, link, found, text))
    return found


def _is_key(walker: Walker, value: Any) -> bool:
    """Whether to look a value up runs no code of the user's."""
    cls = type(value)
    if cls is tuple:
        return all(_is_key(walker, one) for one in value)
    if id(value) in walker.told_by_parts:
        return False
    if cls in _KEYS or cls is float:
        return cls is not float or value == value  # NaN differs from itself
    usual = ("__hash__", object.__hash__), ("__eq__", object.__eq__)
    return all(walker.type_attribute(cls, name) is function for name, function in usual)


def _may_be_used(found: Any) -> bool:
    """Whether a result is a plain value, a tensor, or a tuple of such."""
    if type(found) is tuple:
        return all(map(_may_be_used, found))
    return is_plain(found) or type(found) is torch.Tensor
