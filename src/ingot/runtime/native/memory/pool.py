"""The pool of this process: where the memory of all results comes from and goes back to.

Fresh memory costs more than the work on it: the system hands out pages one fault at a time. Memory of dead results is
kept and given out again, by machine code that may run on any thread, with or without the GIL. Where torch has no native
interface to tensors, results come from torch's own allocator and nothing is counted.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ingot.base.once import once
from ingot.base.warning import warn
from ingot.runtime.native.abi.object_layout import tensor_layout
from ingot.runtime.native.abi.prototypes import PrototypeWords, prototype
from ingot.runtime.native.abi.storages import StorageLayout, make_resizable
from ingot.runtime.native.assembler.addresses import TensorExchange, python_function
from ingot.runtime.native.assembler.routines import Foreign, Library, Routine
from ingot.runtime.native.memory.pool_routines import BlockWords, PoolEmitter, PoolRoutines, PoolWords

DEFAULT_CAPACITY = 4 << 30


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """What the pool holds and has done so far."""

    bytes_in_use: int
    """In results that are alive."""
    bytes_idle: int
    """Kept for results to come."""
    peak_bytes_in_use: int
    allocations: int
    reuses: int
    """Allocations that found an idle block."""
    blocks_released: int
    """Blocks given back to the system."""


class Pool:
    """The native pool, from Python's side. There is one: `pool()`."""

    def __init__(self, exchange: TensorExchange):
        library = Library("pool")
        routines = PoolEmitter(library, exchange).emit()
        _emit_tensor(library, routines, exchange)
        library.compile()
        self._state = PoolWords.at(_function(library, "state")())
        self._shrink = ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address("shrink"))
        self._allocate = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(library.address("allocate"))
        self.take, self.give, self.wrap = (Foreign(library.address(name)) for name in ("take", "give", "wrap"))
        """For other native routines: take(bytes), give(block), and wrap(prototype, block), which makes a tensor."""
        self.set_capacity(default_capacity())
        # Its address is known before: a child cannot wait for a lock of LLVM's.
        os.register_at_fork(after_in_child=_function(library, "forget"))

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor, row-major, its memory aligned to 64 bytes."""
        wanted = prototype(shape, dtype)
        try:
            return self._allocate(wanted.address)
        except MemoryError:
            raise MemoryError(
                f"the system has no {wanted.nbytes} bytes for a result of shape {shape}; use smaller inputs"
            ) from None

    def set_capacity(self, nbytes: int) -> None:
        self._state.capacity = nbytes
        self._shrink(nbytes)

    def empty_cache(self) -> None:
        self._shrink(0)

    def statistics(self) -> MemoryStatistics:
        state = self._state
        return MemoryStatistics(
            bytes_in_use=state.in_use,
            bytes_idle=state.idle,
            peak_bytes_in_use=state.peak,
            allocations=state.allocations,
            reuses=state.reuses,
            blocks_released=state.released,
        )


@once
def pool() -> Pool | None:
    """The pool of this process, compiled at first use; None where there cannot be one."""
    exchange = TensorExchange.find()
    if exchange is None or os.name != "posix":
        return None
    try:
        return Pool(exchange)
    except RuntimeError as error:  # LLVM cannot generate code for this machine
        warn(f"results come from torch's allocator, which is slower: {error}", UserWarning)
        return None


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor on the CPU, row-major, from the pool where there is one."""
    memory = pool()
    return torch.empty(shape, dtype=dtype) if memory is None else memory.empty(shape, dtype)


def default_capacity() -> int:
    """How much memory may lie idle: 4 GiB, or a quarter of what the machine has if that is less."""
    return min(DEFAULT_CAPACITY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)


def _function(library: Library, name: str) -> Callable[[], int]:
    return ctypes.PYFUNCTYPE(ctypes.c_int64)(library.address(name))


def _emit_tensor(library: Library, routines: PoolRoutines, exchange: TensorExchange) -> None:
    """wrap(prototype, block): a torch.Tensor on a block, or NULL with Python's error set. allocate(prototype): a tensor
    on a new block."""
    wrap = library.routine("wrap", 2)
    wanted, block = wrap.parameters
    for source, target in (
        (PrototypeWords.type, BlockWords.type),
        (PrototypeWords.sizes, BlockWords.sizes),
        (PrototypeWords.strides, BlockWords.strides),
    ):
        wrap.store(wrap.load(wanted, source), block, target)
    cell = wrap.stack(1)
    failure = wrap.call(exchange.to_python, block, cell)
    with wrap.when(wrap.compare(failure, "!=", 0)):
        wrap.give_back(0)
    tensor = wrap.load(cell)
    tensors, storages = tensor_layout(), StorageLayout.find()
    if tensors is not None and storages is not None:
        make_resizable(wrap, tensor, tensors, storages)
    wrap.give_back(tensor)
    _emit_allocate(library, routines, wrap)


def _emit_allocate(library: Library, routines: PoolRoutines, wrap: Routine) -> None:
    routine = library.routine("allocate", 1)
    (wanted,) = routine.parameters
    block = routine.call(routines.take, routine.load(wanted, PrototypeWords.bytes))
    with routine.when(routine.compare(block, "==", 0)):
        routine.give_back(routine.call(python_function("PyErr_NoMemory")))
    routine.give_back(routine.call(wrap, wanted, block))
