"""Reduction of angles: x = quadrant * pi/2 + r with |r| <= pi/4, for every finite x.

Three ways; the cheapest one that suits all lanes is taken:

- `by_parts`: pi/2 is taken off in three parts (Cody and Waite). Cheap, for moderate angles.
- `by_turns`: the fraction of x / 2pi, for x of 24 bits held in double precision. 1 / 2pi is a sum of doubles c; for
  each, x c less the nearest whole number is one fused operation, and whole turns do not count. No angle is too large.
- `by_window`: the same for x of 53 bits: the bits of 1 / 2pi that matter for x's exponent are shifted into place first
  (Payne and Hanek). The words come from constants through selects, five levels deep, not from a table in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache

from ingot.codegen.llvm.math.dsl.formats import INFINITY, NAN, PI, parts
from ingot.codegen.llvm.math.dsl.lane_branches import replaced_where_any
from ingot.codegen.llvm.math.dsl.vocabulary import Bits, Number, choose, choose_bits, fma, rounded

Reduced = tuple[Number, Bits]

# by_parts is good up to here. In single precision the third part of n pi/2, 2^-50 n, has to stay far below the least r.
_MODERATE_SINGLE = 2.0**15
_MODERATE_DOUBLE = 2.0**30


@cache
def bits_of_inverse_turn(count: int) -> int:
    """The first `count` bits of 1 / 2pi, as a whole number; pi from Machin's formula."""
    guard = 32
    one = 1 << (count + guard)

    def arctangent_of_inverse(n: int) -> int:
        power, total, k = one // n, 0, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power //= n * n
            k += 2
        return total

    pi = 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    return ((one * one) // (2 * pi)) >> guard


def by_parts(x: Number) -> Reduced:
    """r and the quadrant (its two low bits count) for moderate x."""
    rounder = x.format.rounder
    n_rounder = fma(x, 2 / PI, rounder)
    n = n_rounder - rounder
    r = x
    for part in parts(x.format, PI / 2, 3):
        r = fma(n, -part, r)
    return r, n_rounder.bits()


def _quarters(turn: Number) -> Reduced:
    """What is left of a fraction of a turn when the nearest quarter is taken off, and that quarter."""
    rounder = turn.format.rounder
    quarter_rounder = fma(turn, 4.0, rounder)
    return fma(quarter_rounder - rounder, -0.25, turn), quarter_rounder.bits()


def by_turns(x: Number) -> Reduced:
    """r and the quadrant for double-precision x that are single-precision numbers."""
    inverse_turn = Fraction(bits_of_inverse_turn(320), 1 << 320)
    first, second, third, fourth = parts(x.format, inverse_turn, 4)

    def fraction(part: float) -> Number:
        return fma(x, part, -rounded(x * part))

    def without_whole(turn: Number) -> Number:
        return turn - rounded(turn)

    # x * first may be so large that its rounding error spans many turns: those are whole, too, and go in a second step.
    turn = without_whole(fraction(first)) + without_whole(fraction(second))
    turn = without_whole(without_whole(turn) + fraction(third))
    rest, quadrant = _quarters(turn)
    return fma(x, fourth, rest) * (2 * PI), quadrant


def _exact_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """a + b rounded, and what the rounding lost."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def _window(position: Bits) -> tuple[Bits, Bits, Bits]:
    """192 bits of 1 / 2pi from the given position; position 64 is the first bit after the point."""
    count = 21
    stream = bits_of_inverse_turn(64 * (count - 1))
    words = [position.constant((stream >> (64 * (count - 1 - index))) & (2**64 - 1)) for index in range(count)]
    for level in (4, 3, 2, 1, 0):
        step = 1 << level
        odd = (position & (64 << level)).equals(64 << level)
        needed = 4 + step - 1
        words = [
            choose_bits(odd, words[index + step], words[index]) if index + step < len(words) else words[index]
            for index in range(min(needed, len(words)))
        ]
    shift = position & 63
    first, second, third = ((words[index] << shift) | ((words[index + 1] >> 1) >> (63 - shift)) for index in range(3))
    return first, second, third


def by_window(x: Number) -> Reduced:
    """r and the quadrant of |x| for double-precision |x| >= 1; the caller gives r its sign."""
    format = x.format
    bits = x.bits()
    exponent = (bits >> format.fraction_bits) & (2 * format.bias + 1)
    whole = ((bits & format.fraction_mask) | ((format.bias + 52) << 52)).as_number()
    first, second, third = _window(exponent - (format.bias + 52 - 64))

    def piece(fraction: Bits, scale: float) -> Number:
        return (((fraction >> 12) | format.one_bits).as_number() - 1.0) * scale

    leading = piece(first, 1.0)
    # Times `whole` < 2^53, each piece reaches 52 bits further down; only the leading one makes whole turns.
    turn = fma(whole, leading, -rounded(whole * leading))
    tails = []
    for fraction, scale in (
        ((first << 52) | (second >> 12), 2.0**-52),
        ((second << 40) | (third >> 24), 2.0**-104),
    ):
        number = piece(fraction, scale)
        product = whole * number
        tails += [product, fma(whole, number, -product)]
    turn, lost = _exact_sum(turn, tails[0])
    rest, quadrant = _quarters(turn - rounded(turn))
    rest, first_lost = _exact_sum(rest, tails[2])
    rest, second_lost = _exact_sum(rest, tails[1])
    rest, third_lost = _exact_sum(rest, lost)
    small = fma(whole, piece(third << 28, 2.0**-156), tails[3])
    rest = rest + (first_lost + second_lost + third_lost + small)
    return rest * (2 * PI), quadrant


def _near_or_far(x: Number, limit: float, far: Callable[[], Reduced]) -> Reduced:
    """By parts below the limit, and the other way from there on, if any lane is there."""
    near = by_parts(x)
    large = ~(abs(x) < limit)

    def where_large() -> Reduced:
        r, quadrant = far()
        return choose(large, r, near[0]), choose_bits(large, quadrant, near[1])

    return replaced_where_any(large, where_large, *near)


def reduced(x: Number) -> Reduced:
    """r and the quadrant for any x."""

    def far_single() -> Reduced:
        r, quadrant = by_turns(x.widened())
        return r.narrowed(), quadrant.narrowed()

    def far_double() -> Reduced:
        r, quadrant = by_window(x)
        negative = x < 0.0
        r = choose(abs(x) < INFINITY, choose(negative, -r, r), NAN)
        return r, choose_bits(negative, 0 - quadrant, quadrant)

    if x.is_single:
        return _near_or_far(x, _MODERATE_SINGLE, far_single)
    return _near_or_far(x, _MODERATE_DOUBLE, far_double)


def reduced_in_double(x: Number) -> Reduced:
    """r, exact to double precision, and the quadrant for any single-precision x, held in double precision."""
    return _near_or_far(x, _MODERATE_DOUBLE, lambda: by_turns(x))
