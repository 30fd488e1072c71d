"""What users hold while they define a fusion: tensors, scalars and vectors with nvFuser's methods.

Each stands for a handle of the builder, `handle`, and has the number under which the printed definition names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ingot.base.dtypes import DataType
from ingot.frontend.fusion_definition.absent import absent_from_tensors
from ingot.ir.handles import Handle, Scalar, Tensor, Vector
from ingot.ir.python_operators import PythonOperators

if TYPE_CHECKING:
    from ingot.frontend.fusion_definition.definition import FusionDefinition


class FusionValue(PythonOperators):
    """A tensor or scalar of a fusion."""

    __slots__ = ("_owner", "handle", "num")
    letter = "T"

    def __init__(self, owner: FusionDefinition, handle: Handle, num: int):
        self._owner = owner
        self.handle = handle
        self.num = num
        """Its number in the definition: T3 has 3."""

    def apply(self, name: str, *operands: Any) -> Any:
        return self._owner.call(name, operands)

    def dtype(self) -> DataType:
        """The type of its elements."""
        return self.handle.dtype

    def is_tensor(self) -> bool:
        """Whether it is a tensor, and not a single number."""
        return isinstance(self.handle, Tensor)

    @property
    def name(self) -> str:
        """What the printed definition calls it."""
        return f"{self.letter}{self.num}"

    def __getattr__(self, name: str) -> Any:
        raise absent_from_tensors(name)

    def __repr__(self) -> str:
        return f"<{self.name} {self.handle.type}>"


class FusionTensor(FusionValue):
    """A tensor of a fusion."""

    __slots__ = ()

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.handle.shape)

    def shape(self) -> FusionVector:
        """The sizes of all dimensions: a list of scalars."""
        return self.apply("shape", self)

    def size(self, dim: int) -> FusionScalar:
        """The size of one dimension."""
        return self.apply("size", self, dim)


class FusionScalar(FusionValue):
    """A number of a fusion, known or given at every call."""

    __slots__ = ()
    letter = "S"


class FusionVector:
    """A list of sizes of a fusion; its elements are scalars."""

    __slots__ = ("_owner", "handle", "num")
    letter = "V"

    def __init__(self, owner: FusionDefinition, handle: Vector, num: int):
        self._owner = owner
        self.handle = handle
        self.num = num

    @property
    def name(self) -> str:
        """What the printed definition calls it."""
        return f"{self.letter}{self.num}"

    @property
    def size(self) -> int:
        """How many elements it has."""
        return len(self.handle)

    def __len__(self) -> int:
        return len(self.handle)

    def __getitem__(self, index: int) -> FusionScalar:
        return self._owner.call("at", (self, index))

    def __iter__(self) -> Iterator[FusionScalar]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<{self.name} [{', '.join(map(str, self.handle.elements))}]>"


Value = FusionTensor | FusionScalar | FusionVector


def value_for(owner: FusionDefinition, handle: Tensor | Scalar | Vector, num: int) -> Value:
    """What users hold for a handle of the builder."""
    if isinstance(handle, Vector):
        return FusionVector(owner, handle, num)
    return (FusionScalar if isinstance(handle, Scalar) else FusionTensor)(owner, handle, num)


def handle_of(value: Any) -> Any:
    """The builder's handle for what users hold; anything else as it is."""
    return value.handle if isinstance(value, FusionValue | FusionVector) else value
