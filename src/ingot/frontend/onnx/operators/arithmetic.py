"""Operators that work element by element."""

from __future__ import annotations

import functools
from typing import Any

import numpy
import torch
from torch.nn import functional

from ingot.frontend.onnx.model_values import dtype_of, numpy_dtype
from ingot.frontend.onnx.operator_table import NodeCall, define, defines

_UNARY: dict[str, tuple[Any, Any]] = {
    "Abs": (torch.abs, numpy.abs),
    "Acos": (torch.acos, None),
    "Acosh": (torch.acosh, None),
    "Asin": (torch.asin, None),
    "Asinh": (torch.asinh, None),
    "Atan": (torch.atan, None),
    "Atanh": (torch.atanh, None),
    "BitwiseNot": (torch.bitwise_not, None),
    "Ceil": (torch.ceil, numpy.ceil),
    "Cos": (torch.cos, None),
    "Cosh": (torch.cosh, None),
    "Erf": (torch.erf, None),
    "Exp": (torch.exp, None),
    "Floor": (torch.floor, numpy.floor),
    "HardSwish": (functional.hardswish, None),
    "IsNaN": (torch.isnan, None),
    "Log": (torch.log, None),
    "Mish": (functional.mish, None),
    "Neg": (torch.neg, numpy.negative),
    "Not": (torch.logical_not, numpy.logical_not),
    "Reciprocal": (torch.reciprocal, None),
    "Relu": (torch.relu, None),
    "Round": (torch.round, numpy.round),
    "Sigmoid": (torch.sigmoid, None),
    "Sign": (torch.sign, None),
    "Sin": (torch.sin, None),
    "Sinh": (torch.sinh, None),
    "Softplus": (lambda x: functional.softplus(x, threshold=1e9), None),
    "Softsign": (functional.softsign, None),
    "Sqrt": (torch.sqrt, numpy.sqrt),
    "Tan": (torch.tan, None),
    "Tanh": (torch.tanh, None),
}


def _divide(x: Any, y: Any) -> Any:
    is_whole = not (x if isinstance(x, torch.Tensor) else y).dtype.is_floating_point
    return torch.div(x, y, rounding_mode="trunc" if is_whole else None)


def _divide_arrays(x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return numpy.divide(x, y)
    quotient = numpy.abs(x) // numpy.abs(y)
    return (quotient * numpy.sign(x) * numpy.sign(y)).astype(x.dtype)


_BINARY: dict[str, tuple[Any, Any]] = {
    "Add": (torch.add, numpy.add),
    "And": (torch.logical_and, numpy.logical_and),
    "BitwiseAnd": (torch.bitwise_and, None),
    "BitwiseOr": (torch.bitwise_or, None),
    "BitwiseXor": (torch.bitwise_xor, None),
    "Div": (_divide, _divide_arrays),
    "Equal": (torch.eq, numpy.equal),
    "Greater": (torch.gt, numpy.greater),
    "GreaterOrEqual": (torch.ge, numpy.greater_equal),
    "Less": (torch.lt, numpy.less),
    "LessOrEqual": (torch.le, numpy.less_equal),
    "Mul": (torch.mul, numpy.multiply),
    "Or": (torch.logical_or, numpy.logical_or),
    "Sub": (torch.sub, numpy.subtract),
    "Xor": (torch.logical_xor, numpy.logical_xor),
}
_VARIADIC: dict[str, tuple[Any, Any]] = {
    "Max": (torch.maximum, numpy.maximum),
    "Min": (torch.minimum, numpy.minimum),
    "Sum": (torch.add, numpy.add),
}


def _on_arrays(function: Any) -> Any:
    return None if function is None else lambda call, *arrays: function(*arrays)


def _binary(function: Any) -> Any:
    def run(call: NodeCall) -> torch.Tensor:
        left, right = call.values
        if isinstance(left, torch.Tensor):
            return function(left, call.operand(1, left))
        if isinstance(right, torch.Tensor) and function in (torch.add, torch.mul):
            return function(right, call.operand(0, right))
        return function(call.tensor(0), call.tensor(1))

    return run


for _name, (_function, _arrays) in _UNARY.items():
    define(_name, lambda call, function=_function: function(call.tensor(0)), on_arrays=_on_arrays(_arrays))
for _name, (_function, _arrays) in _BINARY.items():
    define(_name, _binary(_function), on_arrays=_on_arrays(_arrays))
for _name, (_function, _arrays) in _VARIADIC.items():
    define(
        _name,
        lambda call, function=_function: functools.reduce(function, call.tensors()),
        on_arrays=None
        if _arrays is None
        else lambda call, *arrays, function=_arrays: functools.reduce(function, arrays),
    )


@defines("Identity", on_arrays=lambda call, x: x)
def _identity(call: NodeCall) -> torch.Tensor:
    return call.tensor(0)


@defines("Mean")
def _mean(call: NodeCall) -> torch.Tensor:
    return functools.reduce(torch.add, call.tensors()) / len(call.values)


@defines("Pow")
def _power(call: NodeCall) -> torch.Tensor:
    base = call.tensor(0)
    exponent = (
        call.number(1) if getattr(call.values[1], "array", None) is not None and _is_one(call) else call.tensor(1)
    )
    return torch.pow(base, exponent).to(base.dtype)


def _is_one(call: NodeCall) -> bool:
    value: Any = call.values[1]
    return value.array.size == 1 and value.array.ndim <= call.tensor(0).dim()


@defines("Mod", on_arrays=lambda call, x, y: numpy.fmod(x, y) if call.attribute("fmod", 0) else numpy.mod(x, y))
def _modulo(call: NodeCall) -> torch.Tensor:
    return (torch.fmod if call.attribute("fmod", 0) else torch.remainder)(call.tensor(0), call.tensor(1))


@defines("BitShift")
def _shift(call: NodeCall) -> torch.Tensor:
    is_left = call.attribute("direction") == "LEFT"
    return (torch.bitwise_left_shift if is_left else torch.bitwise_right_shift)(call.tensor(0), call.tensor(1))


@defines("PRelu")
def _prelu(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return torch.where(x < 0, x * call.tensor(1), x)


@defines("LeakyRelu")
def _leaky_relu(call: NodeCall) -> torch.Tensor:
    return functional.leaky_relu(call.tensor(0), call.attribute("alpha", 0.01))


@defines("Elu")
def _elu(call: NodeCall) -> torch.Tensor:
    return functional.elu(call.tensor(0), call.attribute("alpha", 1.0))


@defines("Celu")
def _celu(call: NodeCall) -> torch.Tensor:
    return functional.celu(call.tensor(0), call.attribute("alpha", 1.0))


@defines("Selu")
def _selu(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    alpha, gamma = call.attribute("alpha", 1.6732632), call.attribute("gamma", 1.0507010)
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


@defines("HardSigmoid")
def _hard_sigmoid(call: NodeCall) -> torch.Tensor:
    return torch.clamp(call.tensor(0) * call.attribute("alpha", 0.2) + call.attribute("beta", 0.5), 0.0, 1.0)


@defines("ThresholdedRelu")
def _thresholded_relu(call: NodeCall) -> torch.Tensor:
    return functional.threshold(call.tensor(0), call.attribute("alpha", 1.0), 0.0)


@defines("Shrink")
def _shrink(call: NodeCall) -> torch.Tensor:
    x, bias, edge = call.tensor(0), call.attribute("bias", 0.0), call.attribute("lambd", 0.5)
    return torch.where(x < -edge, x + bias, torch.where(x > edge, x - bias, torch.zeros_like(x)))


@defines("Gelu", since=20)
def _gelu(call: NodeCall) -> torch.Tensor:
    return functional.gelu(call.tensor(0), approximate=call.attribute("approximate", "none"))


@defines("Swish", since=24)
def _swish(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    return x * torch.sigmoid(x * call.attribute("alpha", 1.0))


@defines("IsInf")
def _is_infinite(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    positive, negative = call.attribute("detect_positive", 1), call.attribute("detect_negative", 1)
    if positive and negative:
        return torch.isinf(x)
    if not positive and not negative:
        return torch.zeros_like(x, dtype=torch.bool)
    return x == (float("inf") if positive else float("-inf"))


@defines("Clip")
def _clip_by_attributes(call: NodeCall) -> torch.Tensor:
    return torch.clamp(call.tensor(0), call.attribute("min"), call.attribute("max"))


@defines("Clip", since=11)
def _clip(call: NodeCall) -> torch.Tensor:
    x = call.tensor(0)
    lowest, highest = (call.operand(position, x) if call.has(position) else None for position in (1, 2))
    if lowest is None and highest is None:
        return x
    if isinstance(lowest, torch.Tensor) or isinstance(highest, torch.Tensor):
        x = x if lowest is None else torch.maximum(x, torch.as_tensor(lowest, dtype=x.dtype, device=x.device))
        return x if highest is None else torch.minimum(x, torch.as_tensor(highest, dtype=x.dtype, device=x.device))
    return torch.clamp(x, lowest, highest)


@defines("Where", on_arrays=lambda call, condition, x, y: numpy.where(condition, x, y))
def _where(call: NodeCall) -> torch.Tensor:
    return torch.where(call.tensor(0), call.tensor(1), call.tensor(2))


def _cast_array(call: NodeCall, array: Any) -> Any:
    dtype = numpy_dtype(dtype_of(call.attribute("to")))
    return NotImplemented if dtype is None else array.astype(dtype)


@defines("Cast", on_arrays=_cast_array)
def _cast(call: NodeCall) -> torch.Tensor:
    return call.tensor(0).to(dtype_of(call.attribute("to")))


@defines("CastLike")
def _cast_like(call: NodeCall) -> torch.Tensor:
    return call.tensor(0).to(call.tensor(1).dtype)


@defines("Dropout")
def _dropout(call: NodeCall) -> Any:
    """As in inference: nothing is dropped."""
    x = call.tensor(0)
    return (x, torch.ones_like(x, dtype=torch.bool)) if len(call.node.outputs) > 1 else x
