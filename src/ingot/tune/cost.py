"""What a candidate should cost, roughly: the order in which candidates are measured.

In: a program and a candidate for one of its calls. Out: seconds, which are only good for comparing candidates of the
same call. Four things count: the bytes that move, past the caches or through them; the instructions, by how full
vectors are and how many are under way at once; how evenly blocks go around the threads; and what starting threads
takes. Nothing is decided by this: every candidate that is chosen was measured.
"""

from __future__ import annotations

import math

from ingot.codegen.llvm.host import host
from ingot.loops.cpu.scheduling import CpuCall
from ingot.loops.program import Program
from ingot.runtime.threads import thread_count
from ingot.tune.search_space import Candidate, last_cache_bytes

_MEMORY_BYTES_A_SECOND = 20e9
_OF_ONE_THREAD = 12e9
"""What one thread alone gets from memory."""
_CACHE_BYTES_A_SECOND = 80e9
"""Of one thread, where everything lies in a cache."""
_SECONDS_A_VECTOR = 0.4e-9
"""An instruction for one register of elements."""
_INSTRUCTIONS_OF_A_FUNCTION = 15
_SECONDS_TO_START = 4e-6
"""Handing work to threads, and waiting for all of them."""
_BLOCK_SECONDS = 3e-8
"""Entering a block: positions, pointers, what is left over at its end."""


def predicted_seconds(program: Program, candidate: Candidate) -> float:
    """What a call should take under a candidate."""
    call = candidate.call
    grains = grains_of(call)
    threads = min(thread_count(), grains) if candidate.is_parallel else 1
    most = min(math.ceil(grains / threads) * _elements_of_a_grain(call), call.elements)
    share = most * threads / call.elements
    """How much more the busiest thread has to do than it would if work were divided evenly."""
    working = (_arithmetic(program, candidate) + _through_caches(program, call)) / threads * share
    working += grains / threads * _BLOCK_SECONDS
    starting = _SECONDS_TO_START if threads > 1 else 0.0
    return max(working, _from_memory(program, call, threads)) + starting


def grains_of(call: CpuCall) -> int:
    """The pieces of work that threads share among each other."""
    divided, blocked = call.schedule.divided_axes, call.schedule.blocked_axes
    counts = [-(-call.sizes[axis] // call.blocks[axis]) if axis in blocked else call.sizes[axis] for axis in divided]
    return max(-(-math.prod(counts) // max(call.grain, 1)), 1)


def _elements_of_a_grain(call: CpuCall) -> int:
    """How many elements such a piece has, if it is none at the end of an axis."""
    divided, blocked = call.schedule.divided_axes, call.schedule.blocked_axes
    sides = [1 if axis in divided and axis not in blocked else size for axis, size in enumerate(call.sizes)]
    sides = [min(size, call.blocks[axis]) if axis in blocked else size for axis, size in enumerate(sides)]
    return math.prod(sides) * max(call.grain, 1)


def _arithmetic(program: Program, candidate: Candidate) -> float:
    """Seconds of one thread for all elements."""
    register = host().vector_bits // 8
    widest = max((dtype.widened.bytes for dtype in program.buffers), default=4)
    call = candidate.call
    length = call.sizes[call.schedule.vector_axis]
    total = 0.0
    for lanes in candidate.lanes:
        under_way = lanes * widest / register
        wasted = math.ceil(length / lanes) * lanes / max(length, 1)
        registers = call.elements / max(lanes, 1) * max(under_way, 1.0) * wasted
        total += registers * _penalty(under_way, program.functions > 0)
    instructions = len(program.statements) + _INSTRUCTIONS_OF_A_FUNCTION * program.functions
    return total / max(len(candidate.lanes), 1) * instructions * _SECONDS_A_VECTOR


def _penalty(under_way: float, has_functions: bool) -> float:
    """One register at a time waits for its own results; many, with the terms of polynomials, do not fit."""
    if under_way <= 1:
        return 1.3
    if under_way <= 2:
        return 1.0
    if under_way <= 4:
        return 1.05 if has_functions else 1.0
    return 1.5 if has_functions else 1.1


def _buffer_bytes(program: Program, call: CpuCall) -> list[int]:
    """What each buffer moves, outputs first."""
    return [
        dtype.bytes * math.prod(size for size, stride in zip(call.sizes, strides, strict=True) if stride)
        for dtype, strides in zip(program.buffers, call.strides, strict=True)
    ]


def _through_caches(program: Program, call: CpuCall) -> float:
    return sum(_buffer_bytes(program, call)) / _CACHE_BYTES_A_SECOND


def _from_memory(program: Program, call: CpuCall, threads: int) -> float:
    """Seconds for what does not fit the caches: stores through them read what they replace."""
    moved = _buffer_bytes(program, call)
    if sum(moved) < last_cache_bytes():
        return 0.0
    written = sum(moved[: len(program.outputs)])
    rate = min(threads * _OF_ONE_THREAD, _MEMORY_BYTES_A_SECOND)
    return (sum(moved) + (0 if call.schedule.streaming else written)) / rate
