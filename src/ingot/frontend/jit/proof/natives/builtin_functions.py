"""Native functions of numbers and sequences.

In: arguments of a call of len, range, zip, sum ... Out: what it gives. What always holds: calls on plain values are
computed; the items of an iterator are taken ahead of time, and code that takes from it checks that nothing has changed
since.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain import answers, open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import (
    AbstractValue,
    Determined,
    Fresh,
    Iterator,
    Known,
    Open,
    OpenTuple,
    Raised,
    ReadNumber,
    View,
    computed,
    is_tensor,
    is_undetermined,
    plain,
    tuple_of,
)
from ingot.frontend.jit.proof.natives import methods
from ingot.frontend.jit.proof.semantics import abstract_operators, containers, operations

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

Arguments = dict[str, AbstractValue]
Handler = Callable[[Any, list[AbstractValue], Arguments], AbstractValue]


def pure(function: Callable[..., Any], cls: type | None = None) -> Handler:
    """A function of plain values."""

    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        values = [*args, *kwargs.values()]
        if all(map(plain, values)):
            real = {name: value.value for name, value in kwargs.items()}  # type: ignore[attr-defined]
            result = computed(lambda *given: function(*given, **real), *(value.value for value in args))  # type: ignore[attr-defined]
            return containers.made_of(walker, result)
        if any(isinstance(value, ReadNumber) for value in values):
            return answers.call(walker, function, values) if not kwargs else answers.refuse_read(walker)
        open_sizes.pin(walker, *values)
        for value in values:
            if isinstance(value, Fresh):
                value = tuple_of(containers.iterate(walker, value))
            if not plain(value) and not is_undetermined(value):
                walker.refuse(f"calls {getattr(function, '__name__', function)} with an object that is not understood")
        return walker.determined(cls)

    return handle


def len_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    value = args[0]
    if is_tensor(value):
        operations.guard_methods(walker, (value,), "__len__")
        shape = operations.metadata(walker, value, "__len__")
        return containers.item(walker, shape, Known(0))
    size = containers.size(walker, value)
    if size is not None:
        return Known(size)
    if isinstance(value, Determined):
        return walker.determined(int)
    method = walker.method(value, "__len__")
    if method is None:
        walker.refuse("asks for the length of an object that is not understood")
    return walker.call(method, [])


def convert(cls: type) -> Handler:
    """int(), float(), str() and the like."""

    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        if len(args) == 1 and not kwargs:
            if cls is bool:
                outcome = walker.truth(args[0])
                return walker.determined(bool) if outcome is None else Known(outcome)
            if cls is str:
                return abstract_operators.text_of(walker, args[0])
            if cls is int and isinstance(args[0], Open):
                return args[0]
            constant = operations.constant_of(walker, args[0])
            if constant is not None and constant.numel() == 1:
                return computed(cls, constant.item())
            if is_tensor(args[0]) and cls in (int, float):
                operations.guard_methods(walker, (args[0],), f"__{cls.__name__}__")
                return operations.read(walker, args[0], f"__{cls.__name__}__")
            if is_tensor(args[0]):
                walker.refuse("reads the value of a tensor")
        return pure(cls, cls)(walker, args, kwargs)

    return handle


def repr_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    return abstract_operators.text_of(walker, args[0], is_repr=True)


def sequence(cls: type) -> Handler:
    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        items = containers.iterate(walker, args[0]) if args else []
        if cls is list:
            return walker.new_list(items)
        return tuple_of(items) if cls is tuple else containers.new_set(walker, cls, items)

    return handle


def dict_(cls: type) -> Handler:
    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        made = walker.new(cls, {})
        methods.update(walker, [made, *args], kwargs)
        return made

    return handle


def range_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if not all(map(plain, args)):
        walker.refuse("counts to a number that is not known here")
    return computed(range, *(value.value for value in args))  # type: ignore[attr-defined]


def _number(value: AbstractValue) -> int | None:
    if isinstance(value, OpenTuple):
        return None
    return value.value if isinstance(value, Known) and type(value.value) is int else None


def iterator(function: Callable[..., Any]) -> Handler:
    """Functions that only put items in another order or into tuples: they run on the items as they are."""

    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        options = {name: value.value for name, value in kwargs.items() if isinstance(value, Known)}
        if len(options) != len(kwargs):
            walker.refuse(f"calls {function.__name__} with options that are not known")
        numbers = [_number(value) for value in args]
        given = [
            containers.hand_over(walker, value) if number is None else number
            for value, number in zip(args, numbers, strict=True)
        ]
        made = []
        for found in function(*given, **options):
            if isinstance(found, tuple):
                found = tuple_of([item if not isinstance(item, int | None) else Known(item) for item in found])
            made.append(found)
        return containers.new_iterator(walker, made, sources=args)

    return handle


def reversed_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    value = args[0]
    cls = walker.class_of(value)
    if isinstance(value, View) or cls in (list, tuple, dict, OrderedDict, range, str, torch.Size):
        return iterator(reversed)(walker, args, kwargs)
    if cls is None or is_tensor(value) or cls is Iterator or issubclass(cls, list | tuple | dict):
        walker.refuse("reverses an object that is not understood")
    method = walker.method(value, "__reversed__")
    if method is not None:
        return walker.call(method, [])
    size = len_(walker, [value], {})
    if not isinstance(size, Known) or type(size.value) is not int:
        walker.refuse("reverses an object whose length is not known here")
    items = [containers.item(walker, value, Known(index)) for index in reversed(range(size.value))]
    return containers.new_iterator(walker, items, is_lazy=True)


def repeat(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    times = _number((*args, *kwargs.values())[-1]) if len(args) + len(kwargs) == 2 else None
    if times is None or times > 10_000:
        walker.refuse("repeats something more often than is known here")
    return containers.new_iterator(walker, [args[0]] * max(times, 0))


def map_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    columns = [containers.hand_over(walker, value) for value in args[1:]]
    with walker.unchanged():
        made = [walker.call(args[0], list(row)) for row in zip(*columns, strict=False)]
    return containers.new_iterator(walker, made, is_lazy=True)


def filter_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    made, is_identity = [], isinstance(args[0], Known) and args[0].value is None
    with walker.unchanged():
        for item in containers.hand_over(walker, args[1]):
            outcome = walker.truth(item if is_identity else walker.call(args[0], [item]))
            if outcome is None:
                walker.refuse("filters by something that is not known here")
            made += [item] if outcome else []
    return containers.new_iterator(walker, made, is_lazy=True)


def iter_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if len(args) != 1:
        walker.refuse("calls iter() with a function")
    if isinstance(args[0], Fresh) and args[0].cls is Iterator:
        return args[0]
    return containers.new_iterator(walker, containers.iterate(walker, args[0]), sources=args)


def next_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if not isinstance(args[0], Fresh) or args[0].cls is not Iterator:
        walker.refuse("takes the next item of an iterator that it did not make")
    found = containers.advance(walker, args[0])
    if found is None:
        if len(args) > 1:
            return args[1]
        raise Raised(StopIteration)
    return found


def extreme(function: Callable[..., Any]) -> Handler:
    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        items = containers.iterate(walker, args[0]) if len(args) == 1 else args
        if any(map(is_tensor, items)) or "key" in kwargs:
            walker.refuse(f"takes the {function.__name__} of objects that are not plain")
        if not items and "default" in kwargs:
            return kwargs["default"]
        if items and open_sizes.are_open(*items):
            return _open_extreme(walker, function, items)
        if all(map(plain, items)):
            return computed(function, [value.value for value in items])  # type: ignore[attr-defined]
        return pure(function)(walker, items, {})

    return handle


def _open_extreme(walker: Walker, function: Callable[..., Any], items: Sequence[AbstractValue]) -> AbstractValue:
    """The least or the greatest of open numbers: which of them it is belongs to the way that the call takes."""
    found, *others = items
    for item in others:
        less, more = (item, found) if function is min else (found, item)
        found = item if walker.sizes.is_less(less, more) else found
    return found


def sum_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    total = args[1] if len(args) > 1 else kwargs.get("start", Known(0))
    for item in containers.each_item(walker, args[0]):
        total = abstract_operators.binary(walker, abstract_operators.NODES[operator.add], total, item)
    return total


def absolute(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    if not is_tensor(args[0]):
        return pure(abs)(walker, args, kwargs)
    operations.guard_methods(walker, (args[0],), "__abs__")
    return operations.operate(walker, torch.abs, args, {}, "abs")


def reduce(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    total = args[2] if len(args) > 2 else None
    for item in containers.each_item(walker, args[1]):
        total = item if total is None else walker.call(args[0], [total, item])
    if total is None:
        raise Raised(TypeError, "reduce() of empty iterable with no initial value")
    return total


def any_(stops: bool) -> Handler:
    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        outcomes = []
        for item in containers.hand_over(walker, args[0]):
            outcomes.append(walker.truth(item))
            if outcomes[-1] is stops:
                break
        if outcomes and outcomes[-1] is stops and None not in outcomes:
            return Known(stops)
        return walker.determined(bool) if None in outcomes else Known(not stops)

    return handle


def sorted_(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
    items = containers.iterate(walker, args[0])
    keys = [walker.call(kwargs["key"], [item]) for item in items] if "key" in kwargs else items
    reverse = kwargs.get("reverse", Known(False))
    if not all(map(plain, keys)) or not plain(reverse):
        walker.refuse("sorts by something that is not known here")
    order = sorted(range(len(items)), key=lambda index: keys[index].value, reverse=bool(reverse.value))  # type: ignore[attr-defined]
    return walker.new_list([items[index] for index in order])


def operator_of(function: Callable[..., Any]) -> Handler:
    node = abstract_operators.NODES[function]

    def handle(walker: Walker, args: list[AbstractValue], kwargs: Arguments) -> AbstractValue:
        action = (
            abstract_operators.compare
            if function.__name__ in ("eq", "ne", "lt", "le", "gt", "ge")
            else abstract_operators.binary
        )
        return action(walker, node, args[0], args[1])

    return handle
