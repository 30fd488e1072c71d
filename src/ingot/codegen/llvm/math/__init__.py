"""Vector mathematics, written once for every target: each function emits inline, straight-line IR for every lane.

Operands are LLVM values of one floating-point type, `float`, `double` or a vector of either. Results are within 2 ulp
of the exact value in single and 4 ulp in double precision over the whole range (but see lgamma), with the special
values of C99, and denormals kept. Each function's docstring states its method and bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ingot.codegen.llvm.math import (
    error_function,
    exponentials,
    gamma,
    hyperbolics,
    inverse_error_function,
    logarithms,
    power,
    trigonometry,
)
from ingot.codegen.llvm.math.words import Number

Emitter = Callable[..., Any]


def _emitter(function: Callable[..., Number]) -> Emitter:
    def emit(builder: ir.IRBuilder, *operands: ir.Value) -> ir.Value:
        return function(*(Number(builder, operand) for operand in operands)).value

    emit.__doc__ = function.__doc__
    emit.__name__ = function.__name__
    return emit


FUNCTIONS: dict[str, Emitter] = {
    "exp": _emitter(exponentials.exp),
    "exp2": _emitter(exponentials.exp2),
    "expm1": _emitter(exponentials.expm1),
    "sigmoid": _emitter(exponentials.sigmoid),
    "log": _emitter(logarithms.log),
    "log2": _emitter(logarithms.log2),
    "log10": _emitter(logarithms.log10),
    "log1p": _emitter(logarithms.log1p),
    "sin": _emitter(trigonometry.sin),
    "cos": _emitter(trigonometry.cos),
    "tan": _emitter(trigonometry.tan),
    "asin": _emitter(trigonometry.asin),
    "acos": _emitter(trigonometry.acos),
    "atan": _emitter(trigonometry.atan),
    "atan2": _emitter(trigonometry.atan2),
    "sinh": _emitter(hyperbolics.sinh),
    "cosh": _emitter(hyperbolics.cosh),
    "tanh": _emitter(hyperbolics.tanh),
    "asinh": _emitter(hyperbolics.asinh),
    "acosh": _emitter(hyperbolics.acosh),
    "atanh": _emitter(hyperbolics.atanh),
    "erf": _emitter(error_function.erf),
    "erfc": _emitter(error_function.erfc),
    "erfinv": _emitter(inverse_error_function.erfinv),
    "pow": _emitter(power.pow),
    "rsqrt": _emitter(power.rsqrt),
    "lgamma": _emitter(gamma.lgamma),
}

__all__ = ["FUNCTIONS", "Emitter"]
