"""Floating-point formats, and the constants of mathematics rounded to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.constants import rounded_to

INFINITY = float("inf")
NAN = float("nan")

LN2 = Fraction("0.693147180559945309417232121458176568075500134360255254120680009")
LOG2_E = Fraction("1.44269504088896340735992468100189213742664595415298593413544940693")
LOG10_E = Fraction("0.434294481903251827651128918916605082294397005803666566114453783")
LOG10_2 = Fraction("0.301029995663981195213738894724493026768189881462108541310427461")
PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211707")


@dataclass(frozen=True)
class Format:
    """A floating-point format: how many bits its fraction has and where its exponent starts."""

    letter: str
    lane: ir.Type
    integer: ir.IntType
    fraction_bits: int
    bias: int

    @property
    def one_bits(self) -> int:
        return self.bias << self.fraction_bits

    @property
    def exponent_mask(self) -> int:
        return (2 * self.bias + 1) << self.fraction_bits

    @property
    def fraction_mask(self) -> int:
        return (1 << self.fraction_bits) - 1

    @property
    def rounder(self) -> float:
        """Adding 1.5 * 2^fraction_bits rounds to a whole number and leaves that number in the low bits."""
        return 1.5 * 2.0**self.fraction_bits

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)


SINGLE = Format("f32", ir.FloatType(), ir.IntType(32), 23, 127)
DOUBLE = Format("f64", ir.DoubleType(), ir.IntType(64), 52, 1023)


@dataclass(frozen=True)
class Coefficients:
    """Polynomial coefficients, lowest power first, for either format."""

    single: tuple[float, ...]
    double: tuple[float, ...]

    def of(self, format: Format) -> tuple[float, ...]:
        return self.single if format is SINGLE else self.double


@cache
def parts(format: Format, value: Fraction, count: int = 2, spare: int = 0) -> tuple[float, ...]:
    """`value` as a sum of `count` numbers of the format, each the nearest to what the ones before left over.

    All but the last leave `spare` low bits zero, so that their product with a whole number of so many bits is exact.
    """
    found = []
    for remaining in reversed(range(count)):
        part = rounded_to(format.lane, value)
        if remaining and spare:
            unit = Fraction(2) ** (math.frexp(part)[1] - format.fraction_bits - 1 + spare)
            part = float(round(value / unit) * unit)
        found.append(part)
        value -= Fraction(part)
    return tuple(found)
