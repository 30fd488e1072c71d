"""Data types: one enumeration with the names of both PyTorch and nvFuser.

Every type carries a short text (`f32`), used wherever a graph is printed. Types outside `HELD` exist so that the
result of a library call can be described; no operator of the table computes with them.
"""

from __future__ import annotations

from enum import Enum


class DataType(Enum):
    """The type of a tensor's elements or of a scalar. `DataType.Float` and `DataType.float32` are the same member."""

    Bool = "bool"
    UInt8 = "u8"
    Int8 = "i8"
    Int16 = "i16"
    Int32 = "i32"
    Int = "i64"
    Half = "f16"
    BFloat16 = "bf16"
    Float = "f32"
    Double = "f64"
    ComplexFloat = "c64"
    ComplexDouble = "c128"
    UInt16 = "u16"
    UInt32 = "u32"
    UInt64 = "u64"
    Float8_e4m3fn = "f8e4m3"
    Float8_e5m2 = "f8e5m2"
    Float8_e8m0fnu = "f8e8m0"
    Float4_e2m1fn = "f4e2m1"
    Float4_e2m1fn_x2 = "f4e2m1x2"
    Null = "null"

    # nvFuser's name for what it computes indices in.
    Index = "i64"

    # The names PyTorch users type.
    bool = "bool"
    uint8 = "u8"
    int8 = "i8"
    int16 = "i16"
    int32 = "i32"
    int64 = "i64"
    float16 = "f16"
    bfloat16 = "bf16"
    float32 = "f32"
    float64 = "f64"
    complex64 = "c64"
    complex128 = "c128"
    uint16 = "u16"
    uint32 = "u32"
    uint64 = "u64"
    float8_e4m3fn = "f8e4m3"
    float8_e5m2 = "f8e5m2"
    float8_e8m0fnu = "f8e8m0"
    float4_e2m1fn_x2 = "f4e2m1x2"

    def __init__(self, text: str):
        self.text = text
        self.is_float = text.startswith(("f", "bf"))
        self.is_complex = text.startswith("c")
        self.is_integer = text[0] in "iu"
        """True for signed and unsigned integers, not for bool."""
        self.is_signed = text[0] not in "ub"
        is_byte, digits = text in ("bool", "f4e2m1x2") or text.startswith("f8"), text.lstrip("uibfc")
        self.bits = 8 if is_byte else int(digits) if digits.isdigit() else 0
        """Width of one element in memory; 0 where it has none of its own."""
        self.bytes = self.bits // 8

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python

    @property
    def torch_name(self) -> str | None:
        """The attribute of the torch module that is this type; None where torch has no such type."""
        return _TORCH_NAMES.get(self)

    @property
    def widened(self) -> DataType:
        """The type arithmetic on this one is done in: half types compute in float32, all others in themselves."""
        return DataType.Float if self in HALVES else self

    def __repr__(self) -> str:
        return f"DataType.{self.name}"


_TORCH_NAMES = {
    member: name
    for name, member in DataType.__members__.items()
    if name[0].islower()  # aliases only: the nvFuser spellings start with a capital letter
}

HALVES = frozenset({DataType.Half, DataType.BFloat16})
FLOATS = frozenset({DataType.Float, DataType.Double})
INTEGERS = frozenset({DataType.UInt8, DataType.Int8, DataType.Int16, DataType.Int32, DataType.Int})
BOOLEAN = frozenset({DataType.Bool})
COMPUTED = HALVES | FLOATS | INTEGERS | BOOLEAN
"""The real types that operators of the table accept."""
COMPLEX = frozenset({DataType.ComplexFloat, DataType.ComplexDouble})
"""The types that operators accept whose records say what they do with complex numbers."""
HELD = COMPUTED | COMPLEX
"""The types that inputs and results of graphs may have."""

_COMPLEX_OF = {DataType.Float: DataType.ComplexFloat, DataType.Double: DataType.ComplexDouble}
_PART_OF = {whole: part for part, whole in _COMPLEX_OF.items()}


def in_order(dtypes: frozenset[DataType]) -> list[DataType]:
    """A set of types as a list, in the order of their definition."""
    return [dtype for dtype in DataType if dtype in dtypes]


_BY_TEXT = {member.value: member for member in DataType}


def from_text(text: str) -> DataType | None:
    """The type a short text names, or None."""
    return _BY_TEXT.get(text)


def from_torch_name(name: str) -> DataType | None:
    """The type for `str(torch_dtype)` such as `torch.float32`, or None where ingot has no name for it."""
    return DataType.__members__.get(name.removeprefix("torch."))


def complex_type(part: DataType) -> DataType:
    """The complex type whose parts hold a real type: complex64 for integers and half types, too."""
    return _COMPLEX_OF.get(part, part if part.is_complex else DataType.ComplexFloat)


def part_type(dtype: DataType) -> DataType:
    """The type of a complex type's real and imaginary parts; a real type itself."""
    return _PART_OF.get(dtype, dtype)


_INTEGER_ORDER = (DataType.Int8, DataType.Int16, DataType.Int32, DataType.Int)


def promote(first: DataType, second: DataType) -> DataType:
    """The type two operands of equal standing meet in, as PyTorch decides it."""
    if first is second:
        return first
    if first.is_complex or second.is_complex:
        return _promote_complex(first, second)
    for low, high in ((first, second), (second, first)):
        if low is DataType.Bool:
            return high
        if low.is_integer and high.is_float:
            return high
    if first.is_integer and second.is_integer:
        if DataType.UInt8 in (first, second):
            other = second if first is DataType.UInt8 else first
            return DataType.Int16 if other is DataType.Int8 else other
        return max(first, second, key=_INTEGER_ORDER.index)
    if first.bits == second.bits:  # float16 with bfloat16
        return DataType.Float
    return first if first.bits > second.bits else second


def _promote_complex(first: DataType, second: DataType) -> DataType:
    """The complex type whose parts are what the parts of both meet in; integers and half types fit into any."""
    parts = {part_type(dtype) for dtype in (first, second)}
    return DataType.ComplexDouble if DataType.Double in parts else DataType.ComplexFloat


def category(dtype: DataType) -> int:
    """How a type ranks when operands of different standing meet: bool, then integers, floats, complex numbers."""
    return 0 if dtype is DataType.Bool else 1 if dtype.is_integer else 3 if dtype.is_complex else 2
