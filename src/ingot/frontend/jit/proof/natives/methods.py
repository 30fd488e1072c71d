"""Methods of Python's own containers, texts and objects.

In: a method of list, dict, set, str ... Out: how to walk a call of it. What always holds: methods that change something
do so only with containers that were made during the call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain import open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import (
    NONE,
    AbstractValue,
    Determined,
    Fresh,
    Known,
    Raised,
    Tuple,
    View,
    computed,
    holds_nan,
    is_undetermined,
    known,
    plain,
    tuple_of,
)
from ingot.frontend.jit.proof.semantics import abstract_operators, attribute_lookup, containers

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
Handler = Callable[[Any, list[AbstractValue], Arguments], AbstractValue]

_PLAIN_CLASSES = (str, int, float, complex, bool, bytes, tuple, frozenset, range, torch.Size, torch.dtype, slice)
_UNSAFE = frozenset(["__init__", "__new__", "__setattr__", "__delattr__", "__reduce__", "__reduce_ex__", "__hash__"])


def handler_of(method: Any) -> Handler | None:
    entry = _METHODS.get(id(method))
    if entry is not None:
        return entry[1]
    if method.__objclass__ in _PLAIN_CLASSES and method.__name__ not in _UNSAFE:
        return _of_plain(method)
    if method.__objclass__ in (set, frozenset) and method.__name__ in _SET_RESULTS:
        return _of_sets(method)
    return None


def _without_name(value: AbstractValue) -> AbstractValue:
    """The text or number that a member of an enumeration of texts or numbers is: it stays the same, as their methods
    see it."""
    member = value.value if type(value) is Known else None
    if isinstance(member, Enum) and isinstance(member, str | int):
        return Known(str.__str__(member) if isinstance(member, str) else int.__int__(member))
    return value


def _of_plain(method: Any) -> Handler:
    """A method of a plain value, which is computed."""

    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        given = [_plainly(walker, _without_name(value)) for value in (*args, *kwargs.values())]
        if None not in given:
            real = [one.value for one in given]  # type: ignore[union-attr]
            if method.__name__ in ("index", "count") and any(map(holds_nan, real[1:])):
                walker.refuse("looks for NaN in a tuple, which takes one for equal to itself")
            named = dict(zip(kwargs, real[len(args) :], strict=True))
            return containers.made_of(walker, computed(lambda *first: method(*first, **named), *real[: len(args)]))
        if isinstance(args[0], Tuple) and method.__name__ in ("index", "count"):
            walker.refuse("looks for an object in a tuple")
        open_sizes.pin(walker, *args, *kwargs.values())
        for value in (*args, *kwargs.values()):
            inner = containers.iterate(walker, value) if isinstance(value, Fresh) else [value]
            if not all(plain(one) or is_undetermined(one) for one in inner):
                walker.refuse(f"calls {method.__qualname__} with an object that is not understood")
        return walker.determined(str if method.__objclass__ is str and method.__name__ in _TEXTS else None)

    return handle


_TEXTS = frozenset(
    ["format", "join", "replace", "strip", "lstrip", "rstrip", "lower", "upper", "removeprefix", "removesuffix"]
)


def _plainly(walker: Walker, value: AbstractValue) -> Known | None:
    """A plain value, or a list or iterator of such as a tuple; None for anything else."""
    if isinstance(value, Fresh) and issubclass(value.cls, dict):
        return None
    if isinstance(value, Fresh):
        items = walker.state.items.get(value.identity)
        if not isinstance(items, tuple) or not all(map(plain, items)):
            return None
        value = tuple_of(containers.iterate(walker, value))
    return value if plain(value) else None  # type: ignore[return-value]


def _join(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    return _of_plain(str.join)(walker, [args[0], tuple_of(containers.iterate(walker, args[1]))], kwargs)


# --- lists ------------------------------------------------------------------------------------------------------------


def _own(walker: Walker, value: AbstractValue) -> Fresh:
    if not isinstance(value, Fresh) or not walker.may_change(value):
        walker.refuse("changes a container that it did not make")
    return value


def _append(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    made = _own(walker, args[0])
    containers.write(walker, made, (*containers.contents(walker, made), args[1]))
    return NONE


def _extend(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    made = _own(walker, args[0])
    containers.write(walker, made, (*containers.contents(walker, made), *containers.iterate(walker, args[1])))
    return NONE


def _changed(change: Callable[..., Any]) -> Handler:
    """A method that changes a list by plain arguments and values."""

    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        made = _own(walker, args[0])
        items = list(containers.contents(walker, made))
        given = [value.value if plain(value) and type(value.value) is int else value for value in args[1:]]  # type: ignore[attr-defined]
        try:
            result = change(items, *given)
        except IndexError as error:
            raise Raised(IndexError, str(error)) from None
        containers.write(walker, made, tuple(items))
        return NONE if result is None else result

    return handle


def _insert(items: list[AbstractValue], where: Any, value: Any) -> None:
    items.insert(where, Known(value) if isinstance(value, int) else value)


def _list_copy(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    return walker.new_list(containers.sequence(walker, args[0]) or ())


def _list_index(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if len(args) != 2 or containers.is_nan(args[1]):
        walker.refuse("looks for an object in a part of a list, or for NaN")
    for position, item in enumerate(containers.sequence(walker, args[0]) or ()):
        outcome = abstract_operators.equal(walker, item, args[1])
        if outcome is None:
            walker.refuse("looks for an object that is not known in a list")
        if outcome:
            return Known(position)
    raise Raised(ValueError, "not in list")


# --- dictionaries -----------------------------------------------------------------------------------------------------


def _get(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    found = containers.lookup(walker, args[0], containers.hashed(walker, args[1]))
    return found if found is not None else (args[2] if len(args) > 2 else NONE)


def _pop(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    made, key = _own(walker, args[0]), containers.hashed(walker, args[1])
    held = containers.contents(walker, made)
    if key not in held:
        if len(args) > 2:
            return args[2]
        raise Raised(KeyError, repr(key))
    containers.write(walker, made, {one: entry for one, entry in held.items() if one != key})
    return held[key]


def _set_default(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    made, key = _own(walker, args[0]), containers.hashed(walker, args[1])
    held = containers.contents(walker, made)
    if key not in held:
        held = held | {key: args[2] if len(args) > 2 else NONE}
        containers.write(walker, made, held)
    return held[key]


def update(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    made = _own(walker, args[0])
    held = dict(containers.contents(walker, made))
    for value in args[1:]:
        if containers.is_dict(walker, value):
            held.update(containers.mapping(walker, value))
            continue
        for pair in containers.iterate(walker, value):
            key, entry = containers.iterate(walker, pair)
            held[containers.hashed(walker, key)] = entry
    containers.write(walker, made, held | kwargs)
    return NONE


def _view(kind: str) -> Handler:
    return lambda walker, args, kwargs: View(args[0], kind)


def _dict_copy(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    return walker.new(dict, dict(containers.mapping(walker, args[0])))


def _ordered_copy(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if walker.class_of(args[0]) is not OrderedDict:
        walker.refuse("copies a dictionary of a class that makes its copies")
    return walker.new(OrderedDict, dict(containers.mapping(walker, args[0])))


def _from_keys(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if not isinstance(args[0], Known) or args[0].value is not dict:
        walker.refuse("calls fromkeys of a class that is not understood")
    keys = [containers.hashed(walker, key) for key in containers.iterate(walker, args[1])]
    return walker.new(dict, dict.fromkeys(keys, args[2] if len(args) > 2 else NONE))


def _clear(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    made = _own(walker, args[0])
    containers.write(walker, made, type(containers.contents(walker, made))())
    return NONE


def _set_item(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    containers.own_store(walker, _own(walker, args[0]), args[1], args[2])
    return NONE


def _delete_item(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    containers.own_delete(walker, _own(walker, args[0]), args[1])
    return NONE


def _contains(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    return Known(containers.lookup(walker, args[0], containers.hashed(walker, args[1])) is not None)


# --- sets -------------------------------------------------------------------------------------------------------------

_SET_RESULTS = frozenset(
    ["union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset", "isdisjoint", "copy"]
)


def _of_sets(method: Any) -> Handler:
    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        given = [[containers.hashed(walker, item) for item in containers.iterate(walker, value)] for value in args]
        result = getattr(set(given[0]), method.__name__)(*given[1:])
        cls = method.__objclass__
        return Known(result) if isinstance(result, bool) else containers.new_set(walker, cls, list(map(known, result)))

    return handle


def _add(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    made = _own(walker, args[0])
    containers.write(walker, made, containers.contents(walker, made) | {containers.hashed(walker, args[1]): NONE})
    return NONE


def _discard(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    made, key = _own(walker, args[0]), containers.hashed(walker, args[1])
    held = containers.contents(walker, made)
    containers.write(walker, made, {one: entry for one, entry in held.items() if one != key})
    return NONE


# --- objects ----------------------------------------------------------------------------------------------------------


def _get_attribute(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if not isinstance(args[1], Known):
        walker.refuse("reads an attribute whose name is not known")
    return attribute_lookup.of_instance(walker, args[0], args[1].value)


def _set_attribute(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if not isinstance(args[1], Known):
        walker.refuse("sets an attribute whose name is not known")
    attribute_lookup.own_store(walker, args[0], args[1].value, args[2])
    return NONE


def _nothing(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if len(args) > 1 or kwargs:
        walker.refuse("initialises an object in a way that is not understood")
    return NONE


def _get_item(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    return containers.own_item(walker, args[0], args[1])


def _length(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    value = args[0]
    if isinstance(value, Determined):
        return walker.determined(int)
    return Known(len(containers.parts(walker, value)) // (2 if containers.is_dict(walker, value) else 1))


def _iterator(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    keys = containers.mapping(walker, args[0]) if containers.is_dict(walker, args[0]) else None
    items = containers.sequence(walker, args[0]) if keys is None else [known(key) for key in keys]
    if items is None:
        walker.refuse("iterates over an object that is not understood")
    return containers.new_iterator(walker, items, sources=args)


_TABLE: list[tuple[Any, Handler]] = [
    (str.join, _join),
    (dict.__dict__["fromkeys"], _from_keys),
    (list.append, _append),
    (list.extend, _extend),
    (list.insert, _changed(_insert)),
    (list.pop, _changed(list.pop)),
    (list.reverse, _changed(list.reverse)),
    (list.clear, _clear),
    (list.copy, _list_copy),
    (list.index, _list_index),
    (object.__getattribute__, _get_attribute),
    (object.__setattr__, _set_attribute),
    (object.__init__, _nothing),
    (set.add, _add),
    (set.discard, _discard),
    (list.__getitem__, _get_item),
    (list.__len__, _length),
    (tuple.__getitem__, _get_item),
    (tuple.__len__, _length),
    (list.__iter__, _iterator),
    (tuple.__iter__, _iterator),
]
for _cls in (dict, OrderedDict):
    _TABLE += [
        (_cls.get, _get),
        (_cls.pop, _pop),
        (_cls.setdefault, _set_default),
        (_cls.update, update),
        (_cls.__init__, update),
        (_cls.keys, _view("keys")),
        (_cls.values, _view("values")),
        (_cls.items, _view("items")),
        (_cls.copy, _dict_copy if _cls is dict else _ordered_copy),
        (_cls.clear, _clear),
        (_cls.__getitem__, _get_item),
        (_cls.__setitem__, _set_item),
        (_cls.__delitem__, _delete_item),
        (_cls.__contains__, _contains),
        (_cls.__len__, _length),
        (_cls.__iter__, _iterator),
    ]
_METHODS: dict[int, tuple[Any, Handler]] = {id(method): (method, handler) for method, handler in _TABLE}
"""By identity: the methods are held, so that no other object takes the identity of one of them."""
