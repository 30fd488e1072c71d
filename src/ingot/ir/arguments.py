"""What a caller passes, in the form and the type that an operator's function expects.

In: the arguments of a call, handles and plain values. Out: by `checked`, what the kinds of parameters promise, one
check per kind of `ops.parameters`; by `apply`, the operator's result, computed in the type that its promotion rule says
and rounded to the one it gives. An argument that does not fit is an ArgumentError, a HandleError or a DTypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ingot.base.dtypes import DataType
from ingot.base.errors import ArgumentError, ArgumentValueError, DTypeError, HandleError, IngotError
from ingot.base.numbers import Number, convert_number, fits, number_type
from ingot.base.sizes import Shape
from ingot.base.types import ScalarType, TensorType
from ingot.ir.handles import Handle, Scalar, Tensor, Vector
from ingot.ops import Op, lookup
from ingot.ops.parameters import Parameter, data_type
from ingot.ops.promotion import Dialect, Promoted, decide

if TYPE_CHECKING:
    from ingot.ir.builder import Builder

_CAST: Any = lookup("cast").build


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


_CHECKS: dict[str, Callable[[Builder, Any], Any]] = {
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


def checked(builder: Builder, parameters: Sequence[Parameter], bound: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments in the form their kinds promise to the operator's function."""
    values: dict[str, Any] = {}
    for parameter in parameters:
        name = parameter.name
        value = values[name] = bound[name]
        if value is None and (parameter.optional or parameter.default is None):
            continue
        try:
            values[name] = _CHECKS[parameter.kind](builder, value)
        except IngotError as error:
            raise error.within(f"argument {name!r}") from None
    return values


def apply(builder: Builder, op: Op, arguments: dict[str, Any]) -> Any:
    """The result of an operator for checked arguments, with types promoted."""
    assert op.build is not None and op.signature is not None
    build = _built_of_complex(op) if any(map(_is_complex, arguments.values())) else op.build
    if op.promotion is None:
        return build(builder, **arguments)
    promotable = _promotable(op, arguments)
    if not promotable:  # an empty list of tensors, which the operator refuses
        return build(builder, **arguments)
    requested = data_type(arguments.get("dtype"))
    types = [_type_of(value) for value in promotable]
    dialect = Dialect.TORCH if op.keeps_half_types else builder.dialect
    promoted = decide(types, op.promotion, dialect, builder.default_float, requested)
    if refused := {type_.dtype for type_ in types if not type_.dtype.is_complex} - op.operand_dtypes:
        raise DTypeError(f"{op.name} does not take {' or '.join(sorted(dtype.text for dtype in refused))} operands")
    if op.takes_one_type and len({type_.dtype for type_ in types}) > 1:
        raise DTypeError(f"{op.name} takes operands of one data type, not {', '.join(map(str, types))}")
    if promoted.compute not in op.dtypes and not promoted.compute.is_complex:
        accepted = ", ".join(sorted(dtype.text for dtype in op.dtypes))
        raise DTypeError(f"{op.name} does not compute in {promoted.compute.text}; it takes {accepted}")
    if promoted.compute is promoted.result and all(_is_in(value, promoted.compute) for value in promotable):
        return build(builder, **arguments)
    converted = {p.name: _converted(builder, op, p, arguments[p.name], promoted) for p in op.signature.parameters}
    return _narrowed(builder, build(builder, **converted), promoted)


def _converted(builder: Builder, op: Op, parameter: Parameter, value: Any, promoted: Promoted) -> Any:
    if parameter.kind == "Tensors":
        return [_cast(builder, element, promoted.compute) for element in value]
    if parameter.kind != "Operand" or value is None:
        return value
    kept = parameter.name in op.keeps_precision and not getattr(value, "shape", ())
    if isinstance(value, Handle):
        rounded = _cast(builder, value, promoted.common) if promoted.rounds and not kept else value
        return _cast(builder, rounded, promoted.compute)
    if promoted.compute.is_complex:
        return builder.constant(value, promoted.compute)
    if parameter.name in op.bounded:
        _check_bounds(op, value, promoted.common)
    if promoted.rounds and not kept:
        value = convert_number(value, promoted.common)
    return builder.constant(value, promoted.compute)


def _narrowed(builder: Builder, result: Any, promoted: Promoted) -> Any:
    """Round a result that was computed in float32 back to the half type PyTorch would give."""
    if isinstance(result, tuple):
        return tuple(_narrowed(builder, element, promoted) for element in result)
    if promoted.compute is promoted.result or result.dtype is not promoted.compute:
        return result
    return _cast(builder, result, promoted.result)


def _cast(builder: Builder, value: Handle, dtype: DataType) -> Handle:
    """A value of this definition in a type, itself if it has that already, as most have."""
    if value.dtype is dtype:
        return value
    is_complex = value.dtype.is_complex or dtype.is_complex
    return builder.call("cast", (value, dtype)) if is_complex else _CAST(builder, value, dtype)


def _promotable(op: Op, arguments: Mapping[str, Any]) -> list[Any]:
    assert op.signature is not None
    found: list[Any] = []
    for parameter in op.signature.parameters:
        value = arguments[parameter.name]
        if parameter.kind == "Tensors":
            found += value
        elif parameter.kind == "Operand" and value is not None:
            found.append(value)
    return found


def _is_complex(value: Any) -> bool:
    """Whether an argument is complex, a list with something complex, or a complex type."""
    if isinstance(value, list | tuple):
        return any(map(_is_complex, value))
    dtype = value.dtype if isinstance(value, Handle) else value
    return isinstance(dtype, DataType) and dtype.is_complex


def _built_of_complex(op: Op) -> Callable[..., Any]:
    if op.of_complex is None:
        raise DTypeError(f"{op.name} does not take complex numbers")
    return op.of_complex


def _is_in(value: Handle | Number, dtype: DataType) -> bool:
    """Whether an operand need not be converted."""
    return isinstance(value, Handle) and value.dtype is dtype


def _check_bounds(op: Op, value: Number, common: DataType) -> None:
    """Refuse the numbers PyTorch refuses; only an exponent must be within the range of a floating-point type too."""
    if op.number_exponent and common.is_integer and value < 0:
        raise ArgumentValueError(
            f"integers have no powers with the exponent {value}; cast them to floating point first"
        )
    if (common.is_integer or op.number_exponent) and not fits(value, common):
        raise ArgumentValueError(f"{value} does not fit {common.text}")


def _type_of(value: Handle | Number) -> TensorType | ScalarType:
    return value.type if isinstance(value, Handle) else ScalarType(number_type(value))
