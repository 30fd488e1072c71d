"""Operators of containers: whether one holds something, sums of sequences, unions of sets and dictionaries.

In: containers. Out: what Python's operators give for them. What always holds: reading a container that is known adds a
guard on what was read.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ingot.frontend.jit.proof.domain import open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import (
    AbstractValue,
    Determined,
    Fresh,
    Iterator,
    Known,
    Open,
    View,
    computed,
    holds_nan,
    is_open,
    is_tensor,
    is_undetermined,
    known,
    plain,
    tuple_of,
)
from ingot.frontend.jit.proof.domain.place_guards import SetMember, is_compared_as_usual
from ingot.frontend.jit.proof.semantics import containers, operations

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker


def contains(walker: Walker, value: AbstractValue, key: AbstractValue) -> bool | None:
    """Whether a container holds something; None if that is not known."""
    if isinstance(value, View) and value.kind == "keys":
        value = value.mapping
    if isinstance(key, Open) and type(value) is Known and isinstance(value.value, tuple):
        return any(_equal_numbers(walker, key, known(one)) for one in value.value)
    if plain(value) and plain(key):
        if holds_nan(key.value):  # type: ignore[attr-defined]
            walker.refuse("looks for NaN in a container, which takes one for equal to itself")
        return bool(computed(lambda held, one: one in held, value.value, key.value).value)  # type: ignore[attr-defined]
    if is_tensor(value):
        return _holds_number(walker, value, key)
    cls = walker.class_of(value)
    if isinstance(value, Determined) or (plain(value) and isinstance(key, Determined)):
        open_sizes.pin(walker, value, key)
        return None
    if cls is not None and issubclass(cls, dict) and containers.is_own(walker, cls, "__contains__"):
        return containers.lookup(walker, value, containers.hashed(walker, key)) is not None
    if cls in (set, frozenset):
        if isinstance(value, Fresh):
            return containers.hashed(walker, key) in containers.contents(walker, value)
        return _is_member(walker, value, containers.hashed(walker, key))  # type: ignore[arg-type]
    if cls in (list, tuple, Iterator) or isinstance(value, View):
        outcomes = [_is_equal(walker, one, key) for one in containers.hand_over(walker, value)]
        return True if True in outcomes else (None if None in outcomes else False)
    method = walker.method(value, "__contains__")
    if method is None:
        walker.refuse("asks whether an object that is not understood contains something")
    return walker.truth(walker.call(method, [key]))


def _holds_number(walker: Walker, value: AbstractValue, key: AbstractValue) -> bool:
    """Whether one of a tensor's elements equals a number, which Python asks its values for."""
    if is_open(key) or not (isinstance(key, Known) and type(key.value) in (bool, int, float)):
        walker.refuse("looks for an object in a tensor that is not a number")
    operations.guard_methods(walker, (value,), "__contains__", "__eq__", "any", "item")
    return walker.answers.decide(walker, walker.answers.ask(walker, "__contains__", 1))


def _is_member(walker: Walker, value: Known, member: Any) -> bool:
    held = value.value
    if type(held) is set and all(map(is_compared_as_usual, (member, *held))):
        found = member in held
        walker.guard((SetMember, id(held), member), lambda: SetMember(held, member, found, value.name))
        return found
    containers.iterate(walker, value)
    return member in held


def _equal_numbers(walker: Walker, one: AbstractValue, other: AbstractValue) -> bool:
    """Whether two plain values are equal, one of them an open integer."""
    if open_sizes.are_open(one, other):
        return walker.sizes.is_equal(one, other)
    return bool(one.value == other.value)  # type: ignore[attr-defined]


def _is_equal(walker: Walker, one: AbstractValue, other: AbstractValue) -> bool | None:
    if is_tensor(one) or is_tensor(other):
        walker.refuse("looks for a tensor in a container, which compares its values")
    outcome = walker.equal(one, other)
    if outcome is None and not (is_undetermined(one) or is_undetermined(other)):
        return walker.truth(walker.compare(ast.Eq, one, other))
    return outcome


def sequence_operator(walker: Walker, node: type, left: AbstractValue, right: AbstractValue) -> AbstractValue | None:
    """Sums and products of lists and tuples, and unions of dictionaries; None for other operands."""
    if node is ast.BitOr and containers.is_dict(walker, left) and containers.is_dict(walker, right):
        return walker.new(dict, containers.mapping(walker, left) | containers.mapping(walker, right))
    if node in _SET_OPERATORS and {walker.class_of(left), walker.class_of(right)} <= {set, frozenset}:
        sides = [{containers.hashed(walker, one) for one in containers.iterate(walker, side)} for side in (left, right)]
        return containers.new_set(walker, set, [known(one) for one in _SET_OPERATORS[node](*sides)])
    ours = containers.sequence(walker, left)
    if node is ast.Add and ours is not None:
        theirs = containers.sequence(walker, right)
        if theirs is None or walker.class_of(left) is not walker.class_of(right):
            return None
        return _like(walker, left, [*ours, *theirs])
    if node is ast.Mult:
        if ours is None:
            left, right, ours = right, left, containers.sequence(walker, right)
        if ours is not None and isinstance(right, Known) and type(right.value) is int and right.value < 10_000:
            return _like(walker, left, [*ours] * right.value)
    return None


_SET_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.Sub: operator.sub,
    ast.BitXor: operator.xor,
}


def _like(walker: Walker, value: AbstractValue, items: list[AbstractValue]) -> AbstractValue:
    return walker.new_list(items) if walker.class_of(value) is list else tuple_of(items)
