"""Indices, scatters, sorting and attention: what looks elements up, adds them at computed places, or masks them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.operations.cases import Data, OperationCase


def smoothed_labels(labels: Tensor) -> Tensor:
    return F.one_hot(labels, 1000).float() * 0.9 + 1e-4


def histogram(x: Tensor) -> Tensor:
    return torch.bincount((x * 255).long(), minlength=256)


def weighted_rows(table: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    return table[(index * 7 + 3) % table.shape[0]] * weight[:, None]


def messages(x: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Each edge of a graph adds its source's features to its target's."""
    return torch.zeros_like(x).index_add(0, target, x[source] * weight[:, None])


def scattered(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros(x.shape[0], x.shape[1], dtype=x.dtype).scatter_add(1, index, x)


def embedded(tokens: Tensor, words: Tensor, places: Tensor) -> Tensor:
    return F.layer_norm(F.embedding(tokens, words) + places[: tokens.shape[1]], words.shape[1:])


def attention_of_some(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, float("-inf")).softmax(-1)


def frames(signal: Tensor, window: Tensor) -> Tensor:
    return signal.unfold(-1, 400, 160) * window


def routed(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The two best experts of each token, and their shares."""
    values, places = logits.softmax(-1).topk(2, -1)
    return values / values.sum(-1, keepdim=True), places


def clipped_by_quantiles(x: Tensor) -> Tensor:
    low, high = torch.quantile(x, 0.05, dim=-1, keepdim=True), torch.quantile(x, 0.95, dim=-1, keepdim=True)
    return torch.minimum(torch.maximum(x, low), high)


def _edges(data: Data) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    nodes, edges = data.size(10_000), data.size(100_000)
    return data.floats(nodes, 64), data.below(nodes, edges), data.below(nodes, edges), data.fractions(edges)


def _heads(data: Data) -> tuple[Tensor, Tensor, Tensor]:
    sizes = (4, 8, data.size(256), 64)
    return data.floats(*sizes), data.floats(*sizes), data.floats(*sizes)


def _masked(data: Data) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    length = data.size(256)
    return *_heads(data), torch.ones(length, length, dtype=torch.bool).tril()[None, None]


def _biased(data: Data) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    length = data.size(256)
    return *_heads(data), data.floats(1, 8, length, length)


CASES = (
    OperationCase(
        "one_hot, smoothed, 4096 of 1000", smoothed_labels, lambda data: (data.below(1000, data.size(4096)),)
    ),
    OperationCase("bincount of 1M bytes", histogram, lambda data: (data.fractions(data.size(1_000_000)),)),
    OperationCase(
        "rows by computed indices, (65536, 64)",
        weighted_rows,
        lambda data: (
            data.floats(data.size(10_000), 64),
            data.below(10_000, data.size(65_536)),
            data.fractions(data.size(65_536)),
        ),
    ),
    OperationCase("rows x weight, index_add: graph messages", messages, _edges),
    OperationCase(
        "scatter_add over last, (4096, 256)",
        scattered,
        lambda data: (
            data.floats(data.size(4096), data.size(256)),
            data.below(data.size(256), data.size(4096), data.size(256)),
        ),
    ),
    OperationCase(
        "embedding + places + layer_norm",
        embedded,
        lambda data: (
            data.below(data.size(30_000), 16, data.size(512)),
            data.floats(data.size(30_000), data.size(256)),
            data.floats(data.size(512), data.size(256)),
        ),
    ),
    OperationCase("attention with a boolean mask", attention_of_some, _masked),
    OperationCase("attention with a bias", attention_of_some, _biased),
    OperationCase(
        "masked_fill + softmax",
        masked_softmax,
        lambda data: (
            data.floats(8, 8, data.size(256), data.size(256)),
            data.fractions(8, 1, data.size(256), data.size(256)) > 0.7,
        ),
    ),
    OperationCase(
        "unfold of signals x window",
        frames,
        lambda data: (data.floats(16, 16_000 if not data.is_small else 800), data.floats(400)),
    ),
    OperationCase("softmax + topk 2, (65536, 16)", routed, lambda data: (data.floats(data.size(65_536), 16),)),
    OperationCase(
        "clip by quantiles, (1024, 1000)",
        clipped_by_quantiles,
        lambda data: (data.floats(data.size(1024), data.size(1000)),),
    ),
)
