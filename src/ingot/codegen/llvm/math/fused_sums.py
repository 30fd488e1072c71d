"""A product that is added without being rounded first."""

from __future__ import annotations

from ingot.codegen.llvm.math.dsl.vocabulary import Number, choose, choose_bits, fma


def fused_sum(x: Number, y: Number, z: Number) -> Number:
    """x * y + z in single precision, rounded once: by the instruction, or where there is none in double precision.

    There the product is exact. The sum is rounded to odd: where it is not exact, its last bit is made 1, so that
    rounding it once more gives what rounding once would have given.
    """
    if x.host.has_fma:
        return fma(x, y, z)
    product, added = x.widened() * y.widened(), z.widened()
    total = product + added
    shadow = total - product
    lost = (product - (total - shadow)) + (added - shadow)
    bits = total.bits()
    is_outwards = (lost.bits() ^ bits).is_negative()
    odd = choose_bits(is_outwards, bits - 1, bits + 1).as_number()
    is_even = choose((bits & 1).equals(0), lost, 0.0)
    return choose(abs(is_even) > 0.0, odd, total).narrowed()
