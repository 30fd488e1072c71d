"""Attention by generated code: all sizes of ends, causal or not, heads that share keys, any order of memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from ingot.runtime.attention import attend


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float) -> torch.Tensor:
    """In double precision, written out."""
    repeats = q.shape[1] // k.shape[1]
    keys, values = (one.double().repeat_interleave(repeats, 1) for one in (k, v))
    scores = q.double() @ keys.mT * scale
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return (torch.softmax(scores, -1) @ values).float()


def made(*shape: int, is_transposed: bool) -> torch.Tensor:
    """Of batches x heads x rows x width, with heads inside rows if it is transposed."""
    batches, heads, rows, width = shape
    return torch.randn(batches, rows, heads, width).transpose(1, 2) if is_transposed else torch.randn(shape)


@settings(deadline=None)
@given(st.data())
def test_all_sizes_and_orders(data: st.DataObject):
    number = lambda most: data.draw(st.integers(1, most))
    batches, key_heads, repeats, queries, keys, width = (
        number(2),
        number(2),
        number(3),
        number(110),
        number(110),
        number(70),
    )
    is_causal, *transposed = (data.draw(st.booleans()) for _ in range(5))
    q = made(batches, key_heads * repeats, queries, width, is_transposed=transposed[0])
    k = made(batches, key_heads, keys, width, is_transposed=transposed[1])
    v = made(batches, key_heads, keys, width, is_transposed=transposed[2])
    around = torch.full((batches + 1, queries + 1, key_heads * repeats, width + 3), 7.0)
    out = around[1:, 1:, :, 1:-2].transpose(1, 2)
    assert attend(q, k, v, is_causal, 0.3, out) is out
    torch.testing.assert_close(out, expected(q, k, v, is_causal, 0.3), rtol=1e-4, atol=1e-5)
    out.fill_(7.0)
    assert torch.equal(around, torch.full_like(around, 7.0))


@pytest.mark.parametrize("is_causal", [True, False])
def test_as_pytorchs(is_causal: bool):
    q, k, v = (made(2, 3, 130, 64, is_transposed=True) for _ in range(3))
    out = torch.empty(2, 3, 130, 64)
    attend(q, k, v, is_causal, 0.125, out)
    torch.testing.assert_close(out, scaled_dot_product_attention(q, k, v, is_causal=is_causal), rtol=1e-5, atol=1e-6)


def test_keys_that_are_one_row_for_all_heads():
    q, k = torch.randn(2, 4, 20, 16), torch.randn(2, 1, 20, 16)
    shared = k.expand(2, 4, 20, 16)
    out = torch.empty(2, 4, 20, 16)
    attend(q, shared, shared, False, 0.25, out)
    torch.testing.assert_close(out, expected(q, k, k, False, 0.25), rtol=1e-4, atol=1e-5)


def test_what_is_not_a_number_spreads_to_those_who_see_it():
    q, k, v = (torch.randn(1, 2, 60, 32) for _ in range(3))
    k[0, 1, 13, 5] = v[0, 0, 2, 7] = torch.nan
    out = torch.empty(1, 2, 60, 32)
    assert attend(q, k, v, False, 0.2, out) is out
    assert out[0, 1].isnan().all() and torch.equal(out[0, 0].isnan().any(0).nonzero(), torch.tensor([[7]]))


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 1e38])
def test_infinite_scores_are_left_to_others(value: float):
    q, k, v = (torch.rand(1, 2, 60, 32) + 0.5 for _ in range(3))
    q[0, 1, 13] = value
    assert attend(q, 8 * k, v, False, 1.0, torch.empty(1, 2, 60, 32)) is None


def test_scores_that_one_query_does_not_see_may_be_infinite_for_none():
    """A causal query does not see later keys, whatever they are."""
    q, k, v = (torch.randn(1, 1, 50, 16) for _ in range(3))
    k[0, 0, 49], v[0, 0, 49] = torch.nan, torch.nan
    out = torch.empty(1, 1, 50, 16)
    assert attend(q, k, v, True, 0.25, out) is out
    wanted = expected(q[:, :, :49], k[:, :, :49], v[:, :, :49], True, 0.25)
    rows_before_the_last_task = slice(0, 48)
    torch.testing.assert_close(out[:, :, rows_before_the_last_task], wanted[:, :, :48], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_does_not_matter(threads: int):
    q, k, v = (torch.randn(2, 5, 77, 40) for _ in range(3))
    outs = [torch.empty(2, 5, 77, 40) for _ in range(2)]
    before = torch.get_num_threads()
    for out, count in zip(outs, (before, threads), strict=True):
        torch.set_num_threads(count)
        try:
            attend(q, k, v, True, 0.2, out)
        finally:
            torch.set_num_threads(before)
    assert torch.equal(*outs)
