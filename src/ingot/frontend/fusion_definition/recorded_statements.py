"""What a fusion definition remembers of itself: one statement per call, in order.

Statements serve three purposes: printed, they are Python code that defines the same fusion; replayed on a builder,
they define it again with some sizes fixed; run with PyTorch, they say what the fusion should compute.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.base.dtypes import DataType
from ingot.frontend.fusion_definition.defined_values import FusionScalar, FusionTensor, FusionValue, FusionVector, Value
from ingot.ops import Op
from ingot.ops.parameters import data_type


@dataclass(frozen=True, slots=True)
class TensorDeclaration:
    shape: tuple[int, ...]
    """-1 for a size that is known only when the fusion runs."""
    contiguity: tuple[bool | None, ...]
    dtype: DataType
    is_cpu: bool
    stride_order: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class DefineTensor:
    declaration: TensorDeclaration
    result: FusionTensor


@dataclass(frozen=True, slots=True)
class DefineScalar:
    value: bool | int | float | complex | None
    """None for a number that is given at every call."""
    dtype: DataType
    result: FusionScalar


@dataclass(frozen=True, slots=True)
class DefineVector:
    values: int | list[Any]
    """How many numbers are given at every call, or the elements themselves."""
    result: FusionVector


@dataclass(frozen=True, slots=True)
class Apply:
    op: Op
    arguments: dict[str, Any]
    result: Value | tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class AddOutput:
    value: FusionValue
    alias_input: FusionValue | None
    stride_order: tuple[int, ...] | None


Statement = DefineTensor | DefineScalar | DefineVector | Apply | AddOutput


def python_text(statements: Sequence[Statement], function_name: str = "nvfuser_fusion") -> str:
    """A Python function that, called with a FusionDefinition, makes the same definition."""
    lines = [f"    {_line(statement)}" for statement in statements] or ["    pass"]
    return "\n".join([f"def {function_name}(fd: FusionDefinition) -> None:", *lines])


def flat(value: Any) -> Iterator[Any]:
    """A result, or the elements of a tuple of results."""
    if isinstance(value, tuple):
        yield from value
    else:
        yield value


def mapped(value: Any, replace: Callable[[Any], Any]) -> Any:
    """An argument with everything in it replaced, in lists too."""
    if isinstance(value, list | tuple):
        return [mapped(element, replace) for element in value]
    return replace(value)


def mapped_values(arguments: Mapping[str, Any], replace: Callable[[Any], Any]) -> dict[str, Any]:
    """Arguments by name with everything in them replaced."""
    return {name: mapped(value, replace) for name, value in arguments.items()}


def _line(statement: Statement) -> str:
    match statement:
        case DefineTensor(declaration, result):
            call = f"define_tensor({_declaration(declaration)})"
        case DefineScalar(value, dtype, result):
            call = f"define_scalar({_value(value)}, dtype={dtype!r})"
        case DefineVector(values, result):
            call = f"define_vector({_value(values)})"
        case Apply(op, arguments, result):
            call = f"ops.{op.name}({_arguments(op, arguments)})"
        case AddOutput(value, alias_input, stride_order):
            parts = [_value(value)]
            if alias_input is not None:
                parts.append(f"alias_input={_value(alias_input)}")
            if stride_order is not None:
                parts.append(f"stride_order={list(stride_order)}")
            return f"fd.add_output({', '.join(parts)})"
    targets = ", ".join(element.name for element in flat(result))
    if isinstance(result, tuple) and len(result) == 1:
        targets = f"({targets},)"
    return f"{targets} = fd.{call}"


def _declaration(declaration: TensorDeclaration) -> str:
    parts = [
        f"shape={list(declaration.shape)}",
        f"contiguity={list(declaration.contiguity)}",
        f"dtype={declaration.dtype!r}",
        f"is_cpu={declaration.is_cpu}",
    ]
    if declaration.stride_order is not None:
        parts.append(f"stride_order={list(declaration.stride_order)}")
    return ", ".join(parts)


def _arguments(op: Op, arguments: dict[str, Any]) -> str:
    assert op.signature is not None
    parts = []
    for parameter in op.signature.parameters:
        value = arguments[parameter.name]
        if parameter.kind == "Type":
            value = data_type(value)
        if parameter.default is inspect.Parameter.empty:
            parts.append(_value(value))
        elif value is not parameter.default:
            parts.append(f"{parameter.name}={_value(value)}")
    return ", ".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, FusionValue | FusionVector):
        return value.name
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(element) for element in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):
        return f"complex({_value(value.real)}, {_value(value.imag)})"  # as no sum of its parts keeps signs and NaN
    return repr(value)
