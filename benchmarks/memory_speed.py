"""What the memory can do at most: bytes per second of loops that do nothing but move them.

A yardstick reads some arrays and writes some others: 2 and 1 is the streaming triad `a = b + s * c`, 1 and 1 a copy,
1 and 0 reading alone. Arrays are far larger than the caches, lie in huge pages, have been touched before, and are
written past the caches, so that a byte written is not a byte read first. The threads are those of torch's OpenMP.

What always holds: of the ways to walk through the arrays the fastest is taken. One core waits for memory rather than
being out of it, and a single stream per thread does not keep it busy; several places of an array read at once do.
A yardstick is an upper bound for kernels with its own number of streams, and it is fair only if it is measured in the
same seconds: how much memory speed a shared machine gives changes by a factor of two while one watches.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.measuring import Contestant, Effort, race
from ingot.codegen.llvm import ir
from ingot.codegen.llvm.host import Compiled, new_module
from ingot.runtime.threads import bind_openmp, thread_count

HUGE_PAGE = 2 << 20
LANES = 16
"""Elements moved at once: one cache line."""
WAYS = (1, 2, 4)
"""Places of each array that a thread works on at the same time, one of them the fastest."""

WORD = ir.IntType(64)
NUMBER = ir.IntType(32)
FLOATS = ir.VectorType(ir.FloatType(), LANES)


@dataclass(frozen=True)
class Yardstick:
    """Moving bytes and nothing else, ready to be measured."""

    reads: int
    writes: int
    nbytes: int
    contestant: Contestant

    @property
    def name(self) -> str:
        return NAMES.get((self.reads, self.writes), f"{self.reads} read, {self.writes} written")


NAMES = {(1, 0): "read", (0, 1): "fill", (1, 1): "copy", (2, 1): "triad"}


class MemorySpeed:
    """Yardsticks over one set of arrays, made when they are first asked for."""

    def __init__(self, array_bytes: int, effort: Effort):
        self._array_bytes = array_bytes
        self._effort = effort
        self._arrays: list[torch.Tensor] = []
        self._yardsticks: dict[tuple[int, int], Yardstick] = {}

    def yardstick(self, reads: int, writes: int) -> Yardstick:
        found = self._yardsticks.get((reads, writes))
        if found is None:
            found = self._yardsticks[reads, writes] = self._fastest(reads, writes)
        return found

    def _fastest(self, reads: int, writes: int) -> Yardstick:
        while len(self._arrays) < reads + writes:
            self._arrays.append(in_huge_pages(torch.ones(self._array_bytes // 4)))
        arrays = self._arrays[: reads + writes]
        ways = {str(ways): Contestant(moving(arrays, reads, writes, ways)) for ways in WAYS}
        timings = race(ways, self._effort)
        fastest = min(timings, key=lambda name: timings[name].best)
        return Yardstick(reads, writes, self._array_bytes * (reads + writes), ways[fastest])


def in_huge_pages(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor in huge pages, where the system has them. It begins at a page."""
    # Private, because shared memory has huge pages only where the system's administrator has allowed it.
    memory = mmap.mmap(-1, tensor.nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    unaligned = torch.frombuffer(memory, dtype=torch.uint8)
    first = -unaligned.data_ptr() % HUGE_PAGE
    copy = unaligned[first : first + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)


def moving(arrays: list[torch.Tensor], reads: int, writes: int, ways: int) -> Callable[[], object]:
    """A call that reads and writes every element of arrays once: those to be written come first."""
    code = compile_moving(reads, writes, ways)
    threads = thread_count()
    share = arrays[0].numel() // (threads * ways * LANES) * LANES
    sink = torch.empty(threads * LANES)
    words = (ctypes.c_int64 * (len(arrays) + 2))(*(array.data_ptr() for array in arrays), sink.data_ptr(), share)
    launch = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)(code.address("launch"))

    def call() -> object:
        # Named so that they live as long as the call does.
        _ = code, arrays, sink
        return launch(words, threads)

    return call


def compile_moving(reads: int, writes: int, ways: int) -> Compiled:
    """`launch(words, threads)`. Words: addresses of what is written, of what is read, of a sink, then the elements of a
    share; a thread works on as many shares of each array as there are ways, and on all of them at once."""
    module = new_module()
    has_threads = bind_openmp()
    words_type = ir.PointerType(WORD)
    work = ir.Function(module, ir.FunctionType(ir.VoidType(), [words_type]), "work")
    _emit_work(work, reads, writes, ways, has_threads)
    launch = ir.Function(module, ir.FunctionType(ir.VoidType(), [words_type, NUMBER]), "launch")
    builder: Any = ir.IRBuilder(launch)
    if has_threads:
        kind = ir.FunctionType(ir.VoidType(), [work.type, words_type, NUMBER, NUMBER])
        parallel = ir.Function(module, kind, "GOMP_parallel")
        builder.call(parallel, [work, *launch.arguments, NUMBER(0)])
    else:
        builder.call(work, launch.arguments[:1])
    builder.ret_void()
    return Compiled(lambda: module)


def _emit_work(work: Any, reads: int, writes: int, ways: int, has_threads: bool) -> None:
    """What one thread does."""
    builder: Any = ir.IRBuilder(work)
    before, body, after = builder.block, work.append_block("body"), work.append_block("after")
    me: Any = WORD(0)
    if has_threads:
        thread_number = ir.Function(work.module, ir.FunctionType(NUMBER, []), "omp_get_thread_num")
        me = builder.zext(builder.call(thread_number, []), WORD)
    words = [builder.load(builder.gep(work.arguments[0], WORD(index))) for index in range(reads + writes + 2)]
    *arrays, sink, share = words
    first = builder.mul(me, builder.mul(share, WORD(ways)))
    builder.branch(body)

    builder.position_at_end(body)
    position = builder.phi(WORD)
    position.add_incoming(WORD(0), before)
    sums = [builder.phi(FLOATS) for _ in range(ways if not writes else 0)]
    totals = []
    for way in range(ways):
        element = builder.add(builder.add(first, builder.mul(share, WORD(way))), position)
        pointers = [_pointer(builder, array, element) for array in arrays]
        totals.append(_total(builder, [builder.load(pointer, align=64) for pointer in pointers[writes:]]))
        for pointer in pointers[:writes]:
            builder.store(totals[-1], pointer, align=64, streams=True)
    for number, sum_ in enumerate(sums):
        sum_.add_incoming(ir.Constant(FLOATS, None), before)
        totals[number] = builder.fadd(sum_, totals[number])
        sum_.add_incoming(totals[number], body)
    following = builder.add(position, WORD(LANES))
    position.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", following, share), body, after)

    builder.position_at_end(after)
    # What was read has to go somewhere, or nothing would be read.
    result = totals[0]
    for total in totals[1:]:
        result = builder.fadd(result, total)
    builder.store(result, _pointer(builder, sink, builder.mul(me, WORD(LANES))), align=4)
    builder.fence()
    builder.ret_void()


def _pointer(builder: Any, address: Any, element: Any) -> Any:
    return builder.inttoptr(builder.add(address, builder.mul(element, WORD(4))), ir.PointerType(FLOATS))


def _total(builder: Any, loaded: list[Any]) -> Any:
    """The first plus twice each other one; a constant where nothing is read."""
    two = ir.Constant(FLOATS, [2.0] * LANES)
    total = loaded[0] if loaded else two
    for value in loaded[1:]:
        total = builder.fadd(total, builder.fmul(value, two))
    return total
