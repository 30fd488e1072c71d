"""The words in which an operator says how one element is computed.

An operator's `emit` function gets an emitter and operand values and builds its result from these words alone, so it is
independent of LLVM, of vectors, and of the machine. Operands of one operation have one dtype, as in the graph.
"""

from __future__ import annotations

from typing import Any, Protocol

from ingot.base.dtypes import DataType
from ingot.base.numbers import Number


class Emitter(Protocol):
    """Builds instructions. Values are opaque; each has a dtype."""

    def dtype_of(self, x: Any) -> DataType: ...
    def constant(self, value: Number, like: Any) -> Any:
        """A number in the dtype of another value."""

    def infinity(self, like: Any) -> Any:
        """What no finite value's magnitude reaches: infinity, or for integers a value that compares above all."""

    def neg(self, x: Any) -> Any: ...
    def abs(self, x: Any) -> Any: ...
    def add(self, x: Any, y: Any) -> Any:
        """Sum; logical or of bools."""

    def sub(self, x: Any, y: Any) -> Any: ...
    def mul(self, x: Any, y: Any) -> Any:
        """Product; logical and of bools."""

    def div(self, x: Any, y: Any) -> Any:
        """Quotient; of integers cut off towards zero, and only by what is not 0."""

    def rough_div(self, x: Any, y: Any) -> Any:
        """Quotient of float32, right to 2 ulp."""

    def sqrt(self, x: Any) -> Any: ...
    def rounded(self, how: str, x: Any) -> Any:
        """floor, ceil, trunc or round (halves to even); integers are round already."""

    def bit_and(self, x: Any, y: Any) -> Any: ...
    def bit_or(self, x: Any, y: Any) -> Any: ...
    def bit_xor(self, x: Any, y: Any) -> Any: ...
    def bit_not(self, x: Any) -> Any: ...
    def shift_left(self, x: Any, y: Any) -> Any: ...
    def shift_right(self, x: Any, y: Any) -> Any: ...
    def sign_bit(self, x: Any) -> Any: ...
    def bits(self, x: Any) -> Any:
        """A floating-point number's bits as a signed integer."""

    def with_bits(self, bits: Any, dtype: DataType) -> Any:
        """The floating-point number that has these bits."""

    def real(self, x: Any) -> Any:
        """The real part of a complex number."""

    def imaginary(self, x: Any) -> Any: ...
    def complex(self, x: Any, y: Any) -> Any:
        """The complex number that has these parts."""

    def compare(self, how: str, x: Any, y: Any) -> Any:
        """eq, ne, lt, le, gt or ge, as a bool; only ne holds for NaN."""

    def select(self, condition: Any, x: Any, y: Any) -> Any: ...
    def extremum(self, how: str, x: Any, y: Any) -> Any:
        """The one that is gt or lt the other; NaN if either is. Which of 0 and -0 it is, is up to the emitter."""

    def convert(self, x: Any, dtype: DataType) -> Any: ...
    def function(self, name: str, *operands: Any) -> Any:
        """A function of the math module, of floating-point numbers or signed integers."""


def commuting_extremum(e: Emitter, how: str, x: Any, y: Any) -> Any:
    """An extremum of floating-point numbers with the same bits whichever comes first: 0 is larger than -0, and of two
    NaN there is something of each in the result."""
    first, second = e.bits(x), e.bits(y)
    either = e.bit_or(first, second)
    if how == "gt":  # negative if both are
        highest = e.constant((1 << e.dtype_of(x).bits - 1) - 1, first)
        either = e.bit_and(either, e.bit_or(e.bit_and(first, second), highest))
    one = e.select(e.compare(how, y, x), y, x)
    differs = e.bit_or(e.compare("lt", x, y), e.compare("gt", x, y))
    return e.select(differs, one, e.with_bits(either, e.dtype_of(x)))
