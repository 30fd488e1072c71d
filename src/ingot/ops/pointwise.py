"""Element-by-element primitives: the table, one row each.

Comments in the lists say what a type set or a tolerance is for where it is not obvious.
"""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import BOOLEAN, COMPUTED, FLOATS, HALVES, INTEGERS, DataType, in_order
from ingot.ops import inference
from ingot.ops.attributes import CastAttributes
from ingot.ops.parameters import Operand, Plain, Type, data_type
from ingot.ops.promotion import Promotion
from ingot.ops.record import Kind, operator, pointwise
from ingot.ops.samples import ANYWHERE, Domain, Sample, Tolerance, operands
from ingot.ops.samples import Operand as SampleOperand

NUMERIC = FLOATS | INTEGERS
ALL = NUMERIC | BOOLEAN

NON_ZERO = Domain(low=0.5, high=6.0, lowest_integer=1, highest_integer=100, specials=False)
SHIFTS = Domain(lowest_integer=0, highest_integer=7, specials=False)
EXPONENTS = Domain(low=-3.0, high=3.0, lowest_integer=0, highest_integer=5)
POSITIVE = Domain(low=0.01, high=6.0)
# PyTorch's vector code for sinh and cosh gives infinity from where exp(x) does, its scalar code only a little later.
BELOW_OVERFLOW = Domain(lowest_integer=-80, highest_integer=80)
UNIT = Domain(low=-1.0, high=1.0)


def _unary(name: str):
    def build(b: Any, x: Operand) -> Any:
        return b.node(name, x)

    return build


def _binary(name: str):
    def build(b: Any, x: Operand, y: Operand) -> Any:
        return b.node(name, x, y)

    return build


# Correctly rounded or exact: no tolerance.
for name, summary, dtypes in [
    ("neg", "-x; integers wrap around.", NUMERIC),
    ("abs", "Absolute value; the smallest integer is its own.", NUMERIC),
    ("ceil", "Smallest integer not below x.", NUMERIC),
    ("floor", "Largest integer not above x.", NUMERIC),
    ("round", "Nearest integer, halves to even.", NUMERIC),
    ("trunc", "Integer part of x.", NUMERIC),
    ("sign", "-1, 0 or 1; 0 for NaN.", ALL),
    ("bitwise_not", "Complement of every bit; logical complement of a bool.", INTEGERS | BOOLEAN),
]:
    pointwise(
        name,
        _unary(name),
        summary,
        infer=inference.pointwise(),
        promotion=Promotion.ARITHMETIC,
        dtypes=dtypes,
        samples=operands(ANYWHERE),
    )

for name, summary in [
    ("isfinite", "Whether x is neither infinite nor NaN."),
    ("isinf", "Whether x is infinite."),
    ("isnan", "Whether x is NaN."),
    ("signbit", "Whether the sign bit of x is set, as it is for -0.0."),
]:
    pointwise(
        name,
        _unary(name),
        summary,
        infer=inference.pointwise(DataType.Bool),
        promotion=Promotion.COMPARISON,
        dtypes=ALL,
        samples=operands(ANYWHERE),
    )

for name, summary in [("sqrt", "Square root."), ("reciprocal", "1 / x.")]:
    pointwise(
        name,
        _unary(name),
        summary,
        infer=inference.pointwise(),
        promotion=Promotion.FLOAT,
        dtypes=FLOATS,
        samples=operands(POSITIVE),
    )

# Functions that are not correctly rounded: their code in PyTorch differs between vector and scalar paths.
for name, summary, domain in [
    ("acos", "Inverse cosine, in radians.", UNIT),
    ("acosh", "Inverse hyperbolic cosine.", Domain(low=1.0, high=9.0)),
    ("asin", "Inverse sine, in radians.", UNIT),
    ("asinh", "Inverse hyperbolic sine.", ANYWHERE),
    ("atan", "Inverse tangent, in radians.", ANYWHERE),
    ("atanh", "Inverse hyperbolic tangent.", UNIT),
    ("cos", "Cosine.", ANYWHERE),
    ("cosh", "Hyperbolic cosine.", BELOW_OVERFLOW),
    ("erf", "Error function.", ANYWHERE),
    ("erfc", "1 - erf(x), accurate where erf is near 1.", ANYWHERE),
    ("erfinv", "Inverse of erf.", UNIT),
    ("exp", "e to the power x.", ANYWHERE),
    ("exp2", "2 to the power x.", ANYWHERE),
    ("expm1", "exp(x) - 1, accurate near 0.", ANYWHERE),
    ("lgamma", "Logarithm of the absolute value of the gamma function.", POSITIVE),
    ("log", "Natural logarithm.", POSITIVE),
    ("log10", "Logarithm to base 10.", POSITIVE),
    ("log1p", "log(1 + x), accurate near 0.", POSITIVE),
    ("log2", "Logarithm to base 2.", POSITIVE),
    ("rsqrt", "1 / sqrt(x).", POSITIVE),
    ("sigmoid", "1 / (1 + exp(-x)).", ANYWHERE),
    ("sin", "Sine.", ANYWHERE),
    ("sinh", "Hyperbolic sine.", BELOW_OVERFLOW),
    ("tan", "Tangent.", UNIT),
    ("tanh", "Hyperbolic tangent.", ANYWHERE),
]:
    pointwise(
        name,
        _unary(name),
        summary,
        infer=inference.pointwise(),
        promotion=Promotion.FLOAT,
        dtypes=FLOATS,
        stable=False,
        tolerance=Tolerance(ulps=4),
        samples=operands(domain),
    )

for name, summary, dtypes, commutative in [
    ("add", "x + y; logical or of bools.", ALL, True),
    ("sub", "x - y.", NUMERIC, False),
    ("mul", "x * y; logical and of bools.", ALL, True),
    ("bitwise_and", "Bits set in both.", INTEGERS | BOOLEAN, True),
    ("bitwise_or", "Bits set in either.", INTEGERS | BOOLEAN, True),
    ("bitwise_xor", "Bits set in exactly one.", INTEGERS | BOOLEAN, True),
]:
    pointwise(
        name,
        _binary(name),
        summary,
        infer=inference.pointwise(),
        promotion=Promotion.ARITHMETIC,
        dtypes=dtypes,
        # PyTorch refuses to subtract bools from anything, and anything from bools.
        operand_dtypes=COMPUTED - BOOLEAN if name == "sub" else COMPUTED,
        keeps_precision=("y",) if name == "mul" else (),
        commutative=commutative,
        samples=operands(ANYWHERE, ANYWHERE),
    )

pointwise(
    "gcd",
    _binary("gcd"),
    "Greatest common divisor.",
    infer=inference.pointwise(),
    eager=lambda torch, x, y: torch.gcd(*_both_tensors(torch, x, y)),
    promotion=Promotion.ARITHMETIC,
    dtypes=INTEGERS,
    commutative=True,
    samples=operands(ANYWHERE, ANYWHERE),
)

for name, summary, dtypes, domains in [
    # Where the quotient is huge, vector code gives NaN for a remainder that scalar code finds: neither is stable.
    ("fmod", "Remainder of the division, with the sign of x.", NUMERIC, (ANYWHERE, NON_ZERO)),
    ("remainder", "Remainder of the division, with the sign of y, as Python's %.", NUMERIC, (ANYWHERE, NON_ZERO)),
    ("bitwise_left_shift", "x shifted left by y bits.", INTEGERS, (ANYWHERE, SHIFTS)),
    ("bitwise_right_shift", "x shifted right by y bits, keeping the sign.", INTEGERS, (ANYWHERE, SHIFTS)),
]:
    pointwise(
        name,
        _binary(name),
        summary,
        infer=inference.pointwise(),
        promotion=Promotion.ARITHMETIC,
        dtypes=dtypes,
        stable=name not in ("fmod", "remainder"),
        samples=operands(*domains),
    )

pointwise(
    "div",
    _binary("div"),
    "x / y; on integers the quotient is cut off towards zero. `truediv` never cuts.",
    infer=inference.pointwise(),
    eager=lambda torch, x, y: (
        torch.div(x, y) if torch.result_type(x, y).is_floating_point else torch.div(x, y, rounding_mode="trunc")
    ),
    promotion=Promotion.ARITHMETIC,
    dtypes=NUMERIC,
    keeps_precision=("y",),
    samples=operands(ANYWHERE, NON_ZERO),
)

for name, summary in [
    ("maximum", "The larger of both; NaN if either is."),
    ("minimum", "The smaller of both; NaN if either is."),
]:
    pointwise(
        name,
        _binary(name),
        summary,
        infer=inference.pointwise(),
        eager=lambda torch, x, y, _name=name: getattr(torch, _name)(*_both_tensors(torch, x, y)),
        promotion=Promotion.ARITHMETIC,
        dtypes=ALL,
        # Which of +0.0 and -0.0 is larger depends on the code path, and so do commuted operands.
        stable=False,
        samples=operands(ANYWHERE, ANYWHERE),
    )

pointwise(
    "atan2",
    _binary("atan2"),
    "Angle of the point (y, x) for atan2(x=ordinate, y=abscissa), in radians.",
    infer=inference.pointwise(),
    eager=lambda torch, x, y: torch.atan2(*_both_tensors(torch, x, y)),
    promotion=Promotion.FLOAT,
    dtypes=FLOATS,
    stable=False,
    tolerance=Tolerance(ulps=4),
    samples=operands(ANYWHERE, ANYWHERE),
)

pointwise(
    "pow",
    _binary("pow"),
    "x to the power y.",
    infer=inference.pointwise(),
    promotion=Promotion.ARITHMETIC,
    dtypes=NUMERIC,
    stable=False,
    number_exponent=True,
    bounded=("y",),
    tolerance=Tolerance(ulps=4),
    samples=operands(POSITIVE, EXPONENTS),
)

pointwise(
    "nextafter",
    _binary("nextafter"),
    "The next number after x in the direction of y.",
    infer=inference.pointwise(),
    eager=lambda torch, x, y: torch.nextafter(*_both_tensors(torch, x, y)),
    promotion=Promotion.MOVEMENT,
    dtypes=FLOATS | HALVES,
    samples=operands(ANYWHERE, ANYWHERE),
)

for name, summary, commutative in [
    ("eq", "x == y.", True),
    ("ne", "x != y.", True),
    ("lt", "x < y.", False),
    ("le", "x <= y.", False),
    ("gt", "x > y.", False),
    ("ge", "x >= y.", False),
]:
    pointwise(
        name,
        _binary(name),
        summary,
        infer=inference.pointwise(DataType.Bool),
        promotion=Promotion.COMPARISON,
        dtypes=ALL,
        commutative=commutative,
        samples=operands(ANYWHERE, ANYWHERE),
    )


def _where(b: Any, condition: Plain, x: Operand, y: Operand) -> Any:
    return b.node("where", condition, x, y)


pointwise(
    "where",
    _where,
    "x where the condition holds, y elsewhere.",
    infer=inference.where,
    promotion=Promotion.MOVEMENT,
    dtypes=COMPUTED,
    bounded=("x", "y"),
    samples=lambda shape: [
        Sample((SampleOperand(shape, dtype=DataType.Bool), SampleOperand(shape), SampleOperand(shape)))
    ],
)


@operator(
    Kind.POINTWISE,
    infer=inference.cast,
    attributes=CastAttributes,
    reference=lambda torch, x, dtype: x.to(dtype),
    eager=lambda torch, x, dtype: x.to(dtype),
    # Numbers outside an integer type come out differently in vector and scalar code.
    stable=False,
    samples=lambda shape: [
        Sample((SampleOperand(shape, Domain(-100.0, 100.0, specials=False)), dtype)) for dtype in in_order(COMPUTED)
    ],
)
def cast(b: Any, x: Plain, dtype: Type) -> Any:
    """x converted to another data type; floats are cut off towards zero on the way to integers."""
    target = data_type(dtype)
    if target is None or x.dtype is target:
        return x
    known = x.constant_value()
    if known is not None and (target.is_float or not isinstance(known, float)):
        return b.constant(known, target)
    return b.node("cast", x, attributes=CastAttributes(target))


def _both_tensors(torch: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Some functions of PyTorch take no numbers; a number becomes a tensor that promotes and converts as it would."""

    def tensor(number: Any, other: Any) -> Any:
        dtype = torch.result_type(number, other) if isinstance(number, float) else None
        return torch.tensor(number, dtype=dtype, device=other.device)

    if not isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        x = tensor(x, y)
    if not isinstance(y, torch.Tensor) and isinstance(x, torch.Tensor):
        y = tensor(y, x)
    return x, y
