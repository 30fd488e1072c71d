"""Python's operators on values of a definition: `x + y` is a call of the operator `add`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ingot.base.errors import DefinitionError


class PythonOperators:
    """What a value of a definition needs for Python's operators: a method that applies operators of the op table."""

    __slots__ = ()

    @abstractmethod
    def apply(self, name: str, *operands: Any) -> Any:
        """The result of an operator of the definition that this value belongs to."""

    def __bool__(self) -> bool:
        raise DefinitionError(
            "a value has no truth while the fusion is being defined; use fd.ops.where instead of `if`, "
            "and fd.ops.logical_and / logical_or instead of `and` / `or`"
        )

    def __add__(self, other: Any) -> Any:
        return self.apply("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.apply("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self.apply("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.apply("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.apply("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.apply("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.apply("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.apply("truediv", other, self)

    def __mod__(self, other: Any) -> Any:
        return self.apply("remainder", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self.apply("remainder", other, self)

    def __pow__(self, other: Any) -> Any:
        return self.apply("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self.apply("pow", other, self)

    def __matmul__(self, other: Any) -> Any:
        return self.apply("matmul", self, other)

    def __neg__(self) -> Any:
        return self.apply("neg", self)

    def __abs__(self) -> Any:
        return self.apply("abs", self)

    def __invert__(self) -> Any:
        return self.apply("bitwise_not", self)

    def __and__(self, other: Any) -> Any:
        return self.apply("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Any:
        return self.apply("bitwise_and", other, self)

    def __or__(self, other: Any) -> Any:
        return self.apply("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Any:
        return self.apply("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Any:
        return self.apply("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return self.apply("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Any:
        return self.apply("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return self.apply("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> Any:
        return self.apply("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return self.apply("bitwise_right_shift", other, self)

    # Comparisons give tensors, as in PyTorch; identity and hash stay those of the object.
    def __eq__(self, other: Any) -> Any:
        return self.apply("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        return self.apply("ne", self, other)

    def __lt__(self, other: Any) -> Any:
        return self.apply("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return self.apply("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return self.apply("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return self.apply("ge", self, other)

    __hash__ = object.__hash__
