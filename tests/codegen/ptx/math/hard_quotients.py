"""Quotients of float32 that lie as near halfway between two numbers as any: the hardest to round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

ALL_ONES = float((1 << 24) - 1)
_ODD_DIVISORS = numpy.arange((1 << 23) + 1, 1 << 24, 2, dtype=numpy.uint64)


def _inverses(digits: int) -> numpy.ndarray:
    """What every odd divisor gives 1 with, modulo 2^digits."""
    found = _ODD_DIVISORS.copy()
    for _ in range(4):
        found = found * (numpy.uint64(2) - _ODD_DIVISORS * found)
    return found & numpy.uint64((1 << digits) - 1)


def hard_quotients(remainder: int) -> Iterator[tuple[numpy.ndarray, numpy.ndarray]]:
    """Dividends and divisors with dividend * 2^k - halfway * divisor = remainder, where `halfway` has 25 bits, the last
    of them set, and the remainder is odd: a quotient whose digits go on like that for another 24 of them."""
    for digits in (24, 25):
        modulus = 1 << digits
        halfway = (numpy.uint64(-remainder % modulus) * _inverses(digits)) % numpy.uint64(modulus)
        halfway |= numpy.uint64(1 << 24)
        product = halfway * _ODD_DIVISORS + numpy.uint64(remainder % (1 << 64))
        dividend = product >> numpy.uint64(digits)
        fits = (product % numpy.uint64(modulus) == 0) & (dividend >= 1 << 23) & (dividend < 1 << 24)
        yield dividend[fits].astype(numpy.float32), _ODD_DIVISORS[fits].astype(numpy.float32)
