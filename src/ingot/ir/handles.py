"""Handles: what users hold while they define a graph. They carry the operators of Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingot.base.dtypes import DataType
from ingot.base.errors import DefinitionError
from ingot.base.numbers import Number
from ingot.base.sizes import Shape, Size
from ingot.base.types import ScalarType, TensorType, TupleType
from ingot.ir.node import Node

if TYPE_CHECKING:
    from ingot.ir.builder import Builder


class Handle:
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

    def constant_value(self) -> Number | None:
        """The number this is known to be, or None."""
        return self.node.constant

    def __bool__(self) -> bool:
        raise DefinitionError(
            "a value has no truth while the fusion is being defined; use fd.ops.where instead of `if`, "
            "and fd.ops.logical_and / logical_or instead of `and` / `or`"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type}>"

    def __add__(self, other: Any) -> Any:
        return self.builder.call("add", (self, other))

    def __radd__(self, other: Any) -> Any:
        return self.builder.call("add", (other, self))

    def __sub__(self, other: Any) -> Any:
        return self.builder.call("sub", (self, other))

    def __rsub__(self, other: Any) -> Any:
        return self.builder.call("sub", (other, self))

    def __mul__(self, other: Any) -> Any:
        return self.builder.call("mul", (self, other))

    def __rmul__(self, other: Any) -> Any:
        return self.builder.call("mul", (other, self))

    def __truediv__(self, other: Any) -> Any:
        return self.builder.call("truediv", (self, other))

    def __rtruediv__(self, other: Any) -> Any:
        return self.builder.call("truediv", (other, self))

    def __mod__(self, other: Any) -> Any:
        return self.builder.call("remainder", (self, other))

    def __rmod__(self, other: Any) -> Any:
        return self.builder.call("remainder", (other, self))

    def __pow__(self, other: Any) -> Any:
        return self.builder.call("pow", (self, other))

    def __rpow__(self, other: Any) -> Any:
        return self.builder.call("pow", (other, self))

    def __matmul__(self, other: Any) -> Any:
        return self.builder.call("matmul", (self, other))

    def __neg__(self) -> Any:
        return self.builder.call("neg", (self,))

    def __abs__(self) -> Any:
        return self.builder.call("abs", (self,))

    def __invert__(self) -> Any:
        return self.builder.call("bitwise_not", (self,))

    def __and__(self, other: Any) -> Any:
        return self.builder.call("bitwise_and", (self, other))

    def __rand__(self, other: Any) -> Any:
        return self.builder.call("bitwise_and", (other, self))

    def __or__(self, other: Any) -> Any:
        return self.builder.call("bitwise_or", (self, other))

    def __ror__(self, other: Any) -> Any:
        return self.builder.call("bitwise_or", (other, self))

    def __xor__(self, other: Any) -> Any:
        return self.builder.call("bitwise_xor", (self, other))

    def __rxor__(self, other: Any) -> Any:
        return self.builder.call("bitwise_xor", (other, self))

    def __lshift__(self, other: Any) -> Any:
        return self.builder.call("bitwise_left_shift", (self, other))

    def __rshift__(self, other: Any) -> Any:
        return self.builder.call("bitwise_right_shift", (self, other))

    # Comparisons give tensors, as in PyTorch; identity and hash stay those of the object.
    def __eq__(self, other: Any) -> Any:
        return self.builder.call("eq", (self, other))

    def __ne__(self, other: Any) -> Any:
        return self.builder.call("ne", (self, other))

    def __lt__(self, other: Any) -> Any:
        return self.builder.call("lt", (self, other))

    def __le__(self, other: Any) -> Any:
        return self.builder.call("le", (self, other))

    def __gt__(self, other: Any) -> Any:
        return self.builder.call("gt", (self, other))

    def __ge__(self, other: Any) -> Any:
        return self.builder.call("ge", (self, other))

    __hash__ = object.__hash__


class Tensor(Handle):
    """A tensor of a definition."""

    __slots__ = ()

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
