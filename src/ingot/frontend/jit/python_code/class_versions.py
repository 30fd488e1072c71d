"""Where a class has its version, a number that every change of it and of its bases changes.

In: a class. Out: halves of words of its memory, and which of them is the version, as far as that can be found.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ingot.base.once import once


@once
def version_half() -> int | None:
    """Where a class has its version, counted in halves of words: 0 from a change on until it is asked for again."""
    places: set[int] | None = None
    for _ in range(3):
        sample: Any = type("Sample", (), {"attribute": 1})
        for _ in range(3):
            _ = sample.attribute
        before = halves(sample)
        sample.other = 2
        after = halves(sample)
        changed = {place for place, half in enumerate(before) if half and not after[place]}
        places = changed if places is None else places & changed
    return places.pop() if places is not None and len(places) == 1 else None


def halves(cls: type) -> list[int]:
    return list((ctypes.c_uint32 * 104).from_address(id(cls)))
