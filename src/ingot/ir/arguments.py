"""What a caller passes, in the form an operator's function expects: one check per kind of parameter.

The kinds are those of `ops.parameters`. An argument that does not fit is an ArgumentError or a HandleError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ingot.base.errors import ArgumentError, ArgumentValueError, HandleError
from ingot.base.numbers import Number
from ingot.base.sizes import Shape
from ingot.ir.handles import Handle, Scalar, Tensor, Vector
from ingot.ops.parameters import data_type

if TYPE_CHECKING:
    from ingot.ir.builder import Builder


def _number_or_handle(builder: Builder, value: Any) -> Handle | Number:
    if isinstance(value, bool | int | float):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ArgumentValueError(f"{value} does not fit into 64 bits")
        return value
    if isinstance(value, complex):
        return builder.constant(value)
    return builder.own(value)


def _plain(builder: Builder, value: Any) -> Handle:
    checked = _number_or_handle(builder, value)
    return checked if isinstance(checked, Handle) else builder.constant(checked)


def _tensor(builder: Builder, value: Any) -> Tensor:
    handle = builder.own(value)
    if not isinstance(handle, Tensor):
        raise HandleError(f"a tensor is needed here, not {handle!r}")
    return handle


def _sequence(value: Any) -> Sequence[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ArgumentError(f"a list is needed here, not {value!r}")
    return value


def _size_list(builder: Builder, value: Any) -> Shape:
    if isinstance(value, Vector):
        if value.builder is not builder:
            raise HandleError(f"{value!r} belongs to another definition")
        return value.elements
    return tuple(builder.size_of(element) for element in _sequence(value))


def _plain_value(kind: type | tuple[type, ...], word: str) -> Callable[[Builder, Any], Any]:
    def check(builder: Builder, value: Any) -> Any:
        if isinstance(value, Scalar):
            value = _known_number(builder, value, word)
        if kind is bool and value in (0, 1) and isinstance(value, int):
            return bool(value)  # as nvFuser prints flags
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise ArgumentError(f"{word} is needed here, not {value!r}")
        return value

    return check


def _known_number(builder: Builder, value: Scalar, word: str) -> Number:
    number = builder.own(value).constant_value()
    if number is None:
        raise ArgumentValueError(f"{word} is needed here that is known when the fusion is defined, not {value!r}")
    return number


def _axes(_: Builder, value: Any) -> Any:
    return value if isinstance(value, int) else tuple(_sequence(value))


CHECKS: dict[str, Callable[[Builder, Any], Any]] = {
    "Operand": _number_or_handle,
    "Plain": _plain,
    "Tensor": _tensor,
    "Tensors": lambda builder, value: [_tensor(builder, element) for element in _sequence(value)],
    "Axis": _plain_value(int, "an axis"),
    "Axes": _axes,
    "Sizes": _size_list,
    "SizeValue": lambda builder, value: builder.size_of(value),
    "Type": lambda _, value: data_type(value),
    "Integer": _plain_value(int, "an int"),
    "Integers": lambda _, value: tuple(_sequence(value)),
    "Flags": lambda _, value: tuple(map(bool, _sequence(value))),
    "Flag": _plain_value(bool, "True or False"),
    "Real": _plain_value((int, float), "a number"),
    "Text": _plain_value(str, "a word"),
}
