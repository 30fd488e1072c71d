"""Operators, comparisons, truth and text of abstract values.

In: values. Out: a value. What always holds: plain values are computed with, operators of tensors are operations, and
operators that the user's classes define are walked as code.
"""

from __future__ import annotations

import ast
import operator
import types
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from ingot.frontend.jit.proof.domain import answers, open_sizes
from ingot.frontend.jit.proof.domain.abstract_values import (
    AbstractTensor,
    AbstractValue,
    Bound,
    Closure,
    Determined,
    Fresh,
    Known,
    Open,
    OpenTuple,
    ReadNumber,
    Super,
    Tuple,
    Union,
    View,
    computed,
    is_open,
    is_tensor,
    is_undetermined,
    open_items,
    plain,
    tuple_of,
)
from ingot.frontend.jit.proof.domain.place_guards import is_plain
from ingot.frontend.jit.proof.semantics import container_operators, containers, operations

if TYPE_CHECKING:
    from ingot.frontend.jit.proof.walk.walker import Walker

_BINARY: dict[type, tuple[Callable[[Any, Any], Any], str]] = {
    ast.Add: (operator.add, "add"),
    ast.Sub: (operator.sub, "sub"),
    ast.Mult: (operator.mul, "mul"),
    ast.Div: (operator.truediv, "truediv"),
    ast.FloorDiv: (operator.floordiv, "floordiv"),
    ast.Mod: (operator.mod, "mod"),
    ast.Pow: (operator.pow, "pow"),
    ast.MatMult: (operator.matmul, "matmul"),
    ast.LShift: (operator.lshift, "lshift"),
    ast.RShift: (operator.rshift, "rshift"),
    ast.BitAnd: (operator.and_, "and"),
    ast.BitOr: (operator.or_, "or"),
    ast.BitXor: (operator.xor, "xor"),
}
_IN_PLACE: dict[type, Callable[[Any, Any], Any]] = {
    node: getattr(operator, f"i{name}") for node, (_, name) in _BINARY.items()
}
_UNARY: dict[type, tuple[Callable[[Any], Any], str]] = {
    ast.USub: (operator.neg, "__neg__"),
    ast.UAdd: (operator.pos, "__pos__"),
    ast.Invert: (operator.invert, "__invert__"),
}
_COMPARE: dict[type, tuple[Callable[[Any, Any], Any], str, str]] = {
    ast.Eq: (operator.eq, "__eq__", "__eq__"),
    ast.NotEq: (operator.ne, "__ne__", "__ne__"),
    ast.Lt: (operator.lt, "__lt__", "__gt__"),
    ast.LtE: (operator.le, "__le__", "__ge__"),
    ast.Gt: (operator.gt, "__gt__", "__lt__"),
    ast.GtE: (operator.ge, "__ge__", "__le__"),
}
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
_UNARY_SIGNS = {"__neg__": "-", "__pos__": "+", "__invert__": "~"}
_COMPARISON_SIGNS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
NODES = {function: node for node, (function, *_) in (_BINARY | _COMPARE).items()}
"""The operator that a function of the `operator` module stands for."""


def _is_simple(value: AbstractValue) -> bool:
    return plain(value) or is_undetermined(value)


def binary(walker: Walker, node: type, left: AbstractValue, right: AbstractValue) -> AbstractValue:
    function, name = _BINARY[node]
    if isinstance(left, Union):
        return walker.each(left, lambda one: binary(walker, node, one, right))
    if isinstance(right, Union):
        return walker.each(right, lambda one: binary(walker, node, left, one))
    if is_open(left) or is_open(right):
        made = _open_binary(walker, node, left, right)
        if made is not None:
            return made
    if plain(left) and plain(right) and not _is_long(node, left, right):
        return computed(function, left.value, right.value)  # type: ignore[attr-defined]
    if isinstance(left, ReadNumber) or isinstance(right, ReadNumber):
        return answers.compute(walker, function, f"({{}} {_sign(node, walker)} {{}})", [left, right])
    if (is_tensor(left) or is_tensor(right)) and _is_operand(left) and _is_operand(right):
        operations.guard_methods(walker, (left, right), f"__{name}__", f"__r{name}__")
        return operations.operate(walker, function, [left, right], {}, f"the operator {name}")
    sequence = container_operators.sequence_operator(walker, node, left, right)
    if sequence is not None:
        return sequence
    if _is_simple(left) and _is_simple(right):
        open_sizes.pin(walker, left, right)
        return walker.determined()
    return _special(walker, left, right, f"__{name}__", f"__r{name}__")


def _open_binary(walker: Walker, node: type, left: AbstractValue, right: AbstractValue) -> AbstractValue | None:
    """Arithmetic of integers that depend on sizes, and sums of tuples of them; None for anything else."""
    opened = walker.sizes
    if open_sizes.are_open(left, right):
        if node in (ast.Add, ast.Sub, ast.Mult):
            return {ast.Add: opened.add, ast.Sub: opened.subtract, ast.Mult: opened.multiply}[node](left, right)
        if node in (ast.FloorDiv, ast.Mod) and type(right) is Known and right.value > 0:
            return (opened.divide if node is ast.FloorDiv else opened.remainder)(left, right.value)
    if node is ast.Add and plain(left) and plain(right):
        ours, theirs = (one for one in (_items(left), _items(right)))
        if ours is not None and theirs is not None:
            cls = type(_empty(walker.class_of(left)) + _empty(walker.class_of(right)))
            return tuple_of([*ours, *theirs], cls)
    return None


def _items(value: AbstractValue) -> Sequence[AbstractValue] | None:
    """The items of a plain tuple."""
    if type(value) is Known and isinstance(value.value, tuple):
        return [Known(item) for item in value.value]
    return open_items(value)


def _empty(cls: Any) -> Any:
    return cls([])


def _sign(node: type, walker: Walker) -> str:
    return _SIGNS.get(node) or answers.refuse_read(walker)


def _is_operand(value: AbstractValue) -> bool:
    return is_tensor(value) or _is_simple(value)


def _is_long(node: type, left: AbstractValue, right: AbstractValue) -> bool:
    """Whether computing may take long: powers, shifts and repetitions of large numbers."""
    if node not in (ast.Pow, ast.LShift, ast.Mult):
        return False
    numbers = [value.value for value in (left, right) if isinstance(value, Known) and type(value.value) is int]
    if node is ast.Mult:
        return len(numbers) == 1 and abs(numbers[0]) > 10_000
    return len(numbers) == 2 and abs(numbers[1]) * max(numbers[0].bit_length(), 1) > 10_000


def _goes_first(walker: Walker, ours: type, theirs: type, reflected: str) -> bool:
    """Whether the right operand is asked first: its class derives from the left one's, and defines the operator."""
    if ours is theirs or not issubclass(theirs, ours):
        return False
    return walker.type_attribute(theirs, reflected) is not walker.type_attribute(ours, reflected)


_NUMBERS = (int, float, bool, complex)


def _special(walker: Walker, left: AbstractValue, right: AbstractValue, name: str, reflected: str) -> AbstractValue:
    """An operator that a class of the user's defines."""
    sides = [(left, right, name), (right, left, reflected)]
    ours, theirs = walker.class_of(left), walker.class_of(right)
    if ours is not None and theirs is not None and _goes_first(walker, ours, theirs, reflected):
        sides.reverse()
    for one, other, method in sides:
        if walker.class_of(one) in _NUMBERS and not _is_simple(other):
            continue  # numbers leave operands that are not numbers to these
        function = walker.method(one, method)
        if function is None:
            continue
        result = walker.call(function, [other])
        if not (isinstance(result, Known) and result.value is NotImplemented):
            return result
    return walker.refuse("uses an operator on objects for which it is not understood")


def in_place(walker: Walker, node: type, left: AbstractValue, right: AbstractValue) -> AbstractValue:
    if isinstance(left, Union) or isinstance(right, Union):
        walker.refuse("changes in place what may be one of several objects")
    if is_tensor(left):
        if not _is_operand(right):
            walker.refuse("changes a tensor in place by an object that is not understood")
        operations.guard_methods(walker, (left, right), *(f"__{kind}{_BINARY[node][1]}__" for kind in ("i", "", "r")))
        operations.operate(walker, _IN_PLACE[node], [left, right], {}, "an operator in place", writes=True)
        return left
    if isinstance(left, Fresh) and left.cls is list and node is ast.Add:
        containers.write(walker, left, (*containers.contents(walker, left), *walker.iterate(right)))
        return left
    if isinstance(left, Fresh) and not issubclass(left.cls, list | dict | set):
        function = walker.method(left, f"__i{_BINARY[node][1]}__")
        if function is not None:
            return walker.call(function, [right])
    if isinstance(left, Tuple) and left.cls is not tuple:
        function = walker.method(left, f"__i{_BINARY[node][1]}__")
        if function is not None:
            walker.refuse("changes a named tuple in place by an operator of its own")
    if plain(left) or isinstance(left, Determined | Tuple | ReadNumber):
        return binary(walker, node, left, right)
    return walker.refuse("changes an object in place that is not its own")


def unary(walker: Walker, node: type, value: AbstractValue) -> AbstractValue:
    function, name = _UNARY[node]
    if isinstance(value, Open) and node is ast.USub:
        return walker.sizes.multiply(value, Known(-1))
    if isinstance(value, Union):
        return walker.each(value, lambda one: unary(walker, node, one))
    if plain(value):
        return computed(function, value.value)  # type: ignore[attr-defined]
    if isinstance(value, ReadNumber):
        return answers.compute(walker, function, f"({_UNARY_SIGNS[name]}{{}})", [value])
    if is_tensor(value):
        operations.guard_methods(walker, (value,), name)
        return operations.operate(walker, function, [value], {}, f"the operator {name}")
    if isinstance(value, Determined):
        return walker.determined()
    method = walker.method(value, name)
    if method is None:
        walker.refuse("uses an operator on an object for which it is not understood")
    return walker.call(method, [])


# --- comparisons ------------------------------------------------------------------------------------------------------


def compare(walker: Walker, node: type, left: AbstractValue, right: AbstractValue) -> AbstractValue:
    if isinstance(left, Union):
        return walker.each(left, lambda one: compare(walker, node, one, right))
    if isinstance(right, Union):
        return walker.each(right, lambda one: compare(walker, node, left, one))
    if node in (ast.Is, ast.IsNot):
        outcome = _is(walker, left, right)
        if outcome is None:
            return walker.determined(bool)
        return Known(outcome is (node is ast.Is))
    if node in (ast.In, ast.NotIn):
        outcome = container_operators.contains(walker, right, left)
        if outcome is None:
            return walker.determined(bool)
        return Known(outcome is (node is ast.In))
    return _ordered(walker, node, left, right)


def _ordered(walker: Walker, node: type, left: AbstractValue, right: AbstractValue) -> AbstractValue:
    function, name, reflected = _COMPARE[node]
    if is_open(left) or is_open(right):
        outcome = _open_ordered(walker, node, left, right)
        if outcome is not None:
            return Known(outcome)
    if plain(left) and plain(right):
        if type(left.value) is type(right.value) and type(left.value) in (tuple, frozenset):  # type: ignore[attr-defined]
            _refuse_nan(walker, left, right)
        return computed(function, left.value, right.value)  # type: ignore[attr-defined]
    if isinstance(left, ReadNumber) or isinstance(right, ReadNumber):
        outcome = answers.compute(walker, function, f"({{}} {_COMPARISON_SIGNS[node]} {{}})", [left, right])
        return Known(walker.answers.decide(walker, outcome))
    if is_tensor(left) or is_tensor(right):
        if _is_operand(left) and _is_operand(right):
            operations.guard_methods(walker, (left, right), name, reflected)
            return operations.operate(walker, function, [left, right], {}, f"the operator {name}")
        walker.refuse("compares a tensor with an object that is not understood")
    if _is_simple(left) and _is_simple(right):
        open_sizes.pin(walker, left, right)
        return walker.determined(bool)
    if node in (ast.Eq, ast.NotEq):
        outcome = equal(walker, left, right)
        if outcome is not None:
            return Known(outcome is (node is ast.Eq))
    return _special(walker, left, right, name, reflected)


def _open_ordered(walker: Walker, node: type, left: AbstractValue, right: AbstractValue) -> bool | None:
    """A comparison of integers that depend on sizes, or of tuples of them; None for anything else."""
    opened = walker.sizes
    if open_sizes.are_open(left, right):
        match node:
            case ast.Lt:
                return opened.is_less(left, right)
            case ast.Gt:
                return opened.is_less(right, left)
            case ast.LtE:
                return not opened.is_less(right, left)
            case ast.GtE:
                return not opened.is_less(left, right)
        return opened.is_equal(left, right) is (node is ast.Eq)
    if node not in (ast.Eq, ast.NotEq) or not (plain(left) and plain(right)):
        return None
    ours, theirs = _items(left), _items(right)
    if ours is None or theirs is None:
        return None
    is_equal = len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=False):
        is_equal = is_equal and bool(_ordered(walker, ast.Eq, one, other).value)  # type: ignore[attr-defined]
    return is_equal is (node is ast.Eq)


def equal(walker: Walker, left: AbstractValue, right: AbstractValue) -> bool | None:
    """Whether two items of containers are equal, as far as their classes are Python's own; None if not known."""
    if plain(left) and plain(right):
        _refuse_nan(walker, left, right)
        return bool(left.value == right.value)  # type: ignore[attr-defined]
    if isinstance(left, Known) and isinstance(right, Known):
        if _compares_identity(walker, left.value) and _compares_identity(walker, right.value):
            return left.value is right.value
        if _compares_identity(walker, left.value) and is_plain(right.value):
            return False
        if _compares_identity(walker, right.value) and is_plain(left.value):
            return False
    if isinstance(left, Fresh | Tuple | Known) and isinstance(right, Fresh | Tuple | Known):
        ours, theirs = containers.sequence(walker, left), containers.sequence(walker, right)
        if ours is not None and theirs is not None:
            kinds = [_compared_as(walker, one) for one in (left, right)]
            if None in kinds:
                return None
            if kinds[0] is not kinds[1] or len(ours) != len(theirs):
                return False
            outcomes = [equal(walker, one, other) for one, other in zip(ours, theirs, strict=True)]
            return None if None in outcomes else all(outcomes)
    return None


def _compared_as(walker: Walker, value: AbstractValue) -> type | None:
    """Whether a sequence is compared as lists are, or as tuples; None if its class does it in a way of its own."""
    cls = walker.class_of(value)
    if cls is None or not all(containers.is_own(walker, cls, name) for name in ("__eq__", "__ne__")):
        return None
    return list if issubclass(cls, list) else tuple


def _refuse_nan(walker: Walker, left: AbstractValue, right: AbstractValue) -> None:
    if containers.is_nan(left) and containers.is_nan(right):
        walker.refuse("compares NaN in containers, which take one for equal to itself")


def _compares_identity(walker: Walker, value: Any) -> bool:
    if isinstance(value, torch.Tensor) or id(value) in walker.told_by_parts:
        return False
    return walker.type_attribute(type(value), "__eq__") in (object.__eq__, type.__eq__)


def _are_apart(one: AbstractValue, other: AbstractValue) -> bool:
    """Whether one value is a tensor that an operation of the call has made, and the other one was made by another, or
    was there before; or both are tensors among the arguments, of which each has one value."""
    if not isinstance(one, AbstractTensor) or one is other:
        return False
    if isinstance(other, AbstractTensor):
        is_given = other.path is not None
        return (one.is_new and (other.is_new or is_given)) or (is_given and one.path is not None)
    return one.is_new and isinstance(other, Known)


def _is(walker: Walker, left: AbstractValue, right: AbstractValue) -> bool | None:
    """Whether two values are the same object. Plain values are not told apart by identity, except for singletons."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Known) and not is_open(one) and type(one.value) in _SINGLETON_TYPES:
            if is_open(other):
                return False
            if isinstance(other, Known):
                return one.value is other.value
            if isinstance(other, Determined):
                return False if other.cls is not None and other.cls is not type(one.value) else None
            return False
    if isinstance(left, Known) and isinstance(right, Known):
        is_told = not walker.told_by_parts.isdisjoint((id(left.value), id(right.value)))
        if is_told and type(left.value) is type(right.value):
            walker.refuse("asks which object an argument is, of which only the parts are known")
        if not (is_plain(left.value) and is_plain(right.value)) or type(left.value) in _UNIQUE:
            return left.value is right.value
        if type(left.value) is not type(right.value):
            return False
    elif isinstance(left, Fresh) and isinstance(right, Fresh) and _are_told_apart(walker, left, right):
        return left.identity == right.identity
    elif isinstance(left, Closure) and isinstance(right, Closure):
        return left is right
    elif isinstance(left, AbstractTensor) and left is right:
        return True
    elif _are_apart(left, right) or _are_apart(right, left):
        return False
    elif {type(left), type(right)} <= {Known, Fresh, AbstractTensor, Closure} and not (
        is_tensor(left) and is_tensor(right)
    ):
        is_callers = any(isinstance(one, Fresh) and one.is_callers for one in (left, right))
        if type(left) is not type(right) and not (is_callers and Known in (type(left), type(right))):
            return False
    return walker.refuse("asks whether two objects are the same one, which is not known here")


def _are_told_apart(walker: Walker, left: Fresh, right: Fresh) -> bool:
    """Whether two objects are one only if the walk has one value for them. Lists of the caller's may be passed twice;
    objects with state, and what they hold, are not."""
    callers = [one for one in (left, right) if one.is_callers]
    return len(callers) < 2 or all(one.identity in walker.given_places for one in callers)


_UNIQUE = (torch.dtype, torch.layout, torch.memory_format)
_SINGLETON_TYPES = (type(None), bool, type(...), type(NotImplemented))


# --- truth and text ---------------------------------------------------------------------------------------------------


def truth(walker: Walker, value: AbstractValue) -> bool | None:
    match value:
        case Open():
            return not walker.sizes.is_equal(value, Known(0))
        case OpenTuple() if value.cls is not slice:
            return bool(value.items)
        case Known() if is_plain(value.value):
            return bool(value.value)
        case Determined():
            return True if value.is_full else None
        case ReadNumber():
            return walker.answers.decide(walker, value)
        case Closure() | Bound() | Super():
            return True
        case Tuple() if value.cls is tuple:
            return bool(value.items)
        case Union():
            outcomes = {truth(walker, one) for one in value.values}
            return outcomes.pop() if len(outcomes) == 1 else None
    if is_tensor(value):
        operations.guard_methods(walker, (value,), "__bool__")
        constant = operations.constant_of(walker, value)
        if constant is None or constant.numel() != 1:
            walker.answers.refuse_asked(walker, value)
            return walker.answers.decide(walker, operations.read(walker, value, "__bool__"))
        return bool(constant)
    method = None if isinstance(value, View) else walker.method(value, "__bool__")
    if method is not None:
        return truth(walker, walker.call(method, []))
    size = containers.size(walker, value)
    if size is not None:
        return size > 0
    method = walker.method(value, "__len__")
    if method is not None:
        return truth(walker, walker.call(method, []))
    if isinstance(value, View):
        walker.refuse("asks whether something is true that is not understood")
    return True


def text_of(walker: Walker, value: AbstractValue, is_repr: bool = False) -> AbstractValue:
    """What `str` or `repr` gives."""
    convert = repr if is_repr else str
    if plain(value):
        return Known(convert(value.value))  # type: ignore[attr-defined]
    if is_undetermined(value):
        open_sizes.pin(walker, value)
        return walker.determined(str)
    if isinstance(value, Known) and isinstance(value.value, type) and type(value.value).__repr__ is type.__repr__:
        walker.type_attribute(type(value.value), "__repr__")
        walker.attribute(value, "__qualname__")
        walker.attribute(value, "__module__")
        return Known(repr(value.value))
    if isinstance(value, Fresh | Tuple) and value.cls in (list, dict, set, tuple, torch.Size, slice):
        for item in containers.parts(walker, value):
            text_of(walker, item, True)
        return walker.determined(str)
    if isinstance(value, Known) and isinstance(value.value, Enum):
        own = walker.type_attribute(type(value.value), "__str__")
        if own in (Enum.__str__, str.__str__, int.__repr__):
            return walker.determined(str)
    method = walker.method(value, "__repr__" if is_repr else "__str__")
    function = method.function if isinstance(method, Bound) else None
    if method is not None and isinstance(function, Known) and isinstance(function.value, types.FunctionType):
        return walker.call(method, [])
    return walker.refuse("makes text of an object that is not understood")
