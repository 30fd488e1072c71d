"""Quotients and square roots that are rounded exactly, without NVIDIA's own functions for them.

A GPU has no instruction that divides or takes a root exactly. NVIDIA's assembler writes a dozen, and adds a function to
the kernel for arguments that these do not fit, which alone takes it longer than most kernels do: 9 ms for quotients of
float32, 13 ms for those of float64. Here single precision is scaled instead, so that all arguments fit, and nothing
branches.

An approximate result is corrected by what it leaves of the argument, which has no rounding error where nothing of it is
denormal. That rounds exactly, as the assembler's own dozen do: where a quotient is nearly halfway between two numbers,
the approximate one is next to it, its reciprocal half a unit off at most, and the correction wrong by less than what
is missing. Quotients that are denormal may be one unit in the last place off, if they lie halfway, and the last ones
before infinity two. Zeros, infinities and NaN are those of a division.
"""

from __future__ import annotations

import math

from ingot.codegen.llvm.math.dsl.vocabulary import Number, choose, fma, intrinsic
from ingot.codegen.llvm.math.gpu import ptx_instructions

_SMALL = 2.0**-90
"""Numbers below are scaled up. What remains of a dividend or of a square has half as many digits again below them."""


def inverse(y: Number) -> Number:
    """1 / y within 0.51 ulp, for y whose reciprocal is normal, 0 and infinity."""
    rough = ptx_instructions.reciprocal(y)
    better = _improved(rough, y)
    return choose(better.is_nan(), rough, better)


def quotient(x: Number, y: Number) -> Number:
    """x / y. In double precision neither x nor what comes out may be nearly denormal."""
    if y.known is not None and abs(math.frexp(y.known)[0]) == 0.5:
        return x / y  # by a power of two, which LLVM multiplies by another one
    return _quotient_of_singles(x, y) if x.is_single else _quotient_of_doubles(x, y)


def _quotient_of_singles(x: Number, y: Number) -> Number:
    """Both are scaled alike: up if either is small, so that the other one is lost only where the quotient is, too, and
    otherwise down, as the largest have no normal reciprocal.

    x times a rough reciprocal is right where zeros, infinities and NaN are involved, and where the quotient overflows.
    What is corrected is NaN there, or zero.
    """
    is_small = intrinsic("minnum", abs(x), abs(y)) < _SMALL
    scale = choose(is_small, x.constant(2.0**60), 2.0**-4)
    x, y = x * scale, y * scale
    rough = ptx_instructions.reciprocal(y)
    better = _improved(rough, y)
    near = x * better
    found = fma(fma(-y, near, x), better, near)
    return choose(abs(found) > 0.0, found, x * rough)


def _quotient_of_doubles(x: Number, y: Number) -> Number:
    """x times a rough reciprocal is right where zeros, infinities and NaN are involved. There the remainder is NaN; and
    it is zero where nothing is left to correct."""
    rough = ptx_instructions.reciprocal(y)
    better = _improved(rough, y)
    near = x * rough
    remainder = fma(-y, near, x)
    found = fma(remainder, better, near)
    found = fma(fma(-y, found, x), better, found)
    return choose(abs(remainder) > 0.0, found, near)


def _improved(rough: Number, y: Number) -> Number:
    """A reciprocal of y that is off by the square of what a rough one is off."""
    return fma(fma(-y, rough, 1.0), rough, rough)


def square_root(x: Number) -> Number:
    """The root of x in single precision. What is its own root, zeros and infinity, has a reciprocal that is half of
    itself."""
    is_small = x < _SMALL
    scaled = choose(is_small, x * 2.0**64, x)
    inverse = ptx_instructions.inverse_square_root(scaled, flushes=True)
    half, near = inverse * 0.5, scaled * inverse
    found = fma(fma(-near, near, scaled), half, near)
    found = choose(is_small, found * 2.0**-32, found)
    return choose(half.equals(inverse), x, found)
