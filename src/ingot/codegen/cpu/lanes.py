"""How many elements the vector loops of a nest take at once.

In: a loop, and what its schedule says of the length of vectors, if anything. Out: a number of lanes, a power of two.
Always holds: loops that accumulate along their vectors have as many lanes under every schedule, because their number
decides in which order elements are added up.
"""

from __future__ import annotations

from ingot.codegen.llvm.host import host
from ingot.codegen.llvm.math import FUNCTIONS
from ingot.loops.cpu.nesting import TRANSPOSED_AT_ONCE
from ingot.loops.cpu.schedule import MOST_LANES
from ingot.loops.nest import Accumulate, Compute, Keep, Loop, LoopKind, Nest, Store, register_made, walk

VECTOR_BYTES = 64
"""Bytes a vector of the widest type takes: one AVX-512 register, two of AVX2, four of SSE or NEON."""
ACCUMULATOR_BYTES = 128
"""Bytes the accumulators of one reduction may take: as many additions in flight as hide their latency."""
NARROWEST_STORE = 32


def lanes_of(nest: Nest, loop: Loop, vector_bytes: int | None = None) -> int:
    """How many elements a vector loop takes at once; `vector_bytes` goes before the rule where nothing is accumulated
    along the vectors, which would be in another order then."""
    if _transposes(nest, loop):
        return TRANSPOSED_AT_ONCE
    if vector_bytes is not None and not accumulates_along(nest, loop):
        return max(min(vector_bytes // _widest(nest, loop), MOST_LANES), 2)
    widest, narrowest, accumulated = _widest(nest, loop), 8, 1
    for instruction in walk(loop.body):
        if isinstance(instruction, Store):
            narrowest = min(narrowest, nest.buffers[instruction.buffer].dtype.bytes)
        if isinstance(instruction, Accumulate) and nest.accumulators[instruction.accumulator].axis is None:
            accumulated = max(accumulated, nest.accumulators[instruction.accumulator].dtype.bytes)
    # Polynomials need registers for their terms: half as many elements at once then.
    # Unless that made stores so narrow that memory takes longer for them.
    halves = (
        has_functions(loop) and host().vector_bits < 512 and VECTOR_BYTES // 2 // widest * narrowest >= NARROWEST_STORE
    )
    budget = VECTOR_BYTES // 2 if halves else VECTOR_BYTES
    return max(min(budget // widest, ACCUMULATOR_BYTES // accumulated, MOST_LANES), 2)


def _widest(nest: Nest, loop: Loop) -> int:
    """Bytes of the widest type that a loop computes in or writes."""
    widest = 1
    for instruction in walk(loop.body):
        register = register_made(instruction)
        if register is not None:
            widest = max(widest, register.dtype.widened.bytes)
        if isinstance(instruction, Store):
            widest = max(widest, nest.buffers[instruction.buffer].dtype.widened.bytes)
    return widest


def accumulates_along(nest: Nest, loop: Loop) -> bool:
    """Whether a loop accumulates the elements of a vector with each other."""
    return any(isinstance(i, Accumulate) and nest.accumulators[i.accumulator].axis is None for i in walk(loop.body))


def has_functions(loop: Loop) -> bool:
    return any(isinstance(i, Compute) and i.op.name in FUNCTIONS for i in walk(loop.body))


def _transposes(nest: Nest, loop: Loop) -> bool:
    """Whether a loop writes the columns of scratch memory."""
    return any(isinstance(i, Keep) and nest.scratches[i.scratch].axes[-1] not in loop.axes for i in walk(loop.body))


def lanes_in(nest: Nest, vector_bytes: int | None) -> tuple[int, ...]:
    """The lanes of all vector loops of a nest: schedules with the same ones have the same loops."""
    found = [i for i in walk(nest.body) if isinstance(i, Loop) and i.kind is LoopKind.VECTOR]
    return tuple(lanes_of(nest, loop, vector_bytes) for loop in found)
