"""Vector mathematics, written once for every target: each function is emitted as inline IR for every lane.

In: LLVM values of one floating-point type, `float`, `double` or a vector of either. Out: values of the same type. What
always holds: results are within 2 ulp of the exact value in single and 4 ulp in double precision over the whole range
(but see lgamma), with the special values of C99, and denormals kept. Each function's docstring states its method and
bound. In single precision GPUs have forms of their own for some, see `gpu`.
"""

from __future__ import annotations

from ingot.codegen.llvm.math import (
    error_function,
    exponentials,
    fused_sums,
    gamma,
    hyperbolics,
    integers,
    inverse_error_function,
    logarithms,
    power,
    remainders,
    trigonometry,
)
from ingot.codegen.llvm.math.dsl.definitions import Emitter, emitter
from ingot.codegen.llvm.math.gpu import accurate, approximate

EXACT_FUNCTIONS: dict[str, Emitter] = {
    "fused_sum": emitter(fused_sums.fused_sum),
    "fmod": emitter(remainders.fmod),
    "remainder": emitter(remainders.remainder),
}
"""Functions of floating-point numbers that are rounded once or not at all; `fused_sum` is of single precision."""

INTEGER_FUNCTIONS: dict[str, Emitter] = {
    "gcd": emitter(integers.gcd),
    "pow": emitter(integers.pow),
}
"""Functions of signed integers."""

FUNCTIONS: dict[str, Emitter] = {
    "exp": emitter(exponentials.exp, accurate.exp, approximate.exp),
    "exp2": emitter(exponentials.exp2, approximate=approximate.exp2),
    "expm1": emitter(exponentials.expm1, approximate=approximate.expm1),
    "sigmoid": emitter(exponentials.sigmoid, accurate.sigmoid, approximate.sigmoid),
    "log": emitter(logarithms.log, accurate.log, approximate.log),
    "log2": emitter(logarithms.log2, accurate.log2, approximate.log2),
    "log10": emitter(logarithms.log10, accurate.log10, approximate.log10),
    "log1p": emitter(logarithms.log1p, accurate.log1p, approximate.log1p),
    "sin": emitter(trigonometry.sin),
    "cos": emitter(trigonometry.cos),
    "tan": emitter(trigonometry.tan),
    "asin": emitter(trigonometry.asin),
    "acos": emitter(trigonometry.acos),
    "atan": emitter(trigonometry.atan),
    "atan2": emitter(trigonometry.atan2),
    "sinh": emitter(hyperbolics.sinh),
    "cosh": emitter(hyperbolics.cosh),
    "tanh": emitter(hyperbolics.tanh, accurate.tanh, approximate.tanh),
    "asinh": emitter(hyperbolics.asinh),
    "acosh": emitter(hyperbolics.acosh),
    "atanh": emitter(hyperbolics.atanh),
    "erf": emitter(error_function.erf, accurate.erf, approximate.erf),
    "erfc": emitter(error_function.erfc),
    "erfinv": emitter(inverse_error_function.erfinv),
    "pow": emitter(power.pow),
    "rsqrt": emitter(power.rsqrt, accurate.rsqrt),
    "lgamma": emitter(gamma.lgamma),
}

SUMS_WITH_ONE: dict[str, Emitter] = {
    "erf": emitter(approximate.one_and_erf),
    "tanh": emitter(approximate.one_and_tanh),
}
"""1 + f(x) by the name of f, for programs that may be computed roughly on a GPU."""

TO_8_BITS: dict[str, Emitter] = {
    "erf": emitter(approximate.erf_to_8_bits),
    "tanh": emitter(approximate.tanh_to_8_bits),
}
"""f(x) by the name of f, for what is rounded to bfloat16 at once."""

__all__ = ["EXACT_FUNCTIONS", "FUNCTIONS", "INTEGER_FUNCTIONS", "SUMS_WITH_ONE", "TO_8_BITS", "Emitter"]
