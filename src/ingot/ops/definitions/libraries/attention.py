"""Attention, forward and backward, as nvFuser has it: composed of products and of what is fused between them."""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import FLOATS, HALVES, DataType, in_order
from ingot.base.errors import ArgumentValueError, DTypeError, ShapeError
from ingot.ops.definitions.random_numbers import eager_uniform, uniform_bits
from ingot.ops.parameters import Plain, Tensor
from ingot.ops.record import Kind, operator
from ingot.ops.samples import Domain, Sample, Tolerance
from ingot.ops.samples import Operand as SampleOperand

SMALL = Domain(low=-2.0, high=2.0, specials=False)
ATTENDED = Tolerance(ulps=256, scale=4.0, half_ulps=8)
_SEEDS = 1 << 31


def _operands(shape: tuple[int, ...], dtype: DataType) -> tuple[SampleOperand, SampleOperand]:
    """A query of a shape, and a key with four rows."""
    return SampleOperand((2, *shape), SMALL, dtype), SampleOperand((2, *shape[:1], 4, *shape[2:]), SMALL, dtype)


def _forward_samples(shape: tuple[int, ...]) -> list[Sample]:
    if len(shape) != 3:
        return []
    mask = SampleOperand((2, *shape[:2], 4), SMALL, DataType.Bool)
    samples = []
    for dtype in in_order(FLOATS | HALVES):
        query, key = _operands(shape, dtype)
        bias = SampleOperand((2, *shape[:2], 4), SMALL, dtype)
        samples += [
            Sample((query, key, key)),
            Sample((query, key, key), {"is_causal": True}),
            Sample((query, key, key), {"scale": 0.5, "dropout_p": 0.25, "is_causal": False}),
            Sample((query, key, key), {"bias": bias, "mask": mask}),
            Sample((query, key, key, 0.0, True, 0.25)),
        ]
    return samples


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, *arguments: _eager_forward(torch, *arguments),
    samples=_forward_samples,
    tolerance=ATTENDED,
)
def sdpfa_fwd(
    b: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Plain | None = None,
    mask: Plain | None = None,
    dropout_p: Plain | None = None,
    is_causal: Plain | None = None,
    scale: Plain | None = None,
) -> Any:
    """Attention of the last two axes, softmax(query @ key^T * scale + bias) @ value where the mask holds. Results are
    the output, the logarithm of the sums of exponentials, and seed and offset of the dropout. The older interface has
    dropout_p, is_causal and scale right after the value."""
    if bias is not None and not bias.shape:
        bias, mask, dropout_p, is_causal, scale = None, None, bias, mask, dropout_p
    _check_operands("sdpfa_fwd", query, key, value)
    probability, causal = _known(dropout_p, 0.0), bool(_known(is_causal, False))
    scores = _scores(b, query, key, _scale(scale, query), causal)
    if bias is not None:
        scores = b.add(scores, b.cast(bias, scores.dtype))
    if mask is not None:
        scores = b.where(mask, scores, -math.inf)
    logarithm = b.logsumexp(scores, [-1])
    weights = _weights(b, scores, logarithm)
    seed, offset = _seeds(b, probability)
    if probability:
        weights = b.mul(weights, _kept(b, scores, probability, seed, offset))
    output = b.matmul(b.cast(weights, query.dtype), value)
    return output, logarithm, seed, offset


def _backward_samples(shape: tuple[int, ...]) -> list[Sample]:
    if len(shape) != 3:
        return []
    logarithm = SampleOperand((2, *shape[:2]), Domain(low=3.0, high=5.0, specials=False), DataType.Float)
    seed = SampleOperand((), Domain(lowest_integer=0, highest_integer=9, specials=False), DataType.Int)
    return [
        Sample((query, query, key, key, query, logarithm, dropout, causal, seed, seed, scale))
        for query, key in (_operands(shape, dtype) for dtype in in_order(FLOATS | HALVES))
        for dropout, causal, scale in ((0.0, False, None), (0.5, True, 0.5))
    ]


@operator(
    Kind.COMPOSITE,
    eager=lambda torch, *arguments: _eager_backward(torch, *arguments),
    samples=_backward_samples,
    tolerance=ATTENDED,
)
def sdpfa_bwd(
    b: Any,
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    dropout_p: Plain | None,
    is_causal: Plain | None,
    philox_seed: Tensor,
    philox_offset: Tensor,
    scale: Plain | None = None,
) -> Any:
    """Gradients of query, key and value, from what sdpfa_fwd gave without bias and mask, and its arguments."""
    _check_operands("sdpfa_bwd", query, key, value)
    probability, causal = _known(dropout_p, 0.0), bool(_known(is_causal, False))
    factor = _scale(scale, query)
    scores = _scores(b, query, key, factor, causal)
    wide, half = scores.dtype, query.dtype
    weights = _weights(b, scores, b.cast(logsumexp, wide))
    gradient = b.cast(b.matmul(grad_output, _transposed(b, value)), wide)
    dropped = weights
    if probability:
        kept = _kept(b, scores, probability, philox_seed, philox_offset)
        gradient, dropped = b.mul(gradient, kept), b.mul(weights, kept)
    rows = b.sum(b.mul(b.cast(grad_output, wide), b.cast(output, wide)), [-1], True)
    of_scores = b.cast(b.mul(weights, b.sub(gradient, rows)) * factor, half)
    return (
        b.matmul(of_scores, key),
        b.matmul(_transposed(b, of_scores), query),
        b.matmul(_transposed(b, b.cast(dropped, half)), grad_output),
    )


# --- shared -----------------------------------------------------------------------------------------------------------


def _check_operands(name: str, query: Any, key: Any, value: Any) -> None:
    dtypes = {operand.dtype for operand in (query, key, value)}
    if len(dtypes) > 1 or not dtypes <= FLOATS | HALVES:
        raise DTypeError(f"{name} needs query, key and value of one floating-point type, not {query.type}, {key.type}")
    if not len(query.shape) == len(key.shape) == len(value.shape) or len(query.shape) < 3:
        raise ShapeError(f"{name} needs query, key and value of one rank, at least 3, not {query.type}, {key.type}")


def _known(value: Any, default: Any) -> Any:
    """A setting: a number, or a scalar whose value is known when the fusion is defined."""
    if value is None:
        return default
    number = value.constant_value()
    if number is None:
        raise ArgumentValueError(f"dropout_p, is_causal and scale are known when the fusion is defined, not {value!r}")
    return number


def _scale(scale: Any, query: Any) -> float:
    width = query.shape[-1]
    known = _known(scale, None)
    if known is not None:
        return float(known)
    if not isinstance(width, int):
        raise ArgumentValueError(f"scale is needed where the last size of the query is not known: {query.type}")
    return 1 / math.sqrt(max(width, 1))


def _transposed(b: Any, x: Any) -> Any:
    return b.transpose(x, -1, -2)


def _scores(b: Any, query: Any, key: Any, factor: float, causal: bool) -> Any:
    """What is exponentiated, in float32 or double; minus infinity for what comes later than the query."""
    product = b.matmul(query, _transposed(b, key))
    scores = b.cast(product, product.dtype.widened) * factor
    if not causal:
        return scores
    rows, columns = scores.shape[-2:]
    return b.where(b.tril(b.full([rows, columns], True)), scores, -math.inf)


def _weights(b: Any, scores: Any, logarithm: Any) -> Any:
    """Shares of each row, which add up to 1; 0 in rows that nothing is attended to in."""
    wide = b.unsqueeze(logarithm, -1)
    return b.where(b.isneginf(wide), 0.0, b.exp(b.sub(scores, wide)))


def _seeds(b: Any, probability: float) -> tuple[Any, Any]:
    """Seed and offset of a dropout; drawn from torch's generator only if there is one."""
    if not 0 <= probability < 1:
        raise ArgumentValueError(f"dropout_p is at least 0 and below 1, not {probability}")
    offset = b.full([], 0, DataType.Int)
    if not probability:
        return offset, b.full([], 0, DataType.Int)
    return b.cast(b.uniform(0.0, float(_SEEDS), [], dtype=DataType.Double), DataType.Int), offset


def _kept(b: Any, scores: Any, probability: float, seed: Any, offset: Any) -> Any:
    """What weights are multiplied by: 0 for those that are dropped, more than 1 for the others."""
    draws = uniform_bits(b, scores.shape, DataType.Float, seed, offset)
    return b.mul(b.cast(b.ge(draws, probability), scores.dtype), 1 / (1 - probability))


def _eager_forward(
    torch: Any, query: Any, key: Any, value: Any, bias: Any, mask: Any, dropout_p: Any, is_causal: Any, scale: Any
) -> Any:
    if bias is not None and not isinstance(bias, torch.Tensor):
        bias, mask, dropout_p, is_causal, scale = None, None, bias, mask, dropout_p
    scores = _eager_scores(torch, query, key, is_causal, scale)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    seed = offset = torch.zeros((), dtype=torch.int64, device=query.device)
    if dropout_p:
        seed = (torch.rand((), dtype=torch.float64, device=query.device) * _SEEDS).long()
        weights = weights * _eager_kept(torch, scores, dropout_p, seed, offset)
    return weights.to(query.dtype) @ value, torch.logsumexp(scores, -1), seed, offset.clone()


def _eager_kept(torch: Any, scores: Any, probability: float, seed: Any, offset: Any) -> Any:
    draws = eager_uniform(torch, scores.shape, torch.float32, seed, offset)
    return (draws >= probability).to(scores.dtype) * (1 / (1 - probability))


def _eager_scores(torch: Any, query: Any, key: Any, is_causal: Any, scale: Any) -> Any:
    scores = query @ key.mT
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    wide = wide * (1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale)
    if is_causal:
        seen = torch.ones(wide.shape[-2:], dtype=torch.bool, device=query.device).tril()
        wide = wide.masked_fill(~seen, -math.inf)
    return wide


def _eager_backward(
    torch: Any,
    grad_output: Any,
    query: Any,
    key: Any,
    value: Any,
    output: Any,
    logsumexp: Any,
    dropout_p: Any,
    is_causal: Any,
    philox_seed: Any,
    philox_offset: Any,
    scale: Any,
) -> Any:
    scores = _eager_scores(torch, query, key, is_causal, scale)
    weights = torch.exp(scores - logsumexp.to(scores.dtype)[..., None])
    gradient, dropped = (grad_output @ value.mT).to(scores.dtype), weights
    if dropout_p:
        kept = _eager_kept(torch, scores, dropout_p, philox_seed, philox_offset)
        gradient, dropped = gradient * kept, weights * kept
    rows = (grad_output.to(scores.dtype) * output.to(scores.dtype)).sum(-1, keepdim=True)
    factor = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    of_scores = (weights * (gradient - rows) * factor).to(query.dtype)
    return of_scores @ key, of_scores.mT @ query, dropped.to(query.dtype).mT @ grad_output
