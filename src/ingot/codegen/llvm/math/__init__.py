"""Vector mathematics, written once for every target: each function emits inline, straight-line IR for every lane.

Operands are LLVM values of one floating-point type, `float`, `double` or a vector of either. Results are within 2 ulp of
the exact value in single and 4 ulp in double precision over the whole range, with the special values of C99 and denormals
kept; each function's docstring states its method and bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ingot.codegen.llvm.math import exponentials, logarithms
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
    "log": _emitter(logarithms.log),
    "log1p": _emitter(logarithms.log1p),
    "log2": _emitter(logarithms.log2),
    "log10": _emitter(logarithms.log10),
    "sigmoid": _emitter(exponentials.sigmoid),
}

__all__ = ["FUNCTIONS", "Emitter"]
