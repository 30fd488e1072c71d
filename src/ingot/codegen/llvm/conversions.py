"""Conversions that take more than one instruction, or another one on a GPU: bfloat16, and whole numbers.

Values are LLVM's, scalars or vectors; a bfloat16 is 16 bits. `splits_pairs` says that lanes of float32 are the even
elements first and then the odd ones (see `Instructions`).
"""

from __future__ import annotations

from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.constants import constant
from ingot.codegen.llvm.math.gpu.ptx_instructions import scalar_instruction

_WORD, _HALF_WORD, _SINGLE = ir.IntType(32), ir.IntType(16), ir.FloatType()
_UPPER_HALF = -0x10000


def _like(element: ir.Type, pattern: Any) -> Any:
    """The type of as many elements as the pattern has."""
    return ir.VectorType(element, pattern.count) if isinstance(pattern, ir.VectorType) else element


def _lanes(type: Any) -> int:
    return type.count if isinstance(type, ir.VectorType) else 1


def widened_bfloat16(builder: Any, x: Any, splits_pairs: bool) -> Any:
    """float32 whose upper halves are given. Words of two are taken apart by one instruction for each."""
    lanes = _lanes(x.type)
    if splits_pairs or (builder.module.host.packs_bfloat16 and lanes % 2 == 0):
        pairs = builder.bitcast(x, ir.VectorType(_WORD, lanes // 2))
        even = builder.shl(pairs, ir.Constant(pairs.type, [16] * (lanes // 2)))
        odd = builder.and_(pairs, ir.Constant(pairs.type, [_UPPER_HALF] * (lanes // 2)))
        in_turn = [index // 2 + (index % 2) * (lanes // 2) for index in range(lanes)]
        bits = builder.shuffle_vector(even, odd, list(range(lanes)) if splits_pairs else in_turn)
    else:
        wide = _like(_WORD, x.type)
        bits = builder.shl(builder.zext(x, wide), constant(wide, 16))
    return builder.bitcast(bits, _like(_SINGLE, x.type))


def rounded_bfloat16(builder: Any, x: Any, splits_pairs: bool) -> Any:
    """The nearest to each float32, halves to even; NaN stays NaN, also if only its low bits are set."""
    if builder.module.host.packs_bfloat16:
        return _packed_bfloat16(builder, x)
    wide = _like(_WORD, x.type)
    bits = builder.bitcast(x, wide)
    upper = builder.lshr(bits, constant(wide, 16))
    odd = builder.and_(upper, constant(wide, 1))
    rounded = builder.add(builder.add(bits, constant(wide, 0x7FFF)), odd)
    is_nan = builder.fcmp_unordered("!=", x, x)
    return _upper_halves(builder, builder.select(is_nan, constant(wide, 0x7FC00000), rounded), splits_pairs)


def _upper_halves(builder: Any, bits: Any, splits_pairs: bool) -> Any:
    """The upper 16 of 32 bits, of every lane."""
    half = _like(_HALF_WORD, bits.type)
    if not splits_pairs:
        return builder.trunc(builder.lshr(bits, constant(bits.type, 16)), half)
    pairs = bits.type.count // 2
    even, odd = (builder.shuffle_vector(bits, bits, list(range(first, first + pairs))) for first in (0, pairs))
    low = builder.lshr(even, ir.Constant(even.type, [16] * pairs))
    high = builder.and_(odd, ir.Constant(odd.type, [_UPPER_HALF] * pairs))
    return builder.bitcast(builder.or_(low, high), half)


def _packed_bfloat16(builder: Any, x: Any) -> Any:
    """By the instruction for two at once. Lanes are as in memory."""
    lanes = _lanes(x.type)
    if lanes == 1:
        return scalar_instruction(builder, "cvt.rn.bf16.f32", _HALF_WORD, x)
    words = ir.Constant(ir.VectorType(_WORD, lanes // 2), ir.Undefined)
    for pair in range(lanes // 2):
        # The upper half of a word comes first in the instruction, and second in memory.
        low, high = (builder.extract_element(x, 2 * pair + place) for place in (0, 1))
        word = scalar_instruction(builder, "cvt.rn.bf16x2.f32", _WORD, high, low)
        words = builder.insert_element(words, word, pair)
    return builder.bitcast(words, ir.VectorType(_HALF_WORD, lanes))


_TWO_TO_23 = 0x4B000000
"""The bits of 2^23 as float32, whose last bit counts ones: whole numbers in its low bits are added to it."""


def single_from_small(builder: Any, x: Any, is_signed: bool) -> Any:
    """float32 from whole numbers of 8 or 16 bits on a GPU, where converting takes as long as four other instructions.

    The bits of a number are put below those of 2^23, which is subtracted again; negative ones are moved up by half of
    their range on the way.
    """
    lane: Any = x.type.element if isinstance(x.type, ir.VectorType) else x.type
    moved = 1 << lane.width - 1 if is_signed else 0
    bits = builder.xor(x, constant(x.type, -moved)) if moved else x
    above = constant(_like(_SINGLE, x.type), 2.0**23 + moved)
    return builder.fsub(builder.bitcast(_below_two_to_23(builder, bits, lane.width), above.type), above)


def _below_two_to_23(builder: Any, bits: Any, width: int) -> Any:
    """2^23 with 8 or 16 given low bits. Of neighbours in one word, each takes one instruction, which moves bytes."""
    lanes, per_word = _lanes(bits.type), 32 // width
    wide = _like(_WORD, bits.type)
    if lanes % per_word:
        return builder.or_(builder.zext(bits, wide), constant(wide, _TWO_TO_23))
    result = ir.Constant(wide, ir.Undefined)
    for lane in range(lanes):
        first = lane - lane % per_word
        parts = builder.shuffle_vector(bits, bits, list(range(first, first + per_word)))
        above = ir.Constant(parts.type, [*[0] * (per_word - 1), _TWO_TO_23 >> 32 - width])
        word = builder.shuffle_vector(parts, above, [lane % per_word, *range(per_word + 1, 2 * per_word)])
        result = builder.insert_element(result, builder.bitcast(word, _WORD), lane)
    return result


def whole_number(builder: Any, x: Any, bits: int) -> Any:
    """float32 or float64 cut off to signed integers by a GPU: the nearest integer that there is where they do not fit,
    and for NaN 0, or the lowest of 64 bits."""
    lane = x.type.element if isinstance(x.type, ir.VectorType) else x.type
    result = ir.IntType(bits)
    name = f"cvt.rzi.s{bits}.{'f32' if isinstance(lane, ir.FloatType) else 'f64'}"
    if lane is x.type:
        return scalar_instruction(builder, name, result, x)
    whole = ir.Constant(_like(result, x.type), ir.Undefined)
    for index in range(x.type.count):
        converted = scalar_instruction(builder, name, result, builder.extract_element(x, index))
        whole = builder.insert_element(whole, converted, index)
    return whole
