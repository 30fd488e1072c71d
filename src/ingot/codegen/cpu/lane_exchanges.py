"""Lanes that change places: rows of elements in memory become a vector for each place in a row, and back.

In: vectors of equal length. Out: as many vectors of the same lanes, in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def transposed(builder: Any, vectors: list[Any]) -> list[Any]:
    """Lane i of vector j becomes lane j of vector i, by exchanging ever smaller blocks between pairs of vectors."""
    count = len(vectors)
    rows = list(vectors)
    step = count // 2
    while step:
        for first in range(count):
            if first & step:
                continue
            second = first + step
            keeps = [lane if not lane & step else count + lane - step for lane in range(count)]
            takes = [lane + step if not lane & step else count + lane for lane in range(count)]
            pair = rows[first], rows[second]
            rows[first], rows[second] = (builder.shuffle_vector(*pair, lanes) for lanes in (keeps, takes))
        step //= 2
    return rows


def rows_apart(builder: Any, vectors: list[Any]) -> list[Any]:
    """From vectors as they follow each other in memory, with the elements of one row side by side, to one vector for
    each element of a row."""
    size, lanes = len(vectors), vectors[0].type.count
    return [_collected(builder, vectors, [row * size + element for row in range(lanes)]) for element in range(size)]


def rows_together(builder: Any, vectors: list[Any]) -> list[Any]:
    """The other way round."""
    size, lanes = len(vectors), vectors[0].type.count
    places = [place % size * lanes + place // size for place in range(size * lanes)]
    return [_collected(builder, vectors, places[first : first + lanes]) for first in range(0, size * lanes, lanes)]


def _collected(builder: Any, vectors: Sequence[Any], places: Sequence[int]) -> Any:
    """A vector of lanes from several vectors, which are counted through."""
    lanes = len(places)
    first, *others = sorted({place // lanes for place in places})
    found = vectors[first]
    chosen = [place % lanes if place // lanes == first else 0 for place in places]
    for number in others:
        taken = [lanes + place % lanes if place // lanes == number else chosen[i] for i, place in enumerate(places)]
        found = builder.shuffle_vector(found, vectors[number], taken)
        chosen = list(range(lanes))
    return found if others else builder.shuffle_vector(found, found, chosen)
