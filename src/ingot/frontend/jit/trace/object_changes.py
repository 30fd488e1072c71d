"""What a call leaves in the objects that it was given: which attributes, entries and items are other ones.

In: the objects of a recorded call as they were, and as they are when it is over. Out: changes that hold for every call
like it, with the tensors that are now there among the results of the recording; later the same done to the objects of
another call. What always holds: nothing is done before all new values exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.frontend.jit.arguments.given_objects import GivenObjects, Held
from ingot.frontend.jit.arguments.structure import LEAF, Shape, put_together
from ingot.frontend.jit.proof.domain.place_guards import ABSENT

Note = Callable[[Any], Any]
"""What a leaf of a result is noted as in a trace; a reason to stop is told to the recording."""


@dataclass(frozen=True, slots=True)
class GivenObject:
    """An object, a list or a dictionary among the arguments, by its position: each call has its own."""

    position: int


@dataclass(frozen=True, slots=True)
class Change:
    """What one of them holds in one place: an attribute, an entry or an item. Items beyond the end are appended; a list
    that has become shorter has one place, `...`, for all that are left."""

    position: int
    place: Any
    shape: Shape | None
    """How the new value is nested; None where the place is gone."""


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """What a call leaves in its objects, in the order in which it is done."""

    changes: tuple[Change, ...] = ()
    leaves: int = 0
    """How many of the last results of a recording are leaves of new values."""

    def finish(self, build: Callable[[Sequence[Any]], Any], results: Sequence[Any], given: GivenObjects) -> Any:
        """The result of a call, when its objects have been changed."""
        containers = [one.container for one in given.held]
        leaves = [containers[one.position] if type(one) is GivenObject else one for one in results]
        count = len(leaves) - self.leaves
        result, rest = build(leaves[:count]), iter(leaves[count:])
        values = [None if one.shape is None else put_together(one.shape, rest) for one in self.changes]
        for change, value in zip(self.changes, values, strict=True):
            _apply(given.held[change.position], change, value)
        return result


def _apply(held: Held, change: Change, value: Any) -> None:
    if change.place is ...:
        held.container[:] = value
    elif isinstance(held.contents, list) and change.place >= len(held.contents):
        held.container.append(value)
    elif held.table is not None and change.shape is None:
        object.__delattr__(held.container, change.place)
    elif held.table is not None:
        object.__setattr__(held.container, change.place, value)
    elif change.shape is None:
        del held.container[change.place]
    else:
        held.container[change.place] = value


class Incomparable(Exception):
    """Objects were changed in a way that cannot be repeated; the text says how."""


def changed_places(held: Held) -> Iterator[tuple[Any, Any]]:
    """The places that hold another value than when the call began, and the value, ABSENT where there is none."""
    before, now = held.contents, held.now()
    if now is None or type(now) is not type(before):
        raise Incomparable("it replaces the dictionary of an object that it was given")
    if isinstance(before, list):
        assert isinstance(now, list)
        if len(now) < len(before):
            yield ..., now
            return
        for index, value in enumerate(now):
            if index >= len(before) or before[index] is not value:
                yield index, value
        return
    assert isinstance(now, dict)
    expected = [*(name for name in before if name in now), *(name for name in now if name not in before)]
    if [(type(name), name) for name in now] != [(type(name), name) for name in expected]:
        raise Incomparable("it changes the order of the attributes or entries of an object that it was given")
    for name in before:
        if name not in now:
            yield name, ABSENT
    for name, value in now.items():
        if before.get(name, ABSENT) is not value:
            yield name, value


def take_changes(given: GivenObjects, note: Note) -> tuple[ObjectChanges, list[Any]]:
    """What a call has left in its objects, and the leaves of the new values as `note` notes them."""
    changes: list[Change] = []
    noted: list[Any] = []
    for position, held in enumerate(given.held):
        for place, value in changed_places(held):
            if value is ABSENT:
                changes.append(Change(position, place, None))
                continue
            leaves: list[Any] = []
            shape = _new_shape(given, value, leaves, place is ...)
            changes.append(Change(position, place, shape))
            noted += map(note, leaves)
    return ObjectChanges(tuple(changes), len(noted)), noted


def _new_shape(given: GivenObjects, value: Any, leaves: list[Any], is_contents: bool) -> Shape:
    """How a new value is nested: tuples, and the items of a list that has changed. Other lists, dictionaries and
    objects have to be given ones: new ones could be held elsewhere as well."""
    position = None if is_contents else given.position_of(value)
    if position is not None:
        leaves.append(GivenObject(position))
        return LEAF
    if is_contents or type(value) is tuple:
        return Shape(type(value), None, tuple([_new_shape(given, part, leaves, False) for part in value]))
    leaves.append(value)
    return LEAF
