"""The types of graph values, and the canonical text of everything that can stand in a graph.

    type := dtype '[' sizes ']'        a tensor; `f32[]` has no dimensions
          | dtype                      a scalar: a number that lives on the host
          | '(' types ')'              several results of one library call

`literal` gives each attribute value one text that tells apart all values that behave differently (1, 1.0 and true; 0.0
and -0.0); printing, hashing and comparing nodes all rest on it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import cast

from ingot.base.dtypes import DataType
from ingot.base.sizes import Shape, SizeExpression


@dataclass(frozen=True, slots=True)
class TensorType:
    dtype: DataType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.text}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class ScalarType:
    dtype: DataType

    def __str__(self) -> str:
        return self.dtype.text


@dataclass(frozen=True, slots=True)
class TupleType:
    elements: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


ValueType = TensorType | ScalarType | TupleType


@dataclass(frozen=True, slots=True)
class OperandSlot:
    """Stands for an operand inside the recorded arguments of a library call; printed `$0`."""

    index: int

    def __str__(self) -> str:
        return f"${self.index}"


def literal(value: object) -> str:
    """The one text of an attribute value."""
    if type(value) in (int, float):  # as most are
        return repr(value) if value == value else _nan(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | int):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, DataType):
        return value.text
    if isinstance(value, SizeExpression | TensorType | OperandSlot):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(literal, value))}]"
    raise TypeError(f"{type(value).__name__} cannot be an attribute of a graph node")


def _nan(value: object) -> str:
    """The text of a NaN, with its sign: nodes of equal text are one node, and copysign tells them apart."""
    return "-nan" if math.copysign(1.0, cast(float, value)) < 0 else "nan"
