"""Digests tell every change of bits, wherever it is."""

from __future__ import annotations

import random

import pytest
import torch

from ingot.runtime.cpu.digests import PIECE, Digests, can_digest


@pytest.mark.parametrize("nbytes", [0, 1, 7, 8, 255, 256, 257, 1000, PIECE - 1, PIECE, PIECE + 3, 2 * PIECE + 300])
def test_every_bit_counts(nbytes: int):
    held = torch.randint(0, 256, (nbytes,), dtype=torch.uint8)
    digests = Digests([held])
    before = digests.now()
    assert digests.now() == before
    choose = random.Random(nbytes)
    places = {*range(min(nbytes, 300)), *range(max(nbytes - 300, 0), nbytes)}
    places |= {choose.randrange(nbytes) for _ in range(200) if nbytes}
    for place in places:
        bit = 1 << choose.randrange(8)
        held[place] ^= bit
        assert digests.now() != before, f"bit {bit} of byte {place}"
        held[place] ^= bit
    assert digests.now() == before


def test_order_counts():
    rows = torch.randn(300, 64)
    for first, second in ((0, 1), (0, 4), (3, 259), (7, 263)):
        digests = Digests([rows])
        before = digests.now()
        rows[[first, second]] = rows[[second, first]]
        assert digests.now() != before


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 512), (8, 32), (6, 32), (2, 64)], ids=str)
def test_changes_of_many_words_do_not_cancel(dtype: torch.dtype, shape: tuple[int, int]):
    """Sums and products carry bits upwards only: signs are the highest bits of words, exponents follow them."""
    held = torch.randn(shape).to(dtype)
    digests, before = Digests([held]), held.clone()
    compared = digests.now()
    places = [
        *((slice(None), slice(first, None, step)) for step in (1, 2, 4) for first in range(step)),
        *((slice(None), column) for column in range(8)),
        *((slice(row, row + 2), slice(None)) for row in range(min(shape[0], 16) - 1)),
        *(([0, 0], [first, last]) for first in range(8) for last in range(first + 1, 32)),
        *(([0, shape[0] - 1], [first, last]) for first in range(8) for last in range(min(shape[1], 64))),
    ]
    for factor in (-1, 2, 0.5, 4, 16, -2):
        for place in places:
            held[place] *= factor
            assert digests.now() != compared, f"{place} times {factor}"
            held.copy_(before)
    for shift in (1, 2, 16, shape[1] // 2):
        held.copy_(before.roll(shift, 1))
        assert digests.now() != compared, f"columns moved by {shift}"
        held.copy_(before)
    assert digests.now() == compared


def test_several_tensors_wherever_they_lie():
    first, second = torch.nn.Parameter(torch.randn(40, 30)), torch.randn(7)
    digests = Digests([first, second])
    before = digests.now()
    first.data = first.data.clone()
    assert digests.now() == before, "the same bits, elsewhere"
    first.data = first.data.flip(0)
    assert digests.now() != before


def test_equal_numbers_of_other_bits_are_told_apart():
    held = torch.zeros(5)
    digests = Digests([held])
    before = digests.now()
    held[3] = -0.0
    assert digests.now() != before
    held.fill_(float("nan"))
    before = digests.now()
    assert digests.now() == before, "NaN has not changed"
    held.view(torch.int32)[2] += 1
    assert digests.now() != before


def test_threads_make_no_difference():
    held = torch.randn(5 * PIECE // 4 + 1)
    threads = torch.get_num_threads()
    try:
        found = set()
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            found.add(Digests([held]).now())
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1


def test_what_can_be_digested():
    plain = torch.randn(6, 4)
    assert can_digest(plain) and can_digest(plain[2:]) and can_digest(torch.empty(0))
    assert not can_digest(plain.t()) and not can_digest(plain[:, 1:])
    assert not can_digest(torch.randn(3, dtype=torch.complex64).conj())
    assert not can_digest(plain.to_sparse()) and not can_digest(plain.to("meta"))


def test_memory_that_was_given_back_is_not_read():
    weight = torch.randn(300)
    digests = Digests([weight])
    before = digests.now()
    weight.untyped_storage().resize_(0)
    assert digests.now() == b"" != before
