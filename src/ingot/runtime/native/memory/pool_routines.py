"""The pool's native routines: memory that dead results leave is given to new ones, on any thread.

A block is a descriptor of `BlockWords` and the memory it stands for, together for as long as the memory is held. The
descriptor begins with the managed tensor torch takes over (DLManagedTensorVersioned), so that the function torch calls
in the end finds the block. Idle blocks wait in one list per size class. One lock guards everything that changes; a
thread that holds it waits for nothing.

Classes are four per power of two, from 64 bytes on: at most a fifth of a block is wasted. Blocks of 2 MB and more are
mapped from the system on their own, in huge pages where there are any; smaller ones come from the C library.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass

from ingot.runtime.native.assembler.addresses import Foreign, TensorExchange, system_function
from ingot.runtime.native.assembler.routines import Library, Routine, Value
from ingot.runtime.native.assembler.structs import Field, Row, Struct, row

ALIGNMENT = 64
SMALLEST_BITS = 6
"""The smallest block has two to this power of bytes."""
LARGEST_BITS = 47
CLASSES = 4 * (LARGEST_BITS - SMALLEST_BITS) + 1
HUGE_PAGE = 2 << 20
NOT_MAPPED = -1

CPU_DEVICE = 1
"""Device type 1, the CPU, and device number 0."""


class ManagedTensorWords(Struct):
    """DLManagedTensorVersioned, as DLPack declares it."""

    version: Field
    manager: Field
    deleter: Field
    """The function to call when the tensor is not needed any more."""
    flags: Field
    data: Field
    device: Field
    type: Field
    """Rank and dtype."""
    sizes: Field
    strides: Field
    offset: Field


class BlockWords(ManagedTensorWords):
    bytes: Field
    class_: Field
    next: Field
    """The block after this one in the list that both are in."""


_DESCRIPTOR_BYTES = -(-BlockWords.words() * 8 // ALIGNMENT) * ALIGNMENT
"""The size of a block's descriptor, rounded up to whole cache lines."""


class PoolWords(Struct):
    lock: Field
    capacity: Field
    in_use: Field
    idle: Field
    peak: Field
    allocations: Field
    reuses: Field
    released: Field
    moment: Field
    """Counts blocks taken and given."""
    spare: Field
    """The first of the descriptors without memory."""
    heads: Row = row(CLASSES)
    """The first idle block of each class."""
    last_uses: Row = row(CLASSES)
    """The moment at which each class was used last."""


@dataclass(frozen=True, slots=True)
class System:
    """What the pool asks of the C library."""

    align: Foreign
    free: Foreign
    map: Foreign
    unmap: Foreign
    advise: Foreign
    yield_: Foreign

    @classmethod
    def find(cls) -> System:
        return cls(
            align=system_function("posix_memalign", 32),
            free=system_function("free"),
            map=system_function("mmap"),
            unmap=system_function("munmap", 32),
            advise=system_function("madvise", 32),
            yield_=system_function("sched_yield", 32),
        )


@dataclass(frozen=True, slots=True)
class PoolRoutines:
    """The routines others call."""

    take: Routine
    """take(bytes): a block of at least so many, 64-byte aligned; 0 if there is no memory."""
    give: Routine
    """give(block): the block is not needed any more. Any thread may call it, with or without the GIL."""
    shrink: Routine
    """shrink(bytes): give idle blocks back to the system until no more than this is idle."""


class PoolEmitter:
    """Writes the pool's routines into a library."""

    def __init__(self, library: Library, exchange: TensorExchange):
        self._library = library
        self._system = System.find()
        self._version = exchange.version
        self._state = library.memory("pool", PoolWords.words())

    def emit(self) -> PoolRoutines:
        """Write all routines. Also `state`, the address of the pool's words, and `forget`, for a forked child."""
        state = self._library.routine("state", 0)
        state.give_back(self._state)
        lock = self._lock()
        obtain = self._obtain()
        release = self._release(lock)
        shrink = self._shrink(lock, release)
        give = self._give(lock, release, shrink)
        take = self._take(lock, self._fresh(lock, obtain, shrink, give))
        self._forget()
        return PoolRoutines(take, give, shrink)

    # --- the lock -----------------------------------------------------------------------------------------------------

    def _lock(self) -> Routine:
        routine = self._library.routine("lock", 0)
        with routine.forever():
            with routine.when(routine.exchange(routine.part(self._state, PoolWords.lock), 0, 1)):
                routine.give_back()
            routine.call(self._system.yield_)
        return routine

    def _unlock(self, routine: Routine) -> None:
        routine.publish(0, routine.part(self._state, PoolWords.lock))

    def _forget(self) -> None:
        """In a forked child: the thread that held the lock is not there, and what it was changing cannot be trusted."""
        routine = self._library.routine("forget", 0)
        with routine.when(routine.compare(routine.load(self._state, PoolWords.lock), "!=", 0)):
            with routine.loop(CLASSES) as index:
                routine.store(0, self._state, routine.add(index, PoolWords.heads))
            routine.store(0, self._state, PoolWords.spare)
            routine.store(0, self._state, PoolWords.idle)
            self._unlock(routine)
        routine.give_back()

    # --- memory of the system -----------------------------------------------------------------------------------------

    def _obtain(self) -> Routine:
        """obtain(bytes): fresh memory, or 0."""
        routine = self._library.routine("obtain", 1)
        (size,) = routine.parameters
        cell = routine.stack(1)
        with routine.when(routine.compare(size, "<", HUGE_PAGE)):
            failure = routine.call(self._system.align, cell, ALIGNMENT, size)
            routine.give_back(routine.choose(routine.compare(failure, "==", 0), routine.load(cell), 0))
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        whole = routine.add(size, HUGE_PAGE)
        start = routine.call(self._system.map, 0, whole, protection, flags, NOT_MAPPED, 0)
        with routine.when(routine.compare(start, "==", NOT_MAPPED)):
            routine.give_back(0)
        # Huge pages lie at multiples of their size: what is mapped before and after the aligned part goes back.
        rounded = routine.add(start, HUGE_PAGE - 1)
        aligned = routine.shift_left(routine.shift_right(rounded, 21), 21)
        before = routine.subtract(aligned, start)
        with routine.when(routine.compare(before, ">", 0)):
            routine.call(self._system.unmap, start, before)
        routine.call(self._system.unmap, routine.add(aligned, size), routine.subtract(HUGE_PAGE, before))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            routine.call(self._system.advise, aligned, size, mmap.MADV_HUGEPAGE)
        routine.give_back(aligned)
        return routine

    def _release(self, lock: Routine) -> Routine:
        """release(block): its memory goes back to the system, the descriptor waits for other memory."""
        routine = self._library.routine("release", 1)
        (block,) = routine.parameters
        address, size = routine.load(block, BlockWords.data), routine.load(block, BlockWords.bytes)
        is_mapped = routine.compare(size, ">=", HUGE_PAGE)
        with routine.when(is_mapped):
            routine.call(self._system.unmap, address, size)
        with routine.when(routine.opposite(is_mapped)):
            routine.call(self._system.free, address)
        routine.call(lock)
        routine.increase(1, self._state, PoolWords.released)
        self._push(routine, block, PoolWords.spare)
        self._unlock(routine)
        routine.give_back()
        return routine

    # --- lists of blocks ----------------------------------------------------------------------------------------------

    def _push(self, routine: Routine, block: Value, head: Value) -> None:
        routine.store(routine.load(self._state, head), block, BlockWords.next)
        routine.store(block, self._state, head)

    def _pop(self, routine: Routine, block: Value, head: Value) -> None:
        """Take the first block, which is known to be there, out of its list."""
        routine.store(routine.load(block, BlockWords.next), self._state, head)

    def _count_use(self, routine: Routine, size: Value) -> None:
        used = routine.increase(size, self._state, PoolWords.in_use)
        peak = routine.load(self._state, PoolWords.peak)
        routine.store(routine.choose(routine.compare(used, ">", peak), used, peak), self._state, PoolWords.peak)

    def _note_use(self, routine: Routine, index: Value) -> None:
        moment = routine.increase(1, self._state, PoolWords.moment)
        routine.store(moment, self._state, routine.add(index, PoolWords.last_uses))

    # --- taking -------------------------------------------------------------------------------------------------------

    def _take(self, lock: Routine, fresh: Routine) -> Routine:
        routine = self._library.routine("take", 1)
        (wanted,) = routine.parameters
        with routine.when(routine.compare(wanted, ">", 1 << LARGEST_BITS)):
            routine.give_back(0)
        size, index = self._size_class(routine, wanted)
        head = routine.add(index, PoolWords.heads)
        routine.call(lock)
        routine.increase(1, self._state, PoolWords.allocations)
        routine.store(
            routine.increase(1, self._state, PoolWords.moment), self._state, routine.add(index, PoolWords.last_uses)
        )
        block = routine.load(self._state, head)
        with routine.when(routine.compare(block, "!=", 0)):
            self._pop(routine, block, head)
            routine.increase(routine.subtract(0, size), self._state, PoolWords.idle)
            routine.increase(1, self._state, PoolWords.reuses)
            self._count_use(routine, size)
            self._unlock(routine)
            routine.give_back(block)
        self._unlock(routine)
        routine.give_back(routine.call(fresh, size, index))
        return routine

    def _size_class(self, routine: Routine, wanted: Value) -> tuple[Value, Value]:
        """The size of the block for a request, and the number of its class."""
        smallest = 1 << SMALLEST_BITS
        wanted = routine.choose(routine.compare(wanted, ">", smallest), wanted, smallest)
        bits = routine.subtract(64, routine.leading_zeros(routine.subtract(wanted, 1)))
        step_bits = routine.subtract(bits, 3)
        step = routine.shift_left(1, step_bits)
        steps = routine.shift_right(routine.add(wanted, routine.subtract(step, 1)), step_bits)  # 5 to 8
        above = routine.multiply(routine.subtract(bits, SMALLEST_BITS), 4)
        return routine.shift_left(steps, step_bits), routine.add(above, routine.subtract(steps, 8))

    def _fresh(self, lock: Routine, obtain: Routine, shrink: Routine, give: Routine) -> Routine:
        """fresh(bytes, class): a block of memory from the system, or 0."""
        routine = self._library.routine("fresh", 2)
        size, index = routine.parameters
        cell = routine.stack(1)
        routine.store(routine.call(obtain, size), cell)
        with routine.when(routine.compare(routine.load(cell), "==", 0)):
            routine.call(shrink, 0)
            routine.store(routine.call(obtain, size), cell)
        address = routine.load(cell)
        with routine.when(routine.compare(address, "==", 0)):
            routine.give_back(0)
        routine.call(lock)
        self._count_use(routine, size)
        spare = routine.load(self._state, PoolWords.spare)
        routine.store(spare, cell)
        with routine.when(routine.compare(spare, "!=", 0)):
            self._pop(routine, spare, PoolWords.spare)
        self._unlock(routine)
        with routine.when(routine.compare(spare, "==", 0)):
            # Descriptors are few and small; a process without memory for one cannot go on anyway.
            routine.call(self._system.align, cell, ALIGNMENT, _DESCRIPTOR_BYTES)
        block = routine.load(cell)
        routine.fill(
            block,
            BlockWords,
            version=self._version,
            manager=0,
            deleter=give.address,
            flags=0,
            data=address,
            device=CPU_DEVICE,
            type=0,
            sizes=0,
            strides=0,
            offset=0,
            bytes=size,
            class_=index,
            next=0,
        )
        routine.give_back(block)
        return routine

    # --- giving -------------------------------------------------------------------------------------------------------

    def _give(self, lock: Routine, release: Routine, shrink: Routine) -> Routine:
        routine = self._library.routine("give", 1)
        (block,) = routine.parameters
        size, index = routine.load(block, BlockWords.bytes), routine.load(block, BlockWords.class_)
        routine.call(lock)
        routine.increase(routine.subtract(0, size), self._state, PoolWords.in_use)
        capacity = routine.load(self._state, PoolWords.capacity)
        with routine.when(routine.compare(size, ">", capacity)):
            self._unlock(routine)
            routine.call(release, block)
            routine.give_back()
        routine.store(
            routine.increase(1, self._state, PoolWords.moment), self._state, routine.add(index, PoolWords.last_uses)
        )
        self._push(routine, block, routine.add(index, PoolWords.heads))
        idle = routine.increase(size, self._state, PoolWords.idle)
        self._unlock(routine)
        with routine.when(routine.compare(idle, ">", capacity)):
            routine.call(shrink, capacity)
        routine.give_back()
        return routine

    def _shrink(self, lock: Routine, release: Routine) -> Routine:
        """The class that was not used for the longest time loses its blocks first."""
        routine = self._library.routine("shrink", 1)
        (limit,) = routine.parameters
        oldest, chosen = routine.stack(1), routine.stack(1)
        with routine.forever():
            routine.call(lock)
            with routine.when(routine.compare(routine.load(self._state, PoolWords.idle), "<=", limit)):
                self._unlock(routine)
                routine.give_back()
            routine.store((1 << 63) - 1, oldest)
            routine.store(-1, chosen)
            with routine.loop(CLASSES) as index:
                last_use = routine.load(self._state, routine.add(index, PoolWords.last_uses))
                is_older = routine.compare(last_use, "<", routine.load(oldest))
                has_block = routine.compare(routine.load(self._state, routine.add(index, PoolWords.heads)), "!=", 0)
                with routine.when(routine.both(is_older, has_block)):
                    routine.store(last_use, oldest)
                    routine.store(index, chosen)
            with routine.when(routine.compare(routine.load(chosen), "<", 0)):
                self._unlock(routine)
                routine.give_back()
            head = routine.add(routine.load(chosen), PoolWords.heads)
            block = routine.load(self._state, head)
            self._pop(routine, block, head)
            routine.increase(routine.subtract(0, routine.load(block, BlockWords.bytes)), self._state, PoolWords.idle)
            self._unlock(routine)
            routine.call(release, block)
        return routine
