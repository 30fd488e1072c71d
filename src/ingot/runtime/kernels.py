"""Launching kernels from Python: from tensors to a schedule, machine code and a call.

In: a cluster with its program, and tensors. Out: new result tensors, row-major. Kernels are compiled once per program
and schedule, and shared by all equal programs of the process; machine code that none of them needs any more is freed.
What a call needs besides addresses and scalars follows from types, sizes and strides alone; `prepare` gives that, for
this launcher and for any other.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from weakref import WeakValueDictionary

import torch

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.dumping import dump_stage
from ingot.base.environment import environment
from ingot.base.errors import CodegenError
from ingot.base.numbers import Number
from ingot.base.types import TensorType
from ingot.codegen.llvm.nests import CompiledKernel, compile_kernel
from ingot.fusion.clusters import Cluster, Place
from ingot.fusion.placement import shape_of
from ingot.ir.node import Node
from ingot.ir.torch_types import to_torch
from ingot.loops.arguments import FAULT, GRAIN, THREADS, WordLayout
from ingot.loops.bounds import check_bounds
from ingot.loops.gpu.scheduling import GpuCall
from ingot.loops.program import Lowered, Program, lower
from ingot.loops.schedule import Schedule
from ingot.loops.scheduling import ALIGNED, PARALLEL_ELEMENTS, Call, schedule_call
from ingot.runtime.native.once import OncePerKey
from ingot.runtime.native.pool import empty
from ingot.runtime.native.prototypes import row_major_strides
from ingot.runtime.threads import bind_openmp, thread_count

MOST_RECENT = 256
"""Compiled kernels that stay although nothing needs them at the moment: the same function may be compiled again."""


class KernelCache:
    """Compiled kernels of the process, by what they compute and how they move. Thread-safe.

    They live as long as those who have asked for them, and records of their calls; the latest ones a little longer.
    """

    def __init__(self) -> None:
        self._alive: WeakValueDictionary[tuple[str, Schedule], CompiledKernel] = WeakValueDictionary()
        self._compiled: OncePerKey[tuple[str, Schedule], CompiledKernel] = OncePerKey(self._alive)
        self._recent: deque[CompiledKernel] = deque(maxlen=MOST_RECENT)
        self.compilations = 0
        """How many kernels have been compiled so far."""

    def get(self, kernel: Kernel, schedule: Schedule) -> CompiledKernel:
        """The compiled kernel; compiled now if it is new, by one thread while others wait for it."""
        found = kernel.compiled.get(schedule)
        if found is None:
            program = kernel.program
            found = self._compiled.get((program.digest, schedule), lambda: self._compile(program, schedule))
            kernel.compiled[schedule] = found
        return found

    def _compile(self, program: Program, schedule: Schedule) -> CompiledKernel:
        made = _compiled(program, schedule)
        self.compilations += 1
        self._recent.append(made)
        return made

    def variants(self, program: Program) -> list[CompiledKernel]:
        """Every compiled form of a program, for people who want to look at it."""
        return [compiled for compiled in list(self._alive.values()) if compiled.program.digest == program.digest]


def _compiled(program: Program, schedule: Schedule) -> CompiledKernel:
    bind_openmp()
    try:
        made = compile_kernel(program, schedule)
    except Exception as error:  # whatever LLVM has to say
        raise CodegenError(f"no machine code for this kernel: {error}\n{program.text}") from error
    for stage, text in CPU_STAGES.items():
        dump_stage(stage, partial(text, made))
    return made


CPU_STAGES: dict[str, Callable[[CompiledKernel], str]] = {
    "schedule": lambda made: made.schedule.text(made.program),
    "nests": lambda made: f"# {made.schedule.text(made.program)}\n{made.nest.text}",
    "llvm": lambda made: made.code.llvm,
    "assembly": lambda made: made.code.assembly,
}
"""The stages that a kernel for the CPU goes through, and what prints them."""


kernels = KernelCache()


class KernelFault(Exception):
    """A kernel met what eager PyTorch raises an error for, such as an index out of range. Its results are void."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A cluster made ready: what is computed, for which values."""

    cluster: Cluster
    lowered: Lowered
    compiled: dict[Schedule, CompiledKernel] = field(default_factory=dict, compare=False, repr=False)
    """What was compiled for the CPU, which stays as long as this does."""

    @staticmethod
    def of(cluster: Cluster) -> Kernel:
        return Kernel(cluster, lower(cluster))

    @property
    def program(self) -> Program:
        return self.lowered.program

    @property
    def name(self) -> str:
        """Its operations, for the profile."""
        return "+".join(statement.op.name for statement in self.program.statements)

    @property
    def bytes_moved(self) -> sizes.Size:
        """What it reads and writes: every tensor once."""
        read = dict.fromkeys(tensor.node for tensor in self.lowered.tensors)
        return _bytes([*read, *self.cluster.outputs])

    @property
    def bytes_moved_apart(self) -> sizes.Size:
        """What its operations would read and write one at a time."""
        total: sizes.Size = 0
        for node in self.cluster.nodes:
            total += _bytes([*(operand for operand in node.operands if isinstance(operand.type, TensorType)), node])
        return total


def _bytes(nodes: Sequence[Node]) -> sizes.Size:
    total: sizes.Size = 0
    for node in nodes:
        assert isinstance(node.type, TensorType)
        total += sizes.product(node.type.shape) * node.type.dtype.bytes
    return total


OutputTypes = tuple[tuple[tuple[int, ...], DataType], ...]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call of a kernel for tensors of certain types, sizes and strides; addresses and scalars are still to come."""

    compiled: CompiledKernel
    words: tuple[int, ...]
    addresses: tuple[int, ...]
    """The word for each buffer's address: outputs first, then inputs."""
    scalars: tuple[int, ...]
    """The word for each scalar."""
    parallel: bool
    """Whether it is worth several threads; it then also takes long enough to let other Python threads run."""
    outputs: OutputTypes
    """Shape and type of each result, which is row-major."""

    @property
    def entry(self) -> int:
        return self.compiled.entry


def prepare(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
) -> PreparedCall:
    """The call for tensors (in the order of the kernel's reads) where size symbols have these values.

    `targets` are tensors that results are written to, by their number; all others are new and row-major.
    """
    program = kernel.program
    call, outputs = scheduled(kernel, tensors, bound, targets)
    compiled = kernels.get(kernel, call.schedule)
    if sys.flags.dev_mode or "bounds" in environment().check:
        check_bounds(compiled.nest, call, extents(outputs, tensors, targets))
    layout = WordLayout.of(compiled.nest)
    buffers = len(program.buffers)
    return PreparedCall(
        compiled,
        _words(call, layout, buffers),
        tuple(layout.address(buffer) for buffer in range(buffers)),
        tuple(layout.scalar(index) for index in range(len(program.scalars))),
        call.elements >= PARALLEL_ELEMENTS,
        outputs,
    )


def scheduled(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
) -> tuple[Call, OutputTypes]:
    """How a kernel is called for tensors, and shape and type of its results."""
    space, strides, outputs = laid_out(kernel, tensors, bound, targets)
    # New memory is aligned; what is written in place may begin anywhere.
    is_aligned = all(_is_aligned(target) for target in targets.values())
    counted = kernel.lowered.counted
    call = schedule_call(kernel.program, space, strides, kernel.cluster.reduced, counted, is_aligned)
    return call, outputs


def laid_out(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor],
) -> tuple[list[int], list[list[int]], OutputTypes]:
    """The sizes of a kernel's space, the strides of its buffers in bytes, and shape and type of its results."""
    cluster, program = kernel.cluster, kernel.program
    space = [sizes.evaluate(size, bound) for size in cluster.space]
    outputs = []
    strides: list[list[int]] = []
    for index, (node, result) in enumerate(zip(cluster.outputs, program.outputs, strict=True)):
        shape = tuple(sizes.evaluate(size, bound) for size in shape_of(node))
        outputs.append((shape, result.dtype))
        moves = targets[index].stride() if index in targets else row_major_strides(shape)
        strides.append(_along_axes(cluster.places[node], moves, result.dtype.bytes, len(space)))
    for read, tensor in zip(kernel.lowered.tensors, tensors, strict=True):
        strides.append(_along_axes(read.place, tensor.stride(), tensor.element_size(), len(space)))
    return space, strides, tuple(outputs)


def _is_aligned(target: torch.Tensor) -> bool:
    """Whether a tensor begins where vectors may; new memory does, so for tensors without memory the offset decides."""
    return address_of(target) % ALIGNED == 0


def address_of(tensor: torch.Tensor) -> int:
    """Where a tensor begins; where one without memory would, after the beginning of new memory."""
    is_here = tensor.device.type != "meta"
    return int(tensor.data_ptr() if is_here else tensor.storage_offset() * tensor.element_size())


def extents(
    outputs: OutputTypes,
    tensors: Sequence[torch.Tensor],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
) -> list[int]:
    """How many bytes each buffer of a call has from its first element on."""
    written = [math.prod(shape) * dtype.bytes for shape, dtype in outputs]
    for index, target in targets.items():
        written[index] = span(target.shape, target.stride()) * target.element_size()
    return written + [span(tensor.shape, tensor.stride()) * tensor.element_size() for tensor in tensors]


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements lie between the first and the last of a tensor, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def launch(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    scalars: Sequence[Number],
    bound: Mapping[str, int],
    targets: Mapping[int, torch.Tensor] = MappingProxyType({}),
) -> list[torch.Tensor]:
    """Run a kernel; the results are new, except those that have a target."""
    prepared = prepare(kernel, tensors, bound, targets)
    outputs = [
        targets[index] if index in targets else empty(shape, to_torch(dtype))
        for index, (shape, dtype) in enumerate(prepared.outputs)
    ]
    words = (ctypes.c_int64 * len(prepared.words))(*prepared.words)
    words[THREADS] = thread_count() if prepared.parallel else 1
    for place, tensor in zip(prepared.addresses, (*outputs, *tensors), strict=True):
        words[place] = tensor.data_ptr()
    for place, value, dtype in zip(prepared.scalars, scalars, kernel.program.scalars, strict=True):
        words[place] = word_of(value, dtype)
    _ENTRY(prepared.entry)(words)
    if words[FAULT]:
        raise KernelFault
    return outputs


def word_of(value: Number, dtype: DataType) -> int:
    """A number as the 64 bits in which a kernel takes a scalar of a type: floats as those of a double."""
    return struct.unpack("<q", struct.pack("<d", value))[0] if dtype.is_float else int(value)


_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
"""Calls through it release the GIL."""


def _words(call: Call, layout: WordLayout, buffers: int) -> tuple[int, ...]:
    words = words_of(call, layout, buffers)
    words[THREADS], words[GRAIN] = 1, call.grain
    return tuple(words)


def words_of(call: Call | GpuCall, layout: WordLayout, buffers: int) -> list[int]:
    """The words for sizes, blocks and strides."""
    words = [0] * layout.count
    for axis, (size, block) in enumerate(zip(call.sizes, call.blocks, strict=True)):
        words[layout.size(axis)], words[layout.block(axis)] = size, block
        for buffer in range(buffers):
            words[layout.stride(buffer, axis)] = call.strides[buffer][axis]
    return words


def _along_axes(place: Place, strides: Sequence[int], width: int, axes: int) -> list[int]:
    """Strides in bytes along the axes of a space; 0 where a value does not vary."""
    found = [0] * axes
    for axis, stride in zip(place, strides, strict=True):
        if axis is not None:
            found[axis] = stride * width
    return found
