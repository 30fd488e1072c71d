"""Python numbers as values of a data type: rounding, wrap-around and the canonical text of each."""

from __future__ import annotations

import math

import numpy

from ingot.base.dtypes import DataType
from ingot.base.errors import DTypeError

Number = bool | int | float
"""The numbers that constants of a graph are. A complex number is made of two of them."""


def number_type(value: Number | complex) -> DataType:
    """The type PyTorch gives a bare Python number."""
    if isinstance(value, complex):
        return DataType.ComplexDouble
    if isinstance(value, bool):
        return DataType.Bool
    return DataType.Int if isinstance(value, int) else DataType.Double


def convert_number(value: Number, dtype: DataType) -> Number:
    """`value` as an element of `dtype` holds it: floats rounded, integers wrapped around, as PyTorch stores them."""
    if dtype is DataType.Bool:
        return bool(value)
    if dtype.is_integer:
        return _wrap(value, dtype)
    if dtype is DataType.Double:
        return float(value)
    with numpy.errstate(over="ignore"):
        if dtype is DataType.Float:
            return float(numpy.float32(value))
        if dtype is DataType.Half:
            return float(numpy.float16(numpy.float32(value)))
        if dtype is DataType.BFloat16:
            return _round_to_bfloat16(float(value))
    raise DTypeError(f"a number cannot be given the type {dtype.text}")


def integer_range(dtype: DataType) -> tuple[int, int]:
    """The lowest and the highest number an integer type holds."""
    lowest = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    return lowest, lowest + (1 << dtype.bits) - 1


def fits(value: Number, dtype: DataType) -> bool:
    """Whether a number is within the range of a type; of unsigned ones negative numbers are, as PyTorch sees it."""
    if dtype is DataType.Bool or (isinstance(value, float) and not math.isfinite(value)):
        return True
    if not dtype.is_integer:
        return math.isfinite(convert_number(value, dtype))
    highest = (1 << dtype.bits - dtype.is_signed) - 1
    return -highest - 1 <= value <= highest


def _wrap(value: Number, dtype: DataType) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        raise DTypeError(f"{value} has no value as {dtype.text}; use a floating-point type")
    modulus = 1 << dtype.bits
    wrapped = int(value) % modulus
    return wrapped - modulus if dtype.is_signed and wrapped >= modulus >> 1 else wrapped


def _round_to_bfloat16(value: float) -> float:
    """Round to nearest even by way of float32, the way PyTorch converts a double."""
    with numpy.errstate(over="ignore"):
        single = numpy.float32(value)
    if not numpy.isfinite(single):
        return float(single)
    bits = int(single.view(numpy.uint32))
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(numpy.uint32(bits).view(numpy.float32))
