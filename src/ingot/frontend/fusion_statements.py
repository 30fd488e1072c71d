"""What a fusion definition remembers of itself: one statement per call, in order.

Statements serve three purposes: printed, they are Python code that defines the same fusion; replayed on a builder,
they define it again with some sizes fixed; run with PyTorch, they say what the fusion should compute.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.base.dtypes import DataType
from ingot.base.sizes import SizeExpression
from ingot.ir.handles import Handle, Scalar, Vector
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
    result: Any


@dataclass(frozen=True, slots=True)
class DefineScalar:
    value: bool | int | float | None
    """None for a number that is given at every call."""
    dtype: DataType
    result: Any


@dataclass(frozen=True, slots=True)
class DefineVector:
    values: int | list[Any]
    """How many numbers are given at every call, or the elements themselves."""
    result: Any


@dataclass(frozen=True, slots=True)
class Apply:
    op: Op
    arguments: dict[str, Any]
    result: Any


@dataclass(frozen=True, slots=True)
class AddOutput:
    value: Any
    alias_input: Any
    stride_order: tuple[int, ...] | None


Statement = DefineTensor | DefineScalar | DefineVector | Apply | AddOutput


def python_text(statements: Sequence[Statement], function_name: str = "nvfuser_fusion") -> str:
    """A Python function that, called with a FusionDefinition, makes the same definition."""
    names = _Names()
    lines = [f"    {_line(statement, names)}" for statement in statements] or ["    pass"]
    return "\n".join([f"def {function_name}(fd: FusionDefinition) -> None:", *lines])


class _Names:
    """T0, S1, V2 ...: one number per result, a letter per kind."""

    def __init__(self) -> None:
        self._by_identity: dict[int, str] = {}
        self._count = 0

    def add(self, value: Any) -> str:
        letter = "V" if isinstance(value, Vector) else "S" if isinstance(value, Scalar) else "T"
        name = f"{letter}{self._count}"
        self._count += 1
        # An operator may hand back its own argument; then both names are right, and the first one is used.
        self._by_identity.setdefault(id(value), name)
        return name

    def of(self, value: Any) -> str:
        return self._by_identity[id(value)]


def flat(value: Any) -> Iterator[Any]:
    """A result, or the elements of a tuple of results."""
    if isinstance(value, tuple):
        yield from value
    else:
        yield value


def mapped(value: Any, replace: Callable[[Any], Any]) -> Any:
    """An argument with every handle, vector and size in it replaced."""
    if isinstance(value, list | tuple):
        return [mapped(element, replace) for element in value]
    return replace(value)


def _line(statement: Statement, names: _Names) -> str:
    match statement:
        case DefineTensor(declaration, result):
            call = f"define_tensor({_declaration(declaration)})"
        case DefineScalar(value, dtype, result):
            call = f"define_scalar({_value(value, names)}, dtype={dtype!r})"
        case DefineVector(values, result):
            call = f"define_vector({_value(values, names)})"
        case Apply(op, arguments, result):
            call = f"ops.{op.name}({_arguments(op, arguments, names)})"
        case AddOutput(value, alias_input, stride_order):
            parts = [_value(value, names)]
            if alias_input is not None:
                parts.append(f"alias_input={_value(alias_input, names)}")
            if stride_order is not None:
                parts.append(f"stride_order={list(stride_order)}")
            return f"fd.add_output({', '.join(parts)})"
    targets = ", ".join(names.add(element) for element in flat(result))
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


def _arguments(op: Op, arguments: dict[str, Any], names: _Names) -> str:
    assert op.signature is not None
    parts = []
    for parameter in op.signature.parameters:
        value = arguments[parameter.name]
        if parameter.kind == "Type":
            value = data_type(value)
        if parameter.default is inspect.Parameter.empty:
            parts.append(_value(value, names))
        elif value is not parameter.default:
            parts.append(f"{parameter.name}={_value(value, names)}")
    return ", ".join(parts)


def _value(value: Any, names: _Names) -> str:
    if isinstance(value, Handle | Vector):
        return names.of(value)
    if isinstance(value, SizeExpression):
        return repr(value.text)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(element, names) for element in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
