"""Handles: what users hold while they define a graph. They carry the operators of Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingot.base.dtypes import DataType
from ingot.base.numbers import Number
from ingot.base.sizes import Shape, Size
from ingot.base.types import ScalarType, TensorType, TupleType
from ingot.ir.node import Node
from ingot.ir.python_operators import PythonOperators

if TYPE_CHECKING:
    from ingot.ir.builder import Builder


class Handle(PythonOperators):
    """A value of a definition."""

    __slots__ = ("builder", "dtype", "node", "type")

    def __init__(self, builder: Builder, node: Node):
        assert not isinstance(node.type, TupleType)
        self.builder = builder
        self.node = node
        self.type: TensorType | ScalarType = node.type
        self.dtype: DataType = node.type.dtype

    @property
    def shape(self) -> Shape:
        """Sizes of all axes; a scalar has none."""
        return self.type.shape if isinstance(self.type, TensorType) else ()

    def apply(self, name: str, *operands: Any) -> Any:
        return self.builder.call(name, operands)

    def constant_value(self) -> Number | None:
        """The number this is known to be, or None."""
        return self.node.constant

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type}>"


class Tensor(Handle):
    """A tensor of a definition."""

    __slots__ = ("stride_order",)

    def __init__(self, builder: Builder, node: Node, stride_order: tuple[int, ...] | None = None):
        super().__init__(builder, node)
        self.stride_order = stride_order
        """The order of its strides where it becomes a result; None for row-major."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def size(self, axis: int) -> Any:
        """Size of one axis, as a scalar handle."""
        return self.builder.call("size", (self, axis))


class Scalar(Handle):
    """A number of a definition, known or not."""

    __slots__ = ()


class Vector:
    """A list of sizes of a definition."""

    __slots__ = ("builder", "elements")

    def __init__(self, builder: Builder, elements: tuple[Size, ...]):
        self.builder = builder
        self.elements = elements

    def __len__(self) -> int:
        return len(self.elements)

    def __getitem__(self, index: int) -> Any:
        return self.builder.call("at", (self, index))

    def __repr__(self) -> str:
        return f"<Vector [{', '.join(map(str, self.elements))}]>"
