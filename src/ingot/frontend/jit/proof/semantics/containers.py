"""Containers: items, sizes and iteration of abstract values.

In: a container and a key. Out: a value. What always holds: reading a container that is known adds a guard on what was
read; only containers that were made during the call, or whose changes the proof tells, are written.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Generator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain import open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import (
    MIXED,
    NONE,
    AbstractValue,
    Determined,
    Fresh,
    Iterator,
    Known,
    Open,
    OpenTuple,
    Raised,
    Tuple,
    Union,
    View,
    computed,
    holds_nan,
    is_open,
    is_tensor,
    known,
    open_items,
    plain,
    tuple_of,
)
from ingot.frontend.jit.proof.domain.place_guards import ListItems, SetItems, is_plain, type_lookup
from ingot.frontend.jit.proof.semantics import operations

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker


# --- what containers hold ---------------------------------------------------------------------------------------------


def contents(walker: Walker, value: Fresh) -> Any:
    """What a fresh container holds: a tuple of values, or a dictionary."""
    held = walker.state.items.get(value.identity)
    if held is None:
        walker.refuse("takes an object for a container that is not one")
    if held is MIXED:
        walker.refuse("reads a container whose contents depend on something that is not known here")
    if value.identity in walker.shown:
        part, shown, before = walker.shown[value.identity]
        if getattr(walker.state, part).get(shown) is not before:
            walker.refuse("reads a dictionary that shows an object which has changed since")
    return held


def write(walker: Walker, value: AbstractValue, held: Any) -> None:
    if not isinstance(value, Fresh) or not walker.may_change(value):
        walker.refuse("changes a container that it did not make")
    walker.mutations += 1
    walker.state.items[value.identity] = held


def is_dict(walker: Walker, value: AbstractValue) -> bool:
    """Whether a value is a dictionary that is read as dictionaries are."""
    cls = walker.class_of(value)
    return isinstance(cls, type) and issubclass(cls, dict)


def mapping(walker: Walker, value: AbstractValue) -> dict[Any, AbstractValue]:
    """All entries of a dictionary."""
    if isinstance(value, Fresh) and issubclass(value.cls, dict) and is_own(walker, value.cls, "__iter__"):
        return contents(walker, value)
    if isinstance(value, Known) and type(value.value) in (dict, OrderedDict):
        name = value.name
        return {key: known(entry, f"{name}[{key!r}]") for key, entry in walker.entries(value.value, name)}
    return walker.refuse("takes the entries of an object that is not a plain dictionary")


def sequence(walker: Walker, value: AbstractValue) -> Sequence[AbstractValue] | None:
    """The items of a list or tuple; None for anything else."""
    match value:
        case Tuple() | OpenTuple() if value.cls is not slice:
            return value.items
        case Open() | OpenTuple():
            return None
        case Fresh() if issubclass(value.cls, list):
            return contents(walker, value)
        case Known():
            held = value.value
            if type(held) is list:
                found = tuple(held)
                walker.guard((ListItems, id(held)), lambda: ListItems(held, found, value.name))
            elif not isinstance(held, tuple):
                return None
            return [known(item, f"{value.name}[{index}]") for index, item in enumerate(held)]
    return None


def parts(walker: Walker, value: AbstractValue) -> list[AbstractValue]:
    """Everything that a container holds, keys included."""
    if is_dict(walker, value):
        return [part for key, entry in mapping(walker, value).items() for part in (known(key), entry)]
    return iterate(walker, value)


def hashed(walker: Walker, key: AbstractValue) -> Any:
    """A key of a dictionary as Python's own; plain values, and objects that are compared by identity."""
    if isinstance(key, Known) and id(key.value) not in walker.told_by_parts:
        cls = type(key.value)
        if is_nan(key):
            walker.refuse("uses NaN as a key, which is found by its identity")
        if is_plain(key.value) or walker.type_attribute(cls, "__hash__") in (object.__hash__, type.__hash__):
            return key.value
        if isinstance(key.value, Enum) and walker.type_attribute(cls, "__hash__") is Enum.__hash__:
            return key.value
        if type(key.value) is tuple:
            for item in key.value:
                hashed(walker, known(item))
            return key.value
    return walker.refuse("uses a key that is not known here")


def is_nan(value: AbstractValue) -> bool:
    """Whether a value is NaN, or a plain tuple with it: containers find it by its identity, which is not known."""
    return plain(value) and not is_open(value) and holds_nan(value.value)  # type: ignore[attr-defined]


def new_set(walker: Walker, cls: type, values: Sequence[AbstractValue]) -> AbstractValue:
    return walker.new(cls, dict.fromkeys((hashed(walker, value) for value in values), NONE))


def made_of(walker: Walker, result: Known) -> AbstractValue:
    """A result of native code: plain, or a list of plain values, which is a new one."""
    if is_plain(result.value):
        return result
    if type(result.value) is list and all(map(is_plain, result.value)):
        return walker.new_list(map(known, result.value))
    return walker.refuse("calls native code that gives an object that is not understood")


# --- iteration --------------------------------------------------------------------------------------------------------


def new_iterator(
    walker: Walker, items: Sequence[AbstractValue], is_lazy: bool = False, sources: Sequence[AbstractValue] = ()
) -> AbstractValue:
    """An iterator over items that are taken ahead of time; what they were taken from must not change until then."""
    iterator = walker.new(Iterator, tuple(items))
    held: list[Any] = []
    for one in map(shown, sources):
        if isinstance(one, Fresh) and one.cls is Iterator:
            inner = walker.sources.get(one.identity, [])
            is_lazy = is_lazy or isinstance(inner, int)
            held += [] if isinstance(inner, int) else inner
        elif isinstance(one, Fresh):
            held.append((one, walker.state.items.get(one.identity)))
    walker.sources[iterator.identity] = walker.mutations if is_lazy else held
    return iterator


def shown(value: AbstractValue) -> AbstractValue:
    """The dictionary that a view shows; any other value itself."""
    return value.mapping if isinstance(value, View) else value


def remaining(walker: Walker, iterator: Fresh) -> tuple[AbstractValue, ...]:
    held = contents(walker, iterator)
    _require_same(walker, walker.sources.get(iterator.identity, []))
    return held


def _require_same(walker: Walker, sources: Any) -> None:
    """Refuse if what an iterator depends on has changed: there may be other items, or more, than were foreseen."""
    if isinstance(sources, int):
        changed = sources != walker.mutations
    else:
        changed = any(walker.state.items.get(one.identity) is not found for one, found in sources)
    if changed:
        walker.refuse("goes on with an iterator after something has changed that it may depend on")


def each_item(walker: Walker, value: AbstractValue) -> Generator[AbstractValue]:
    """The items of a value, for code that handles one after the other: it must not change what they are taken from."""
    container = shown(value)
    identity = container.identity if isinstance(container, Fresh) else None
    is_iterator = isinstance(container, Fresh) and container.cls is Iterator
    items = hand_over(walker, value)
    before, sources = walker.state.items.get(identity), walker.sources.get(identity, [])  # type: ignore[arg-type]
    for item in items:
        yield item
        _require_same(walker, sources)
        if identity is not None and walker.state.items.get(identity) is not before:
            walker.refuse("changes a container while it iterates over it")
    if identity is not None and is_iterator:
        walker.state.items[identity] = ()


def advance(walker: Walker, iterator: Fresh) -> AbstractValue | None:
    """The next item of an iterator; None at its end."""
    held = remaining(walker, iterator)
    if not held:
        return None
    # Not a change that other iterators could notice.
    walker.state.items[iterator.identity] = held[1:]
    return held[0]


def hand_over(walker: Walker, value: AbstractValue) -> list[AbstractValue]:
    """The items of something that is iterated over lazily, or not to its end: an iterator must not be used again."""
    items = iterate(walker, value)
    if isinstance(value, Fresh) and value.cls is Iterator:
        walker.state.items[value.identity] = MIXED
    return items


def iterate(walker: Walker, value: AbstractValue) -> list[AbstractValue]:
    """The items that iterating over a value gives."""
    if isinstance(value, Union):
        walker.refuse("iterates over what may be one of several objects")
    items = open_items(value)
    if items is not None:
        return list(items)
    if isinstance(value, Fresh) and value.cls is Iterator:
        held = remaining(walker, value)
        walker.state.items[value.identity] = ()
        return list(held)
    if isinstance(value, Known) and type(value.value) in (set, frozenset):
        held = value.value
        found = tuple(held)
        walker.goes_through_sets = True
        if type(held) is set:
            walker.guard((SetItems, id(held)), lambda: SetItems(held, found, value.name))
        return [known(item) for item in found]
    if isinstance(value, Known) and type(value.value) in (str, range, torch.Size, bytes):
        if len(value.value) > 100_000:
            walker.refuse("iterates over more items than the proof walks")
        return [known(item) for item in value.value]
    if isinstance(value, View):
        return view_items(walker, value)
    if is_tensor(value):
        return _rows(walker, value)
    return _iterate_by_class(walker, value)


def _iterate_by_class(walker: Walker, value: AbstractValue) -> list[AbstractValue]:
    cls = walker.class_of(value)
    if isinstance(value, Determined) or cls is None:
        walker.refuse("iterates over something that is not known here")
    own = walker.type_attribute(cls, "__iter__")
    if own in _OWN_ITERATION:
        if issubclass(cls, dict):
            return [known(key) for key in mapping(walker, value)]
        if isinstance(value, Fresh) and issubclass(cls, set | frozenset):
            walker.goes_through_sets = True
            return [known(key) for key in contents(walker, value)]
        held = sequence(walker, value)
        if held is not None:
            return list(held)
    method = walker.method(value, "__iter__")
    if method is None:
        if walker.method(value, "__getitem__") is None:
            raise Raised(TypeError, "object is not iterable")
        walker.refuse("iterates over an object by its __getitem__")
    iterator = walker.call(method, [])
    if not (isinstance(iterator, Fresh) and iterator.cls is Iterator):
        walker.refuse("iterates with an iterator that is not understood")
    return iterate(walker, iterator)


_OWN_ITERATION = (
    list.__iter__,
    tuple.__iter__,
    dict.__iter__,
    OrderedDict.__iter__,
    set.__iter__,
    frozenset.__iter__,
)


def _rows(walker: Walker, value: AbstractValue) -> list[AbstractValue]:
    operations.guard_methods(walker, (value,), "__iter__", "unbind")
    meta = operations.meta_of(walker, value)
    if meta.meta is None or meta.meta.dim() == 0:
        walker.refuse("iterates over a tensor whose size is not known here")
    rows = operations.operate(walker, torch.Tensor.unbind, [value], {}, "unbind")
    assert isinstance(rows, Tuple)
    return list(rows.items)


def view_items(walker: Walker, view: View) -> list[AbstractValue]:
    entries = mapping(walker, view.mapping)
    if view.kind == "keys":
        return [known(key) for key in entries]
    if view.kind == "values":
        return list(entries.values())
    return [tuple_of([known(key), entry]) for key, entry in entries.items()]


def size(walker: Walker, value: AbstractValue) -> int | None:
    """How many items a container of Python's own holds; None for anything else."""
    if isinstance(value, View):
        value = value.mapping
    items = open_items(value)
    if items is not None:
        return len(items)
    cls = walker.class_of(value)
    if cls is None or not issubclass(cls, list | tuple | dict | set | frozenset | str | range | bytes):
        return None
    if isinstance(value, Determined) or not is_own(walker, cls, "__len__"):
        return None
    if issubclass(cls, dict):
        return len(mapping(walker, value))
    if isinstance(value, Known) and type(value.value) in (str, range, torch.Size, bytes):
        return len(value.value)
    if isinstance(value, Fresh) and not issubclass(cls, list):
        return len(contents(walker, value))
    if isinstance(value, Known) and isinstance(value.value, set | frozenset):
        return len(iterate(walker, value))
    held = sequence(walker, value)
    return None if held is None else len(held)


def is_own(walker: Walker, cls: type, name: str) -> bool:
    """Whether a special method of a class is the one of Python's own container."""
    own = next(base for base in cls.__mro__ if base.__module__ in ("builtins", "collections", "torch"))
    return walker.type_attribute(cls, name) is type_lookup(own, name)


# --- items ------------------------------------------------------------------------------------------------------------


def item(walker: Walker, value: AbstractValue, key: AbstractValue) -> AbstractValue:
    if isinstance(value, Union):
        return walker.each(value, lambda one: item(walker, one, key))
    if isinstance(key, Union):
        return walker.each(key, lambda one: item(walker, value, one))
    if is_tensor(value):
        return operations.index(walker, value, key)
    items = open_items(value)
    if items is not None and plain(key):
        found = computed(lambda held, where: held[where], items, key.value).value  # type: ignore[attr-defined]
        return tuple_of(found, walker.class_of(value) or tuple) if isinstance(found, tuple) else found
    if plain(value) and plain(key):
        return computed(lambda held, where: held[where], value.value, key.value)  # type: ignore[attr-defined]
    cls = walker.class_of(value)
    if isinstance(value, Determined):
        return walker.determined(int if cls is torch.Size and walker.class_of(key) is int else None)
    if cls is not None and issubclass(cls, list | tuple | dict) and is_own(walker, cls, "__getitem__"):
        return own_item(walker, value, key)
    if isinstance(value, Known) and isinstance(value.value, type):
        if value.value not in (list, dict, tuple, set) or not isinstance(key, Known):
            walker.refuse("takes an item of a class")
        return known(types.GenericAlias(value.value, key.value))
    method = walker.method(value, "__getitem__")
    if method is None:
        walker.refuse("takes an item of an object that is not understood")
    return walker.call(method, [key])


def own_item(walker: Walker, value: AbstractValue, key: AbstractValue) -> AbstractValue:
    """An item as Python's own containers give it."""
    if is_dict(walker, value):
        return _entry(walker, value, hashed(walker, key))
    held = sequence(walker, value)
    if held is None:
        walker.refuse("takes an item of an object that is not understood")
    if isinstance(key, Known) and type(key.value) in (int, bool, slice):
        try:
            found = held[key.value]
        except IndexError as error:
            raise Raised(IndexError, str(error)) from None
        if type(key.value) is not slice:
            return found  # type: ignore[return-value]
        return walker.new_list(found) if walker.class_of(value) is list else tuple_of(list(found))  # type: ignore[arg-type]
    if isinstance(key, Determined) and held and all(plain(one) or isinstance(one, Determined) for one in held):
        open_sizes.pin(walker, *held)
        return walker.determined()
    return walker.refuse("takes an item at a position that is not known here")


def _entry(walker: Walker, value: AbstractValue, key: Any) -> AbstractValue:
    found = lookup(walker, value, key)
    if found is None:
        is_subclass = walker.class_of(value) not in (dict, OrderedDict)
        if is_subclass and walker.method(value, "__missing__") is not None:
            walker.refuse("takes an entry of a dictionary that makes missing ones")
        raise Raised(KeyError, repr(key))
    return found


def lookup(walker: Walker, value: AbstractValue, key: Any) -> AbstractValue | None:
    """The entry of a dictionary under a key; None if it has none."""
    if isinstance(value, Fresh):
        return contents(walker, value).get(key)
    if isinstance(value, Known) and isinstance(value.value, dict):
        name = f"{value.name}[{key!r}]"
        found = walker.entry(value.value, key, operations.ABSENT, name)
        return None if found is operations.ABSENT else known(found, name)
    return walker.refuse("takes an entry of an object that is not a dictionary")


def store_item(walker: Walker, value: AbstractValue, key: AbstractValue, new: AbstractValue) -> None:
    if is_tensor(value):
        operations.store(walker, value, key, new)
        return
    if not isinstance(value, Fresh) or not walker.may_change(value):
        walker.refuse("sets an item of an object that it did not make")
    if not is_own(walker, value.cls, "__setitem__") if issubclass(value.cls, list | dict) else True:
        method = walker.method(value, "__setitem__")
        if method is None:
            walker.refuse("sets an item of an object that has none")
        walker.call(method, [key, new])
        return
    own_store(walker, value, key, new)


def own_store(walker: Walker, value: Fresh, key: AbstractValue, new: AbstractValue) -> None:
    held = contents(walker, value)
    if isinstance(held, dict):
        own = hashed(walker, key)
        changed = held | {own: new}
        if own in held:
            walker.same_keys[id(changed)] = changed, walker.same_keys.get(id(held), (None, held))[1]
        write(walker, value, changed)
        return
    if not (isinstance(key, Known) and type(key.value) is int):
        walker.refuse("sets an item at a position that is not known here")
    items = list(held)
    try:
        items[key.value] = new
    except IndexError as error:
        raise Raised(IndexError, str(error)) from None
    write(walker, value, tuple(items))


def has_kept_keys(walker: Walker, before: Any, now: Any) -> bool:
    """Whether entries of a dictionary have been given other values since, and nothing else has happened to it."""
    first, last = (walker.same_keys.get(id(held), (None, held))[1] for held in (before, now))
    return isinstance(before, dict) and first is last


def delete_item(walker: Walker, value: AbstractValue, key: AbstractValue) -> None:
    if not isinstance(value, Fresh) or not walker.may_change(value) or not issubclass(value.cls, dict | list):
        walker.refuse("deletes an item of an object that it did not make")
    if is_own(walker, value.cls, "__delitem__"):
        own_delete(walker, value, key)
        return
    method = walker.method(value, "__delitem__")
    assert method is not None
    walker.call(method, [key])


def own_delete(walker: Walker, value: Fresh, key: AbstractValue) -> None:
    held = contents(walker, value)
    if isinstance(held, dict):
        where = hashed(walker, key)
        if where not in held:
            raise Raised(KeyError, repr(where))
        write(walker, value, {one: entry for one, entry in held.items() if one != where})
        return
    if not (isinstance(key, Known) and type(key.value) in (int, slice)):
        walker.refuse("deletes an item at a position that is not known here")
    items = list(held)
    del items[key.value]
    write(walker, value, tuple(items))
