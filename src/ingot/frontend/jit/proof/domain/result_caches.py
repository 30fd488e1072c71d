"""Functions that keep their results, `functools.cache` and `functools.lru_cache`, looked into without calling them.

In: such a function. Out: what it has kept for some arguments, and where. What always holds: looking runs no code of the
user's and changes nothing; a cache that is not built as CPython builds it is not looked into.

Where the number of results is limited, the table holds links of a list in the order of their use, and a link is used
again for another key when the list is full: the same link may hold another result later.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.base.once import once
from ingot.frontend.jit.proof.domain.place_guards import ABSENT

KeepingFunction = functools._lru_cache_wrapper
_WORD = 8
_LINK = "_lru_list_elem"


@dataclass(frozen=True, slots=True)
class ResultCache:
    """The inside of a function that keeps its results."""

    table: dict[Any, Any] = field(repr=False)
    """The results by key; links to them, if their number is limited."""
    marker: Any
    """What stands between positional and keyword arguments in a key."""
    function: types.FunctionType
    """What is called for a result that is not there."""
    is_limited: bool

    @staticmethod
    def of(called: KeepingFunction[Any]) -> ResultCache | None:
        """None for a cache that tells results apart by the types of arguments, keeps none, or is not understood."""
        settings = called.cache_parameters()
        parts = gc.get_referents(called)
        tables = [place for place, one in enumerate(parts) if type(one) is dict and one is not vars(called)]
        if settings.get("typed") is not False or not tables:
            return None
        table, (function, marker) = parts[tables[-1]], parts[tables[-1] + 1 : tables[-1] + 3]
        if len(table) != called.cache_info().currsize or type(marker) is not object:
            return None
        is_limited = settings.get("maxsize") is not None
        if type(function) is not types.FunctionType or (is_limited and result_word() is None):
            return None
        if any((type(one).__name__ == _LINK) is not is_limited for one in table.values()):
            return None
        return ResultCache(table, marker, function, is_limited)

    def key(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What a call with these arguments looks its result up by."""
        if not keywords:
            is_alone = len(arguments) == 1 and type(arguments[0]) in (str, int)
            return arguments[0] if is_alone else tuple(arguments)
        named = [part for pair in keywords.items() for part in pair]
        return (*arguments, self.marker, *named)

    def find(self, key: Any) -> tuple[Any, Any]:
        """What the table holds under a key, and the result; ABSENT if there is none."""
        held = self.table.get(key, ABSENT)
        return held, result_of(held) if self.is_limited and held is not ABSENT else held

    def results(self) -> Iterator[Any]:
        for held in list(self.table.values()):
            yield result_of(held) if self.is_limited else held


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call of such a function that found its result."""

    called: KeepingFunction[Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    cache: ResultCache

    def repeat(self) -> None:
        """Have the cache count the call, and take its result for the one that was used last."""
        self.called(*self.arguments, **self.keywords)


@dataclass(frozen=True, eq=False)
class LimitedResult:
    """A guard: the result that a function which keeps a limited number of them has kept."""

    table: dict[Any, Any] = field(repr=False)
    key: Any
    link: Any
    """What the table holds: an object that may come to hold another result."""
    expected: Any
    text: str

    def holds(self) -> bool:
        return dict.get(self.table, self.key, ABSENT) is self.link and result_of(self.link) is self.expected


def result_of(link: Any) -> Any:
    """The result that a link holds at the moment."""
    return ctypes.py_object.from_address(result_address(link)).value


def result_address(link: Any) -> int:
    """Where a link holds its result."""
    word = result_word()
    assert word is not None
    return id(link) + word * _WORD


@once
def result_word() -> int | None:
    """The word of a link that is its result; None where links are built in another way."""
    kept = object()

    @functools.lru_cache(maxsize=2)
    def sample(key: int) -> object:
        return kept

    sample(1)
    tables = [one for one in gc.get_referents(sample) if type(one) is dict and 1 in one]
    link = tables[0].get(1) if len(tables) == 1 else None
    if type(link).__name__ != _LINK:
        return None
    words = [ctypes.c_uint64.from_address(id(link) + place * _WORD).value for place in range(_words(link))]
    found = [place for place, word in enumerate(words) if word == id(kept)]
    return found[0] if len(found) == 1 else None


def _words(link: Any) -> int:
    return type(link).__basicsize__ // _WORD
