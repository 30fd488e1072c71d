"""Softmax, normalisations and losses: composites over reductions and pointwise operators.

They compute in float32 for half inputs from beginning to end and round once, as PyTorch's own do.
"""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import BOOLEAN, COMPUTED, FLOATS, INTEGERS, DataType
from ingot.base.errors import ArgumentError, DTypeError, ShapeError
from ingot.ops.parameters import Axis, Flag, Integer, Operand, Plain, Real, Sizes, Tensor, Text, Type, one_axis
from ingot.ops.promotion import Promotion
from ingot.ops.record import Kind, operator
from ingot.ops.samples import ANYWHERE, Domain, Sample, Tolerance
from ingot.ops.samples import Operand as SampleOperand

ORDINARY = Domain(low=-3.0, high=3.0, specials=False)
VARIANCES = Domain(low=0.5, high=2.0, specials=False)
ADDED_UP = Tolerance(ulps=64, scale=4.0, half_ulps=2)
# Dividing by the square root of a variance of nearly 0 multiplies the rounding of the mean by up to 1 / sqrt(eps).
NORMALIZED = Tolerance(ulps=1024, scale=4.0, half_ulps=2)


def composite(
    eager: Any,
    samples: Any,
    tolerance: Tolerance = ADDED_UP,
    dtypes: Any = FLOATS,
    promotion: Promotion = Promotion.ARITHMETIC,
    operand_dtypes: Any = COMPUTED,
):
    return operator(
        Kind.COMPOSITE,
        promotion=promotion,
        operand_dtypes=operand_dtypes,
        dtypes=dtypes,
        eager=eager,
        samples=samples,
        tolerance=tolerance,
    )


# --- softmax ----------------------------------------------------------------------------------------------------------


def _softmax_samples(shape: tuple[int, ...]) -> list[Sample]:
    return [
        *(Sample((SampleOperand(shape, ANYWHERE), axis)) for axis in range(-len(shape), len(shape))),
        *(Sample((SampleOperand(shape, ANYWHERE), 0), {"dtype": dtype}) for dtype in (DataType.Float, DataType.Double)),
    ]


@composite(lambda torch, x, axis, dtype: torch.softmax(x, axis, dtype=dtype), _softmax_samples)
def softmax(b: Any, x: Operand, axis: Axis, dtype: Type | None = None) -> Any:
    """exp(x) over the sum of exp(x) along an axis."""
    if _has_no_elements(b, x, axis):
        return x
    exponential = b.exp(x - b.amax(x, axis, True))
    return exponential / b.sum(exponential, axis, True)


@composite(lambda torch, x, axis, dtype: torch.log_softmax(x, axis, dtype=dtype), _softmax_samples)
def log_softmax(b: Any, x: Operand, axis: Axis, dtype: Type | None = None) -> Any:
    """Logarithm of softmax, accurate where softmax is near 0."""
    if _has_no_elements(b, x, axis):
        return x
    shifted = x - b.amax(x, axis, True)
    return shifted - b.log(b.sum(b.exp(shifted), axis, True))


# --- normalisations ---------------------------------------------------------------------------------------------------


def _over_last_axes(*, bias: bool):
    def samples(shape: tuple[int, ...]) -> list[Sample]:
        found = []
        for count in range(1, min(len(shape), 2) + 1):
            normalized = shape[-count:]
            affine = tuple(SampleOperand(normalized, ORDINARY) for _ in range(1 + bias))
            found += [
                Sample((SampleOperand(shape, ORDINARY), list(normalized))),
                Sample((SampleOperand(shape, ORDINARY), list(normalized), *affine)),
                Sample((SampleOperand(shape, ORDINARY), list(normalized)), {"eps": 0.25}),
            ]
        return found

    return samples


@composite(
    lambda torch, x, shape, weight, bias, eps: torch.nn.functional.layer_norm(x, shape, weight, bias, eps),
    _over_last_axes(bias=True),
    NORMALIZED,
)
def layer_norm(
    b: Any,
    x: Operand,
    normalized_shape: Sizes,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: Real = 1e-5,
) -> Any:
    """x with mean 0 and variance 1 over its last axes, then scaled and shifted."""
    axes = _last_axes(b, x, normalized_shape)
    for parameter in (weight, bias):
        _require_shape(b, parameter, normalized_shape)
    variance, mean = b.var_mean(x, axes, 0, True)
    return _affine((x - mean) * b.rsqrt(variance + eps), weight, bias)


@composite(
    lambda torch, x, shape, weight, eps: torch.nn.functional.rms_norm(x, shape, weight, eps),
    _over_last_axes(bias=False),
    NORMALIZED,
)
def rms_norm(
    b: Any, x: Operand, normalized_shape: Sizes, weight: Operand | None = None, eps: Real | None = None
) -> Any:
    """x over the root of its mean square over the last axes, then scaled; eps defaults to the dtype's epsilon."""
    axes = _last_axes(b, x, normalized_shape)
    _require_shape(b, weight, normalized_shape)
    if eps is None:
        eps = 2.0**-52 if x.dtype is DataType.Double else 2.0**-23
    return _affine(x * b.rsqrt(b.mean(x * x, axes, True) + eps), weight, None)


@composite(
    lambda torch, x, groups, weight, bias, eps: torch.nn.functional.group_norm(x, groups, weight, bias, eps),
    lambda shape: [
        Sample((SampleOperand((2, 6, *shape), ORDINARY), groups, *affine))
        for groups in (1, 3)
        if 0 not in shape
        for affine in ((), (SampleOperand((6,), ORDINARY), SampleOperand((6,), ORDINARY)))
    ],
    NORMALIZED,
)
def group_norm(
    b: Any,
    x: Operand,
    num_groups: Integer,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: Real = 1e-5,
) -> Any:
    """x with mean 0 and variance 1 over groups of channels (axis 1) and all axes after it, then scaled and shifted."""
    if len(x.shape) < 2:
        raise ShapeError(f"group_norm needs a batch and a channel axis, not {x.type}")
    channels = x.shape[1]
    if not isinstance(channels, int) or channels % num_groups:
        raise ShapeError(f"group_norm needs a fixed number of channels that {num_groups} groups divide, not {channels}")
    grouped = b.reshape(x, [x.shape[0], num_groups, channels // num_groups, *x.shape[2:]])
    variance, mean = b.var_mean(grouped, list(range(2, len(grouped.shape))), 0, True)
    normalized = b.reshape((grouped - mean) * b.rsqrt(variance + eps), x.shape)
    return _affine(normalized, _per_channel(b, x, weight), _per_channel(b, x, bias))


def _batch_norm_samples(shape: tuple[int, ...]) -> list[Sample]:
    x, channel = SampleOperand((3, 4, *shape), ORDINARY), SampleOperand((4,), ORDINARY)
    if 0 in shape:
        return []
    return [
        Sample((x, None, None, channel, SampleOperand((4,), VARIANCES))),
        Sample((x, channel, channel, channel, SampleOperand((4,), VARIANCES))),
        Sample((x, channel, channel, None, None, True)),
        Sample((x, channel, channel, channel, SampleOperand((4,), VARIANCES), True, 0.3)),
    ]


def _eager_batch_norm(torch: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
    training, momentum, eps = rest
    output = torch.nn.functional.batch_norm(x, mean, var, weight, bias, training, momentum, eps)
    if training:
        axes = [axis for axis in range(x.dim()) if axis != 1]
        var, mean = torch.var_mean(x.double(), axes, correction=0)
    return output, mean.to(x.dtype), torch.rsqrt(var.double() + eps).to(x.dtype)


# PyTorch multiplies by weight / deviation and adds the rest, terms larger than their sum that it rounds to half types.
@composite(_eager_batch_norm, _batch_norm_samples, Tolerance(ulps=256, scale=16.0, half_ulps=2))
def batch_norm(
    b: Any,
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    running_mean: Plain | None = None,
    running_var: Plain | None = None,
    training: Flag = False,
    momentum: Real = 0.1,
    eps: Real = 1e-5,
) -> Any:
    """x normalised per channel (axis 1); gives the output, the mean and the reciprocal deviation that were used.

    In training the statistics are the batch's own; running_mean and running_var, if given, must be inputs of the
    definition and are updated in place when it runs.
    """
    if len(x.shape) < 2:
        raise ShapeError(f"batch_norm needs a batch and a channel axis, not {x.type}")
    if (running_mean is None) != (running_var is None):
        raise ArgumentError("batch_norm needs both running_mean and running_var, or neither")
    if not training and running_mean is None:
        raise ArgumentError("batch_norm outside training needs running_mean and running_var")
    if training:
        axes = [axis for axis in range(len(x.shape)) if axis != 1]
        var, mean = b.var_mean(x, axes, 0)
        if running_mean is not None:
            count = b.cast(b.element_count(x, axes), x.dtype)
            unbiased = var * (count / (count - 1))
            b.update(running_mean, (1 - momentum) * running_mean + momentum * mean)
            b.update(running_var, (1 - momentum) * running_var + momentum * unbiased)
    else:
        mean, var = b.cast(running_mean, x.dtype), b.cast(running_var, x.dtype)
    inverse = b.rsqrt(var + eps)
    normalized = (x - _per_channel(b, x, mean)) * _per_channel(b, x, inverse)
    return _affine(normalized, _per_channel(b, x, weight), _per_channel(b, x, bias)), mean, inverse


# --- losses -----------------------------------------------------------------------------------------------------------


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
        raise ArgumentError(f"smooth_l1_loss needs beta of at least 0, not {beta}")
    if beta == 0:
        return b.l1_loss(x, target, reduction)
    if not x.dtype.is_float:
        raise DTypeError(f"smooth_l1_loss does not compute in {x.dtype.text}, unless beta is 0")
    distance = b.abs(x - target)
    return _reduced(
        b, b.where(b.lt(distance, beta), 0.5 * distance * distance / beta, distance - 0.5 * beta), reduction
    )


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
    kept = b.ne(target, ignore_index)
    is_new = [position == axis for position in range(len(x.shape))]
    labels = b.broadcast(b.cast(b.where(kept, target, 0), DataType.Int), is_new)
    _require_shape(b, weight, x.shape[axis : axis + 1])
    spread = weight if weight is None or axis == 0 else _per_channel(b, x, weight)
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
    _require_shape(b, weight, logs.shape[axis : axis + 1])
    if smoothing:
        target = target * (1 - smoothing) + smoothing / b.size(logs, axis)
    terms = logs * target if weight is None else logs * target * (_per_channel(b, logs, weight) if axis else weight)
    losses = -b.sum(terms, axis)
    if reduction == "mean":
        samples = b.element_count(losses, None)
        return b.sum(losses) / samples
    return _reduced(b, losses, reduction)


# --- shared -----------------------------------------------------------------------------------------------------------


def _reduced(b: Any, losses: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    if reduction in ("mean", "sum"):
        return getattr(b, reduction)(losses)
    raise ArgumentError(f'reduction must be "mean", "sum" or "none", not {reduction!r}')


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _per_channel(b: Any, x: Any, value: Any) -> Any:
    """A vector with one element per channel, placed along axis 1 of x."""
    if value is None:
        return None
    shape = tuple(x.shape[1] if axis == 1 else 1 for axis in range(len(x.shape)))
    return b.broadcast_in_dim(value, shape, [1])


def _last_axes(b: Any, x: Any, normalized_shape: Any) -> list[int]:
    count = len(normalized_shape)
    if not 0 < count <= len(x.shape):
        raise ShapeError(f"normalized_shape {list(normalized_shape)} does not fit {x.type}")
    for size, expected in zip(x.shape[-count:], normalized_shape, strict=True):
        b.require_equal_sizes(size, expected, f"normalized_shape {list(normalized_shape)} does not fit {x.type}")
    return list(range(len(x.shape) - count, len(x.shape)))


def _require_shape(b: Any, value: Any, shape: Any) -> None:
    """Weights do not broadcast: they have exactly the shape they are for."""
    if value is None:
        return
    message = f"a weight or bias of the shape {list(shape)} is needed, not {value.type}"
    if len(value.shape) != len(shape):
        raise ShapeError(message)
    for size, expected in zip(value.shape, shape, strict=True):
        b.require_equal_sizes(size, expected, message)


def _has_no_elements(b: Any, x: Any, axis: int) -> bool:
    shape = b.tensor_type(x).shape
    counted = one_axis(axis, len(shape))
    return bool(shape) and shape[counted] == 0
