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
for name, summary, dtypes, emit in [
    ("neg", "-x; integers wrap around.", NUMERIC, lambda e, x: e.neg(x)),
    ("abs", "Absolute value; the smallest integer is its own.", NUMERIC, lambda e, x: e.abs(x)),
    ("ceil", "Smallest integer not below x.", NUMERIC, lambda e, x: e.rounded("ceil", x)),
    ("floor", "Largest integer not above x.", NUMERIC, lambda e, x: e.rounded("floor", x)),
    ("round", "Nearest integer, halves to even.", NUMERIC, lambda e, x: e.rounded("round", x)),
    ("trunc", "Integer part of x.", NUMERIC, lambda e, x: e.rounded("trunc", x)),
    ("sign", "-1, 0 or 1; 0 for NaN.", ALL, lambda e, x: _emit_sign(e, x)),
    (
        "bitwise_not",
        "Complement of every bit; logical complement of a bool.",
        INTEGERS | BOOLEAN,
        lambda e, x: e.bit_not(x),
    ),
]:
    pointwise(
        name,
        _unary(name),
        summary,
        infer=inference.pointwise(),
        promotion=Promotion.ARITHMETIC,
        dtypes=dtypes,
        samples=operands(ANYWHERE),
        emit=emit,
    )

for name, summary, emit in [
    ("isfinite", "Whether x is neither infinite nor NaN.", lambda e, x: e.compare("lt", e.abs(x), e.infinity(x))),
    ("isinf", "Whether x is infinite.", lambda e, x: e.compare("eq", e.abs(x), e.infinity(x))),
    ("isnan", "Whether x is NaN.", lambda e, x: e.compare("ne", x, x)),
    ("signbit", "Whether the sign bit of x is set, as it is for -0.0.", lambda e, x: e.sign_bit(x)),
]:
    pointwise(
        name,
        _unary(name),
        summary,
        infer=inference.pointwise(DataType.Bool),
        promotion=Promotion.COMPARISON,
        dtypes=ALL,
        samples=operands(ANYWHERE),
        emit=emit,
    )

pointwise(
    "reciprocal",
    _unary("reciprocal"),
    "1 / x.",
    infer=inference.pointwise(),
    promotion=Promotion.FLOAT,
    dtypes=FLOATS,
    samples=operands(POSITIVE),
    emit=lambda e, x: e.div(e.constant(1.0, x), x),
)

pointwise(
    "sqrt",
    _unary("sqrt"),
    "Square root.",
    infer=inference.pointwise(),
    promotion=Promotion.FLOAT,
    dtypes=FLOATS,
    # PyTorch's own is not correctly rounded on every machine; the instruction is.
    stable=False,
    tolerance=Tolerance(ulps=1),
    samples=operands(POSITIVE),
    emit=lambda e, x: e.sqrt(x),
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
        emit=lambda e, x, _name=name: e.function(_name, x),
    )

for name, summary, dtypes, commutative, emit in [
    ("add", "x + y; logical or of bools.", ALL, True, lambda e, x, y: e.add(x, y)),
    ("sub", "x - y.", NUMERIC, False, lambda e, x, y: e.sub(x, y)),
    ("mul", "x * y; logical and of bools.", ALL, True, lambda e, x, y: e.mul(x, y)),
    ("bitwise_and", "Bits set in both.", INTEGERS | BOOLEAN, True, lambda e, x, y: e.bit_and(x, y)),
    ("bitwise_or", "Bits set in either.", INTEGERS | BOOLEAN, True, lambda e, x, y: e.bit_or(x, y)),
    ("bitwise_xor", "Bits set in exactly one.", INTEGERS | BOOLEAN, True, lambda e, x, y: e.bit_xor(x, y)),
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
        emit=emit,
    )

pointwise(
    "gcd",
    _binary("gcd"),
    "Greatest common divisor.",
    infer=inference.pointwise(),
    eager=lambda torch, x, y: torch.gcd(*both_tensors(torch, x, y)),
    promotion=Promotion.ARITHMETIC,
    dtypes=INTEGERS,
    commutative=True,
    samples=operands(ANYWHERE, ANYWHERE),
    emit=lambda e, x, y: _emit_signed(e, "gcd", x, y),
)

for name, summary, dtypes, domains, emit in [
    # Where the quotient is huge, vector code gives NaN for a remainder that scalar code finds: neither is stable.
    (
        "fmod",
        "Remainder of the division, with the sign of x.",
        NUMERIC,
        (ANYWHERE, NON_ZERO),
        lambda e, x, y: e.function("fmod", x, y) if e.dtype_of(x).is_float else _emit_fmod(e, x, y),
    ),
    (
        "remainder",
        "Remainder of the division, with the sign of y, as Python's %.",
        NUMERIC,
        (ANYWHERE, NON_ZERO),
        lambda e, x, y: e.function("remainder", x, y) if e.dtype_of(x).is_float else _emit_remainder(e, x, y),
    ),
    (
        "bitwise_left_shift",
        "x shifted left by y bits.",
        INTEGERS,
        (ANYWHERE, SHIFTS),
        lambda e, x, y: e.shift_left(x, y),
    ),
    (
        "bitwise_right_shift",
        "x shifted right by y bits, keeping the sign.",
        INTEGERS,
        (ANYWHERE, SHIFTS),
        lambda e, x, y: e.shift_right(x, y),
    ),
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
        emit=emit,
    )

pointwise(
    "div",
    _binary("div"),
    "x / y; on integers the quotient is cut off towards zero. `truediv` never cuts.",
    infer=inference.pointwise(),
    eager=lambda torch, x, y: _quotient(torch, x, y),
    promotion=Promotion.ARITHMETIC,
    dtypes=NUMERIC,
    keeps_precision=("y",),
    samples=operands(ANYWHERE, NON_ZERO),
    emit=lambda e, x, y: e.div(x, y),
)

for name, summary, emit in [
    ("maximum", "The larger of both; NaN if either is.", lambda e, x, y: e.extremum("gt", x, y)),
    ("minimum", "The smaller of both; NaN if either is.", lambda e, x, y: e.extremum("lt", x, y)),
]:
    pointwise(
        name,
        _binary(name),
        summary,
        infer=inference.pointwise(),
        eager=lambda torch, x, y, _name=name: getattr(torch, _name)(*both_tensors(torch, x, y)),
        promotion=Promotion.ARITHMETIC,
        dtypes=ALL,
        # Which of +0.0 and -0.0 is larger depends on the code path, and so do commuted operands.
        stable=False,
        samples=operands(ANYWHERE, ANYWHERE),
        emit=emit,
    )

pointwise(
    "atan2",
    _binary("atan2"),
    "Angle of the point (y, x) for atan2(x=ordinate, y=abscissa), in radians.",
    infer=inference.pointwise(),
    eager=lambda torch, x, y: torch.atan2(*both_tensors(torch, x, y)),
    promotion=Promotion.FLOAT,
    dtypes=FLOATS,
    stable=False,
    tolerance=Tolerance(ulps=4),
    samples=operands(ANYWHERE, ANYWHERE),
    emit=lambda e, x, y: e.function("atan2", x, y),
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
    emit=lambda e, x, y: e.function("pow", x, y) if e.dtype_of(x).is_float else _emit_signed(e, "pow", x, y),
)


def _build_fused_sum(b: Any, x: Operand, y: Operand, z: Operand) -> Any:
    return b.node("fused_sum", x, y, z)


pointwise(
    "fused_sum",
    _build_fused_sum,
    "x * y + z, rounded once.",
    infer=inference.pointwise(),
    eager=lambda torch, x, y, z: _fused_sum(torch, x, y, z),
    promotion=Promotion.ARITHMETIC,
    dtypes=frozenset({DataType.Float}),
    samples=operands(ANYWHERE, ANYWHERE, ANYWHERE),
    emit=lambda e, x, y, z: e.function("fused_sum", x, y, z),
)

pointwise(
    "nextafter",
    _binary("nextafter"),
    "The next number after x in the direction of y.",
    infer=inference.pointwise(),
    eager=lambda torch, x, y: torch.nextafter(*both_tensors(torch, x, y)),
    promotion=Promotion.MOVEMENT,
    dtypes=FLOATS | HALVES,
    samples=operands(ANYWHERE, ANYWHERE),
    emit=lambda e, x, y: _emit_nextafter(e, x, y),
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
        emit=lambda e, x, y, _name=name: e.compare(_name, x, y),
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
    emit=lambda e, condition, x, y: e.select(condition, x, y),
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
    emit=lambda e, x, dtype: e.convert(x, dtype),
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


def _quotient(torch: Any, x: Any, y: Any) -> Any:
    """The quotient, of integers cut off. Division by -1 is negation: PyTorch's own ends the process for the lowest."""
    x, y = both_tensors(torch, x, y)
    common = torch.result_type(x, y)
    if common.is_floating_point or common.is_complex:
        return torch.div(x, y)
    by_minus_one = torch.eq(y, -1)
    divided = torch.div(x, torch.where(by_minus_one, torch.ones_like(y), y), rounding_mode="trunc")
    return torch.where(by_minus_one, torch.neg(divided), divided)


def _fused_sum(torch: Any, x: Any, y: Any, z: Any) -> Any:
    """In double precision, where the product of two float32 is exact. The sum is rounded to odd: where it is not exact,
    its last bit is made 1, so that rounding it once more gives what rounding once would have given."""
    common = torch.as_tensor(x * y + z).dtype
    if common not in (torch.float32, torch.float16, torch.bfloat16):
        raise RuntimeError(f"a fused sum is not implemented for {common}")
    x, y, z = (torch.as_tensor(value).to(common).double() for value in (x, y, z))
    product = x * y
    total = product + z
    shadow = total - product
    lost = (product - (total - shadow)) + (z - shadow)
    bits = total.view(torch.int64)
    is_rounded = lost.isfinite() & (lost != 0) & (bits & 1 == 0)
    odd = torch.nextafter(total, torch.copysign(torch.full_like(total, float("inf")), lost))
    return torch.where(is_rounded, odd, total).float().to(common)


def _emit_sign(e: Any, x: Any) -> Any:
    zero = e.constant(0, x)
    positive, negative = e.compare("gt", x, zero), e.compare("lt", x, zero)
    return e.sub(e.convert(positive, e.dtype_of(x)), e.convert(negative, e.dtype_of(x)))


def _emit_signed(e: Any, name: str, x: Any, y: Any) -> Any:
    """A function of signed integers; unsigned ones fit into a wider type, and the low bits are the same."""
    dtype = e.dtype_of(x)
    if dtype.is_signed:
        return e.function(name, x, y)
    return e.convert(e.function(name, e.convert(x, DataType.Int32), e.convert(y, DataType.Int32)), dtype)


def _emit_fmod(e: Any, x: Any, y: Any) -> Any:
    return e.sub(x, e.mul(e.div(x, y), y))


def _emit_remainder(e: Any, x: Any, y: Any) -> Any:
    """y is added where the remainder is not zero and has the other sign."""
    rest, zero = _emit_fmod(e, x, y), e.constant(0, x)
    differ = e.bit_xor(e.compare("lt", rest, zero), e.compare("lt", y, zero))
    return e.select(e.bit_and(differ, e.compare("ne", rest, zero)), e.add(rest, y), rest)


def _emit_nextafter(e: Any, x: Any, y: Any) -> Any:
    """Numbers of one sign are ordered as their bits are; from zero the next is the smallest with the sign of y."""
    dtype, bits, target = e.dtype_of(x), e.bits(x), e.bits(y)
    one, lowest = e.constant(1, bits), e.constant(-(1 << dtype.bits - 1), bits)
    x, y = e.convert(x, dtype.widened), e.convert(y, dtype.widened)
    zero = e.constant(0.0, x)
    inwards = e.bit_xor(e.compare("lt", x, y), e.compare("gt", x, zero))
    found = e.select(inwards, e.sub(bits, one), e.add(bits, one))
    found = e.select(e.compare("eq", x, zero), e.bit_or(e.bit_and(target, lowest), one), found)
    found = e.select(e.bit_or(e.compare("eq", x, y), e.compare("ne", y, y)), target, found)
    return e.with_bits(e.select(e.compare("ne", x, x), bits, found), dtype)


def both_tensors(torch: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Some functions of PyTorch take no numbers; a number becomes a tensor that promotes and converts as it would."""

    def tensor(number: Any, other: Any) -> Any:
        dtype = torch.result_type(number, other) if isinstance(number, float) else None
        return torch.tensor(number, dtype=dtype, device=other.device)

    if not isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        x = tensor(x, y)
    if not isinstance(y, torch.Tensor) and isinstance(x, torch.Tensor):
        y = tensor(y, x)
    return x, y
