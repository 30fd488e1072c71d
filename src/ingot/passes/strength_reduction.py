"""Strength reduction: a cheaper operation with exactly the same result.

Only rules that keep every bit are here. What looks like one and is not: exp(log(x)) -> x and log(exp(x)) -> x round
twice; x / 3 -> x * (1/3) rounds the constant; pow(x, 4) -> (x*x)*(x*x) rounds differently from PyTorch's pow.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from ingot.base.dtypes import DataType
from ingot.ir.graph import Graph
from ingot.ir.node import Node
from ingot.ops import Kind
from ingot.passes.graph_rewriting import (
    PassResult,
    Rules,
    apply,
    apply_rules,
    constant,
    dtype_of,
    filled_like,
    is_number,
    is_op,
    on,
    uniform_value,
)
from ingot.passes.readers import base_of

_SMALLEST_NORMAL = {DataType.Float: 2.0**-126, DataType.Double: sys.float_info.min}


@on("pow")
def reduce_power(node: Node) -> Node | None:
    """pow(x, 2) -> x * x, and in the same way 0, 1, 3, 0.5, -0.5, -1, -2

    These are the exponents for which PyTorch's pow with a number does the same, so no bit changes.
    """
    if not dtype_of(node).is_float:
        return None
    base, exponent = node.operands
    known = exponent.constant
    if known == 0:
        return filled_like(node, 1.0)
    if known == 1:
        return base
    if known == 2:
        return apply("mul", base, base)
    if known == 3:
        return apply("mul", apply("mul", base, base), base)
    if known == -2:
        return apply("reciprocal", apply("mul", base, base))
    simple = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(known) if known is not None else None
    return apply(simple, base) if simple else None


@on("pow")
def reduce_integer_power(node: Node) -> Node | None:
    """pow(i, n) -> products by repeated squaring, for a number n from 0 to 16: integers wrap around the same way"""
    if dtype_of(node).is_float:
        return None
    base, exponent = node.operands
    known = exponent.constant
    if known is None or not 0 <= known <= 16:
        return None
    result: Node | None = None
    square, remaining = base, int(known)
    while remaining:
        if remaining & 1:
            result = square if result is None else apply("mul", result, square)
        remaining >>= 1
        if remaining:
            square = apply("mul", square, square)
    return filled_like(node, 1) if result is None else result


@on("div")
def divide_by_power_of_two(node: Node) -> Node | None:
    """x / 4.0 -> x * 0.25, where the reciprocal is a normal number: both round the same real number once

    A mean stays one: a division per row costs nothing, and kernels know what to do with means.
    """
    if not dtype_of(node).is_float:
        return None
    x, divisor = node.operands
    if base_of(x).op.kind is Kind.REDUCTION:
        return None
    known = uniform_value(divisor)
    if known is None or not math.isfinite(known) or abs(math.frexp(known)[0]) != 0.5:
        return None
    if abs(known) > 1 / _SMALLEST_NORMAL[dtype_of(node)] or abs(known) < _SMALLEST_NORMAL[dtype_of(node)]:
        return None
    return apply("mul", x, _with_value(divisor, 1 / known))


@on("div")
def divide_into_one(node: Node) -> Node | None:
    """1.0 / x -> reciprocal(x)"""
    if dtype_of(node).is_float and is_number(node.operands[0], 1.0):
        return apply("reciprocal", node.operands[1])
    return None


@on("mul")
def multiply_by_minus_one(node: Node) -> Node | None:
    """x * -1 -> neg(x)"""
    if dtype_of(node) is not DataType.Bool:
        for x, other in (node.operands, node.operands[::-1]):
            if is_number(other, -1):
                return apply("neg", x)
    return None


@on("remainder", "fmod")
def remainder_by_power_of_two(node: Node) -> Node | None:
    """remainder(i, 8) -> bitwise_and(i, 7), for all integers; fmod(u, 8) -> bitwise_and(u, 7) for unsigned ones"""
    if not dtype_of(node).is_integer:
        return None
    if is_op(node, "remainder") or not dtype_of(node).is_signed:
        x, divisor = node.operands
        known = uniform_value(divisor)
        if known is not None and known > 0 and int(known).bit_count() == 1:
            return apply("bitwise_and", x, _with_value(divisor, int(known) - 1))
    return None


@on("div")
def divide_unsigned_by_power_of_two(node: Node) -> Node | None:
    """div(u, 8) -> bitwise_right_shift(u, 3), for unsigned integers; signed ones round the other way"""
    if dtype_of(node).is_integer and not dtype_of(node).is_signed:
        x, divisor = node.operands
        known = uniform_value(divisor)
        if known is not None and known > 0 and int(known).bit_count() == 1:
            return apply("bitwise_right_shift", x, _with_value(divisor, int(known).bit_length() - 1))
    return None


def _with_value(node: Node, value: float | int) -> Node:
    """A constant, or a tensor filled with one, holding another number."""
    return constant(value, dtype_of(node)) if node.constant is not None else filled_like(node, value)


RULES = Rules(
    reduce_power,
    reduce_integer_power,
    divide_by_power_of_two,
    divide_into_one,
    multiply_by_minus_one,
    remainder_by_power_of_two,
    divide_unsigned_by_power_of_two,
)


@dataclass(frozen=True, slots=True)
class StrengthReduction:
    name: str = "strength_reduction"
    summary: str = "replaces operations by cheaper ones with the same bits"
    level: int = 1

    def run(self, graph: Graph) -> PassResult:
        return apply_rules(graph, RULES)
