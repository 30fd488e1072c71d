"""Instructions of PTX that compute with single precision, and rough ones for double, applied lane by lane.

What the special-function unit does is nearly as good as NVIDIA's documentation says: 2^x is right to 1.5 ulp near 0
and to 2.2 far from there, log2(x) to 2^-22 absolutely between 1/2 and 2 and relatively elsewhere, 1 / x and the roots
to about 1 ulp. Zeros, infinities, NaN and arguments outside the domain come out as in C99. `flushes` leaves denormal
numbers out of account, as arguments and as results: they are zeros. That is one instruction, where keeping them takes
four. In double precision 1 / x and 1 / sqrt(x) are right to about 2^-20, and always flush.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.math.dsl.vocabulary import Number, choose

_LETTERS = {"float": "f", "double": "d", "i16": "h", "i32": "r", "i64": "l"}


def scalar_instruction(builder: Any, name: str, result: ir.Type, *operands: ir.Value) -> ir.Value:
    """One instruction by its name in PTX, with a result and operands in registers."""
    places = ", ".join(f"${index}" for index in range(len(operands) + 1))
    constraints = ",".join(["=" + _LETTERS[result.text], *(_LETTERS[operand.type.text] for operand in operands)])
    return builder.assembly(f"{name} {places};", constraints, result, operands)


def instruction(name: str, first: Number, *others: Number | float | Fraction) -> Number:
    """One instruction for every lane."""
    builder: Any = first.builder
    numbers = [first, *(other if isinstance(other, Number) else first.constant(other) for other in others)]
    operands = [number.value for number in numbers]
    lane = first.format.lane
    if first.count is None:
        return Number(builder, scalar_instruction(builder, name, lane, *operands))
    result = ir.Constant(first.value.type, ir.Undefined)
    for index in range(first.count):
        elements = (builder.extract_element(operand, index) for operand in operands)
        result = builder.insert_element(result, scalar_instruction(builder, name, lane, *elements), index)
    return Number(builder, result)


def _approximation(name: str, x: Number, flushes: bool) -> Number:
    if not x.is_single:
        return instruction(f"{name}.approx.ftz.f64", x)
    return instruction(f"{name}.approx{'.ftz' if flushes else ''}.f32", x)


def power_of_two(x: Number, flushes: bool = False) -> Number:
    """2^x."""
    return _approximation("ex2", x, flushes)


def binary_logarithm(x: Number, flushes: bool = False) -> Number:
    """log2(x)."""
    return _approximation("lg2", x, flushes)


def hyperbolic_tangent(x: Number) -> Number:
    """tanh(x), right to 2^-11."""
    return instruction("tanh.approx.f32", x)


def reciprocal(x: Number) -> Number:
    """1 / x; zero for |x| > 2^126, infinite for denormal x."""
    return _approximation("rcp", x, flushes=True)


def inverse_square_root(x: Number, flushes: bool = False) -> Number:
    """1 / sqrt(x)."""
    return _approximation("rsqrt", x, flushes)


def square_root(x: Number) -> Number:
    return _approximation("sqrt", x, flushes=False)


def quotient(x: Number, y: Number) -> Number:
    """x / y to 3 ulp, for all x and y: both are moved away from the ends of the range, where reciprocals flush."""
    size = abs(y)
    scale = choose(size > 2.0**126, x.constant(2.0**-2), choose(size < 2.0**-126, x.constant(2.0**24), 1.0))
    return (x * scale) * reciprocal(y * scale)


def fma_within_one(a: Number, b: float | Fraction, c: float | Fraction) -> Number:
    """a * b + c, no less than 0 and no more than 1; 0 for NaN."""
    return instruction("fma.rn.sat.f32", a, b, c)
