"""How many registers a thread may have: the fewer, the more threads a multiprocessor has room for.

Blocks that have a row each wait: for memory, then at barriers. Others read and write meanwhile, if there is room for
them. The assembler does not know that: for a layer_norm of 16-bit numbers it takes 40 registers where 32 will do, and
there is room for three blocks of 512 threads instead of four. So it is told, where 32 surely suffice: little of a row
is kept, and no function is computed of its elements, which with so few registers would move others to memory.
"""

from __future__ import annotations

from ingot.loops.gpu.schedule import WARP, GpuForm, GpuSchedule
from ingot.loops.nest import Compute, Loop, LoopKind, Nest, walk
from ingot.ops.samples import EXACT

FEW_REGISTERS = 32
"""With no more of them, a multiprocessor has room for as many threads as it can have at all."""
FEW_KEPT_BYTES = 32
"""What a thread may keep of its row in a quarter of these."""


def most_registers(nest: Nest, schedule: GpuSchedule) -> int | None:
    """How many registers a thread may have at most; None where the assembler is left to decide."""
    if schedule.form is not GpuForm.TEAMS or not schedule.steps or schedule.team <= WARP:
        return None
    kept = sum(max(scratch.dtype.bytes, 1) for scratch in nest.scratches) * schedule.steps * schedule.lanes
    return FEW_REGISTERS if kept <= FEW_KEPT_BYTES and _is_arithmetic(nest) else None


def _is_arithmetic(nest: Nest) -> bool:
    """Whether no function is computed of the elements of a row. Those of the row itself are one for all of them."""
    passes = [loop for loop in walk(nest.body) if isinstance(loop, Loop) and loop.kind is LoopKind.THREADS]
    return all(i.op.tolerance == EXACT for loop in passes for i in loop.body if isinstance(i, Compute))
