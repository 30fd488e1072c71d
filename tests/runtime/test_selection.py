"""Selecting by a mask: the elements that PyTorch gives, in its order, whatever they are and however many."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.codegen.cpu.compaction import CHUNK
from ingot.runtime.selection import can_select, select

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16),
    *(torch.float32, torch.float64, torch.complex64, torch.complex128),
)
SIZES = (0, 1, 7, 8, 9, 31, 32, 33, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 4100)


def _numbers(size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, 2 if dtype is torch.bool else 100, (size,)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_selected_is_what_pytorch_selects(dtype: torch.dtype):
    for size in SIZES:
        source = _numbers(size, dtype)
        for share in (0.0, 0.01, 0.5, 0.99, 1.0):
            mask = torch.rand(size) < share
            assert torch.equal(select(source, mask), source[mask]), (size, share)


@given(st.integers(0, 2 * CHUNK), st.floats(0, 1), st.integers(0, 9), st.sampled_from([1, 2, 3]))
@settings(deadline=None, max_examples=50)
def test_masks_of_any_kind_and_any_number_of_threads(size: int, share: float, skipped: int, threads: int):
    """Bytes of a mask are true if they are anything but 0; tensors need not begin where vectors do."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        bits = torch.rand(size + skipped) < share
        noise = torch.randint(1, 256, (size + skipped,), dtype=torch.uint8)
        mask = (bits.to(torch.uint8) * noise).view(torch.bool)[skipped:]
        source = torch.randn(size + skipped)[skipped:]
        assert torch.equal(select(source, mask), source[bits[skipped:]])
    finally:
        torch.set_num_threads(before)


def test_results_are_ordinary_tensors():
    source = torch.randn(200, 100)
    result = select(source, source > 0)
    assert result.is_contiguous() and result.dim() == 1 and not result.requires_grad
    result.resize_(5)
    with torch.inference_mode():
        assert select(source, source > 0).is_inference()


def test_what_is_left_to_pytorch():
    source, mask = torch.randn(8, 8), torch.ones(8, 8, dtype=torch.bool)
    assert can_select(source, mask)
    for other_source, other_mask in (
        (source, mask[0]),
        (source, mask.to(torch.uint8)),
        (source.T, mask),
        (source, mask.T),
        (source[:, ::2], mask[:, :4].contiguous()),
        (source.to("meta"), mask.to("meta")),
    ):
        assert not can_select(other_source, other_mask)
