"""Random numbers that depend on a seed alone: Philox as it is published, and numbers from its words."""

from __future__ import annotations

import pytest
import torch

from ingot.ops.definitions.random_numbers import eager_normal, eager_uniform, philox


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (-1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_words_are_those_of_the_published_tests(word: int, expected: tuple[int, ...]):
    """Counter and key with no bit set, and with all of them."""
    value = torch.tensor(word)
    assert tuple(map(int, philox(value, value, value))) == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_numbers_fill_the_range_and_never_reach_its_end(dtype: torch.dtype):
    numbers = eager_uniform(torch, (100_000,), dtype, 1, 0)
    assert numbers.dtype is dtype
    assert 0 <= numbers.min() < 0.01
    assert 0.98 < numbers.max() < 1
    assert abs(numbers.double().mean() - 0.5) < 0.01
    normal = eager_normal(torch, (100_000,), dtype, 1, 0).double()
    assert normal.isfinite().all()
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
