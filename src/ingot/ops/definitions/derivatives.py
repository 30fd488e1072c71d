"""Derivatives of activation functions and of softmax: what the backward pass computes from a gradient and what the
forward pass has kept. All operands have one data type."""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import FLOATS, DataType
from ingot.base.errors import ArgumentValueError
from ingot.base.numbers import convert_number
from ingot.ops.definitions.elementwise import FEW_ULPS, NUMERIC, composite
from ingot.ops.definitions.normalizations import require_shape
from ingot.ops.parameters import Axis, Flag, Operand, Real, Text
from ingot.ops.promotion import Promotion
from ingot.ops.samples import ANYWHERE, Domain, Sample, Samples, Tolerance
from ingot.ops.samples import Operand as SampleOperand

ORDINARY = Domain(-4.0, 4.0, specials=False)
BETWEEN = Domain(-1.0, 1.0, specials=False)
PROBABILITIES = Domain(0.0, 1.0, specials=False)
SUMMED = Tolerance(ulps=64, scale=16.0, half_ulps=2)


def derivative(
    *more: Any,
    eager: Any = None,
    kept: Domain = ORDINARY,
    samples: Samples | None = None,
    tolerance: Tolerance = FEW_ULPS,
    dtypes: frozenset[DataType] = FLOATS,
):
    """Decorator for a derivative: `more` are the arguments after gradient and kept value of one sample each."""

    def register(build: Any) -> Any:
        name = build.__name__
        meaning = eager or (lambda torch, *given: getattr(torch.ops.aten, name)(*given))
        called = samples or (lambda shape: [_sample(shape, kept, *given) for given in more or [()]])
        return composite(Promotion.ARITHMETIC, dtypes, meaning, called, tolerance, takes_one_type=True)(build)

    return register


def _sample(shape: tuple[int, ...], kept: Domain, *more: Any) -> Sample:
    return Sample((SampleOperand(shape, ORDINARY), SampleOperand(shape, kept), *more))


@derivative((0,), (2,), kept=ANYWHERE, dtypes=NUMERIC)
def threshold_backward(b: Any, gradient: Operand, x: Operand, threshold: Real) -> Any:
    """The gradient where x exceeds the threshold, 0 elsewhere."""
    return b.where(b.le(x, threshold), b.constant(0, gradient.dtype), gradient)


@derivative(kept=PROBABILITIES)
def sigmoid_backward(b: Any, gradient: Operand, output: Operand) -> Any:
    """gradient * (1 - y) * y for y = sigmoid(x)."""
    return gradient * (1 - output) * output


@derivative(kept=BETWEEN)
def tanh_backward(b: Any, gradient: Operand, output: Operand) -> Any:
    """gradient * (1 - y * y) for y = tanh(x)."""
    return gradient * (1 - output * output)


@derivative()
def silu_backward(b: Any, gradient: Operand, x: Operand) -> Any:
    """Derivative of x * sigmoid(x)."""
    gate = b.sigmoid(x)
    return gradient * gate * (1 + x * (1 - gate))


@derivative(
    ("none",),
    ("tanh",),
    # PyTorch's own takes operands of one shape.
    eager=lambda torch, gradient, x, approximate: torch.ops.aten.gelu_backward(
        *torch.broadcast_tensors(gradient, x), approximate=approximate
    ),
    tolerance=Tolerance(ulps=64, scale=1.0, half_ulps=2),
)
def gelu_backward(b: Any, gradient: Operand, x: Operand, approximate: Text = "none") -> Any:
    """Derivative of gelu, the exact one or that of its formula with tanh."""
    if approximate == "none":
        below = 0.5 * (1 + b.erf(x * math.sqrt(0.5)))
        density = b.exp(x * x * -0.5) * (0.5 * math.sqrt(0.5) * 2 / math.sqrt(math.pi))
        return gradient * (below + x * density)
    if approximate == "tanh":
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        slope = b.tanh(scale * (x + cubic * x * x * x))
        left = 0.5 * (1 + slope)
        return gradient * (left + 0.5 * x * ((1 - slope * slope) * (scale * (1 + 3 * cubic * x * x))))
    raise ArgumentValueError(f'gelu_backward: approximate must be "none" or "tanh", not {approximate!r}')


@derivative((0.1, False), (0.2, True))
def leaky_relu_backward(b: Any, gradient: Operand, x: Operand, negative_slope: Real, is_result: Flag) -> Any:
    """The gradient where x, or the result, is positive, negative_slope times it elsewhere."""
    return b.where(b.gt(x, 0), gradient, gradient * negative_slope)


@derivative((-1.0, 1.0), (-0.5, 2.0))
def hardtanh_backward(b: Any, gradient: Operand, x: Operand, min_value: Real, max_value: Real) -> Any:
    """The gradient between the limits, 0 elsewhere."""
    outside = b.bitwise_or(b.le(x, min_value), b.ge(x, max_value))
    return b.where(outside, 0.0, gradient)


@derivative()
def hardsigmoid_backward(b: Any, gradient: Operand, x: Operand) -> Any:
    """A sixth of the gradient from -3 to 3, 0 elsewhere."""
    inside = b.bitwise_and(b.gt(x, -3), b.lt(x, 3))
    # PyTorch takes the sixth of float32, for double as well.
    return b.where(inside, gradient * convert_number(1 / 6, DataType.Float), 0.0)


@derivative((1.0, 20.0), (2.0, 3.0))
def softplus_backward(b: Any, gradient: Operand, x: Operand, beta: Real, threshold: Real) -> Any:
    """Derivative of softplus."""
    exponential = b.exp(x * beta)
    return b.where(b.gt(x * beta, threshold), gradient, gradient * exponential / (exponential + 1))


@derivative(samples=lambda shape: [_sample(shape, ORDINARY, SampleOperand(shape, PROBABILITIES))])
def log_sigmoid_backward(b: Any, gradient: Operand, x: Operand, exponential: Operand) -> Any:
    """Derivative of logsigmoid, given exp(-abs(x))."""
    negative = b.lt(x, 0)
    largest = b.where(negative, b.constant(1.0, x.dtype), b.constant(0.0, x.dtype))
    sign = b.where(negative, b.constant(1.0, x.dtype), b.constant(-1.0, x.dtype))
    return (largest - sign * (exponential / (1 + exponential))) * gradient


@derivative(
    (1.0, 1.0, 1.0, False),
    (0.5, 1.5, 2.0, False),
    eager=lambda torch, gradient, x, alpha, scale, input_scale, is_result: torch.ops.aten.elu_backward(
        gradient, alpha, scale, input_scale, is_result, x
    ),
)
def elu_backward(
    b: Any,
    gradient: Operand,
    x: Operand,
    alpha: Real = 1.0,
    scale: Real = 1.0,
    input_scale: Real = 1.0,
    is_result: Flag = False,
) -> Any:
    """Derivative of elu, given x or its result."""
    factor = float(alpha) * scale
    if is_result:
        below = gradient * input_scale * (x + factor)
    else:
        below = gradient * input_scale * factor * b.exp(x * input_scale)
    return b.where(b.le(x, 0), below, gradient * scale)


@derivative()
def hardswish_backward(b: Any, gradient: Operand, x: Operand) -> Any:
    """Derivative of hardswish."""
    between = b.where(b.lt(x, 3), gradient * (x / 3 + 0.5), gradient)
    return b.where(b.le(x, -3), 0.0, between)


# --- along an axis ----------------------------------------------------------------------------------------------------


def _of_rows(name: str):
    """PyTorch's own, which does not see to it that both have one shape."""

    def eager(torch: Any, gradient: Any, output: Any, axis: int) -> Any:
        if gradient.shape != output.shape:
            raise ValueError(f"{name} needs operands of one shape")
        return getattr(torch.ops.aten, name)(gradient, output, axis, gradient.dtype)

    return eager


def _along_axes(kept: Domain) -> Samples:
    return lambda shape: [_sample(shape, kept, axis) for axis in range(-len(shape), len(shape))]


@derivative(
    eager=_of_rows("_softmax_backward_data"),
    samples=_along_axes(PROBABILITIES),
    tolerance=SUMMED,
)
def softmax_backward(b: Any, gradient: Operand, output: Operand, axis: Axis) -> Any:
    """Derivative of softmax along an axis, given its result."""
    require_shape(b, output, gradient.shape)
    product = gradient * output
    return product - output * b.sum(product, axis, True)


@derivative(
    eager=_of_rows("_log_softmax_backward_data"),
    samples=_along_axes(Domain(-4.0, 0.0, specials=False)),
    tolerance=SUMMED,
)
def log_softmax_backward(b: Any, gradient: Operand, output: Operand, axis: Axis) -> Any:
    """Derivative of log_softmax along an axis, given its result."""
    require_shape(b, output, gradient.shape)
    return gradient - b.exp(output) * b.sum(gradient, axis, True)
