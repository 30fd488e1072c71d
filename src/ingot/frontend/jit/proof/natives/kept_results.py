"""Calls of functions that keep their results for ever: `functools.cache`, and `functools.lru_cache(None)`.

In: a call of one of them. Out: the result that it has kept, for that is all such a call gives: a warning that is told
once was told. What always holds: the result was kept when the code was walked, it is plain, and a guard sees whether it
still is there. Only the statistics that `cache_info()` tells do not count calls that do not run.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain import open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import AbstractValue, Known, known
from ingot.frontend.jit.proof.domain.place_guards import ABSENT, is_plain

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
Handler = Callable[[Any, list[AbstractValue], Arguments], AbstractValue]
KeepingFunction = functools._lru_cache_wrapper
_KEYS = (str, int, bool, type(None), torch.dtype, torch.device)
"""Types of arguments that are compared by value, and none of whose values differs from itself, as NaN does."""


def handler_of(called: KeepingFunction[Any]) -> Handler:
    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        open_sizes.pin(walker, *args)
        name = getattr(called, "__qualname__", "a function")
        given = tuple(one.value for one in args if isinstance(one, Known) and _is_key(one.value))
        kept = _results_of(called)
        if kept is None or kwargs or len(given) < len(args):
            walker.refuse(f"calls {name}, whose results an lru_cache keeps, in a way that is not understood")
        key = given[0] if len(given) == 1 and type(given[0]) in (str, int) else given
        found = walker.entry(kept, key, ABSENT, f"the results of {name}")
        if not is_plain(found):
            walker.refuse(f"calls {name}, whose lru_cache has no plain result for it")
        return known(found)

    return handle


def _is_key(value: Any) -> bool:
    """Whether to look a value up runs no code of the user's."""
    cls = type(value)
    return cls in _KEYS or (cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__)


def _results_of(called: KeepingFunction[Any]) -> dict[Any, Any] | None:
    """The dictionary in which a function keeps its results: by its argument where that is one text or number, else by
    all of them. None if it keeps a limited number of them, or keeps them by the types of arguments as well."""
    if called.cache_parameters() != {"maxsize": None, "typed": False}:
        return None
    tables = [one for one in gc.get_referents(called) if type(one) is dict and one is not vars(called)]
    is_one = len(tables) == 1 and len(tables[0]) == called.cache_info().currsize
    return tables[0] if is_one else None
