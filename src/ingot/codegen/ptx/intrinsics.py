"""Intrinsics of a GPU's threads: their numbers, barriers, and reading each other's registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ingot.codegen.llvm import ir
from ingot.codegen.llvm.instructions import TypedValue

_INDEX = ir.IntType(32)
_ALL_LANES = -1


def _intrinsic(builder: Any, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    function = builder.module.functions.get(name)
    if function is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


def thread_number(builder: Any) -> ir.Value:
    """The number of the thread within its block."""
    return _intrinsic(builder, "llvm.nvvm.read.ptx.sreg.tid.x", _INDEX)


def block_number(builder: Any) -> ir.Value:
    return _intrinsic(builder, "llvm.nvvm.read.ptx.sreg.ctaid.x", _INDEX)


def line_number(builder: Any) -> ir.Value:
    """The number of the block along the second axis of the grid."""
    return _intrinsic(builder, "llvm.nvvm.read.ptx.sreg.ctaid.y", _INDEX)


@contextmanager
def doubling(builder: Any, first: int, end: int) -> Iterator[ir.Value]:
    """A loop over a number that begins at the first value and doubles while it is less than the last; it runs at least
    once. Unrolled it would be no faster, and take longer to assemble."""
    body, number = _looping(builder, first)
    yield number
    following = builder.shl(number, _INDEX(1))
    _end_loop(builder, body, number, following, builder.icmp_unsigned("<", following, _INDEX(end)))


@contextmanager
def counting(builder: Any, end: int) -> Iterator[ir.Value]:
    """The same over a number that counts from 0."""
    body, number = _looping(builder, 0)
    yield number
    following = builder.add(number, _INDEX(1))
    _end_loop(builder, body, number, following, builder.icmp_unsigned("<", following, _INDEX(end)))


@contextmanager
def halving(builder: Any, first: int) -> Iterator[ir.Value]:
    """The same over a number that is halved, until it is 1."""
    body, number = _looping(builder, first)
    yield number
    following = builder.lshr(number, _INDEX(1))
    _end_loop(builder, body, number, following, builder.icmp_unsigned("!=", following, _INDEX(0)))


def _looping(builder: Any, first: int) -> tuple[Any, Any]:
    """Where a loop begins, and the number in it."""
    before, body = builder.block, builder.append_block("looping")
    builder.branch(body)
    builder.position_at_end(body)
    number = builder.phi(_INDEX)
    number.add_incoming(_INDEX(first), before)
    return body, number


def _end_loop(builder: Any, body: Any, number: Any, following: ir.Value, goes_on: ir.Value) -> None:
    after = builder.append_block("looped")
    number.add_incoming(following, builder.block)
    builder.repeat(goes_on, body, after)
    builder.position_at_end(after)


def barrier(builder: Any) -> None:
    """All threads of the block arrive before any goes on; what they wrote to shared memory is seen by all."""
    _intrinsic(builder, "llvm.nvvm.barrier.cta.sync.aligned.all", ir.VoidType(), _INDEX(0))


def follow_launch(builder: Any) -> None:
    """Wait until the launch before this one on its stream has ended, and all it wrote is seen. Nothing that others may
    write can be touched before."""
    _intrinsic(builder, "llvm.nvvm.griddepcontrol.wait", ir.VoidType())


def trap(builder: Any) -> None:
    """End the kernel: what follows on this device fails, as after an assertion of PyTorch's."""
    _intrinsic(builder, "llvm.trap", ir.VoidType())


def of_neighbour(builder: Any, value: TypedValue, distance: int | ir.Value) -> TypedValue:
    """The value of the thread of the same warp whose number differs in one bit."""
    distance = _INDEX(distance) if isinstance(distance, int) else distance
    kind = value.code.type
    bits = value.dtype.bits if value.dtype.name != "Bool" else 1
    if bits == 64:
        words = builder.bitcast(value.code, ir.VectorType(_INDEX, 2))
        taken = ir.Constant(words.type, ir.Undefined)
        for half in range(2):
            word = _exchanged(builder, builder.extract_element(words, half), distance)
            taken = builder.insert_element(taken, word, half)
        return TypedValue(builder.bitcast(taken, kind), value.dtype)
    whole = builder.bitcast(value.code, ir.IntType(bits))
    wide = whole if bits == 32 else builder.zext(whole, _INDEX)
    taken = _exchanged(builder, wide, distance)
    narrow = taken if bits == 32 else builder.trunc(taken, ir.IntType(bits))
    return TypedValue(builder.bitcast(narrow, kind), value.dtype)


def _exchanged(builder: Any, word: ir.Value, distance: ir.Value) -> ir.Value:
    name = "llvm.nvvm.shfl.sync.bfly.i32"
    return _intrinsic(builder, name, _INDEX, _INDEX(_ALL_LANES), word, distance, _INDEX(31))
