"""Where a dictionary has an entry in memory, so that native code sees at a glance whether it is still there.

In: a dictionary, a key and what it holds for it. Out: the table of entries it uses, and where in it the entry is; None
where that is not known. As long as the dictionary uses that table, it has so many entries, and the entry is the same
two objects, the dictionary holds what it held: an entry that is taken out is overwritten, and one that is put in anew
comes after all others. If it is not so the dictionary has to be asked: it may have moved to a larger table.

Known are the tables of texts alone, as dictionaries of modules have them.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

from ingot.runtime.native.once import once

TABLE_WORD = 4
"""Where a dictionary has the address of its table."""
USED_WORD = 3
"""Where a table has the number of its entries, of which some may have been taken out."""
_VALUES_WORD = 5
"""Where a dictionary has the address of values that lie apart from its table, which others share then."""
_KIND_WORD, _HEADER_WORDS, _ENTRY_WORDS = 1, 4, 2
_TEXTS = 1
"""The kind of tables whose keys are all texts."""
_VERSIONS = ((3, 11), (3, 12), (3, 13))
"""Of Python, in which tables are like this."""


@dataclass(frozen=True, slots=True)
class Entry:
    table: int
    number: int
    address: int
    key: str
    """The one that the dictionary has. Who looks whether it is still there keeps it, lest another takes its place in
    memory."""


def entry_of(dictionary: dict[Any, Any], key: Any, value: Any) -> Entry | None:
    """Where a dictionary has a value for a key; None if that is not known."""
    return _found(dictionary, key, value) if _is_as_expected() else None


def _found(dictionary: dict[Any, Any], key: Any, value: Any) -> Entry | None:
    table = _word(id(dictionary), TABLE_WORD)
    kind = _word(table, _KIND_WORD)
    if _word(id(dictionary), _VALUES_WORD) or kind >> 16 & 0xFF != _TEXTS:
        return None
    entries = table + _HEADER_WORDS * 8 + (1 << (kind >> 8 & 0xFF))
    size = _ENTRY_WORDS * 8
    held = ctypes.string_at(entries, _word(table, USED_WORD) * size)
    place = held.find(id(value).to_bytes(8, "little"))
    while place >= 0:
        number, offset = divmod(place, size)
        address = entries + number * size
        if offset == 8 and (found := ctypes.cast(_word(address, 0), ctypes.py_object).value) == key:
            return Entry(table, number, address, found)
        place = held.find(id(value).to_bytes(8, "little"), place + 1)
    return None


@once
def _is_as_expected() -> bool:
    """Whether the entries of some dictionaries are found where they should be."""
    if sys.version_info[:2] not in _VERSIONS:
        return False
    samples: list[dict[str, object]] = [{f"key {number}": object() for number in range(size)} for size in (1, 7, 400)]
    del samples[-1]["key 20"]
    return all(_found(sample, key, value) for sample in samples for key, value in sample.items())


def _word(address: int, word: int) -> int:
    return ctypes.c_uint64.from_address(address + word * 8).value
