"""Quotients and square roots that are rounded exactly, without NVIDIA's own functions for them.

A GPU has no instruction that divides or takes a root exactly. NVIDIA's assembler writes a dozen, and adds a function to
the kernel for arguments that these do not fit, which alone takes it longer than most kernels do: 9 ms for quotients of
float32, 13 ms for those of float64. Here float64 takes the place of that function: every float32 is well inside its
range, a quotient or root is found there to 2^-53, and rounded to float32 from that.

That is exact. What is not halfway between two float32 is at least 2^-51 of itself away from there, and what is has so
few bits that it is found exactly: the last step in float64 rounds what is off by less than 2^-55.
"""

from __future__ import annotations

import math

from ingot.codegen.llvm.math.gpu import instructions
from ingot.codegen.llvm.math.words import Number, choose, fma


def inverse(y: Number) -> Number:
    """1 / y within 0.51 ulp, for y whose reciprocal is normal, 0 and infinity."""
    rough = instructions.reciprocal(y)
    better = _improved(rough, y)
    return choose(better.is_nan(), rough, better)


def quotient(x: Number, y: Number) -> Number:
    """x / y. In double precision neither x nor what comes out may be nearly denormal.

    x times a rough reciprocal is right where zeros, infinities and NaN are involved. There the remainder is NaN; and it
    is zero where nothing is left to correct.
    """
    if y.known is not None and abs(math.frexp(y.known)[0]) == 0.5:
        return x / y  # by a power of two, which LLVM multiplies by another one
    if x.is_single:
        return _quotient(x.widened(), y.widened(), 1).narrowed()
    return _quotient(x, y, 2)


def _quotient(x: Number, y: Number, corrections: int) -> Number:
    rough = instructions.reciprocal(y)
    better = _improved(rough, y)
    near = x * rough
    found, remainder = near, fma(-near, y, x)
    has_rest = abs(remainder) > 0.0
    for correction in range(corrections):
        remainder = fma(-found, y, x) if correction else remainder
        found = fma(remainder, better, found)
    return choose(has_rest, found, near)


def _improved(rough: Number, y: Number) -> Number:
    """A reciprocal of y that is off by the square of what a rough one is off."""
    return fma(fma(-y, rough, 1.0), rough, rough)


def square_root(x: Number) -> Number:
    """The root of x in single precision. What is its own root, zeros and infinity, has no reciprocal to begin with."""
    wide = x.widened()
    rough = instructions.inverse_square_root(wide)
    half, root = rough * 0.5, wide * rough
    for _ in range(2):
        root = fma(fma(-root, root, wide), half, root)
    found = root.narrowed()
    return choose(found.is_nan() & (x >= 0.0), x, found)
