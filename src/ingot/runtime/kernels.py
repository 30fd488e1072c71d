"""Kernels as all backends have them: a cluster with its program, and what its tensors are to it.

In: a cluster, and tensors. Out: the sizes of its space, strides, addresses and the words that kernels take. What a call
needs besides addresses and scalars follows from types, sizes and strides alone.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import torch

from ingot.base import sizes
from ingot.base.dtypes import DataType
from ingot.base.numbers import Number
from ingot.base.types import TensorType
from ingot.fusion.clusters import Cluster, Place
from ingot.fusion.placement import shape_of
from ingot.ir.node import Node
from ingot.loops.cpu.tuning import CpuTuning
from ingot.loops.kernel_arguments import WordLayout
from ingot.loops.program import Lowered, Program, lower
from ingot.runtime.disk_cache.entries import NO_OWNER, CodeOwner
from ingot.runtime.native.abi.prototypes import row_major_strides


class KernelFault(Exception):
    """A kernel met what eager PyTorch raises an error for, such as an index out of range. Its results are void."""


@dataclass(frozen=True, slots=True)
class KernelOrigin:
    """Who has a kernel compiled. It decides nothing about its code."""

    is_kept: bool = True
    """Whether its code may come from the cache on disk, and stay there."""
    owner: CodeOwner = NO_OWNER
    """The user's function where one is known, the graph, and a hash of the configuration."""
    is_common: bool = False
    """Whether it serves all functions."""

    def of_graph(self, digest: str) -> KernelOrigin:
        """The same for the kernels of one graph."""
        return dataclasses.replace(self, owner=dataclasses.replace(self.owner, graph=digest[:12]))


NO_ORIGIN = KernelOrigin()


class KernelTuner(Protocol):
    """What finds quicker schedules for the kernels of one compiler."""

    def tuned(
        self,
        kernel: Kernel,
        tensors: Sequence[torch.Tensor],
        bound: Mapping[str, int],
        targets: Mapping[int, torch.Tensor],
        default: CpuTuning,
        may_measure: bool = True,
    ) -> CpuTuning:
        """What decides about the schedule of a call on the CPU, given what does without tuning. It is found by
        measuring, unless it is known already or must not be measured now."""
        ...

    def told(self, kernel: Kernel) -> list[str]:
        """What was found for a kernel so far, in words: a line for each kind of calls."""
        ...

    def findings(self) -> list[TunedKernel]:
        """What was found for all kernels that this tuner was asked about."""
        ...


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """What tuning has found for one kernel and calls of some sizes."""

    kernel: str
    sizes: tuple[int, ...]
    """Of its loops."""
    chosen: str
    """What differs from the default schedule, in words; "" if the default is kept."""
    speedup: float
    """How many times as fast as by default it was measured to be; 1 if the default is kept."""
    candidates: int
    """How many were measured, in all processes together."""
    stopped: str
    """Why the search ended before its time; "" if it did not."""
    is_from_disk: bool
    """Whether nothing was measured in this process."""

    def __str__(self) -> str:
        sizes = " x ".join(map(str, self.sizes))
        found = f"{self.chosen}; {self.speedup:.2f} times as fast as by default" if self.chosen else "the default"
        stopped = f", stopped: {self.stopped}" if self.stopped else ""
        origin = ", from the cache on disk" if self.is_from_disk else ""
        return f"tuned for {sizes}: {found} ({self.candidates} candidates{stopped}{origin})"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A cluster made ready: what is computed, for which values."""

    cluster: Cluster
    lowered: Lowered
    origin: KernelOrigin = field(default=NO_ORIGIN, compare=False)
    may_approximate: bool = True
    """Whether GPUs may compute what becomes a result of 16 bits roughly."""
    tuner: KernelTuner | None = field(default=None, compare=False, repr=False)
    """What chooses its schedules on the CPU, if they are tuned."""
    compiled: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    """What backends have compiled of it, by their own keys, which stays as long as this does."""

    @staticmethod
    def of(
        cluster: Cluster,
        origin: KernelOrigin = NO_ORIGIN,
        may_approximate: bool = True,
        tuner: KernelTuner | None = None,
    ) -> Kernel:
        return Kernel(cluster, lower(cluster), origin, may_approximate, tuner)

    @property
    def program(self) -> Program:
        return self.lowered.program

    @property
    def name(self) -> str:
        """What it computes: the name of its function on every device, in statistics and in profiles."""
        return self.program.name

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


def word_of(value: Number, dtype: DataType) -> int:
    """A number as the 64 bits in which a kernel takes a scalar of a type: floats as those of a double."""
    return struct.unpack("<q", struct.pack("<d", value))[0] if dtype.is_float else int(value)


class CallExtents(Protocol):
    """What all backends' calls have."""

    @property
    def sizes(self) -> tuple[int, ...]: ...

    @property
    def blocks(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]: ...


def words_of(call: CallExtents, layout: WordLayout, buffers: int) -> list[int]:
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
