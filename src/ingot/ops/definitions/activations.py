"""Activation functions, element by element."""

from __future__ import annotations

import math
from typing import Any

from ingot.base.dtypes import FLOATS, DataType
from ingot.base.errors import ArgumentValueError, ShapeError
from ingot.ops.definitions.elementwise import FEW_ULPS, MODERATE, NUMERIC, composite
from ingot.ops.parameters import Axis, Operand, Real, Text, one_axis
from ingot.ops.promotion import Promotion
from ingot.ops.samples import ANYWHERE, Domain, Sample, operands, with_keywords
from ingot.ops.samples import Operand as SampleOperand


@composite(Promotion.ARITHMETIC, NUMERIC, "torch.relu")
def relu(b: Any, x: Operand) -> Any:
    """x where positive, 0 elsewhere; NaN stays NaN."""
    return b.maximum(x, 0)


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.silu", tolerance=FEW_ULPS)
def silu(b: Any, x: Operand) -> Any:
    """x * sigmoid(x)."""
    return x * b.sigmoid(x)


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    lambda torch, x, approximate: torch.nn.functional.gelu(x, approximate=approximate),
    # PyTorch's gelu of infinity is infinity or NaN, depending on the machine's vector instructions.
    with_keywords({}, {"approximate": "tanh"}, domain=Domain(specials=False)),
    FEW_ULPS,
)
def gelu(b: Any, x: Operand, approximate: Text = "none") -> Any:
    """Gaussian error linear unit, exact by default; approximate="tanh" is the older formula with tanh."""
    if approximate == "none":
        return x * 0.5 * (1 + b.erf(x * math.sqrt(0.5)))
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + b.tanh(inner))
    raise ArgumentValueError(f'gelu: approximate must be "none" or "tanh", not {approximate!r}')


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    "torch.nn.functional.softplus",
    with_keywords({}, {"beta": 2.0, "threshold": 4.0}),
    FEW_ULPS,
)
def softplus(b: Any, x: Operand, beta: Real = 1.0, threshold: Real = 20.0) -> Any:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x exceeds the threshold."""
    scaled = x * beta
    return b.where(b.gt(scaled, threshold), x, b.log1p(b.exp(scaled)) / beta)


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    "torch.nn.functional.leaky_relu",
    with_keywords({}, {"negative_slope": 0.2}),
    FEW_ULPS,
)
def leaky_relu(b: Any, x: Operand, negative_slope: Real = 0.01) -> Any:
    """x where positive, negative_slope * x elsewhere."""
    return b.where(b.gt(x, 0), x, x * negative_slope)


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    lambda torch, x, alpha, scale, input_scale: torch.ops.aten.elu(x, alpha, scale, input_scale),
    with_keywords({}, {"alpha": 0.5}, {"alpha": 2.0, "scale": 1.5, "input_scale": 0.5}),
    FEW_ULPS,
)
def elu(b: Any, x: Operand, alpha: Real = 1.0, scale: Real = 1.0, input_scale: Real = 1.0) -> Any:
    """scale * x where positive, scale * alpha * (exp(input_scale * x) - 1) elsewhere."""
    below = b.expm1(_times(x, input_scale)) * (float(alpha) * scale)
    return b.where(b.gt(x, 0), _times(x, scale), below)


def _times(x: Any, factor: float) -> Any:
    return x if factor == 1 else x * factor


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.celu", with_keywords({}, {"alpha": 0.5}), FEW_ULPS)
def celu(b: Any, x: Operand, alpha: Real = 1.0) -> Any:
    """x where positive, alpha * (exp(x / alpha) - 1) elsewhere."""
    if alpha == 0:
        raise ArgumentValueError("celu needs an alpha other than 0")
    return b.elu(x, alpha, 1.0, 1.0 / alpha)


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.selu", tolerance=FEW_ULPS)
def selu(b: Any, x: Operand) -> Any:
    """elu with the alpha and the scale that keep mean and variance where they are 0 and 1."""
    return b.elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@composite(
    Promotion.ARITHMETIC,
    NUMERIC,
    "torch.nn.functional.hardtanh",
    with_keywords({}, {"min_value": -2.0, "max_value": 0.5}),
)
def hardtanh(b: Any, x: Operand, min_value: Real = -1.0, max_value: Real = 1.0) -> Any:
    """x limited to the range from min_value to max_value."""
    if x.dtype is DataType.UInt8 and (min_value < 0 or max_value < 0):
        raise ArgumentValueError(
            f"hardtanh of unsigned numbers needs limits of at least 0, not {min_value}, {max_value}"
        )
    return b.clamp(x, _matching(x, min_value), _matching(x, max_value))


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.hardswish", tolerance=FEW_ULPS)
def hardswish(b: Any, x: Operand) -> Any:
    """x * clamp(x + 3, 0, 6) / 6."""
    return x * b.clamp(x + 3, 0, 6) / 6


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.mish", tolerance=FEW_ULPS)
def mish(b: Any, x: Operand) -> Any:
    """x * tanh(softplus(x))."""
    return x * b.tanh(b.log1p(b.exp(x)))


@composite(Promotion.ARITHMETIC, NUMERIC, "torch.nn.functional.relu6")
def relu6(b: Any, x: Operand) -> Any:
    """x limited to the range from 0 to 6."""
    return b.hardtanh(x, 0.0, 6.0)


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.hardsigmoid", tolerance=FEW_ULPS)
def hardsigmoid(b: Any, x: Operand) -> Any:
    """clamp(x + 3, 0, 6) / 6."""
    return b.clamp(x + 3, 0, 6) / 6


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.logsigmoid", tolerance=FEW_ULPS)
def logsigmoid(b: Any, x: Operand) -> Any:
    """Logarithm of sigmoid, accurate where sigmoid is near 0."""
    return b.minimum(x, 0) - b.log1p(b.exp(-b.abs(x)))


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    lambda torch, x, axis: torch.nn.functional.glu(x, axis),
    lambda shape: [Sample((SampleOperand((*shape, 6), MODERATE),)), Sample((SampleOperand((4, *shape), MODERATE), 0))],
    FEW_ULPS,
)
def glu(b: Any, x: Operand, axis: Axis = -1) -> Any:
    """The first half along an axis times sigmoid of the second."""
    rank = len(x.shape)
    place = one_axis(axis, rank)
    if not rank or not isinstance(x.shape[place], int) or x.shape[place] % 2:
        raise ShapeError(f"glu needs an axis that is known to have two halves, not axis {axis} of {x.type}")
    middle, end = list(x.shape), [0] * rank
    middle[place] = end[place] = x.shape[place] // 2
    return b.slice(x, [0] * rank, middle) * b.sigmoid(b.slice(x, end, list(x.shape)))


@composite(
    Promotion.ARITHMETIC,
    FLOATS,
    lambda torch, x, weight: torch.ops.aten._prelu_kernel(x, weight),
    operands(ANYWHERE, ANYWHERE),
    FEW_ULPS,
    takes_one_type=True,
)
def prelu(b: Any, x: Operand, weight: Operand) -> Any:
    """x where positive, weight * x elsewhere; the weight broadcasts as every operand does."""
    return b.where(b.gt(x, 0), x, x * weight)


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.hardshrink", with_keywords({}, {"lambd": 2.0}))
def hardshrink(b: Any, x: Operand, lambd: Real = 0.5) -> Any:
    """0 from -lambd to lambd, x elsewhere."""
    return b.where(_within(b, x, lambd), 0.0, x)


@composite(Promotion.ARITHMETIC, FLOATS, "torch.nn.functional.softshrink", with_keywords({}, {"lambd": 2.0}), FEW_ULPS)
def softshrink(b: Any, x: Operand, lambd: Real = 0.5) -> Any:
    """0 from -lambd to lambd, x moved towards 0 by lambd elsewhere."""
    if lambd < 0:
        raise ArgumentValueError(f"softshrink needs a lambd of at least 0, not {lambd}")
    return b.where(_within(b, x, lambd), x * 0.0, b.where(b.gt(x, lambd), x - lambd, x + lambd))


def _within(b: Any, x: Any, limit: float) -> Any:
    return b.bitwise_and(b.ge(x, -limit), b.le(x, limit))


def _matching(x: Any, bound: float) -> float | int:
    """A bound as a number of x's category: an integer tensor must not be promoted by a whole-numbered float."""
    return int(bound) if x.dtype.is_integer else bound
