"""A GPU's approximate instructions on this processor, each as far off as the real ones may be.

Results are the exact ones, moved by a part of a unit in the last place that depends on the operand's bits alone, then
rounded. How far such a unit is off was published with its first design: 1.41 ulp for 2^x, 0.98 for 1 / x, 1.52 for
1 / sqrt(x). Far from 0 an H200 was seen to be 2.16 ulp off for 2^x. In double precision the unit knows nothing of the
lower half of an operand, and leaves that of its result zero.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.codegen.llvm.math import exponentials, hyperbolics, logarithms
from ingot.codegen.llvm.math.dsl.formats import INFINITY
from ingot.codegen.llvm.math.dsl.vocabulary import Number, at_least, at_most, choose, fma, square_root
from tests.codegen.hosts import NATIVE

ACCURATE = replace(NATIVE, has_approximations=True)
"""This processor, with code as for a GPU."""
APPROXIMATE = replace(ACCURATE, approximates=True)

_EXACT = {
    "ex2": exponentials.exp2,
    "lg2": logarithms.log2,
    "rcp": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / square_root(x),
    "tanh": hyperbolics.tanh,
}
_ERROR_BEFORE_ROUNDING = {"ex2": 0.91, "rcp": 0.48, "rsqrt": 1.02}
"""In ulp of the result."""
_ERROR_OF_FAR_POWERS = 1.7
"""The same for 2^x where |x| > 16: what was seen to be worse lies at -22 and at -126."""
_ERROR_OF_LOGARITHM = 2.0**-22.6
_ERROR_OF_TANGENT = 2.0**-11


def _noise(x: Number) -> Number:
    """A number between -1 and 1 for every bit pattern, without a pattern of its own."""
    bits = x.bits()
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39), (15, 1)):
        bits = (bits ^ (bits >> shift)) * factor
    return ((bits >> 9) | 0x40000000).as_number() - 3.0


def _flushed(x: Number) -> Number:
    return choose(abs(x) < x.format.smallest_normal, (x.bits() & -(2**31)).as_number(), x)


def _off(name: str, x: Number, exact: Number) -> Number:
    """How far the result for x is off."""
    if name == "lg2":
        near_one = (x > 0.5) & (x < 2.0)
        return (_noise(x) * _ERROR_OF_LOGARITHM).widened() * choose(near_one, 1.0, abs(exact))
    if name == "tanh":
        return (_noise(x) * _ERROR_OF_TANGENT).widened() * exact
    unit = (exact.bits() & exact.format.exponent_mask).as_number() * 2.0**-x.format.fraction_bits
    error = x.constant(_ERROR_BEFORE_ROUNDING[name])
    error = choose(abs(x) > 16.0, _ERROR_OF_FAR_POWERS, error) if name == "ex2" else error
    return (_noise(x) * error).widened() * unit


def _upper_half(x: Number) -> Number:
    return (x.bits() & -(1 << 32)).as_number()


def instruction(name: str, x: Number, *others: Number | float) -> Number:
    """What stands in for `gpu.ptx_instructions.instruction`."""
    if not x.is_single:
        return _upper_half(_EXACT[name.split(".")[0]](_upper_half(x)))
    if name == "fma.rn.sat.f32":
        sum = fma(x, *others)
        return choose(sum.is_nan(), 0.0, at_least(at_most(sum, 1.0), 0.0))
    operation, flushes = name.split(".")[0], ".ftz." in name
    x = _flushed(x) if flushes else x
    exact = _EXACT[operation](x.widened())
    ordinary = (abs(exact) < INFINITY) & (abs(exact) > 0.0)
    result = choose(ordinary, exact + _off(operation, x, exact), exact).narrowed()
    return _flushed(result) if flushes else result
