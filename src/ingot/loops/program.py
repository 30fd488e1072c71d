"""Programs: what a kernel computes, without saying in which order, for which shape or where in memory.

    program   := inputs, scalars, statements, outputs
    statement := operator, operands, level, stage
    operand   := constant | input | scalar | earlier statement | position along an axis

In: a cluster. Out: a program and the tensors and scalars it reads. A statement's level says how often it is computed
(for every element, once per row, once); its stage counts the passes over the row's elements that must be over before:
softmax has three, because it needs the largest element before the exponentials and their sum before the quotients.
Equal programs have equal digests, wherever they come from, and a program serves every shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ingot.base.dtypes import HALVES, DataType, part_type
from ingot.base.forks import cached_property
from ingot.base.numbers import Number
from ingot.base.types import ScalarType, literal
from ingot.fusion.clusters import Cluster, Read, Source
from ingot.fusion.groups import Level
from ingot.ir.node import Node
from ingot.ops import Kind, Op


@dataclass(frozen=True, slots=True)
class ConstantOperand:
    """A constant operand."""

    value: Number
    dtype: DataType

    def __str__(self) -> str:
        return f"{literal(self.value)}:{self.dtype.text}"


@dataclass(frozen=True, slots=True)
class Input:
    """The element of an input tensor at the current position."""

    index: int
    dtype: DataType
    level: Level
    """ROW for tensors that do not vary along the reduced axes: they are read once per row."""

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


@dataclass(frozen=True, slots=True)
class Position:
    """Where along an axis of the space the current element is."""

    index: int
    """Which of the program's index axes."""
    dtype: DataType

    def __str__(self) -> str:
        return f"position{self.index}"


@dataclass(frozen=True, slots=True)
class RowLength:
    """How many elements a row has."""

    dtype: DataType

    def __str__(self) -> str:
        return f"count:{self.dtype.text}"


Operand = ConstantOperand | Input | Argument | Result | Position | RowLength


@dataclass(frozen=True, slots=True)
class Statement:
    op: Op
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Any], ...]
    dtype: DataType
    level: Level
    stage: int

    @property
    def is_reduction(self) -> bool:
        return self.op.kind is Kind.REDUCTION

    @property
    def is_row_gather(self) -> bool:
        """Whether it is the one element of a row that an index names."""
        return self.op.kind is Kind.GATHER

    def __str__(self) -> str:
        parts = [*map(str, self.operands), *(f"{name}={literal(value)}" for name, value in self.attributes)]
        return f"{self.op.name}({', '.join(parts)}): {self.dtype.text}"


LONGEST_NAME = 48
"""Characters that the operations in a program's name take at most; the rest of them is in its digest."""


@dataclass(frozen=True)
class Program:
    inputs: tuple[Input, ...]
    scalars: tuple[DataType, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[Result, ...]
    has_rows: bool
    """Whether elements are grouped in rows, along which it reduces."""

    @cached_property
    def text(self) -> str:
        parameters = [f"{given}: {given.dtype.text} per {given.level.value}" for given in self.inputs]
        parameters += [f"scalar{index}: {dtype.text}" for index, dtype in enumerate(self.scalars)]
        lines = [f"program({', '.join(parameters)}) {{"]
        for index, statement in enumerate(self.statements):
            where = f"  # {statement.level.value}, stage {statement.stage}" if self.has_rows else ""
            lines.append(f"  %{index} = {statement}{where}")
        lines += [f"  out{index} = {result}" for index, result in enumerate(self.outputs)]
        return "\n".join([*lines, "}"])

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.inputs, self.scalars, self.statements, self.outputs, self.has_rows))

    @cached_property
    def digest(self) -> str:
        return blake2b(self.text.encode(), digest_size=16).hexdigest()

    @cached_property
    def name(self) -> str:
        """What it computes, as a name for the function that does: its operations in order, and the beginning of its
        digest, as in `mul_add_exp_3f2c91d0`. Equal programs have equal names, in every process.

        Casts are left out where there is anything else. An operation that stands several times in a row is named once.
        """
        words = [s.op.name for s in self.statements if s.op.name != "cast"] or [s.op.name for s in self.statements]
        words = [word for word, before in zip(words, [None, *words], strict=False) if word != before] or ["copy"]
        shown = "_".join(words)
        if len(shown) > LONGEST_NAME:
            shown = shown[:LONGEST_NAME].rpartition("_")[0] or shown[:LONGEST_NAME]
        return f"{shown}_{self.digest[:8]}"

    @property
    def buffers(self) -> tuple[DataType, ...]:
        """Types of all tensors a call passes: outputs first, then inputs."""
        return (*(output.dtype for output in self.outputs), *(given.dtype for given in self.inputs))

    @cached_property
    def stages(self) -> int:
        """Passes over the elements of a row."""
        return 1 + max((s.stage for s in self.statements if s.level is Level.ELEMENT or s.is_reduction), default=0)

    @cached_property
    def functions(self) -> int:
        """How many functions are computed of each element."""
        elements = (s for s in self.statements if s.level is Level.ELEMENT and not s.is_reduction)
        return sum(statement.op.is_function for statement in elements)

    @property
    def is_arithmetic(self) -> bool:
        """Whether no function is computed of elements."""
        return self.functions == 0

    @cached_property
    def is_of_halves(self) -> bool:
        """Whether all floating-point numbers in memory have 16 bits, parts of complex ones too, and there are such."""
        floats = {part_type(dtype) for dtype in self.buffers if dtype.is_float or dtype.is_complex}
        return bool(floats) and floats <= HALVES

    def maker_of(self, operand: Operand) -> Statement | None:
        """The statement that an operand is the result of."""
        return self.statements[operand.index] if isinstance(operand, Result) else None

    def level_of(self, operand: Input | Result) -> Level:
        """How often an input or the result of a statement is computed."""
        return operand.level if isinstance(operand, Input) else self.statements[operand.index].level


def first_stage(statements: Sequence[Statement], operands: Iterable[Operand]) -> int:
    """The first pass in which all operands can be used: what a pass accumulates is there in the next."""
    made = [statements[operand.index] for operand in operands if isinstance(operand, Result)]
    return max([statement.stage + statement.is_reduction for statement in made], default=0)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program and what a cluster feeds it."""

    program: Program
    tensors: tuple[Read, ...]
    scalars: tuple[Node, ...]
    index_axes: tuple[int, ...]
    """Axes of the space whose positions the program uses; these must stay loops of their own."""


def lower(cluster: Cluster) -> Lowered:
    """The program of a cluster."""
    return _Lowering(cluster).run()


class _Lowering:
    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._tensors: dict[Read, Input] = {}
        self._scalars: dict[Node, Argument] = {}
        self._counted: dict[int, int] = {}
        self._statements: list[Statement] = []
        self._made: dict[Node, Operand] = {}

    def run(self) -> Lowered:
        for node in self._cluster.nodes:
            self._made[node] = self._lowered(node)
        outputs = tuple(self._made[node] for node in self._cluster.outputs)
        program = Program(
            tuple(self._tensors.values()),
            tuple(argument.dtype for argument in self._scalars.values()),
            tuple(self._statements),
            tuple(output for output in outputs if isinstance(output, Result)),
            bool(self._cluster.reduced),
        )
        assert len(program.outputs) == len(outputs)
        return Lowered(program, tuple(self._tensors), tuple(self._scalars), tuple(self._counted))

    def _lowered(self, node: Node) -> Operand:
        operands = tuple(self._operand(source) for source in self._cluster.sources[node])
        if node.op.name == "full":
            return operands[0]
        if node.op.name == "counter":
            return self._position(node)
        # The axes of what runs along a row are the cluster's.
        attributes = () if node.op.kind in (Kind.REDUCTION, Kind.GATHER) else node.attributes.items
        if node.op.kind is Kind.GATHER:
            (axis,) = self._cluster.reduced
            self._counted.setdefault(axis, len(self._counted))  # it must stay a loop of its own
        level = self._cluster.levels[node]
        stage = first_stage(self._statements, operands)
        self._statements.append(Statement(node.op, operands, attributes, _dtype(node), level, stage))
        return Result(len(self._statements) - 1, _dtype(node))

    def _position(self, node: Node) -> Operand:
        (axis,) = self._cluster.places[node]
        if axis is None:  # of a size of 1 there is only the first
            return ConstantOperand(0, _dtype(node))
        return Position(self._counted.setdefault(axis, len(self._counted)), _dtype(node))

    def _operand(self, source: Source) -> Operand:
        if isinstance(source, Read):
            reduced = self._cluster.reduced
            is_row = bool(reduced) and reduced.isdisjoint(axis for axis in source.place if axis is not None)
            level = Level.ROW if is_row else Level.ELEMENT
            return self._tensors.setdefault(source, Input(len(self._tensors), _dtype(source.node), level))
        if source in self._made:
            return self._made[source]
        value = source.constant
        if value is not None:
            return ConstantOperand(value, _dtype(source))
        assert isinstance(source.type, ScalarType)
        return self._scalars.setdefault(source, Argument(len(self._scalars), _dtype(source)))


def _dtype(node: Node) -> DataType:
    dtype = getattr(node.type, "dtype", None)
    assert isinstance(dtype, DataType)
    return dtype
