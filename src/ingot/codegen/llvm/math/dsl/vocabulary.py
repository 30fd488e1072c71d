"""The vocabulary the vector functions are written in.

A `Number` is an LLVM value of float or double lanes, scalar or vector, together with the builder that extends it, so
that `x * x + 1.0` emits what it says. `Bits` are the same lanes seen as integers, a `Mask` holds one truth value per
lane. Python numbers become constants of the other operand's type. Nothing here branches, calls a library or sets a
fast-math flag: what is written is what is computed, in that order, on every target. Where a processor has no
instruction for `fma` or `rounded`, a few others do the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.constants import constant
from ingot.codegen.llvm.host import Host
from ingot.codegen.llvm.math.dsl.formats import DOUBLE, SINGLE, Coefficients, Format


@dataclass(frozen=True)
class Lanes:
    """One LLVM value, scalar or vector, and the builder that extends it."""

    builder: ir.IRBuilder
    value: Any

    @property
    def host(self) -> Host:
        """What the code is for."""
        module: Any = self.builder.module
        return module.host

    @property
    def count(self) -> int | None:
        """Number of lanes; None for a scalar."""
        return self.value.type.count if isinstance(self.value.type, ir.VectorType) else None


class Mask(Lanes):
    def __and__(self, other: Mask) -> Mask:
        return Mask(self.builder, self.builder.and_(self.value, other.value))

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.builder, self.builder.or_(self.value, other.value))

    def __xor__(self, other: Mask) -> Mask:
        return Mask(self.builder, self.builder.xor(self.value, other.value))

    def __invert__(self) -> Mask:
        return Mask(self.builder, self.builder.not_(self.value))


class Bits(Lanes):
    """Integer lanes; arithmetic wraps around."""

    def _operand(self, other: Bits | int) -> Any:
        return other.value if isinstance(other, Bits) else constant(self.value.type, other)

    def _apply(self, operation: Callable[..., Any], other: Bits | int) -> Bits:
        return Bits(self.builder, operation(self.value, self._operand(other)))

    def __add__(self, other: Bits | int) -> Bits:
        return self._apply(self.builder.add, other)

    def __sub__(self, other: Bits | int) -> Bits:
        return self._apply(self.builder.sub, other)

    def __rsub__(self, other: int) -> Bits:
        return Bits(self.builder, self.builder.sub(self._operand(other), self.value))

    def __mul__(self, other: Bits | int) -> Bits:
        return self._apply(self.builder.mul, other)

    def __and__(self, other: Bits | int) -> Bits:
        return self._apply(self.builder.and_, other)

    def __or__(self, other: Bits | int) -> Bits:
        return self._apply(self.builder.or_, other)

    def __xor__(self, other: Bits | int) -> Bits:
        return self._apply(self.builder.xor, other)

    def __lshift__(self, other: Bits | int) -> Bits:
        return self._apply(self.builder.shl, other)

    def __rshift__(self, other: Bits | int) -> Bits:
        """Shift right, zeros come in."""
        return self._apply(self.builder.lshr, other)

    def constant(self, value: int) -> Bits:
        return Bits(self.builder, constant(self.value.type, value))

    def equals(self, other: Bits | int) -> Mask:
        return Mask(self.builder, self.builder.icmp_signed("==", self.value, self._operand(other)))

    def is_negative(self) -> Mask:
        return Mask(self.builder, self.builder.icmp_signed("<", self.value, self._operand(0)))

    def modulo(self, other: Bits) -> Bits:
        """The remainder of signed division, as in C. The divisor may be neither 0 nor -1."""
        return self._apply(self.builder.srem, other)

    def as_number(self) -> Number:
        """The floating-point number with these bits."""
        lane = self.value.type.element if self.count else self.value.type
        format = SINGLE if lane.width == 32 else DOUBLE
        return Number(self.builder, self.builder.bitcast(self.value, _shaped(format.lane, self.count)))

    def as_whole_number(self) -> Number:
        """The single-precision number nearest to a signed integer."""
        return Number(self.builder, self.builder.sitofp(self.value, _shaped(SINGLE.lane, self.count)))

    def narrowed(self) -> Bits:
        """The low 32 bits of every lane."""
        return Bits(self.builder, self.builder.trunc(self.value, _shaped(SINGLE.integer, self.count)))


class Number(Lanes):
    """Floating-point lanes. Comparisons are ordered: false where an operand is NaN."""

    @property
    def format(self) -> Format:
        lane = self.value.type.element if self.count else self.value.type
        return SINGLE if isinstance(lane, ir.FloatType) else DOUBLE

    @property
    def is_single(self) -> bool:
        return self.format is SINGLE

    @property
    def known(self) -> float | None:
        """A constant's number; LLVM itself computes what depends on such alone."""
        digits = self.value.reference.removesuffix(")").partition("0x")[2]
        return struct.unpack("<d", struct.pack("<Q", int(digits, 16)))[0] if digits else None

    def constant(self, value: float | Fraction) -> Number:
        return Number(self.builder, constant(self.value.type, value))

    def _operand(self, other: Number | float | Fraction) -> Any:
        return other.value if isinstance(other, Number) else constant(self.value.type, other)

    def _apply(self, operation: Callable[..., Any], other: Number | float | Fraction) -> Number:
        return Number(self.builder, operation(self.value, self._operand(other)))

    def _reversed(self, operation: Callable[..., Any], other: float | Fraction) -> Number:
        return Number(self.builder, operation(self._operand(other), self.value))

    def __add__(self, other: Number | float | Fraction) -> Number:
        return self._apply(self.builder.fadd, other)

    def __radd__(self, other: float | Fraction) -> Number:
        return self._reversed(self.builder.fadd, other)

    def __sub__(self, other: Number | float | Fraction) -> Number:
        return self._apply(self.builder.fsub, other)

    def __rsub__(self, other: float | Fraction) -> Number:
        return self._reversed(self.builder.fsub, other)

    def __mul__(self, other: Number | float | Fraction) -> Number:
        return self._apply(self.builder.fmul, other)

    def __rmul__(self, other: float | Fraction) -> Number:
        return self._reversed(self.builder.fmul, other)

    def __truediv__(self, other: Number | float | Fraction) -> Number:
        return self._apply(self.builder.fdiv, other)

    def __rtruediv__(self, other: float | Fraction) -> Number:
        return self._reversed(self.builder.fdiv, other)

    def __neg__(self) -> Number:
        return Number(self.builder, self.builder.fneg(self.value))

    def __abs__(self) -> Number:
        return intrinsic("fabs", self)

    def _compare(self, relation: str, other: Number | float) -> Mask:
        return Mask(self.builder, self.builder.fcmp_ordered(relation, self.value, self._operand(other)))

    def __lt__(self, other: Number | float) -> Mask:
        return self._compare("<", other)

    def __le__(self, other: Number | float) -> Mask:
        return self._compare("<=", other)

    def __gt__(self, other: Number | float) -> Mask:
        return self._compare(">", other)

    def __ge__(self, other: Number | float) -> Mask:
        return self._compare(">=", other)

    def equals(self, other: Number | float) -> Mask:
        return self._compare("==", other)

    def is_nan(self) -> Mask:
        return Mask(self.builder, self.builder.fcmp_unordered("uno", self.value, self.value))

    def has_minus_sign(self) -> Mask:
        """Where the sign bit is set: in negative numbers, in -0 and in some NaNs."""
        return self.bits().is_negative()

    def bits(self) -> Bits:
        return Bits(self.builder, self.builder.bitcast(self.value, _shaped(self.format.integer, self.count)))

    def widened(self) -> Number:
        """The same numbers in double precision."""
        return Number(self.builder, self.builder.fpext(self.value, _shaped(DOUBLE.lane, self.count)))

    def narrowed(self) -> Number:
        """The nearest single-precision numbers."""
        return Number(self.builder, self.builder.fptrunc(self.value, _shaped(SINGLE.lane, self.count)))


def _shaped(lane: ir.Type, count: int | None) -> ir.Type:
    return ir.VectorType(lane, count) if count else lane


def intrinsic(name: str, first: Number, *others: Number) -> Number:
    """One of LLVM's functions that are a single instruction, for the operands' type."""
    type, builder = first.value.type, first.builder
    full_name = f"llvm.{name}.{f'v{first.count}' if first.count else ''}{first.format.letter}"
    function = builder.module.functions.get(full_name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(type, [type] * (1 + len(others))), full_name)
    return Number(builder, builder.call(function, [first.value, *(other.value for other in others)], is_pure=True))


def fma(a: Number, b: Number | float | Fraction, c: Number | float | Fraction) -> Number:
    """a * b + c, rounded once."""
    number = lambda operand: operand if isinstance(operand, Number) else a.constant(operand)
    b, c = number(b), number(c)
    if a.host.has_fma:
        return intrinsic("fma", a, b, c)
    if a.is_single:
        return (a.widened() * b.widened() + c.widened()).narrowed()
    return _fma_of_parts(a, b, c)


def _fma_of_parts(a: Number, b: Number, c: Number) -> Number:
    """a * b + c without an instruction for it: the product's and the sum's rounding errors are exact sums of parts.

    It is right to the last bit but for rare ties, and exact wherever the result is a double; where a part overflows,
    the product is rounded, too.
    """

    def halves(x: Number) -> tuple[Number, Number]:
        spread = x * (2.0**27 + 1)
        high = spread - (spread - x)
        return high, x - high

    product, total = a * b, a * b + c
    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    product_lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    shadow = total - product
    lost = ((product - (total - shadow)) + (c - shadow)) + product_lost
    return choose(abs(lost) > 0.0, total + lost, total)


def polynomial(x: Number, coefficients: Coefficients | Sequence[float]) -> Number:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule: the fewest instructions; neighbouring vectors hide the latency."""
    if isinstance(coefficients, Coefficients):
        coefficients = coefficients.of(x.format)
    *rest, last = coefficients
    total = x.constant(last)
    for coefficient in reversed(rest):
        total = fma(total, x, coefficient)
    return total


def choose(condition: Mask, yes: Number | float | Fraction, no: Number | float | Fraction) -> Number:
    """`yes` where the condition holds, `no` elsewhere. At least one of them is a Number."""
    pattern = yes if isinstance(yes, Number) else no
    assert isinstance(pattern, Number)
    value = condition.builder.select(condition.value, pattern._operand(yes), pattern._operand(no))
    return Number(condition.builder, value)


def choose_bits(condition: Mask, yes: Bits, no: Bits) -> Bits:
    return Bits(condition.builder, condition.builder.select(condition.value, yes.value, no.value))


def at_most(x: Number, limit: float) -> Number:
    """min(x, limit), NaN stays NaN: one instruction on x86 and on newer GPUs."""
    if x.is_single and x.host.has_extrema:
        return intrinsic("minimum", x, x.constant(limit))
    return choose(x > limit, limit, x)


def at_least(x: Number, limit: float) -> Number:
    if x.is_single and x.host.has_extrema:
        return intrinsic("maximum", x, x.constant(limit))
    return choose(x < limit, limit, x)


def with_sign_of(magnitude: Number, sign: Number) -> Number:
    """By bits: LLVM rounds the sign operand of its own function in other types, with routines that may not be there.
    GPUs have an instruction."""
    if magnitude.host.has_approximations:
        return intrinsic("copysign", magnitude, sign)
    lowest = 1 << magnitude.format.integer.width - 1
    return ((magnitude.bits() & (lowest - 1)) | (sign.bits() & -lowest)).as_number()


def square_root(x: Number) -> Number:
    return intrinsic("sqrt", x)


def rounded(x: Number) -> Number:
    """The nearest whole number, halves to even."""
    if x.host.has_rounding:
        return intrinsic("nearbyint", x)
    whole = 2.0**x.format.fraction_bits
    near = (abs(x) + whole) - whole
    return choose(abs(x) < whole, with_sign_of(near, x), x)


def rounded_towards(how: str, x: Number) -> Number:
    """The next whole number, the number itself included, in the direction of floor, ceil or trunc."""
    if x.host.has_rounding:
        return intrinsic(how, x)
    if how == "trunc":
        return with_sign_of(rounded_towards("floor", abs(x)), x)
    near = rounded(x)
    next = choose(near > x, near - 1.0, near) if how == "floor" else choose(near < x, near + 1.0, near)
    return with_sign_of(next, x)


def in_double(function: Callable[..., Number]) -> Callable[..., Number]:
    """Compute single precision through double: the result is the exact one, rounded, but for rare ties."""

    @wraps(function)
    def widening(*operands: Number) -> Number:
        if not operands[0].is_single:
            return function(*operands)
        return function(*(operand.widened() for operand in operands)).narrowed()

    return widening
