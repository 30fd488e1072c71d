"""Elements computed with numpy: the words of `ops.emission`, for the loop interpreter.

A value is an array of one element per lane, or of no dimensions where it is the same for all, and its data type.
bfloat16 is held as its 16 bits: no operator computes in it, values are converted to float32 first. What generated code
makes total (shifts, divisions, conversions of what does not fit) is total here in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy

from ingot.base.dtypes import DataType, complex_type, part_type
from ingot.base.numbers import Number
from ingot.loops.numpy_functions import function_of_floats, function_of_integers

_NAMES = {DataType.Bool: "bool", DataType.Half: "float16", DataType.BFloat16: "uint16"}
_NAMES |= {DataType.Float: "float32", DataType.Double: "float64", DataType.UInt8: "uint8", DataType.Int: "int64"}
_NAMES |= {DataType.Int8: "int8", DataType.Int16: "int16", DataType.Int32: "int32"}
_NAMES |= {DataType.ComplexFloat: "complex64", DataType.ComplexDouble: "complex128"}
_COMPARISONS: dict[str, Any] = {"eq": numpy.equal, "ne": numpy.not_equal, "lt": numpy.less, "le": numpy.less_equal}
_COMPARISONS |= {"gt": numpy.greater, "ge": numpy.greater_equal}
_ROUNDINGS: dict[str, Any] = {"floor": numpy.floor, "ceil": numpy.ceil, "trunc": numpy.trunc, "round": numpy.rint}
_SIGNED = {8: DataType.Int8, 16: DataType.Int16, 32: DataType.Int32, 64: DataType.Int}


def held_as(dtype: DataType) -> numpy.dtype:
    """The type of the arrays that hold elements."""
    return numpy.dtype(_NAMES[dtype])


@dataclass(frozen=True, slots=True)
class Element:
    """What one register holds, for all lanes."""

    array: Any
    dtype: DataType


class Elements:
    """An emitter that computes at once. It keeps no state."""

    def literal(self, value: Number, dtype: DataType) -> Element:
        if dtype is DataType.BFloat16:
            return self.convert(self.literal(value, DataType.Float), dtype)
        if dtype.is_integer:
            value = int(value) & (1 << dtype.bits) - 1
            return Element(numpy.array(value, f"uint{dtype.bits}").view(held_as(dtype)), dtype)
        return Element(numpy.array(value, numpy.float64 if dtype.is_float else bool).astype(held_as(dtype)), dtype)

    def dtype_of(self, x: Element) -> DataType:
        return x.dtype

    def constant(self, value: Number, like: Element) -> Element:
        return self.literal(value, like.dtype)

    def infinity(self, like: Element) -> Element:
        return Element(numpy.array(math.inf, held_as(like.dtype) if like.dtype.is_float else numpy.float64), like.dtype)

    # --- arithmetic ---------------------------------------------------------------------------------------------------

    def _arithmetic(self, apply: Any, *operands: Element) -> Element:
        """bfloat16 by way of float32, which changes no result."""
        dtype = operands[0].dtype
        if dtype is DataType.BFloat16:
            wide = (self.convert(operand, DataType.Float).array for operand in operands)
            return self.convert(Element(apply(*wide), DataType.Float), dtype)
        return Element(apply(*map(_number, operands)), dtype)

    def neg(self, x: Element) -> Element:
        return self._arithmetic(numpy.negative, x)

    def abs(self, x: Element) -> Element:
        return Element(numpy.abs(_number(x)), x.dtype)

    def add(self, x: Element, y: Element) -> Element:
        return self._arithmetic(numpy.add, x, y)

    def sub(self, x: Element, y: Element) -> Element:
        apply = numpy.logical_xor if x.dtype is DataType.Bool else numpy.subtract
        return self._arithmetic(apply, x, y)

    def mul(self, x: Element, y: Element) -> Element:
        return self._arithmetic(numpy.multiply, x, y)

    def div(self, x: Element, y: Element) -> Element:
        if x.dtype.is_float:
            return Element(numpy.divide(_number(x), _number(y)), x.dtype)
        if not x.dtype.is_signed:
            return Element(numpy.floor_divide(x.array, y.array), x.dtype)
        negates = y.array == -1  # the lowest number has no positive counterpart: negation wraps around
        divisor = numpy.where(negates, numpy.ones_like(y.array), y.array)
        floored, rest = numpy.floor_divide(x.array, divisor), numpy.remainder(x.array, divisor)
        cut = floored + ((rest != 0) & (numpy.sign(x.array) != numpy.sign(divisor))).astype(x.array.dtype)
        return Element(numpy.where(negates, numpy.negative(x.array), cut), x.dtype)

    def rough_div(self, x: Element, y: Element) -> Element:
        """The exact quotient is among those that are right to 2 ulp."""
        return self.div(x, y)

    def sqrt(self, x: Element) -> Element:
        return Element(numpy.sqrt(_number(x)), x.dtype)

    def rounded(self, how: str, x: Element) -> Element:
        return Element(_ROUNDINGS[how](_number(x)), x.dtype) if x.dtype.is_float else x

    def function(self, name: str, *operands: Element) -> Element:
        dtype = operands[0].dtype
        apply = function_of_floats if dtype.is_float else function_of_integers
        return Element(apply(name, tuple(map(_number, operands))), dtype)

    # --- bits ---------------------------------------------------------------------------------------------------------

    def bit_and(self, x: Element, y: Element) -> Element:
        return Element(numpy.bitwise_and(x.array, y.array), x.dtype)

    def bit_or(self, x: Element, y: Element) -> Element:
        return Element(numpy.bitwise_or(x.array, y.array), x.dtype)

    def bit_xor(self, x: Element, y: Element) -> Element:
        return Element(numpy.bitwise_xor(x.array, y.array), x.dtype)

    def bit_not(self, x: Element) -> Element:
        return Element(numpy.invert(x.array), x.dtype)

    def shift_left(self, x: Element, y: Element) -> Element:
        """0 where the distance is negative or not below the width."""
        within, distance = self._distance(x, y)
        return Element(numpy.where(within, numpy.left_shift(x.array, distance), x.array.dtype.type(0)), x.dtype)

    def shift_right(self, x: Element, y: Element) -> Element:
        """The sign, which is 0 for unsigned types, where the distance is negative or not below the width."""
        within, distance = self._distance(x, y)
        sign = numpy.where(x.array < 0, x.array.dtype.type(-1 if x.dtype.is_signed else 0), x.array.dtype.type(0))
        return Element(numpy.where(within, numpy.right_shift(x.array, distance), sign), x.dtype)

    def _distance(self, x: Element, y: Element) -> tuple[Any, Any]:
        within = (y.array >= 0) & (y.array < x.dtype.bits)
        return within, numpy.where(within, y.array, y.array.dtype.type(0))

    def sign_bit(self, x: Element) -> Element:
        bits = self.bits(x) if x.dtype.is_float else x
        return Element(numpy.less(bits.array, 0), DataType.Bool)

    def bits(self, x: Element) -> Element:
        whole = _SIGNED[x.dtype.bits]
        return Element(x.array.view(held_as(whole)), whole)

    def with_bits(self, bits: Element, dtype: DataType) -> Element:
        return Element(bits.array.view(held_as(dtype)), dtype)

    # --- complex numbers ----------------------------------------------------------------------------------------------

    def real(self, x: Element) -> Element:
        return Element(numpy.real(x.array).copy(), part_type(x.dtype))

    def imaginary(self, x: Element) -> Element:
        return Element(numpy.imag(x.array).copy(), part_type(x.dtype))

    def complex(self, x: Element, y: Element) -> Element:
        """Part by part: arithmetic would make NaN of one of them where the other is infinite."""
        dtype = complex_type(x.dtype)
        real, imaginary = numpy.broadcast_arrays(x.array, y.array)
        whole = numpy.empty(real.shape, held_as(dtype))
        whole.real, whole.imag = real, imaginary
        return Element(whole, dtype)

    # --- choices ------------------------------------------------------------------------------------------------------

    def compare(self, how: str, x: Element, y: Element) -> Element:
        return Element(_COMPARISONS[how](_number(x), _number(y)), DataType.Bool)

    def select(self, condition: Element, x: Element, y: Element) -> Element:
        return Element(numpy.where(condition.array, x.array, y.array), x.dtype)

    def extremum(self, how: str, x: Element, y: Element) -> Element:
        takes_y = numpy.logical_or(_COMPARISONS[how](_number(y), _number(x)), numpy.not_equal(_number(y), _number(y)))
        return Element(numpy.where(takes_y, y.array, x.array), x.dtype)

    # --- conversions --------------------------------------------------------------------------------------------------

    def convert(self, x: Element, dtype: DataType) -> Element:
        if x.dtype is dtype:
            return x
        if x.dtype is DataType.BFloat16:
            wide = numpy.left_shift(x.array.astype(numpy.uint32), 16).view(numpy.float32)
            return self.convert(Element(wide, DataType.Float), dtype)
        if dtype is DataType.BFloat16:
            return _to_bfloat16(self.convert(x, DataType.Float))
        if dtype is DataType.Half and x.dtype is not DataType.Float:  # by way of float32, as PyTorch does it
            return self.convert(self.convert(x, DataType.Float), dtype)
        if x.dtype.is_float and dtype.is_integer:
            return _to_integer(x, dtype)
        return Element(numpy.asarray(x.array).astype(held_as(dtype)), dtype)


def _number(x: Element) -> Any:
    assert x.dtype is not DataType.BFloat16, "nothing computes in bfloat16"
    return x.array


def _to_bfloat16(x: Element) -> Element:
    """The nearest, halves to even: the upper 16 bits, one more where what is cut off is more than half."""
    bits = numpy.asarray(x.array).view(numpy.uint32).astype(numpy.uint64)
    upper, lower = bits >> numpy.uint64(16), bits & numpy.uint64(0xFFFF)
    up = (lower > 0x8000) | ((lower == 0x8000) & (upper % numpy.uint64(2) == 1))
    rounded = numpy.where(numpy.isnan(x.array), numpy.uint64(0x7FC0), upper + up.astype(numpy.uint64))
    return Element(rounded.astype(numpy.uint16), DataType.BFloat16)


def _to_integer(x: Element, dtype: DataType) -> Element:
    """Cut off; what does not fit 32 bits, or 64 for int64, becomes the lowest number of those, as on x86."""
    bits = 64 if dtype is DataType.Int else 32
    wide = numpy.asarray(x.array).astype(numpy.float64)
    fits = (wide >= -(2.0 ** (bits - 1))) & (wide < 2.0 ** (bits - 1))
    whole = numpy.where(fits, wide, 0.0).astype(f"int{bits}")
    chosen = numpy.where(fits, whole, numpy.array(-(1 << bits - 1), f"int{bits}"))
    return Element(chosen.astype(held_as(dtype)), dtype)
