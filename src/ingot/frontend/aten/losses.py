"""Losses. A reduction is a number here: 0 for none, 1 for the mean, 2 for the sum."""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import DataType
from ingot.frontend.aten.table import lowers, require_float, unsupported, with_size
from ingot.ir.builder import Builder
from ingot.ops.definitions.normalizations import require_shape

REDUCTIONS = ("none", "mean", "sum")


@lowers("mse_loss.default")
def _mse_loss(b: Builder, x: Any, target: Any, reduction: int) -> Any:
    return b.mse_loss(x, target, _word(reduction))


@lowers("l1_loss.default")
def _l1_loss(b: Builder, x: Any, target: Any, reduction: int) -> Any:
    return b.l1_loss(x, target, _word(reduction))


@lowers("smooth_l1_loss.default")
def _smooth_l1_loss(b: Builder, x: Any, target: Any, reduction: int, beta: float) -> Any:
    return b.smooth_l1_loss(x, target, _word(reduction), beta)


@lowers("huber_loss.default")
def _huber_loss(b: Builder, x: Any, target: Any, reduction: int, delta: float) -> Any:
    _require_single(x, target)
    return b.huber_loss(x, target, _word(reduction), delta)


@lowers("soft_margin_loss.default")
def _soft_margin_loss(b: Builder, x: Any, target: Any, reduction: int) -> Any:
    _require_single(x, target)
    return b.soft_margin_loss(x, target, _word(reduction))


@lowers("binary_cross_entropy_with_logits.default")
def _bce_with_logits(b: Builder, x: Any, target: Any, weight: Any, positive: Any, reduction: int) -> Any:
    _require_single(x, target, *(value for value in (weight, positive) if value is not None))
    return b.binary_cross_entropy_with_logits(x, target, weight, positive, _word(reduction))


@lowers("nll_loss_forward.default", "nll_loss2d_forward.default")
def _nll_loss(b: Builder, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    """The losses of labels, and the sum of their weights."""
    _require_single(x, *(() if weight is None else (weight,)))
    if target.dtype is not DataType.Int or not x.shape or any(size == 0 for size in x.shape):
        unsupported("nll_loss takes labels of int64")
    axis = 0 if len(x.shape) == 1 else 1
    require_shape(b, target, with_size(x.shape, axis))
    require_shape(b, weight, x.shape[axis : axis + 1])
    kept = b.ne(target, ignore_index)
    labels = b.where(kept, target, 0)
    places = [place for place in range(len(x.shape)) if place != axis]
    along = b.broadcast_in_dim(labels, with_size(x.shape, axis, 1), places)
    zero = b.constant(0.0, x.dtype)
    losses = -b.squeeze(b.gather(x, along, axis), [axis])
    weights = b.full(target.shape, 1.0, x.dtype)
    if weight is not None:
        weights = b.reshape(b.index_select(weight, b.reshape(labels, (-1,)), 0), target.shape)
        losses = losses * weights
    losses, total = b.where(kept, losses, zero), b.sum(b.where(kept, weights, zero))
    if REDUCTIONS[reduction] == "none":
        return losses, b.full((), 0.0, x.dtype)
    return b.sum(losses) / total if REDUCTIONS[reduction] == "mean" else b.sum(losses), total


def _require_single(*values: Any) -> None:
    """PyTorch rounds half types at steps of its own here."""
    require_float("a loss", *values)
    if len({value.dtype for value in values}) > 1 or values[0].dtype is not values[0].dtype.widened:
        unsupported("losses of half types, or of operands of several types, are not lowered")


def _word(reduction: int) -> str:
    if not 0 <= reduction < len(REDUCTIONS):
        unsupported(f"there is no reduction {reduction}")
    return REDUCTIONS[reduction]
