"""Objects with state among the arguments: what stands for them in the walk, and what the walk leaves in them.

In: objects as they were when the call began. Out: values that code may change, and at the end every place that then
holds something else. What always holds: what is said to be there is there after every call for which the proof holds;
what cannot be said is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.arguments.given_objects import Held
from ingot.frontend.jit.proof.domain.abstract_values import (
    MIXED,
    NONE,
    AbstractTensor,
    AbstractValue,
    Determined,
    Fresh,
    Known,
    OpenTuple,
    Tuple,
    plain,
)
from ingot.frontend.jit.proof.domain.place_guards import ABSENT

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Abstract = Callable[[Any, Any], AbstractValue]
"""What stands for a part of an object, which is there under a key."""


class AnyTensor:
    """Any tensor: which one it is a recording tells."""


class PlainValue:
    """A plain value that is the same after each call, which a recording tells."""


@dataclass(frozen=True, slots=True)
class Given:
    """One of the objects among the arguments, by its position."""

    position: int


_OWN = {"__getattribute__": object.__getattribute__, "__setattr__": object.__setattr__} | {
    "__delattr__": object.__delattr__,
    "__del__": ABSENT,
}


def stand_in(walker: Walker, value: Any, abstract: Abstract) -> Fresh | None:
    """What stands for an object with state among the arguments, or a list or a dictionary in one; None for others."""
    given = walker.given
    if given is None:
        return None
    if id(value) in given.outputs:
        return _output(walker, given.outputs[id(value)], abstract)
    position = given.position_of(value)
    if position is None:
        return None
    held = given.held[position]
    made = _made(walker, held, abstract)
    made.is_callers = True
    walker.given_places[made.identity] = position
    walker.given_before[position] = _contents(walker, made.identity)
    return made


def _made(walker: Walker, held: Held, abstract: Abstract) -> Fresh:
    contents, cls = held.contents, type(held.container)
    if isinstance(contents, list):
        return walker.new_list([abstract(part, index) for index, part in enumerate(contents)])
    parts = {key: abstract(part, key) for key, part in contents.items()}
    if held.table is None:
        return walker.new(dict, parts)
    for name, own in _OWN.items():
        if walker.type_attribute(cls, name) is not own:
            walker.refuse(f"is given an object of the class {cls.__qualname__}, which has its own {name}")
    return walker.new(cls, attributes=parts)


def _output(walker: Walker, table: dict[str, Any], abstract: Abstract) -> Fresh:
    """A dictionary that is a dataclass: its attributes are its entries, and None for those that it lacks."""
    entries = {key: abstract(part, key) for key, part in dict.items(table)}
    names = [one.name for one in dataclasses.fields(table)]  # type: ignore[arg-type]
    made = walker.new(type(table), entries, {name: entries.get(name, NONE) for name in names})
    made.is_callers = True
    return made


def _contents(walker: Walker, identity: int) -> Any:
    state = walker.state
    return state.attributes[identity] if identity in state.attributes else state.items[identity]


def changes(walker: Walker) -> dict[tuple[int, Any], Any]:
    """The places that hold something else at the end, and what that is; ABSENT where there is nothing any more."""
    found: dict[tuple[int, Any], Any] = {}
    for identity, position in walker.given_places.items():
        before, now = walker.given_before[position], _contents(walker, identity)
        if now is before:
            continue
        if now is MIXED:
            walker.refuse("changes an object that it was given in a way that depends on something that is not known")
        if isinstance(before, dict):
            found |= {(position, name): ABSENT for name in before.keys() - now.keys()}
            changed = {name: value for name, value in now.items() if before.get(name) is not value}
            found |= {(position, name): _said(walker, value) for name, value in changed.items()}
        elif len(now) < len(before):
            found[position, ...] = tuple(_said(walker, item) for item in now)
        else:
            new = [index for index, item in enumerate(now) if index >= len(before) or item is not before[index]]
            found |= {(position, index): _said(walker, now[index]) for index in new}
    return found


def _said(walker: Walker, value: AbstractValue) -> Any:
    """A new value, as far as it is known."""
    match value:
        case AbstractTensor():
            return AnyTensor
        case Known() if plain(value) or isinstance(value, OpenTuple):
            return value.value  # which fixes sizes that it depends on
        case Known() if isinstance(value.value, torch.Tensor):
            return AnyTensor
        case Determined():
            return PlainValue
        case Tuple() if value.cls is tuple:
            return tuple(_said(walker, item) for item in value.items)
        case Fresh() if value.identity in walker.given_places:
            return Given(walker.given_places[value.identity])
    return walker.refuse("keeps an object in one that it was given, and it is not known which")
