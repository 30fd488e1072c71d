"""Small compiled loops around one vector function, called on numpy arrays; and distances in units in the last place."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import mpmath
import numpy

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, Host, HostModule
from ingot.codegen.llvm.math import FUNCTIONS
from tests.codegen.hosts import NATIVE

ARITY = {"atan2": 2, "pow": 2}


def kernel_module(name: str, lane: ir.Type, width: int | None, host: Host) -> HostModule:
    """void kernel(inputs..., output, count): whole vectors only."""
    operand = ir.VectorType(lane, width) if width else lane
    pointer, index = ir.PointerType(lane), ir.IntType(64)
    module = HostModule(host)
    arity = ARITY.get(name, 1)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer] * (arity + 1) + [index]), "kernel")
    *inputs, output, count = function.arguments
    builder = ir.IRBuilder(function)
    entry = builder.block
    body, done = function.append_block("body"), function.append_block("done")
    builder.branch(body)
    builder.position_at_end(body)
    position = builder.phi(index)
    place = lambda base: builder.bitcast(builder.gep(base, position), ir.PointerType(operand))
    values = [builder.load(place(base), align=4) for base in inputs]
    emit = FUNCTIONS[name]
    builder.store(emit(builder, *values), place(output), align=4)
    assert builder.block is body, "a function is called, whatever it is made of"
    following = builder.add(position, ir.Constant(index, width or 1))
    position.add_incoming(ir.Constant(index, 0), entry)
    position.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", following, count), body, done)
    builder.position_at_end(done)
    builder.ret_void()
    return module


@cache
def compiled(name: str, letter: str, width: int | None, host: Host) -> tuple[Compiled, Any]:
    """The machine code of one function, `letter` being f or d; the first of the pair keeps it alive."""
    lane = ir.FloatType() if letter == "f" else ir.DoubleType()
    code = Compiled(lambda: kernel_module(name, lane, width, host))
    arguments = [ctypes.c_void_p] * (ARITY.get(name, 1) + 1) + [ctypes.c_int64]
    return code, ctypes.CFUNCTYPE(None, *arguments)(code.address("kernel"))


def evaluate(name: str, *inputs: numpy.ndarray, width: int | None, host: Host = NATIVE) -> numpy.ndarray:
    """The function over arrays of any length; the last vector is filled up with ones."""
    letter = "f" if inputs[0].dtype == numpy.float32 else "d"
    _, kernel = compiled(name, letter, width, host)
    count = inputs[0].size
    padded_count = -(-count // (width or 1)) * (width or 1)
    padded = [numpy.concatenate([array, numpy.ones(padded_count - count, array.dtype)]) for array in inputs]
    output = numpy.empty_like(padded[0])
    kernel(*(array.ctypes.data for array in padded), output.ctypes.data, padded_count)
    return output[:count]


def single_errors(got: numpy.ndarray, exact: numpy.ndarray) -> numpy.ndarray:
    """Distance of single-precision results from exact values given in double precision, in ulp of the exact value.

    Infinite where one is NaN and the other is not. An overflowed result counts as 2^128. Exact values are so to a unit
    in their last place or two, and on which side of a power of 2 they lie, where steps change, may be wrong: next to
    one the larger step counts.
    """
    with numpy.errstate(all="ignore"):
        exact = numpy.where(numpy.abs(exact) >= 2.0**128 * (1 - 2.0**-25), numpy.copysign(numpy.inf, exact), exact)
        _, exponent = numpy.frexp(exact * (1 + 2.0**-51))
        step = numpy.ldexp(1.0, numpy.maximum(exponent - 1, -126) - 23)
        finite = lambda values: numpy.where(numpy.isinf(values), numpy.copysign(2.0**128, values), values)
        step = numpy.where(numpy.isinf(exact), 2.0**104, step)
        distance = numpy.abs(finite(got.astype(numpy.float64)) - finite(exact)) / step
        agree = numpy.isnan(got) == numpy.isnan(exact)
        return numpy.where(agree, numpy.where(numpy.isnan(got), 0.0, distance), numpy.inf)


def double_error(got: float, exact: Any) -> float:
    """The same for one double-precision result and an exact value of many digits."""
    if exact == 0:
        return 0.0 if got == 0 else numpy.inf
    if numpy.isnan(got):
        return numpy.inf
    exponent = max(mpmath.frexp(exact)[1] - 1, -1022)
    largest = mpmath.ldexp(1, 1024)
    if numpy.isinf(got):
        overflows = abs(exact) >= largest * (1 - mpmath.ldexp(1, -54))
        return 0.0 if overflows and mpmath.sign(exact) == numpy.sign(got) else numpy.inf
    return float(abs(mpmath.mpf(got) - exact) / mpmath.ldexp(1, exponent - 52))
