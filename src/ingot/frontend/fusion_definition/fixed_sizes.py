"""Making a recorded definition again, with some sizes of its inputs fixed.

A size declared as -1 is taken neither to broadcast nor to be empty. Where inputs make it 1 and equal sizes were
assumed, or 0, the definition is made again with that size fixed, so that it does what PyTorch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ingot.base.dtypes import DataType
from ingot.base.sizes import SizeExpression
from ingot.base.types import TensorType
from ingot.frontend.fusion_definition.defined_values import FusionValue, FusionVector
from ingot.frontend.fusion_definition.recorded_statements import (
    AddOutput,
    Apply,
    DefineScalar,
    DefineTensor,
    DefineVector,
    Statement,
    flat,
    mapped_values,
)
from ingot.ir.builder import Builder
from ingot.ir.graph import Graph
from ingot.ir.handles import Vector
from ingot.ops.promotion import Dialect

FixedSizes = tuple[tuple[int | None, ...], ...]
"""Per input and axis, a size that is fixed; None for those left as declared."""


def sizes_to_fix(graph: Graph, inputs: Sequence[Any]) -> FixedSizes | None:
    """The sizes of these inputs that a definition has to be made again for; None if there are none."""
    special = (0, 1) if graph.assumptions else (0,)
    fixed = tuple(_special_sizes(node.type, value, special) for node, value in zip(graph.inputs, inputs, strict=True))
    return None if all(size is None for sizes_ in fixed for size in sizes_) else fixed


def _special_sizes(declared: Any, value: Any, special: Sequence[int]) -> tuple[int | None, ...]:
    """Per axis of an input, the symbolic size that turned out to be one of the special ones, or None."""
    if not isinstance(declared, TensorType):
        return ()
    if not isinstance(value, torch.Tensor) or value.dim() != declared.rank:
        return (None,) * declared.rank  # a wrong input, which the call itself reports
    return tuple(
        actual if actual in special and isinstance(size, SizeExpression) else None
        for size, actual in zip(declared.shape, value.shape, strict=True)
    )


def replayed(statements: Sequence[Statement], fixed_sizes: FixedSizes) -> Graph:
    """The graph of a recorded definition, with some sizes of its inputs fixed."""
    return _Replay(fixed_sizes).run(statements)


class _Replay:
    def __init__(self, fixed_sizes: FixedSizes):
        self._builder = Builder(Dialect.NVFUSER)
        self._fixed = fixed_sizes
        self._position = 0
        self._values: dict[int, Any] = {}

    def run(self, statements: Sequence[Statement]) -> Graph:
        for statement in statements:
            match statement:
                case DefineTensor(declaration, result):
                    shape = self._shape_of(declaration.shape)
                    self._values[id(result)] = self._builder.tensor_input(shape, declaration.dtype)
                case DefineScalar(value, dtype, result):
                    self._values[id(result)] = self._scalar(value, dtype)
                case DefineVector(given, result):
                    self._values[id(result)] = self._vector(given)
                case Apply():
                    self._apply(statement)
                case AddOutput(value, alias_input, stride_order):
                    target = None if alias_input is None else self._replace(alias_input)
                    self._builder.add_output(self._replace(value), target, stride_order)
        return self._builder.build()

    def _shape_of(self, declared: Sequence[int]) -> list[int]:
        fixed = self._fixed[self._position]
        self._position += 1
        return [size if number is None else number for size, number in zip(declared, fixed, strict=True)]

    def _scalar(self, value: bool | int | float | complex | None, dtype: DataType) -> Any:
        if value is not None:
            return self._builder.constant(value, dtype)
        self._position += 1
        return self._builder.scalar_input(dtype)

    def _vector(self, given: int | list[Any]) -> Vector:
        elements = [self._scalar(None, DataType.Int) for _ in range(given)] if isinstance(given, int) else given
        return self._builder.vector([self._builder.size_of(self._replace(element)) for element in elements])

    def _apply(self, statement: Apply) -> None:
        again = self._builder.call(statement.op.name, (), mapped_values(statement.arguments, self._replace))
        pairs = zip(flat(statement.result), flat(again), strict=True)
        self._values.update((id(old), new) for old, new in pairs)

    def _replace(self, value: Any) -> Any:
        return self._values[id(value)] if isinstance(value, FusionValue | FusionVector) else value
