"""Softmax and normalisations: composites over reductions and pointwise operators.

They compute in float32 for half inputs from beginning to end and round once, as PyTorch's own do.
"""

from __future__ import annotations

from typing import Any

from ingot.base.dtypes import COMPUTED, FLOATS, DataType
from ingot.base.errors import ArgumentValueError, ShapeError
from ingot.ops.parameters import Axis, Flag, Integer, Operand, Plain, Real, Sizes, Type, one_axis
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
    takes_one_type: bool = False,
):
    return operator(
        Kind.COMPOSITE,
        promotion=promotion,
        operand_dtypes=operand_dtypes,
        dtypes=dtypes,
        eager=eager,
        samples=samples,
        tolerance=tolerance,
        takes_one_type=takes_one_type,
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
        require_shape(b, parameter, normalized_shape)
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
    require_shape(b, weight, normalized_shape)
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
    return _affine(normalized, per_channel(b, x, weight), per_channel(b, x, bias))


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
        raise ArgumentValueError("batch_norm needs both running_mean and running_var, or neither")
    if not training and running_mean is None:
        raise ArgumentValueError("batch_norm outside training needs running_mean and running_var")
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
    normalized = (x - per_channel(b, x, mean)) * per_channel(b, x, inverse)
    return _affine(normalized, per_channel(b, x, weight), per_channel(b, x, bias)), mean, inverse


# --- shared -----------------------------------------------------------------------------------------------------------


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def per_channel(b: Any, x: Any, value: Any) -> Any:
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


def require_shape(b: Any, value: Any, shape: Any) -> None:
    """Weights and labels do not broadcast: they have exactly the shape they are for."""
    if value is None:
        return
    message = f"a tensor of the shape {list(map(str, shape))} is needed here, not {value.type}"
    if len(value.shape) != len(shape):
        raise ShapeError(message)
    for size, expected in zip(value.shape, shape, strict=True):
        b.require_equal_sizes(size, expected, message)


def _has_no_elements(b: Any, x: Any, axis: int) -> bool:
    shape = b.tensor_type(x).shape
    counted = one_axis(axis, len(shape))
    return bool(shape) and shape[counted] == 0
