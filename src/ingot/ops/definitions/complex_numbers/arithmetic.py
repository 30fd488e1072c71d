"""Arithmetic of complex numbers, by the formulas that PyTorch computes with.

They decide what comes of infinities and NaN: PyTorch's product is that of the parts, without C99's correction for
infinite operands, and its quotient divides by the larger part of the divisor first, so that nothing overflows on the
way.
"""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import COMPUTED, HELD
from ingot.base.errors import DTypeError
from ingot.ops.definitions.complex_numbers.parts import joined, part_by_part, parts
from ingot.ops.definitions.elementwise import composite, in_type_of
from ingot.ops.parameters import Plain
from ingot.ops.record import of_complex, same_of_complex
from ingot.ops.samples import ANYWHERE, Domain, operands

same_of_complex("mean", "truediv")


@of_complex("neg")
def _neg(b: Any, x: Any) -> Any:
    return part_by_part(b, b.neg, x)


@of_complex("add")
def _add(b: Any, x: Any, y: Any) -> Any:
    return part_by_part(b, b.add, x, _times_one(b, y))


@of_complex("sub")
def _sub(b: Any, x: Any, y: Any) -> Any:
    return part_by_part(b, b.sub, x, _times_one(b, y))


def _times_one(b: Any, y: Any) -> Any:
    """PyTorch multiplies the second operand of a sum by its factor `alpha`, the complex number 1 unless another is
    given: where one part is infinite the other becomes NaN."""
    real, imaginary = parts(b, y)
    return joined(b, real - imaginary * 0, real * 0 + imaginary)


@of_complex("addcmul")
def _addcmul(b: Any, x: Any, first: Any, second: Any, value: Any) -> Any:
    return part_by_part(b, b.add, x, in_type_of(b, x, value) * first * second)


@of_complex("addcdiv")
def _addcdiv(b: Any, x: Any, first: Any, second: Any, value: Any) -> Any:
    return part_by_part(b, b.add, x, in_type_of(b, x, value) * first / second)


@of_complex("mul")
def _mul(b: Any, x: Any, y: Any) -> Any:
    (x_real, x_imaginary), (y_real, y_imaginary) = parts(b, x), parts(b, y)
    return joined(b, x_real * y_real - x_imaginary * y_imaginary, x_real * y_imaginary + x_imaginary * y_real)


@of_complex("div")
def _div(b: Any, x: Any, y: Any) -> Any:
    return quotient(b, *parts(b, x), *parts(b, y))


@of_complex("reciprocal")
def _reciprocal(b: Any, x: Any) -> Any:
    part = b.real(x).dtype
    return quotient(b, b.constant(1.0, part), b.constant(0.0, part), *parts(b, x))


def quotient(b: Any, x_real: Any, x_imaginary: Any, y_real: Any, y_imaginary: Any) -> Any:
    """x / y. The smaller part of y is divided by the larger one; where both are zero, the parts of x are divided."""
    is_real_larger = b.ge(b.abs(y_real), b.abs(y_imaginary))
    larger = b.where(is_real_larger, y_real, y_imaginary)
    ratio = b.where(is_real_larger, y_imaginary, y_real) / larger
    scale = b.reciprocal(larger + b.where(is_real_larger, y_imaginary, y_real) * ratio)
    first = b.where(is_real_larger, x_real, x_imaginary)
    second = b.where(is_real_larger, x_imaginary, x_real)
    turned = first * ratio
    imaginary = b.where(is_real_larger, second - turned, turned - second)
    is_zero = b.bitwise_and(b.eq(y_real, 0), b.eq(y_imaginary, 0))
    found = (first + second * ratio) * scale, imaginary * scale
    by_zero = x_real * math.inf, x_imaginary * math.inf
    return joined(b, *(b.where(is_zero, infinite, value) for infinite, value in zip(by_zero, found, strict=True)))


@of_complex("pow")
def _pow(b: Any, x: Any, y: Any) -> Any:
    """Squares and cubes, which PyTorch multiplies out. Other powers are left to it."""
    exponent = known_number(y)
    if exponent == 2:
        return b.mul(x, x)
    if exponent == 3:
        return b.mul(b.mul(x, x), x)
    raise DTypeError("of complex numbers there are squares and cubes alone: pow(x, 2) and pow(x, 3)")


def known_number(x: Any) -> complex | None:
    """The number that a complex value is known to be, or None."""
    known = [operand.constant for operand in x.node.operands] if x.node.op.name == "complex" else []
    return None if len(known) != 2 or None in known else complex(*known)


@of_complex("square")
def _square(b: Any, x: Any) -> Any:
    return b.mul(x, x)


@of_complex("sum")
def _sum(b: Any, x: Any, axes: Any, keepdim: Any, dtype: Any) -> Any:
    return part_by_part(b, lambda value: b.sum(value, axes, keepdim), x)


# --- comparisons ------------------------------------------------------------------------------------------------------


@of_complex("eq")
def _eq(b: Any, x: Any, y: Any) -> Any:
    return b.bitwise_and(b.eq(b.real(x), b.real(y)), b.eq(b.imag(x), b.imag(y)))


@of_complex("ne")
def _ne(b: Any, x: Any, y: Any) -> Any:
    return b.bitwise_or(b.ne(b.real(x), b.real(y)), b.ne(b.imag(x), b.imag(y)))


@of_complex("isnan")
def _isnan(b: Any, x: Any) -> Any:
    return b.bitwise_or(*map(b.isnan, parts(b, x)))


@of_complex("isinf")
def _isinf(b: Any, x: Any) -> Any:
    return b.bitwise_or(*map(b.isinf, parts(b, x)))


@of_complex("isfinite")
def _isfinite(b: Any, x: Any) -> Any:
    return b.bitwise_and(*map(b.isfinite, parts(b, x)))


@of_complex("isreal")
def _isreal(b: Any, x: Any) -> Any:
    return b.eq(b.imag(x), 0)


# --- conjugates -------------------------------------------------------------------------------------------------------


@composite(None, COMPUTED, lambda torch, x: torch.conj_physical(x), operands(ANYWHERE))
def conj(b: Any, x: Plain) -> Any:
    """x with the sign of its imaginary part turned; a real number is its own conjugate."""
    return x


@of_complex("conj")
def _conj(b: Any, x: Any) -> Any:
    return joined(b, b.real(x), b.neg(b.imag(x)))


@composite(None, HELD, "torch.sgn", operands(Domain(specials=False)))
def sgn(b: Any, x: Plain) -> Any:
    """-1, 0 or 1 as x is; of a complex number, the number of magnitude 1 in its direction, and 0 at 0."""
    return b.sign(x)


@of_complex("sgn")
def _sgn(b: Any, x: Any) -> Any:
    magnitude = b.abs(x)
    is_zero = b.eq(magnitude, 0)
    return part_by_part(b, lambda value: b.where(is_zero, 0.0, value / magnitude), x)
