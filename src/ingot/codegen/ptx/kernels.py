"""Nests of loops as functions for a GPU: the code of one thread, written for all of them.

    grid loop      the thread's number in the whole grid, or in its line of blocks, says which elements are its own
    blocks loop    the number of the block, and of the thread group in it, says which row; or which square, see `tiles`
    threads loop   the number in the thread group says which elements of the row

Every loop at the top of a nest is a function of its own, and so is what follows them. The first has the program's name,
and its number is added to the names of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ingot.base.forks import cached_property
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Host, HostModule, optimized
from ingot.codegen.ptx import intrinsics
from ingot.codegen.ptx.accuracy import suited
from ingot.codegen.ptx.fused_approximations import with_fused_approximations
from ingot.codegen.ptx.rows import RowEmission
from ingot.codegen.ptx.target import past_the_cache, ptx_of
from ingot.codegen.ptx.thread_emission import Emission
from ingot.codegen.ptx.tiles import run_tiles
from ingot.loops.gpu.launches import GpuLaunch, launches_of
from ingot.loops.gpu.nesting import build_gpu_nest
from ingot.loops.gpu.schedule import GpuSchedule, Grid, Tiles
from ingot.loops.nest import Loop, LoopKind, Nest, Store, walk
from ingot.loops.program import Program


@dataclass(frozen=True)
class GpuKernel:
    """PTX for a program under a schedule."""

    program: Program
    schedule: GpuSchedule
    nest: Nest
    host: Host
    ptx: str
    entries: tuple[str, ...]
    """Functions to launch, one after another."""
    _text: str

    @cached_property
    def llvm(self) -> str:
        """What the PTX was made from, made again when it is to be read."""
        return str(optimized(self._text, self.host))


def compile_gpu_kernel(program: Program, schedule: GpuSchedule, host: Host) -> GpuKernel:
    host = suited(host, program)
    nest = build_gpu_nest(with_fused_approximations(program, host), schedule)
    passes = [loop for loop in walk(nest.body) if isinstance(loop, Loop) and loop.kind is LoopKind.THREADS]
    is_one_loop = len(passes) == 1 and not schedule.is_unrolled
    # The assembler does everything again that LLVM's code generator does, but it keeps what passes after the first make
    # of row values in their loops, over and over.
    host = replace(host, level=0 if schedule.is_unrolled or is_one_loop else 1)
    module = HostModule(host)
    entries = []
    for number, launch in enumerate(launches_of(nest, schedule)):
        entries.append(f"{program.name}_{number}" if number else program.name)
        _emit(module, entries[-1], nest, schedule, launch)
    text = str(module)
    ptx = ptx_of(text, host)
    if is_one_loop and not any(isinstance(instruction, Store) for instruction in walk(passes[0].body)):
        # What is read once, while nothing is written, need not stay in a multiprocessor's cache: 1 to 2% less time, and
        # 3 to 15% more where every element is written, too.
        ptx = past_the_cache(ptx)
    return GpuKernel(program, schedule, nest, host, ptx, tuple(entries), text)


def _emit(module: HostModule, entry: str, nest: Nest, schedule: GpuSchedule, launch: GpuLaunch) -> None:
    match schedule:
        case Grid():
            assert launch.loop is not None
            _GridEmission(module, entry, nest, schedule).emit(launch.loop)
        case Tiles():
            assert launch.loop is not None
            emission = Emission(module, entry, nest, schedule)
            run_tiles(nest, schedule, emission.outside, launch.loop, emission.run_one)
            emission.builder.ret_void()
        case _:
            RowEmission(module, entry, nest, schedule, launch).emit()


class _GridEmission(Emission):
    """Elements spread over all threads."""

    def __init__(self, module: HostModule, entry: str, nest: Nest, schedule: Grid):
        super().__init__(module, entry, nest, schedule)
        self.grid = schedule

    def emit(self, loop: Loop) -> None:
        builder, schedule, index = self.builder, self.grid, self.arguments.index
        thread, block = self.wide(intrinsics.thread_number(builder)), self.wide(intrinsics.block_number(builder))
        outside = self.outside
        if schedule.has_lines:
            outside = outside.inner(1, None)
            outside.enter(loop.axes[:-1], self.wide(intrinsics.line_number(builder)), 1)
            loop = replace(loop, axes=loop.axes[-1:])
        units = self.units(loop.axes, loop.vector_width)
        first = builder.add(builder.mul(block, index(schedule.threads * loop.at_once)), thread)
        if schedule.in_turn:
            with intrinsics.counting(builder, loop.at_once) as number:
                unit = builder.add(first, builder.mul(self.wide(number), index(schedule.threads)))
                place = self.entered_one(outside, loop, unit, units, schedule.is_even)
                self.run_side_by_side([place], loop.body)
        else:
            surely = [schedule.is_even] * loop.at_once
            self.run_side_by_side(self.entered(outside, loop, first, schedule.threads, units, surely), loop.body)
        if schedule.has_rest:
            self._rest(loop, builder.add(builder.mul(block, index(schedule.threads)), thread))
        builder.ret_void()

    def _rest(self, loop: Loop, thread: ir.Value) -> None:
        """The last elements, fewer than a thread takes together, one by one to the first threads."""
        builder, index = self.builder, self.arguments.index
        size, vector_width = self.arguments.size(loop.axes[-1]), index(loop.vector_width)
        rest = builder.urem(size, vector_width)
        with builder.if_then(builder.icmp_unsigned("<", thread, rest), odds=(1, 99)):
            place = self.outside.inner(1, None)
            place.positions[loop.axes[-1]] = builder.add(builder.sub(size, rest), thread)
            self.run_side_by_side([place], loop.body)
