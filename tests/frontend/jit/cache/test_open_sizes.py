"""Sizes that stay open: functions whose results' sizes are no polynomial of their arguments' sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import ingot

Function = Callable[[torch.Tensor], Any]


def _functions(body: str, texts: str) -> dict[str, Function]:
    """A function for each expression, written into a body."""
    expressions = [text.strip() for line in texts.splitlines() for text in line.split(";") if text.strip()]
    return {text: eval(f"lambda x: {body.format(text)}", {"torch": torch, "F": F}) for text in expressions}


INDEXING = _functions(
    "torch.tanh({}) * 2",
    """
        x[:, :512]; x[:, :20]; x[:, 2:]; x[:, -3:]; x[:, :-3]; x[:, 1:-1]; x[:, ::2]; x[:, 1::3]; x[:, 3:20:4]
        x[:, -6::2]; x[:, -7:-2:2]; x[:, 5:8]; x[:, -5:3]; x[:, -20:]; x[:, :-20]; x[:, -20:-1]; x[:, 20:]; x[:, 7]
        x[:, -7]; x[:, 0]; x[..., :20]; x[..., 2:, None]; x[:, None, :20]; x[None, ..., :15]; x[0, :20]; x[1:3, :20]
        x[1:3]; x[-9:]; x[:9]; x[True, :, :20]; x[[0, 2], :20]; x[:, [0, 1]]; x[torch.tensor([0, 1]), :20]
        x[:, :20][:, :10]; x[:, :40][:, -10:]; x[:, 5:][:, :30]; x[:, :20] + x[:, -20:]; x[:, 1:] - x[:, :-1]
        x[:, :1]; x[:, 1:2]; x[:, :0]; x[:, 3:3]; x[:, 9:4]; x[:, :20].t(); x.t()[:20]; x.t()[2:, 1:3]
        x[:, :20].sum(1); x[:, :20].mean(); x[:, -3:].amax(1); x[:, 2:].squeeze(); x[:, 1:].squeeze(1)
    """,
)
OTHERS = _functions(
    "{}",
    """
        x.narrow(1, 0, 6) * 2; x.narrow(1, -3, 2) * 2; x.narrow(1, 2, 3) * 2; x.select(1, 5) * 2; x.select(1, -6) * 2
        torch.roll(x, 3, 1) * 2; torch.roll(x, -40, 1) * 2; torch.roll(x, 5) * 2; F.pad(x, (1, 2)) * 2
        F.pad(x, (-2, -3)) * 2; F.pad(x, (2, 2), mode="reflect") * 2; F.pad(x, (9, 0), mode="circular") * 2
        F.pad(x, (3, 3), mode="replicate") * 2; x.unfold(1, 3, 1) * 2; x.unfold(1, 4, 3) * 2; torch.tril(x) * 2
        torch.triu(x, 5) * 2; torch.tril(x, -2) + x; x.chunk(2, 1)[0] * 2; x.chunk(3, 1)[-1] * 2; x.split(8, 1)[0] * 2
        x.split(8, 1)[-1] * 2; torch.cat(x.split(16, 1), 1) * 2; torch.tensor_split(x, 3, 1)[1] * 2
        torch.arange(x.shape[1]) * x; torch.tanh(x[:, : min(x.shape[1], 12)]); x.reshape(-1) * 2; x.view(2, -1) * 2
        x.reshape(-1, 3) * 2; x.flatten() + 1; x.unsqueeze(1) * x.unsqueeze(2); x @ x.t(); x.t() @ x; x.cumsum(1) * 2
        x.diff(dim=1) * 2; x.flip(1) * 2; x.repeat(1, 2) * 2; x.repeat_interleave(2, 1) * 2
        torch.cat([x, x[:, :9]], 1); torch.stack([x, x * 2]); F.avg_pool1d(x, 3) * 2; F.avg_pool1d(x, 3, 2, 1) * 2
        F.max_pool1d(x, 2) * 2; F.avg_pool1d(x, 3, 2, ceil_mode=True) * 2; F.max_pool1d(x, 3, 2, ceil_mode=True) * 2
        F.adaptive_avg_pool1d(x, 3) * 2; F.adaptive_avg_pool1d(x, 1) * 2; F.interpolate(x[None], 7) * 2
        F.interpolate(x[None], scale_factor=1.5) * 2; F.conv1d(x[:, None], torch.ones(2, 1, 3), stride=2) * 2
        F.conv1d(x[:, None], torch.ones(2, 1, 3), padding=1) * 2; x.softmax(1) * 2; x.sum(1, keepdim=True) + x
        x.mean(0) - x; x.var(1) * 2; x.std() * x; x.amax(1) + x.amin(1); x.argmax(1) + 1; x.sort(1)[0] * 2
        x.topk(2, 1)[0] * 2; x.norm() * x; x.logsumexp(1) * 2; x.squeeze() * 2; torch.linspace(0, 1, x.shape[1]) + x
        torch.ones_like(x)[:, :20] * 2; x.expand(3, -1, -1) * 2; x.movedim(0, 1) * 2; x.diagonal() * 2
        x.unflatten(1, (-1, 2)) * 2; x.swapaxes(0, 1)[:20] * 2; torch.hstack([x, x]) * 2
        x.index_select(1, torch.tensor([0, 1])) * 2; x.take(torch.tensor([0, 3])) * 2
        x.gather(1, torch.zeros(4, 1, dtype=torch.long)) * 2
        x.scatter(1, torch.zeros(4, 1, dtype=torch.long), 1.0) * 2; x.clone().fill_(2) * x
        torch.where(x > 0, x, x[:, :1]) * 2; x.masked_fill(x > 0, 1) * 2; F.glu(x, 1) * 2
        F.pixel_shuffle(x.reshape(4, 1, -1)[None], 2) * 2; F.layer_norm(x[:, :6], (6,)) * 2; x.bernoulli(0.0) * 2
        torch.tile(x, (2, 2)) * 2; torch.kron(x, x[:, :2]) * 2; torch.cdist(x, x) * 2
        F.cosine_similarity(x, x * 2, 1) * 2; F.pairwise_distance(x, x * 2) * 2; torch.trapezoid(x) * 2
        torch.gradient(x, dim=1)[0] * 2; x.nanmedian() * x; torch.einsum("ij,kj->ik", x, x) * 2
        torch.tensordot(x, x, ([1], [1])) * 2; x.cov() * 2; torch.vander(x[0], 3) * 2; torch.combinations(x[0]) * 2
        torch.cartesian_prod(x[0, :5], x[0]) * 2; torch.block_diag(x, x) * 2; x.rot90() * 2; torch.hsplit(x, 2)[0] * 2
        torch.atleast_3d(x) * 2; torch.column_stack([x, x]) * 2; x.dist(x * 2) * x; x.quantile(0.5, 1) * 2
        x.msort() * 2; x.logcumsumexp(1) * 2; F.normalize(x) * 2; F.local_response_norm(x[None], 2) * 2
        torch.stft(x, 4, return_complex=False, window=torch.ones(4)) * 2; F.unfold(x[None, None], (2, 2)) * 2
        F.max_pool2d(x[None], 2) * 2; F.avg_pool2d(x[None], 2, 2) * 2; F.lp_pool1d(x, 2, 3) * 2; x.median(1)[0] * 2
        F.conv_transpose1d(x[:, None], torch.ones(1, 2, 3), stride=2) * 2; F.instance_norm(x[None]) * 2
        F.group_norm(x[None], 2) * 2; F.batch_norm(x, None, None, training=True) * 2 if x.shape[1] else x
        F.scaled_dot_product_attention(x[None], x[None], x[None]) * 2; F.smooth_l1_loss(x, x * 2) * x
        x.view(torch.int32) + 1; x.as_strided((2, 2), (2, 1)) * 2; x.index_fill(1, torch.tensor([1]), 2.0)
        x.select_scatter(x[:, 0], 1, 3) * 2; x.slice_scatter(x[:, :3], 1, 0, 3) * 2
        x.diagonal_scatter(x.diagonal()) * 2; torch.fliplr(x) * 2; x.nan_to_num() * 2; x.unique_consecutive() * 2
        torch.bincount(x[0].abs().long()) * 2; x.T @ x[:, :1]; x.mm(x.T)[:3] * 2; x.trace() * x
        x.new_zeros(x.size(1)) + x; x[0].dot(x[1]) * x
    """,
)
WARMING = {"spread": (25, 37, 49), "short": (5, 7, 11), "even": (6, 12, 18), "long": (513, 600, 700)}
LATER = (0, 1, 2, 3, 4, 6, 9, 13, 20, 21, 40, 64, 600)


def _outcome(function: Function, x: torch.Tensor) -> Any:
    """What a call gives, or the kind of its error."""
    try:
        return function(x)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)


def _differs(function: Function, warming: tuple[int, ...], **options: Any) -> list[str]:
    """The lengths for which the compiled function gives something else than the original."""
    compiled = ingot.jit(function, **options)
    found = []
    for length in (*warming, *LATER, *warming[:1]):
        x = torch.randn(4, length)
        expected, given = _outcome(function, x), _outcome(compiled, x)
        if isinstance(expected, type) or isinstance(given, type):
            is_same = expected is given
        else:
            is_same = expected.shape == given.shape and expected.dtype is given.dtype
            is_same = is_same and torch.allclose(expected, given, atol=1e-5, rtol=1e-4, equal_nan=True)
        if not is_same:
            found.append(f"{length}: {_shown(expected)}, not {_shown(given)}")
    return found


def _shown(outcome: Any) -> str:
    return outcome.__name__ if isinstance(outcome, type) else str(tuple(outcome.shape))


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"python": "run"}], ids=["auto", "dynamic", "run"])
@pytest.mark.parametrize("text", [*INDEXING, *OTHERS])
def test_every_length_gives_what_eager_gives(text: str, options: dict[str, Any]) -> None:
    function = (INDEXING | OTHERS)[text]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {name: _differs(function, lengths, **options) for name, lengths in WARMING.items()}
    assert not any(found.values()), found


def test_lengths_below_the_end_of_a_slice_share_one_recording() -> None:
    function = INDEXING["x[:, :512]"]
    compiled: Any = ingot.jit(function, python="skip")
    for length in (100, 200, 300, 400, 450, 511, 512):
        x = torch.randn(4, length)
        torch.testing.assert_close(compiled(x), function(x))
    assert compiled._compiled.recordings == 3
    assert compiled(torch.randn(4, 600)).shape == (4, 512)
