"""Functions of complex numbers. Infinities and NaN come out as C99's functions have it, as PyTorch's do."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import FLOATS
from ingot.ops.definitions.complex_numbers.parts import joined, parts
from ingot.ops.definitions.elementwise import FEW_ULPS, composite
from ingot.ops.parameters import Operand
from ingot.ops.promotion import Promotion
from ingot.ops.record import of_complex
from ingot.ops.samples import ANYWHERE, operands


@of_complex("abs")
def _abs(b: Any, x: Any) -> Any:
    return b.hypot(*parts(b, x))


@of_complex("angle")
def _angle(b: Any, x: Any) -> Any:
    return b.atan2(b.imag(x), b.real(x))


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    "torch.polar",
    operands(ANYWHERE, ANYWHERE),
    FEW_ULPS,
    operand_dtypes=FLOATS,
    takes_one_type=True,
    stable=False,
)
def polar(b: Any, magnitude: Operand, angle: Operand) -> Any:
    """The complex number of a magnitude and an angle in radians."""
    return joined(b, magnitude * b.cos(angle), magnitude * b.sin(angle))


@of_complex("exp")
def _exp(b: Any, x: Any) -> Any:
    """The magnitude is multiplied in by two roots of it: a small cosine brings back what would overflow.

    On the real axis the imaginary part stays what it is. Infinite real parts with imaginary parts that are no numbers
    are 0 and infinity, as C99 has it.
    """
    real, imaginary = parts(b, x)
    root = b.exp(real * 0.5)
    found_real = root * b.cos(imaginary) * root
    found_imaginary = b.where(b.eq(imaginary, 0), imaginary, root * b.sin(imaginary) * root)
    is_nowhere = b.bitwise_and(b.isinf(real), b.bitwise_not(b.isfinite(imaginary)))
    vanishes = b.bitwise_and(is_nowhere, b.lt(real, 0))
    return joined(b, b.where(is_nowhere, root, found_real), b.where(vanishes, 0.0, found_imaginary))


@of_complex("sigmoid")
def _sigmoid(b: Any, x: Any) -> Any:
    return b.reciprocal(b.exp(b.neg(x)) + 1)


@of_complex("silu")
def _silu(b: Any, x: Any) -> Any:
    return x * b.sigmoid(x)
