"""Quotients of many single-precision numbers by one divisor: what depends on it alone is computed once. And what
quotients of two bfloat16 are scaled by.

A GPU has no instruction for an exact quotient. A dozen do, and where the dividend is zero or small, as it is wherever
something was masked, a function of many more. With a reciprocal at hand it takes two multiplications, the remainder,
one correction and a choice, for every dividend.

`quotient` is rounded exactly (the correction's own error is 2^-23 of a unit in the last place) where the quotient is
at least 2^-124 and 2^-100 / |divisor|, the dividend no less than 2^-100 that is. Below, it may be one unit in the
last place away from what is rounded exactly, and so it may be where the next number is infinity. Zeros, infinities and
NaN are those of a division.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.math.dsl.vocabulary import Number, at_least, choose, fma
from ingot.codegen.llvm.math.gpu.exact import inverse

_FAR = 2.0**64
"""Divisors beyond are brought nearer to 1, together with what they divide, so that their reciprocals are normal."""
_LEAST_DIVIDEND, _LEAST_QUOTIENT = 2.0**-100, 2.0**-124
"""The remainder of what is smaller may be denormal, and inexact."""


@dataclass(frozen=True)
class Divisor:
    """A divisor, scalar or in every lane, and what is known of it."""

    scale: Number
    """A power of two that it was multiplied by, and that dividends are."""
    scaled: Number
    inverse: Number
    least: Number
    """Quotients above are corrected; others are not, nor those that it makes NaN of: infinities."""

    @staticmethod
    def of(y: Number) -> Divisor:
        size, one = abs(y), y.constant(1.0)
        scale = choose(size > _FAR, 1 / _FAR, choose(size < 1 / _FAR, _FAR, one))
        scaled = y * scale
        reciprocal = inverse(scaled) if y.known is None else 1.0 / scaled
        return Divisor(scale, scaled, reciprocal, at_least(abs(reciprocal) * _LEAST_DIVIDEND, _LEAST_QUOTIENT))

    def spread(self, spread: Callable[[Number], Number]) -> Divisor:
        """The same in every lane."""
        return Divisor(*(spread(part) for part in (self.scale, self.scaled, self.inverse, self.least)))

    def rough_quotient(self, x: Number) -> Number:
        """x / y to 2 ulp."""
        return (x * self.scale) * self.inverse

    def quotient(self, x: Number) -> Number:
        """x / y as said above."""
        x = x * self.scale
        near = x * self.inverse
        corrected = fma(fma(-near, self.scaled, x), self.inverse, near)
        return choose(abs(corrected) > self.least, corrected, near)


_HALF_EXPONENTS = 0x3F803F80
_TWO_TO_63 = 0x5F005F00
"""Its bits as bfloat16, twice. Less half of an exponent, they are those of a scale."""


def scale_for_division(builder: Any, y: ir.Value) -> ir.Value:
    """For an even number of bfloat16 as bits, those of about 1 / sqrt(|y|), a power of two each, two at a time.

    y times that is between 2^-71 and 2^65, or zero, infinite or NaN. A dividend times that lies between itself and its
    quotient, so that it overflows and vanishes only where the quotient does.
    """
    words: Any = ir.VectorType(ir.IntType(32), y.type.count // 2)
    constant = lambda value: ir.Constant(words, [value] * words.count)
    halved = builder.and_(builder.lshr(builder.bitcast(y, words), constant(1)), constant(_HALF_EXPONENTS))
    return builder.bitcast(builder.sub(constant(_TWO_TO_63), halved), y.type)
