"""Building graphs: operators are applied to handles, nodes made, assumptions collected.

`Builder` is what composites and frontends work with; `GraphBuilder` is the same for users who build a graph by hand.
Operators are reached as `builder.ops.name(...)`; inside the op table simply as `b.name(...)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingot.base import sizes
from ingot.base.dtypes import HELD, DataType, part_type
from ingot.base.errors import (
    ArgumentError,
    ArgumentValueError,
    DefinitionError,
    DTypeError,
    HandleError,
    IngotError,
    UnsupportedError,
)
from ingot.base.numbers import Number, convert_number, number_type
from ingot.base.sizes import Shape, Size
from ingot.base.types import OperandSlot, ScalarType, TensorType, TupleType
from ingot.ir.arguments import apply, checked
from ingot.ir.graph import Graph, Output
from ingot.ir.handles import Handle, Scalar, Tensor, Vector
from ingot.ir.library import check_library_call
from ingot.ir.node import Assumption, Node, is_structure, make
from ingot.ir.operators import Operators
from ingot.ir.parser import is_reserved, parse_size
from ingot.ops import inference, lookup
from ingot.ops.attributes import (
    NONE,
    Attributes,
    ConstantAttributes,
    InputAttributes,
    ItemAttributes,
    LibraryAttributes,
    SizeAttributes,
)
from ingot.ops.definitions.reductions import element_count
from ingot.ops.parameters import data_type
from ingot.ops.promotion import Dialect


class Builder:
    """One graph under construction. Not for use by several threads at once."""

    def __init__(
        self,
        dialect: Dialect = Dialect.TORCH,
        default_float: DataType = DataType.Float,
    ):
        self.dialect = dialect
        self.default_float = default_float
        self.ops = Operators(self)
        self._depth = 0
        self._inputs: list[Node] = []
        self._nodes: dict[Node, None] = {}
        self._outputs: list[Output] = []
        self._assumptions: dict[Assumption, None] = {}
        self._symbols = 0
        self._symbol_names: set[str] = set()
        self._ordinals = 0
        self._closed: str | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self.ops, name)

    # --- inputs and outputs -------------------------------------------------------------------------------------------

    def tensor_input(self, shape: Sequence[int | str | Size], dtype: DataType) -> Tensor:
        """A tensor argument: -1 is a size of its own, a name is a size shared by all that bear it."""
        if dtype not in HELD:
            raise DTypeError(f"a tensor cannot be declared with the type {dtype.text}; run it through PyTorch")
        sizes_ = tuple(self._declared_size(size) for size in shape)
        self._symbol_names.update(*map(sizes.symbols, sizes_))
        return Tensor(self, self._add_input(InputAttributes(len(self._inputs), dtype, sizes_)))

    def scalar_input(self, dtype: DataType) -> Scalar:
        """A number that is given at every call."""
        if dtype not in HELD:
            raise DTypeError(f"a scalar cannot be declared with the type {dtype.text}")
        self._symbol_names.add(f"n{len(self._inputs)}")
        return Scalar(self, self._add_input(InputAttributes(len(self._inputs), dtype, None)))

    def add_output(
        self, value: Handle, alias_input: Handle | None = None, stride_order: Sequence[int] | None = None
    ) -> None:
        """Make a value a result; with `alias_input`, write it into that input instead of returning it."""
        self._check_open()
        node = self.own(value).node
        index = None if alias_input is None else self._aliased_index(value, alias_input)
        order = getattr(value, "stride_order", None) if stride_order is None else _checked_order(value, stride_order)
        self._outputs.append(Output(node, index, order))

    def laid_out(self, value: Tensor, stride_order: Sequence[int]) -> Tensor:
        """The same tensor; where it becomes a result, its strides are in this order."""
        return Tensor(self, value.node, _checked_order(value, stride_order))

    def update(self, target: Handle, value: Handle) -> None:
        """Overwrite an input with a value when the graph runs."""
        self.add_output(self.call("cast", (value, target.dtype)), alias_input=target)

    def build(self) -> Graph:
        """The finished graph. The builder can go on and build a larger one."""
        if not self._outputs:
            raise DefinitionError("the definition has no outputs; name at least one with add_output")
        return Graph(tuple(self._inputs), tuple(self._nodes), tuple(self._outputs), tuple(self._assumptions))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes made so far, in the order they were made."""
        return tuple(self._nodes)

    def close(self, reason: str) -> None:
        """Refuse any further use, for the reason given."""
        self._closed = reason

    def _check_open(self) -> None:
        if self._closed is not None:
            raise DefinitionError(self._closed)

    # --- operators ----------------------------------------------------------------------------------------------------

    def call(self, name: str, arguments: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None) -> Any:
        """Apply an operator of the table to handles and plain values."""
        self._check_open()
        op = lookup(name)
        if op.build is None or op.signature is None:
            raise ArgumentError(f"{name} is part of every graph and is not called as an operator")
        try:
            bound = op.signature.bind(arguments, keywords or {})
            values = checked(self, op.signature.parameters, bound)
            self._depth += 1
            try:
                return apply(self, op, values)
            finally:
                self._depth -= 1
        except IngotError as error:
            if self._depth == 0:
                error.within(f"{name}({', '.join(map(_describe, arguments))})")
            raise

    def node(self, name: str, *operands: Handle | Number, attributes: Attributes = NONE) -> Tensor | Scalar:
        """Make one node of a primitive; its operands must have been promoted."""
        nodes = [value.node if isinstance(value, Handle) else self.constant(value).node for value in operands]
        return self.adopt(make(lookup(name), nodes, attributes))

    def adopt(self, node: Node) -> Tensor | Scalar:
        """A handle for a node, which becomes part of the graph."""
        if not is_structure(node, "constant"):
            self._nodes.setdefault(node)
            for assumption in node.assumptions:
                self._assumptions.setdefault(assumption)
        return self.handle_for(node)

    def include(self, graph: Graph, operands: Sequence[Handle]) -> list[Tensor | Scalar]:
        """The results of a graph for these values in the place of its inputs; its nodes become part of this one.

        Each value has the type of its input, symbols of sizes included.
        """
        if [self.own(operand).type for operand in operands] != [node.type for node in graph.inputs]:
            raise DefinitionError(f"a graph is included for operands of other types than its own: {operands}")
        found = {input_: operand.node for input_, operand in zip(graph.inputs, operands, strict=True)}
        for node in graph.nodes:
            inner = [found.get(operand, operand) for operand in node.operands]
            found[node] = self.adopt(make(node.op, inner, node.attributes)).node
        for assumption in graph.assumptions:
            self._assumptions.setdefault(assumption)
        return [self.handle_for(found.get(output.node, output.node)) for output in graph.outputs]

    def library(
        self,
        target: str,
        arguments: Sequence[Any],
        *results: TensorType,
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `torch.ops.<target>`, such as "aten.mm.default", with handles and plain values.

        The types of its results are recorded, not worked out. Several results come back as a tuple.
        """
        draws = check_library_call(target)
        operands: list[Node] = []

        def record(value: Any) -> Any:
            if isinstance(value, Handle):
                operands.append(self.own(value).node)
                return OperandSlot(len(operands) - 1)
            return tuple(map(record, value)) if isinstance(value, list | tuple) else value

        attributes = LibraryAttributes(
            target,
            tuple(map(record, arguments)),
            tuple((name, record(value)) for name, value in sorted((keywords or {}).items())),
            tuple(results),
            self.next_ordinal() if draws else None,
        )
        if not results:
            raise UnsupportedError(f"{target} must have at least one recorded result")
        call = make(lookup("library"), operands, attributes)
        if not isinstance(call.type, TupleType):
            return self.adopt(call)
        self._nodes.setdefault(call)
        item = lookup("item")
        return tuple(self.adopt(make(item, [call], ItemAttributes(index))) for index in range(len(results)))

    # --- values -------------------------------------------------------------------------------------------------------

    def constant(self, value: Number | complex, dtype: DataType | None = None) -> Scalar:
        """A known number, as an element of `dtype` holds it."""
        dtype = dtype or number_type(value)
        if isinstance(value, complex) or dtype.is_complex:
            return self._complex_constant(complex(value), dtype)
        node = make(lookup("constant"), (), ConstantAttributes(convert_number(value, dtype), dtype))
        return Scalar(self, node)

    def _complex_constant(self, value: complex, dtype: DataType) -> Scalar:
        """A complex number, made of two constants."""
        if not dtype.is_complex:
            raise ArgumentValueError(f"{value} is no {dtype.text}")
        part = part_type(dtype)
        scalar = self.node("complex", self.constant(value.real, part), self.constant(value.imag, part))
        assert isinstance(scalar, Scalar)
        return scalar

    def scalar_like(self, value: Handle | Number, dtype: DataType) -> Handle:
        """A scalar of the given type from a number or another scalar."""
        if isinstance(value, Handle):
            return self.call("cast", (value, dtype))
        return self.constant(value, dtype)

    def size_scalar(self, size: Size) -> Scalar:
        """A size as a number of the graph."""
        if isinstance(size, int):
            return self.constant(size, DataType.Int)
        scalar = self.node("dimension", attributes=SizeAttributes(size))
        assert isinstance(scalar, Scalar)
        return scalar

    def vector(self, elements: Sequence[Size]) -> Vector:
        return Vector(self, tuple(elements))

    def element_count(self, x: Handle, axes: Any) -> Scalar:
        """How many elements of x a reduction over these axes takes together."""
        return self.size_scalar(element_count(x.shape, axes))

    def tensor_type(self, x: Handle) -> TensorType:
        return inference.tensor(x.type)

    def next_ordinal(self) -> int:
        self._ordinals += 1
        return self._ordinals - 1

    # --- sizes --------------------------------------------------------------------------------------------------------

    def require_equal_sizes(self, left: Size, right: Size, message: str) -> None:
        inference.require_equal(left, right, self._assume, message)

    def broadcast_shapes(self, *shapes: Shape) -> Shape:
        return inference.broadcast_shapes(shapes, self._assume)

    def size_of(self, value: Any) -> Size:
        """The size an int, a size expression, its text ("2*s0") or an integer scalar handle stands for."""
        if isinstance(value, str):
            value = parse_size(value)
            unknown = sizes.symbols(value) - self._symbol_names
            if unknown:
                raise ArgumentValueError(f"no input has a size called {', '.join(sorted(unknown))}")
        if isinstance(value, bool) or not isinstance(value, int | sizes.SizeExpression | Handle):
            raise ArgumentError(f"a size must be an int, an integer scalar or a text like '2*s0', not {value!r}")
        if isinstance(value, Handle):
            return _size_of_node(self.own(value).node)
        return value

    def _declared_size(self, size: int | str | Size) -> Size:
        if isinstance(size, str):
            if not re.fullmatch(r"[A-Za-z_]\w*", size) or re.fullmatch(r"[sn]\d+", size) or is_reserved(size):
                raise DefinitionError(f"{size!r} cannot name a size: use a word that graphs do not use themselves")
            return sizes.symbol(size)
        if size == -1:
            self._symbols += 1
            return sizes.symbol(f"s{self._symbols - 1}")
        if isinstance(size, bool) or (isinstance(size, int) and size < 0):
            raise DefinitionError(f"a size must be -1 (any), a name, or at least 0, not {size}")
        return size

    def _assume(self, left: Size, right: Size) -> None:
        self._assumptions.setdefault(Assumption(left, right, "the definition"))

    # --- small helpers ------------------------------------------------------------------------------------------------

    def own(self, value: Any) -> Handle:
        """The value itself, if it is a handle of this definition."""
        if not isinstance(value, Handle):
            raise HandleError(f"a value of this definition is needed here, not {value!r}")
        if value.builder is not self:
            raise HandleError(f"{value!r} belongs to another definition")
        return value

    def handle_for(self, node: Node) -> Tensor | Scalar:
        """A handle for a node that is part of the graph already."""
        return (Scalar if isinstance(node.type, ScalarType) else Tensor)(self, node)

    def _add_input(self, attributes: InputAttributes) -> Node:
        self._check_open()
        node = make(lookup("input"), (), attributes)
        self._inputs.append(node)
        return node

    def _aliased_index(self, value: Handle, target: Handle) -> int:
        node = self.own(target).node
        if node not in self._inputs or not isinstance(target, Tensor):
            raise DefinitionError("only a tensor input can be written in place; alias_input names something else")
        if any(output.alias_input == self._inputs.index(node) for output in self._outputs):
            raise DefinitionError(f"input {self._inputs.index(node)} is already overwritten by another output")
        if value.dtype is not target.dtype or len(value.shape) != len(target.shape):
            raise DefinitionError(f"{value.type} cannot be written into the input {target.type}; cast or reshape it")
        for left, right in zip(value.shape, target.shape, strict=True):
            self.require_equal_sizes(left, right, f"{value.type} cannot be written into the input {target.type}")
        return self._inputs.index(node)


class GraphBuilder(Builder):
    """Builds a graph by hand, with PyTorch's rules of type promotion.

    builder = GraphBuilder()
    x = builder.input(("rows", 64))
    builder.output(builder.ops.softmax(x * 2, -1))
    graph = builder.build()
    """

    def __init__(self, default_float: DataType = DataType.Float):
        super().__init__(Dialect.TORCH, default_float)

    def input(self, shape: Sequence[int | str], dtype: DataType = DataType.Float) -> Tensor:
        """A tensor argument: -1 is any size, a name is a size shared by all dimensions of that name."""
        return self.tensor_input(shape, data_type(dtype) or DataType.Float)

    def scalar(self, dtype: DataType = DataType.Double) -> Scalar:
        """A number that is given at every call."""
        return self.scalar_input(data_type(dtype) or DataType.Double)

    def output(self, *values: Handle) -> None:
        """Make values results, in this order."""
        for value in values:
            self.add_output(value)


def _size_of_node(node: Node) -> Size:
    """Read a scalar node back as a size: constants, sizes, integer inputs, and sums and products of them."""
    if not isinstance(node.type, ScalarType) or not node.type.dtype.is_integer:
        raise ArgumentError(f"a size must be an integer scalar, not {node.type}")
    if isinstance(node.attributes, ConstantAttributes):
        return int(node.attributes.value)
    if isinstance(node.attributes, SizeAttributes):
        return node.attributes.size
    if isinstance(node.attributes, InputAttributes):
        return sizes.symbol(f"n{node.attributes.index}")
    compute = _SIZE_ARITHMETIC.get(node.op.name)
    if compute is None or (node.op.name == "div" and not _is_positive(node.operands[1])):
        raise ArgumentValueError(
            f"a size cannot be computed with {node.op.name}; use sizes, integers, +, -, *, maximum, minimum, and div "
            "by a positive number"
        )
    return compute(*map(_size_of_node, node.operands))


_SIZE_ARITHMETIC: dict[str, Callable[[Size, Size], Size]] = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
    "div": sizes.divide,
    "maximum": sizes.maximum,
    "minimum": sizes.minimum,
}


def _is_positive(node: Node) -> bool:
    return node.constant is not None and node.constant > 0


def _checked_order(value: Handle, stride_order: Sequence[int]) -> tuple[int, ...]:
    order = tuple(stride_order)
    if sorted(order) != list(range(len(value.shape))):
        raise DefinitionError(f"stride_order {list(order)} is no order of the axes of {value.type}")
    return order


def _describe(value: Any) -> str:
    return str(value.type) if isinstance(value, Handle) else repr(value)
