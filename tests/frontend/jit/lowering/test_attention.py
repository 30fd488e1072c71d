"""Attention through ingot.jit: generated where it can be, PyTorch's otherwise, and right in both cases."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import ingot
from ingot.frontend.jit.rewrites import attention_strategy


@pytest.fixture(autouse=True)
def preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring finds generated code quicker."""
    monkeypatch.setattr(attention_strategy, "_is_preferred", lambda *_: True)


def heads(*shape: int) -> torch.Tensor:
    batches, count, rows, width = shape
    return torch.randn(batches, rows, count, width).transpose(1, 2)


@torch.no_grad()
def check(function: Any, *tensors: torch.Tensor) -> str:
    """Three calls as eager's; the text of the program."""
    compiled: Any = ingot.jit(function)
    for _ in range(3):
        result, expected = compiled(*tensors), function(*tensors)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    return compiled.inspect("program")


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("scale", [None, 0.5])
def test_attention_is_generated(is_causal: bool, scale: float | None):
    function = lambda q, k, v: (
        scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale).transpose(1, 2) + 1
    )
    text = check(function, *(heads(2, 3, 20, 16) for _ in range(3)))
    assert " attention(" in text and "flash" not in text


def test_heads_may_share_keys():
    function = lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True) * 2
    assert " attention(" in check(function, heads(2, 4, 20, 16), heads(2, 2, 20, 16), heads(2, 2, 20, 16))


def test_results_lie_as_eagers():
    compiled = ingot.jit(lambda q, k, v: scaled_dot_product_attention(q, k, v))
    q, k, v = (heads(2, 3, 20, 16) for _ in range(3))
    with torch.no_grad():
        for _ in range(3):
            result, expected = compiled(q, k, v), scaled_dot_product_attention(q, k, v)
            assert result.stride() == expected.stride()
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_infinite_scores_are_computed_as_eager_does():
    q, k, v = (torch.rand(1, 2, 20, 16) + 0.5 for _ in range(3))
    q[0, 0, 3], q[0, 1, 5] = torch.inf, -torch.inf
    check(lambda q, k, v: scaled_dot_product_attention(q, k, v) + 1, q, k, v)


@pytest.mark.parametrize("kind", ["mask", "dropout", "double", "negative scale", "sums"])
def test_what_generated_code_cannot_do_stays_pytorchs(kind: str):
    mask = torch.randn(20, 20)
    mask[7] = -torch.inf
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    function = {
        "mask": lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask) + 1,
        "dropout": lambda q, k, v: scaled_dot_product_attention(q, k, v, dropout_p=1.0) + 1,
        "double": lambda q, k, v: scaled_dot_product_attention(q.double(), k.double(), v.double()) + 1,
        "negative scale": lambda q, k, v: scaled_dot_product_attention(q, k, v, scale=-0.5) + 1,
        "sums": lambda q, k, v: flash(q, k, v)[1] + 1,
    }[kind]
    assert " attention(" not in check(function, *(heads(2, 3, 20, 16) for _ in range(3)))
