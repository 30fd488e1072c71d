"""What the attributes and operands of a node must be, beyond what type rules look at.

Builders make attributes that keep these rules; a text or a pass may not. In: a node's operator, operand types and
attributes. Out: nothing, or a VerificationError that says which rule is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from ingot.base.dtypes import HELD
from ingot.base.errors import VerificationError
from ingot.base.sizes import SizeExpression
from ingot.base.types import TensorType, ValueType
from ingot.ops import Kind, Op
from ingot.ops.attributes import (
    NONE,
    Attributes,
    AxesAttributes,
    AxisAttributes,
    BroadcastAttributes,
    InputAttributes,
    PadAttributes,
    PermuteAttributes,
    SliceAttributes,
)


def check_attributes(op: Op, operands: Sequence[ValueType], attributes: Attributes) -> None:
    """Raise VerificationError where attributes are not what the operator's record promises."""
    if type(attributes) is not op.attributes:
        raise VerificationError(f"{op.name} has {type(attributes).__name__} for its attributes")
    for field in fields(attributes) if attributes is not NONE else ():
        value = getattr(attributes, field.name)
        if not _IS_VALID[str(field.type)](value):
            raise VerificationError(f"{value!r} cannot be the attribute {field.name} of {op.name}")
    if op.kind is Kind.POINTWISE and len(operands) != _arity(op):
        raise VerificationError(f"{op.name} takes {_arity(op)} operands, not {len(operands)}")
    check = _RANGES.get(type(attributes))
    if check is not None and not check(attributes, _shape_of(operands)):
        raise VerificationError(f"{attributes.text} does not fit the operand of {op.name}")


# --- values of fields, by annotation ----------------------------------------------------------------------------------


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    """A size that is a number is not negative; where a number is not known, the inputs decide."""
    return isinstance(value, SizeExpression) or (_is_int(value) and value >= 0)


def _tuple_of(is_element: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(is_element, value))


def _or_none(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_valid(value)


def _is_named(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


_IS_VALID: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: _is_int(value) and value >= 0,
    "int | None": _or_none(lambda value: _is_int(value) and value >= 0),
    "str": lambda value: isinstance(value, str),
    "Number": lambda value: isinstance(value, bool | int | float),
    "DataType": lambda value: value in HELD,
    "Size": _is_size,
    "Shape": _tuple_of(_is_size),
    "Shape | None": _or_none(_tuple_of(_is_size)),
    "tuple[int, ...]": _tuple_of(lambda value: _is_int(value) and value >= 0),
    "tuple[Size, ...]": _tuple_of(_is_size),
    "tuple[object, ...]": lambda value: isinstance(value, tuple),
    "tuple[tuple[str, object], ...]": _tuple_of(_is_named),
    "tuple[TensorType, ...]": lambda value: bool(value) and _tuple_of(lambda e: isinstance(e, TensorType))(value),
}


# --- values against the operand ---------------------------------------------------------------------------------------


def _shape_of(operands: Sequence[ValueType]) -> tuple[Any, ...]:
    return operands[0].shape if operands and isinstance(operands[0], TensorType) else ()


def _ascends(axes: Sequence[int], rank: int) -> bool:
    return all(left < right for left, right in zip((-1, *axes), (*axes, rank), strict=True))


def _slice_fits(attributes: SliceAttributes, shape: tuple[Any, ...]) -> bool:
    bounds = (attributes.starts, attributes.stops, attributes.steps)
    if any(len(values) != len(shape) for values in bounds) or 0 in attributes.steps:
        return False
    for start, stop, size in zip(attributes.starts, attributes.stops, shape, strict=True):
        pairs = ((start, stop), (stop, size), (start, size))
        if any(isinstance(low, int) and isinstance(high, int) and low > high for low, high in pairs):
            return False
    return True


def _input_fits(attributes: InputAttributes, _: tuple[Any, ...]) -> bool:
    return attributes.shape is not None or attributes.dtype in HELD


_RANGES: dict[type[Attributes], Callable[[Any, tuple[Any, ...]], bool]] = {
    AxesAttributes: lambda attributes, shape: _ascends(attributes.axes, len(shape)),
    AxisAttributes: lambda attributes, shape: attributes.axis < len(shape),
    PermuteAttributes: lambda attributes, shape: sorted(attributes.order) == list(range(len(shape))),
    BroadcastAttributes: lambda attributes, shape: (
        len(attributes.axes) == len(shape) and _ascends(attributes.axes, len(attributes.shape))
    ),
    PadAttributes: lambda attributes, shape: len(attributes.before) == len(attributes.after) == len(shape),
    SliceAttributes: _slice_fits,
    InputAttributes: _input_fits,
}


@cache
def _arity(op: Op) -> int:
    assert op.signature is not None
    named = {field.name for field in fields(op.attributes)}
    return sum(parameter.name not in named for parameter in op.signature.parameters)
