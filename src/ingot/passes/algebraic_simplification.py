"""Algebraic simplification: identities that hold for every value, NaN, infinities and signed zeros included.

What is missing is missing on purpose: for floats x * 0, x - x, x / x, x + 0.0 and -(x - y) -> y - x are no identities
(NaN, infinities, the sign of zero). The sign bit of a NaN that arithmetic produced means nothing, in IEEE 754 as in
PyTorch; everything else is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ingot.base.dtypes import DataType
from ingot.base.types import TensorType
from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.ops.attributes import AxesAttributes, BroadcastAttributes, CastAttributes, ShapeAttributes
from ingot.passes.graph_rewriting import (
    PassResult,
    Rules,
    apply,
    apply_rules,
    dtype_of,
    filled_like,
    is_number,
    is_op,
    on,
    uniform_value,
)


def _orders(node: Node) -> Iterator[tuple[Node, Node]]:
    """Both ways to read a commutative operation."""
    left, right = node.operands
    yield left, right
    yield right, left


def _is_float(node: Node) -> bool:
    return dtype_of(node).is_float


# --- arithmetic -------------------------------------------------------------------------------------------------------


@on("add")
def add_nothing(node: Node) -> Node | None:
    """x + 0 -> x for integers and bools; x + -0.0 -> x for floats, where x + 0.0 would turn -0.0 into 0.0"""
    nothing = -0.0 if _is_float(node) else 0
    for x, other in _orders(node):
        if is_number(other, nothing):
            return x
    return None


@on("sub")
def subtract_nothing(node: Node) -> Node | None:
    """x - 0 -> x; for floats only 0.0, since -0.0 - -0.0 is 0.0"""
    return node.operands[0] if is_number(node.operands[1], 0.0 if _is_float(node) else 0) else None


@on("mul")
def multiply_by_one(node: Node) -> Node | None:
    """x * 1 -> x"""
    for x, other in _orders(node):
        if is_number(other, 1):
            return x
    return None


@on("div")
def divide_by_one(node: Node) -> Node | None:
    """x / 1 -> x"""
    return node.operands[0] if is_number(node.operands[1], 1) else None


@on("mul", "bitwise_and")
def multiply_integers_by_zero(node: Node) -> Node | None:
    """i * 0 -> 0, and i & 0 -> 0, for integers and bools"""
    if not _is_float(node):
        for _, other in _orders(node):
            if is_number(other, 0):
                return filled_like(node, 0)
    return None


@on("sub", "bitwise_xor")
def subtract_integer_from_itself(node: Node) -> Node | None:
    """i - i -> 0, and i ^ i -> 0, for integers and bools"""
    same = node.operands[0] is node.operands[1]
    return filled_like(node, 0) if same and not _is_float(node) else None


@on("add")
def add_negated(node: Node) -> Node | None:
    """x + -y -> x - y"""
    if dtype_of(node) is not DataType.Bool:
        for x, other in _orders(node):
            if is_op(other, "neg"):
                return apply("sub", x, other.operands[0])
    return None


@on("sub")
def subtract_negated(node: Node) -> Node | None:
    """x - -y -> x + y"""
    if is_op(node.operands[1], "neg"):
        return apply("add", node.operands[0], node.operands[1].operands[0])
    return None


@on("mul", "div")
def multiply_negated(node: Node) -> Node | None:
    """-x * -y -> x * y; for floats -x / -y -> x / y"""
    if is_op(node, "mul") or _is_float(node):
        left, right = node.operands
        if is_op(left, "neg") and is_op(right, "neg"):
            return apply(node.op.name, left.operands[0], right.operands[0])
    return None


@on("mul")
def square_of_absolute(node: Node) -> Node | None:
    """abs(x) * abs(x) -> x * x"""
    if node.operands[0] is node.operands[1] and is_op(node.operands[0], "abs"):
        inner = node.operands[0].operands[0]
        return apply("mul", inner, inner)
    return None


# --- one operand ------------------------------------------------------------------------------------------------------


@on("neg", "bitwise_not")
def undo_involution(node: Node) -> Node | None:
    """neg(neg(x)) -> x, and bitwise_not(bitwise_not(x)) -> x"""
    return node.operands[0].operands[0] if is_op(node.operands[0], node.op.name) else None


@on("abs", "sign")
def repeat_idempotent(node: Node) -> Node | None:
    """abs(abs(x)) -> abs(x), sign(sign(x)) -> sign(x)"""
    return node.operands[0] if is_op(node.operands[0], node.op.name) else None


@on("abs")
def absolute_of_negated(node: Node) -> Node | None:
    """abs(-x) -> abs(x); not for unsigned integers, whose -1 is 255 and positive"""
    if is_op(node.operands[0], "neg") and dtype_of(node).is_signed:
        return apply("abs", node.operands[0].operands[0])
    return None


@on("abs")
def absolute_of_unsigned(node: Node) -> Node | None:
    """abs(u) -> u, for unsigned integers and bools"""
    return node.operands[0] if not dtype_of(node).is_signed else None


_ROUNDING = ("floor", "ceil", "round", "trunc")


@on(*_ROUNDING)
def round_whole_number(node: Node) -> Node | None:
    """floor(i) -> i for integers, and floor(ceil(x)) -> ceil(x) for any two roundings"""
    return node.operands[0] if not _is_float(node) or is_op(node.operands[0], *_ROUNDING) else None


# --- bits, choices, comparisons ---------------------------------------------------------------------------------------


@on("bitwise_and", "bitwise_or", "maximum", "minimum")
def combine_bits_with_themselves(node: Node) -> Node | None:
    """i & i -> i, i | i -> i, and max(x, x) -> x, min(x, x) -> x for all types"""
    return node.operands[0] if node.operands[0] is node.operands[1] else None


@on("bitwise_and", "bitwise_or", "bitwise_xor")
def combine_bits_with_known(node: Node) -> Node | None:
    """i | 0 -> i, i ^ 0 -> i, i & ~0 -> i, i | ~0 -> ~0"""
    dtype = dtype_of(node)
    ones = True if dtype is DataType.Bool else -1 if dtype.is_signed else (1 << dtype.bits) - 1
    for x, other in _orders(node):
        if is_op(node, "bitwise_or", "bitwise_xor") and is_number(other, 0):
            return x
        if is_op(node, "bitwise_and") and is_number(other, ones):
            return x
        if is_op(node, "bitwise_or") and is_number(other, ones):
            return filled_like(node, ones)
    return None


@on("where")
def choose_the_same(node: Node) -> Node | None:
    """where(c, x, x) -> x"""
    return node.operands[1] if node.operands[1] is node.operands[2] else None


@on("where")
def choose_by_known(node: Node) -> Node | None:
    """where(true, x, y) -> x, where(false, x, y) -> y"""
    known = uniform_value(node.operands[0])
    if known is None:
        return None
    return node.operands[1] if known else node.operands[2]


@on("where")
def choose_by_negated(node: Node) -> Node | None:
    """where(~c, x, y) -> where(c, y, x)"""
    if is_op(node.operands[0], "bitwise_not"):
        return apply("where", node.operands[0].operands[0], node.operands[2], node.operands[1])
    return None


@on("where")
def choose_truth(node: Node) -> Node | None:
    """where(c, true, false) -> c"""
    if dtype_of(node) is DataType.Bool:
        condition, yes, no = node.operands
        if is_number(yes, True) and is_number(no, False):
            return condition
    return None


@on("lt", "gt", "eq", "ne", "le", "ge")
def compare_with_itself(node: Node) -> Node | None:
    """x < x -> false, x > x -> false for all; x == x, x <= x, x >= x -> true and x != x -> false for all but floats"""
    if node.operands[0] is not node.operands[1]:
        return None
    if is_op(node, "lt", "gt"):
        return filled_like(node, False)
    if not _is_float(node.operands[0]):
        return filled_like(node, not is_op(node, "ne"))
    return None


@on("eq", "ne")
def compare_bool_with_known(node: Node) -> Node | None:
    """b == true -> b, b != false -> b, b == false -> ~b, b != true -> ~b"""
    if dtype_of(node.operands[0]) is not DataType.Bool:
        return None
    for x, other in _orders(node):
        known = uniform_value(other)
        if known is not None:
            return x if bool(known) == is_op(node, "eq") else apply("bitwise_not", x)
    return None


@on("bitwise_not")
def negate_comparison(node: Node) -> Node | None:
    """~(x == y) -> x != y, ~(x != y) -> x == y; for all but floats ~(x < y) -> x >= y and so on, for NaN's sake"""
    if dtype_of(node) is not DataType.Bool:
        return None
    inner = node.operands[0]
    opposite = {"eq": "ne", "ne": "eq"}.get(inner.op.name)
    if opposite is None and len(inner.operands) == 2 and not _is_float(inner.operands[0]):
        opposite = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}.get(inner.op.name)
    return apply(opposite, *inner.operands) if opposite else None


@on("isnan", "isinf", "isfinite")
def classify_whole_number(node: Node) -> Node | None:
    """isnan(i) -> false, isinf(i) -> false, isfinite(i) -> true for all but floats"""
    return None if _is_float(node.operands[0]) else filled_like(node, is_op(node, "isfinite"))


# --- complex numbers --------------------------------------------------------------------------------------------------


@on("real", "imag")
def part_of_joined(node: Node) -> Node | None:
    """real(complex(x, y)) -> x, imag(complex(x, y)) -> y, repeated where the other part has more elements"""
    if not is_op(node.operands[0], "complex"):
        return None
    part = node.operands[0].operands[is_op(node, "imag")]
    if part.type == node.type or not isinstance(node.type, TensorType):
        return part
    shape = node.type.shape
    if not isinstance(part.type, TensorType):
        return apply("full", part, attributes=ShapeAttributes(shape))
    axes = tuple(range(len(shape) - part.type.rank, len(shape)))
    return apply("broadcast_in_dim", part, attributes=BroadcastAttributes(shape, axes))


@on("complex")
def join_parts_again(node: Node) -> Node | None:
    """complex(real(z), imag(z)) -> z"""
    left, right = node.operands
    if is_op(left, "real") and is_op(right, "imag") and left.operands == right.operands:
        return left.operands[0]
    return None


# --- casts and reductions ---------------------------------------------------------------------------------------------


@on("cast")
def cast_to_own_type(node: Node) -> Node | None:
    """cast(x: f32, dtype=f32) -> x"""
    return node.operands[0] if dtype_of(node) is dtype_of(node.operands[0]) else None


@on("cast")
def skip_widening_cast(node: Node) -> Node | None:
    """cast(cast(x: bf16, f32), bf16) -> x, and in general cast(cast(x, wide), t) -> cast(x, t)

    Only where the type in between holds every value of x: bf16 -> f32 -> bf16 changes nothing, f32 -> bf16 -> f32
    rounds. Floats are not cast to integers by another way, since values out of range come out differently.
    """
    if not is_op(node.operands[0], "cast"):
        return None
    x = node.operands[0].operands[0]
    source, between, target = dtype_of(x), dtype_of(node.operands[0]), dtype_of(node)
    if not holds_exactly(between, source):
        return None
    if target.is_integer and between.is_float and not (source is target or holds_exactly(target, source)):
        return None
    return x if source is target else apply("cast", x, attributes=CastAttributes(target))


_SIGNIFICAND = {DataType.Half: 11, DataType.BFloat16: 8, DataType.Float: 24, DataType.Double: 53}
_HELD_FLOATS = {
    DataType.Half: {DataType.Half},
    DataType.BFloat16: {DataType.BFloat16},
    DataType.Float: {DataType.Half, DataType.BFloat16, DataType.Float},
    DataType.Double: {DataType.Half, DataType.BFloat16, DataType.Float, DataType.Double},
}


def holds_exactly(holder: DataType, dtype: DataType) -> bool:
    """Whether every value of `dtype` is a value of `holder` too."""
    if holder is dtype or dtype is DataType.Bool:
        return True
    if dtype.is_float:
        return dtype in _HELD_FLOATS.get(holder, ())
    if holder is DataType.Bool:
        return False
    magnitude = dtype.bits - dtype.is_signed
    if holder.is_float:
        return magnitude <= _SIGNIFICAND[holder]
    return (holder.is_signed or not dtype.is_signed) and magnitude <= holder.bits - holder.is_signed


@on("amax", "amin")
def extremum_of_one(node: Node) -> Node | None:
    """amax(x: f32[3, 1], axes=[1]) -> squeeze(x, axes=[1])"""
    (x,) = node.operands
    assert isinstance(node.attributes, AxesAttributes) and isinstance(x.type, TensorType)
    if not node.attributes.axes:
        return x
    if any(x.type.shape[axis] != 1 for axis in node.attributes.axes):
        return None
    return apply("squeeze", x, attributes=node.attributes)


RULES = Rules(
    add_nothing,
    subtract_nothing,
    multiply_by_one,
    divide_by_one,
    multiply_integers_by_zero,
    subtract_integer_from_itself,
    add_negated,
    subtract_negated,
    multiply_negated,
    square_of_absolute,
    undo_involution,
    repeat_idempotent,
    absolute_of_negated,
    absolute_of_unsigned,
    round_whole_number,
    combine_bits_with_themselves,
    combine_bits_with_known,
    choose_the_same,
    choose_by_known,
    choose_by_negated,
    choose_truth,
    compare_with_itself,
    compare_bool_with_known,
    negate_comparison,
    classify_whole_number,
    part_of_joined,
    join_parts_again,
    cast_to_own_type,
    skip_widening_cast,
    extremum_of_one,
)


@dataclass(frozen=True, slots=True)
class AlgebraicSimplification:
    name: str = "algebraic_simplification"
    summary: str = "applies identities that hold for every value"
    level: int = 1

    def run(self, graph: Graph) -> PassResult:
        return apply_rules(graph, RULES)
