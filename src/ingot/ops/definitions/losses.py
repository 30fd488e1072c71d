"""Losses: composites that compare a prediction with a target, in float32 for half inputs from beginning to end."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import BOOLEAN, COMPUTED, FLOATS, INTEGERS, DataType
from ingot.base.errors import ArgumentValueError, DTypeError, ShapeError
from ingot.ops.definitions.normalizations import ORDINARY, VARIANCES, composite, per_channel, require_shape
from ingot.ops.parameters import Integer, Operand, Real, Tensor, Text
from ingot.ops.promotion import Promotion
from ingot.ops.samples import Domain, Sample, Tolerance
from ingot.ops.samples import Operand as SampleOperand

PROBABILITIES = Domain(low=0.0, high=1.0, specials=False)


def _loss_samples(*extra: dict[str, Any]):
    return lambda shape: [
        Sample((SampleOperand(shape, ORDINARY), SampleOperand(shape, ORDINARY)), {"reduction": reduction, **keywords})
        for reduction in ("mean", "sum", "none")
        for keywords in (extra or ({},))
    ]


@composite(
    lambda torch, x, target, reduction: torch.nn.functional.mse_loss(x, target, reduction=reduction),
    _loss_samples(),
    promotion=Promotion.EXPANDED,
)
def mse_loss(b: Any, x: Operand, target: Operand, reduction: Text = "mean") -> Any:
    """Squared difference."""
    difference = x - target
    return _reduced(b, difference * difference, reduction)


@composite(
    lambda torch, x, target, reduction: torch.nn.functional.l1_loss(x, target, reduction=reduction),
    _loss_samples(),
    dtypes=FLOATS | INTEGERS,
    operand_dtypes=COMPUTED - BOOLEAN,  # it subtracts
    promotion=Promotion.EXPANDED,
)
def l1_loss(b: Any, x: Operand, target: Operand, reduction: Text = "mean") -> Any:
    """Absolute difference."""
    return _reduced(b, b.abs(x - target), reduction)


@composite(
    lambda torch, x, target, reduction, beta: torch.nn.functional.smooth_l1_loss(
        x, target, reduction=reduction, beta=beta
    ),
    _loss_samples({"beta": 1.0}, {"beta": 0.5}, {"beta": 0.0}),
    dtypes=FLOATS | INTEGERS,
    promotion=Promotion.EXPANDED,
)
def smooth_l1_loss(b: Any, x: Operand, target: Operand, reduction: Text = "mean", beta: Real = 1.0) -> Any:
    """Squared difference over 2 * beta below beta, absolute difference less beta / 2 above it."""
    if beta < 0:
        raise ArgumentValueError(f"smooth_l1_loss needs beta of at least 0, not {beta}")
    if beta == 0:
        return b.l1_loss(x, target, reduction)
    if not x.dtype.is_float:
        raise DTypeError(f"smooth_l1_loss does not compute in {x.dtype.text}, unless beta is 0")
    distance = b.abs(x - target)
    return _reduced(
        b, b.where(b.lt(distance, beta), 0.5 * distance * distance / beta, distance - 0.5 * beta), reduction
    )


@composite(
    lambda torch, x, target, reduction, delta: torch.nn.functional.huber_loss(
        x, target, reduction=reduction, delta=delta
    ),
    _loss_samples({"delta": 1.0}, {"delta": 0.5}),
    takes_one_type=True,
)
def huber_loss(b: Any, x: Operand, target: Operand, reduction: Text = "mean", delta: Real = 1.0) -> Any:
    """Half the squared difference up to delta, delta * (absolute difference - delta / 2) above it."""
    if delta <= 0:
        raise ArgumentValueError(f"huber_loss needs a positive delta, not {delta}")
    distance = b.abs(x - target)
    losses = b.where(b.le(distance, delta), 0.5 * distance * distance, delta * (distance - 0.5 * delta))
    return _reduced(b, losses, reduction)


@composite(
    lambda torch, x, target, reduction: torch.nn.functional.soft_margin_loss(x, target, reduction=reduction),
    _loss_samples(),
    takes_one_type=True,
)
def soft_margin_loss(b: Any, x: Operand, target: Operand, reduction: Text = "mean") -> Any:
    """log(1 + exp(-target * x)), for targets of 1 and -1."""
    if b.broadcast_shapes(x.shape, target.shape) != x.shape:
        raise ShapeError(f"soft_margin_loss has the shape of x: {x.type} is too small for the target {target.type}")
    return _reduced(b, b.log1p(b.exp(-target * x)), reduction)


def _logit_samples(shape: tuple[int, ...]) -> list[Sample]:
    logits, target = SampleOperand(shape, ORDINARY), SampleOperand(shape, PROBABILITIES)
    weight = SampleOperand(shape, VARIANCES)
    return [
        Sample((logits, target), {"reduction": reduction, **weights})
        for reduction in ("mean", "sum", "none")
        for weights in ({}, {"weight": weight}, {"pos_weight": weight})
    ]


@composite(
    lambda torch, x, target, weight, pos_weight, reduction: torch.nn.functional.binary_cross_entropy_with_logits(
        x, target, weight, reduction=reduction, pos_weight=pos_weight
    ),
    _logit_samples,
    takes_one_type=True,
)
def binary_cross_entropy_with_logits(
    b: Any,
    x: Operand,
    target: Operand,
    weight: Operand | None = None,
    pos_weight: Operand | None = None,
    reduction: Text = "mean",
) -> Any:
    """Cross entropy of probabilities with sigmoid(x); `pos_weight` multiplies the losses of what is to be 1."""
    require_shape(b, target, x.shape)
    logarithm = b.logsigmoid(x)
    if pos_weight is not None:
        logarithm = logarithm * ((pos_weight - 1) * target + 1)
    losses = (1 - target) * x - logarithm
    return _reduced(b, losses if weight is None else losses * weight, reduction)


def _cross_entropy_samples(shape: tuple[int, ...]) -> list[Sample]:
    labels = SampleOperand((3, *shape), Domain(lowest_integer=0, highest_integer=4, specials=False), DataType.Int)
    logits, weight = SampleOperand((3, 5, *shape), ORDINARY), SampleOperand((5,), VARIANCES)
    every = [
        Sample((logits, target), {"reduction": reduction, "label_smoothing": smoothing, **weights})
        for target in (labels, SampleOperand((3, 5, *shape), VARIANCES))
        for reduction in ("mean", "sum", "none")
        for smoothing in (0.0, 0.1)
        for weights in ({}, {"weight": weight}, {"ignore_index": 2})
        if 0 not in shape and not (target is not labels and "ignore_index" in weights)
    ]
    return every[:: 5 if shape else 1]


@composite(
    lambda torch, x, target, weight, ignore_index, reduction, label_smoothing: torch.nn.functional.cross_entropy(
        x, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    ),
    _cross_entropy_samples,
    # PyTorch adds up losses and weights of half types in the half type: what it loses depends on their sum.
    Tolerance(ulps=64, scale=16.0, half_ulps=2),
)
def cross_entropy(
    b: Any,
    x: Operand,
    target: Tensor,
    weight: Operand | None = None,
    ignore_index: Integer = -100,
    reduction: Text = "mean",
    label_smoothing: Real = 0.0,
) -> Any:
    """Negative log-likelihood of labels (integers) or of class probabilities (floats) under the softmax of x.

    Classes lie along axis 1, or along axis 0 for a single sample.
    """
    axis = 0 if len(x.shape) == 1 else 1
    logs = b.log_softmax(x, axis)
    if target.dtype.is_float:
        return _probability_loss(b, logs, b.cast(target, logs.dtype), weight, reduction, label_smoothing)
    if target.dtype not in INTEGERS:
        raise DTypeError(f"cross_entropy needs integer labels or probabilities, not {target.dtype.text}")
    require_shape(b, target, x.shape[:axis] + x.shape[axis + 1 :])
    kept = b.ne(target, ignore_index)
    around = [position for position in range(len(x.shape)) if position != axis]
    one_per_row = [1 if position == axis else size for position, size in enumerate(x.shape)]
    labels = b.broadcast_in_dim(b.cast(b.where(kept, target, 0), DataType.Int), one_per_row, around)
    require_shape(b, weight, x.shape[axis : axis + 1])
    spread = weight if weight is None or axis == 0 else per_channel(b, x, weight)
    weighted = logs if spread is None else logs * spread
    ones = b.full(target.shape, 1.0, logs.dtype)
    scale = ones if spread is None else b.squeeze(b.gather(b.expand(spread, x.shape), labels, axis), [axis])
    zero = b.scalar_like(0, logs.dtype)
    losses = b.where(kept, -b.squeeze(b.gather(weighted, labels, axis), [axis]), zero)
    if label_smoothing:
        uniform = b.where(kept, -b.sum(weighted, axis), zero)
        losses = losses * (1 - label_smoothing) + uniform * (label_smoothing / b.size(x, axis))
    if reduction == "mean":
        return b.sum(losses) / b.sum(b.where(kept, scale, zero))
    return _reduced(b, losses, reduction)


def _probability_loss(b: Any, logs: Any, target: Any, weight: Any, reduction: str, smoothing: float) -> Any:
    axis = 0 if len(logs.shape) == 1 else 1
    require_shape(b, weight, logs.shape[axis : axis + 1])
    if smoothing:
        target = target * (1 - smoothing) + smoothing / b.size(logs, axis)
    terms = logs * target if weight is None else logs * target * (per_channel(b, logs, weight) if axis else weight)
    losses = -b.sum(terms, axis)
    if reduction == "mean":
        samples = b.element_count(losses, None)
        return b.sum(losses) / samples
    return _reduced(b, losses, reduction)


def _reduced(b: Any, losses: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    if reduction in ("mean", "sum"):
        return getattr(b, reduction)(losses)
    raise ArgumentValueError(f'reduction must be "mean", "sum" or "none", not {reduction!r}')
