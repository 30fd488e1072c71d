"""Types and values of LLVM's language. Equal types are one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

_Made = TypeVar("_Made")
_made: dict[tuple[Any, ...], Any] = {}


class _OnePerKind(type):
    """Makes a type once."""

    def __call__(cls: type[_Made], *arguments: Any) -> _Made:
        key = (cls, *arguments)
        found = _made.get(key)
        if found is None:
            found = _made.setdefault(key, type.__call__(cls, *arguments))
        return found


class Type(metaclass=_OnePerKind):
    text: str

    def __str__(self) -> str:
        return self.text


class VoidType(Type):
    text = "void"


class HalfType(Type):
    text = "half"


class BFloatType(Type):
    text = "bfloat"


class FloatType(Type):
    text = "float"


class DoubleType(Type):
    text = "double"


_COMMON = 4096
"""Whole numbers below are written again and again, and made once."""


class IntType(Type):
    def __init__(self, width: int):
        self.width = width
        self.text = f"i{width}"
        self._numbers: dict[int, Constant] = {}

    def __call__(self, value: int) -> Constant:
        if not 0 <= value < _COMMON:
            return Constant(self, value)
        found = self._numbers.get(value)
        return self._numbers.setdefault(value, Constant(self, value)) if found is None else found


class VectorType(Type):
    def __init__(self, element: Type, count: int):
        self.element, self.count = element, count
        self.text = f"<{count} x {element.text}>"


class PointerType(Type):
    def __init__(self, pointee: Type | FunctionType, space: int = 0):
        """`space` is the kind of memory, where a processor has several: on a GPU 1 is that of tensors, 3 is shared."""
        self.pointee, self.space = pointee, space
        self.text = f"ptr addrspace({space})" if space else "ptr"


class FunctionType:
    """Compared by what it consists of, so that equal ones have one type of pointers."""

    def __init__(self, result: Type, arguments: Sequence[Type]):
        self.result, self.arguments = result, tuple(arguments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionType) and (self.result, self.arguments) == (other.result, other.arguments)

    def __hash__(self) -> int:
        return hash((self.result, self.arguments))


class Value:
    """What an instruction can use: its type, and the text it goes by."""

    __slots__ = ("reference", "type")

    def __init__(self, type: Any, reference: str):
        self.type = type
        self.reference = reference


class Spread(Value):
    """A vector that has the same scalar in every lane."""

    __slots__ = ("single",)

    def __init__(self, type: Any, reference: str, single: Value):
        super().__init__(type, reference)
        self.single = single


Undefined = object()
"""An undefined value: LLVM may choose any number."""


class Constant(Value):
    """A whole number, one per lane, zeros for None, or Undefined."""

    __slots__ = ()

    def __init__(self, type: Any, value: int | Sequence[int] | object | None):
        self.type = type
        self.reference = _constant_text(type, value)


def _constant_text(type: Any, value: Any) -> str:
    if value is Undefined:
        return "undef"
    if value is None:
        return "zeroinitializer"
    if isinstance(type, VectorType):
        return f"<{', '.join([f'{type.element.text} {lane}' for lane in value])}>"
    return str(int(value))
