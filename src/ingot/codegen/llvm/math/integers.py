"""Functions of signed integers that take a loop: gcd and pow. Arithmetic wraps around, as PyTorch's does."""

from __future__ import annotations

from ingot.codegen.llvm.math.dsl.lane_branches import repeated
from ingot.codegen.llvm.math.dsl.vocabulary import Bits, choose_bits


def _magnitude(x: Bits) -> Bits:
    return choose_bits(x.is_negative(), 0 - x, x)


def gcd(x: Bits, y: Bits) -> Bits:
    """The greatest common divisor, by Euclid. The lowest number is its own magnitude, and the result may be negative
    then: it is what C's remainder makes of it."""

    def step(x: Bits, y: Bits) -> tuple[Bits, Bits]:
        going = ~x.equals(0)
        # A remainder by 1 is one by -1, which the processor may refuse.
        divisor = choose_bits(going & ~x.equals(-1), x, x.constant(1))
        return choose_bits(going, y.modulo(divisor), x), choose_bits(going, x, y)

    _, y = repeated(lambda x, y: ~x.equals(0), step, _magnitude(x), _magnitude(y))
    return y


def pow(x: Bits, y: Bits) -> Bits:
    """x^y by repeated squaring; for negative y what is left of 1 / x^-y when cut off: 0 but for x = 1 and -1."""
    negative = y.is_negative()

    def step(power: Bits, exponent: Bits, result: Bits) -> tuple[Bits, Bits, Bits]:
        odd = ~(exponent & 1).equals(0)
        return power * power, exponent >> 1, choose_bits(odd, result * power, result)

    start = x, choose_bits(negative, y.constant(0), y), x.constant(1)
    _, _, result = repeated(lambda power, exponent, result: ~exponent.equals(0), step, *start)
    even = (y & 1).equals(0)
    inverse = choose_bits(x.equals(1) | (x.equals(-1) & even), x.constant(1), x.constant(0))
    inverse = choose_bits(x.equals(-1) & ~even, x.constant(-1), inverse)
    return choose_bits(negative, inverse, result)
