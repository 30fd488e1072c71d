"""The loop form of a pointwise kernel: what is done for one element, and the loops around it.

    kernel   := inputs, scalars, statements, outputs                what is done for one element
    schedule := number of loops, lanes, how each operand moves      how the elements are visited

In: a cluster. Out: a kernel that names no shapes and no strides: those are arguments of a call, so one kernel serves
all shapes with the same number of loops and the same way of moving through memory. Views, broadcasts and permutes are
strides, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from typing import Any

from ingot.base.dtypes import DataType
from ingot.base.numbers import Number
from ingot.base.types import ScalarType, literal
from ingot.fusion.clusters import Cluster
from ingot.ir.node import Node
from ingot.ops import Op


@dataclass(frozen=True, slots=True)
class Known:
    """A constant operand."""

    value: Number
    dtype: DataType

    def __str__(self) -> str:
        return f"{literal(self.value)}:{self.dtype.text}"


@dataclass(frozen=True, slots=True)
class Load:
    """The element of an input tensor at the current position."""

    index: int
    dtype: DataType

    def __str__(self) -> str:
        return f"in{self.index}"


@dataclass(frozen=True, slots=True)
class Argument:
    """A number that is the same for all elements."""

    index: int
    dtype: DataType

    def __str__(self) -> str:
        return f"scalar{self.index}"


@dataclass(frozen=True, slots=True)
class Result:
    """What an earlier statement computed."""

    index: int
    dtype: DataType

    def __str__(self) -> str:
        return f"%{self.index}"


Operand = Known | Load | Argument | Result


@dataclass(frozen=True, slots=True)
class Statement:
    op: Op
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Any], ...]
    dtype: DataType

    def __str__(self) -> str:
        parts = [*map(str, self.operands), *(f"{name}={literal(value)}" for name, value in self.attributes)]
        return f"{self.op.name}({', '.join(parts)}): {self.dtype.text}"


@dataclass(frozen=True)
class ElementwiseKernel:
    """What is computed for one element. Equal kernels have equal digests, wherever they come from."""

    inputs: tuple[DataType, ...]
    scalars: tuple[DataType, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[Result, ...]

    @cached_property
    def text(self) -> str:
        parameters = [f"in{index}: {dtype.text}" for index, dtype in enumerate(self.inputs)]
        parameters += [f"scalar{index}: {dtype.text}" for index, dtype in enumerate(self.scalars)]
        lines = [f"kernel({', '.join(parameters)}) {{"]
        lines += [f"  %{index} = {statement}" for index, statement in enumerate(self.statements)]
        lines += [f"  store out{index} = {result}" for index, result in enumerate(self.outputs)]
        return "\n".join([*lines, "}"])

    @cached_property
    def digest(self) -> str:
        return blake2b(self.text.encode(), digest_size=16).hexdigest()

    @property
    def buffers(self) -> tuple[DataType, ...]:
        """Types of all tensors a call passes: outputs first, then inputs."""
        return (*(output.dtype for output in self.outputs), *self.inputs)


class Motion(Enum):
    """How an operand moves along the innermost loop."""

    NEXT = "next"
    """To the next element in memory."""
    STILL = "still"
    """Not at all: the same element throughout."""
    STRIDED = "strided"
    """By a distance that is an argument of the call."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the elements are visited; part of what a compiled kernel is specialised to."""

    loops: int
    motions: tuple[Motion, ...]
    """One per buffer of the kernel, outputs first."""
    streaming: bool
    """Whether results bypass the caches, being far larger than they are."""

    def text(self, kernel: ElementwiseKernel) -> str:
        """The loops around a kernel, for people."""
        names = [f"out{i}" for i in range(len(kernel.outputs))] + [f"in{i}" for i in range(len(kernel.inputs))]
        lines = []
        for loop in range(self.loops):
            last = loop == self.loops - 1
            lines.append(f"{'  ' * loop}for i{loop} in 0..n{loop}: {'# vectors' if last else '# parallel'}")
        moves = ", ".join(f"{name} {motion.value}" for name, motion in zip(names, self.motions, strict=True))
        indent = "  " * self.loops
        body = "\n".join(indent + line for line in kernel.text.splitlines()[1:-1])
        return "\n".join([f"# {moves}{', streaming stores' if self.streaming else ''}", *lines, body])


def lower_cluster(cluster: Cluster) -> tuple[ElementwiseKernel, tuple[Node, ...], tuple[Node, ...]]:
    """The kernel of a cluster, with the tensors and the scalars it reads, in the order of its parameters."""
    tensors = tuple(node for node in cluster.inputs if not isinstance(node.type, ScalarType))
    scalars = tuple(node for node in cluster.inputs if isinstance(node.type, ScalarType))
    operands: dict[Node, Operand] = {}
    operands.update((node, Load(index, _dtype(node))) for index, node in enumerate(tensors))
    operands.update((node, Argument(index, _dtype(node))) for index, node in enumerate(scalars))
    statements: list[Statement] = []
    for node in cluster.nodes:
        used = tuple(operands.get(operand) or _known(operand) for operand in node.operands)
        attributes = tuple((f.name, getattr(node.attributes, f.name)) for f in fields(node.attributes))
        operands[node] = Result(len(statements), _dtype(node))
        statements.append(Statement(node.op, used, attributes, _dtype(node)))
    outputs = tuple(operands[node] for node in cluster.outputs)
    kernel = ElementwiseKernel(
        tuple(map(_dtype, tensors)),
        tuple(map(_dtype, scalars)),
        tuple(statements),
        tuple(output for output in outputs if isinstance(output, Result)),
    )
    return kernel, tensors, scalars


def _known(node: Node) -> Known:
    value = node.constant
    assert value is not None
    return Known(value, _dtype(node))


def _dtype(node: Node) -> DataType:
    dtype = getattr(node.type, "dtype", None)
    assert isinstance(dtype, DataType)
    return dtype
